//! Which requests are part of a sequential run, over many streams at once.
//!
//! A daemon shows every request to this. So streams are kept as a processor's cache keeps lines: in a
//! set chosen by the place at which the stream goes on, of eight that are compared at once. In a full set
//! the stream that moved longest ago gives way.

use forebay_random::mix;

use crate::request::Request;
use crate::shards::RUNS;

const SETS: usize = 32;
const WAYS: usize = 8;

/// Streams by the block after their last one, in no order.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    /// Hashes of that block and its volume.
    ends: [u64; WAYS],
    blocks: [u64; WAYS],
    /// When each moved; 0 where there is none.
    moved: [u64; WAYS],
}

impl Set {
    fn take(&mut self, end: u64) -> Option<u64> {
        let way = (0..WAYS).find(|way| self.ends[*way] == end && self.moved[*way] != 0)?;
        self.moved[way] = 0;
        Some(self.blocks[way])
    }

    fn put(&mut self, end: u64, blocks: u64, now: u64) {
        // A place that is asked for again and again is one stream.
        let same = (0..WAYS).find(|way| self.ends[*way] == end);
        let oldest = || (0..WAYS).min_by_key(|way| self.moved[*way]);
        let way = same.or_else(oldest).unwrap_or(0);
        (self.ends[way], self.blocks[way], self.moved[way]) = (end, blocks, now);
    }
}

/// The streams of a trace.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    sets: [Set; SETS],
    now: u64,
}

impl Runs {
    /// The length of the run that a request continues, itself included, as a power of two of blocks.
    pub(crate) fn class(&mut self, request: &Request) -> usize {
        self.now += 1;
        let of_volume = mix(u64::from(request.volume) + 1);
        let end = |ahead: u64| mix(request.first_block.wrapping_add(ahead) ^ of_volume);
        // A request may begin in the block in which the one before ended.
        let before = self.take(end(0)).or_else(|| self.take(end(1)));
        let blocks = before.unwrap_or(0) + u64::from(request.blocks);
        let (end, now) = (end(u64::from(request.blocks)), self.now);
        self.set_of(end).put(end, blocks, now);
        class(blocks)
    }

    fn set_of(&mut self, end: u64) -> &mut Set {
        &mut self.sets[end as usize % SETS]
    }

    fn take(&mut self, end: u64) -> Option<u64> {
        self.set_of(end).take(end)
    }
}

fn class(blocks: u64) -> usize {
    (blocks.max(1).ilog2() as usize).min(RUNS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;

    fn seen(runs: &mut Runs, volume: u32, first_block: u64, blocks: u32) -> usize {
        runs.class(&Request {
            time_ns: None,
            kind: Kind::Read,
            volume,
            first_block,
            blocks,
        })
    }

    #[test]
    fn a_run_goes_on_beside_others() {
        let mut runs = Runs::default();
        let classes: Vec<[usize; 2]> = (0..8)
            .map(|at| [seen(&mut runs, 0, at * 4, 4), seen(&mut runs, 1, at * 2, 1)])
            .collect();
        let expected = [2, 3, 3, 4, 4, 4, 4, 5].map(|long| [long, 0]);
        assert_eq!(classes, expected);
    }

    /// The last block of a request and the first of the next one are the same.
    #[test]
    fn a_run_may_share_a_block_with_its_next_request() {
        let mut runs = Runs::default();
        assert_eq!(seen(&mut runs, 0, 10, 4), 2);
        assert_eq!(seen(&mut runs, 0, 13, 4), 3);
    }

    #[test]
    fn dozens_of_streams_go_on_side_by_side() {
        let mut runs = Runs::default();
        let streams = 48;
        for at in 0..64 {
            for stream in 0..streams {
                let class = seen(&mut runs, stream, at * 8, 8);
                assert_eq!(class as u32, ((at + 1) * 8).ilog2(), "{stream} at {at}");
            }
        }
    }

    #[test]
    fn a_block_that_is_read_again_and_again_is_one_stream() {
        let mut runs = Runs::default();
        for stream in 1..=64 {
            seen(&mut runs, stream, 0, 8);
        }
        for _ in 0..10_000 {
            seen(&mut runs, 0, 5, 1);
        }
        let goes_on = |stream: &u32| seen(&mut runs, *stream, 8, 8) == 4;
        assert_eq!((1..=64).filter(goes_on).count(), 64);
    }

    #[test]
    fn a_stream_that_does_not_move_gives_way() {
        let mut runs = Runs::default();
        seen(&mut runs, 7, 0, 8);
        for at in 0..32 {
            seen(&mut runs, 0, at * 1000, 1);
        }
        assert_eq!(seen(&mut runs, 7, 8, 8), 4, "it is there still");
        for at in 0..10_000 {
            seen(&mut runs, 0, at * 1000, 1);
        }
        assert_eq!(seen(&mut runs, 7, 16, 8), 3, "it has given way");
    }
}
