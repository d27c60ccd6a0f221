//! Which requests are part of a sequential run, over several streams at once.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::accesses::{BlockHasher, Key};
use crate::request::Request;
use crate::shards::RUNS;

/// Streams that are followed at once; the one that moved longest ago gives way.
const STREAMS: usize = 64;

/// Moves that are kept. Most of them are of streams that have moved on since.
const MOVES: usize = 4 * STREAMS;

#[derive(Clone, Copy, Debug)]
struct Stream {
    blocks: u64,
    moved: u64,
}

/// The streams of a trace.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By the block after their last one.
    streams: HashMap<Key, Stream, BuildHasherDefault<BlockHasher>>,
    /// Where streams moved to, and when, in their order. Those that moved on since are in it too.
    moves: VecDeque<(u64, Key)>,
    now: u64,
}

impl Runs {
    /// The length of the run that a request continues, itself included, as a power of two of blocks.
    pub(crate) fn class(&mut self, request: &Request) -> usize {
        self.now += 1;
        let key = |ahead: u64| Key::new(request.volume, request.first_block.wrapping_add(ahead));
        // A request may begin in the block in which the one before ended.
        let before = self.streams.remove(&key(0));
        let before = before.or_else(|| self.streams.remove(&key(1)));
        let stream = Stream {
            blocks: before.map_or(0, |before| before.blocks) + u64::from(request.blocks),
            moved: self.now,
        };
        let end = key(u64::from(request.blocks));
        self.streams.insert(end, stream);
        self.moves.push_back((self.now, end));
        if self.streams.len() > STREAMS {
            self.forget_oldest();
        }
        if self.moves.len() > MOVES {
            let streams = &self.streams;
            self.moves
                .retain(|(moved, end)| is_last(streams.get(end), *moved));
        }
        class(stream.blocks)
    }

    fn forget_oldest(&mut self) {
        while let Some((moved, end)) = self.moves.pop_front() {
            if is_last(self.streams.get(&end), moved) {
                self.streams.remove(&end);
                return;
            }
        }
    }
}

fn is_last(stream: Option<&Stream>, moved: u64) -> bool {
    stream.is_some_and(|stream| stream.moved == moved)
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
    fn the_stream_that_moved_longest_ago_gives_way() {
        let mut runs = Runs::default();
        seen(&mut runs, 0, 0, 8);
        for other in 1..STREAMS as u32 {
            seen(&mut runs, other, 0, 8);
        }
        assert_eq!(seen(&mut runs, 0, 8, 8), 4, "it moved, and is the youngest");
        seen(&mut runs, 99, 0, 8);
        assert_eq!(seen(&mut runs, 1, 8, 8), 3, "it has given way");
        assert_eq!(seen(&mut runs, 0, 16, 8), 4);
    }

    #[test]
    fn one_idle_stream_holds_no_memory_of_another() {
        let mut runs = Runs::default();
        seen(&mut runs, 7, 0, 1);
        for at in 0..100_000 {
            seen(&mut runs, 0, at, 1);
        }
        assert!(runs.moves.len() <= MOVES);
        assert_eq!(seen(&mut runs, 7, 1, 1), 1, "the idle one is there still");
    }
}
