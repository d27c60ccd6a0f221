//! Renewals that go below the open segment of main, so that it need not be closed for them.
//!
//! A renewal at the young end closes the open segment (rule 1 of I19), which would be freed before
//! the renewal and yet take higher numbers. Where hot segments follow each other this leaves a
//! tenth of main empty. So an open segment of main sets numbers aside below its own. A renewal with
//! such numbers goes in front of it in the stream. An example with 256 slots in a segment:
//!
//! 1. Segment 9 is opened in main when the next number is 2000. A renewal needs 257 numbers: a
//!    generation, and one for each slot. Segment 9 sets numbers 2000 to 18447 aside, enough for 64
//!    renewals. Its own generation is 18448.
//! 2. Segment 4, generation 1000, was sealed by then. It is renewed with generation 2000 and goes
//!    before segment 9, which stays open. The next renewal begins at number 2257.
//! 3. The new summary of segment 4 is durable. Main's tail moves to 1300, and segment 9 links to
//!    segment 4.
//! 4. Headers of segment 9 say tail 1300, with that link. All other headers still say 1000.
//! 5. Such a header of segment 9 is durable: all headers say 1300.
//!
//! Two rules make this safe (decision 15):
//!
//! - *Order.* The numbers are lower than those of everything since the segment was opened. So only
//!   segments sealed by then are renewed with them: all entries of their blocks are older, and
//!   blocks superseded since are not listed.
//! - *Promise (I14).* The stream's durable position may lie in the open segment already, and does
//!   not speak for the renewal. The link of the open segment does, from its next header on. Until
//!   such a header is durable, only headers with that link say that main's tail is past the old
//!   position. If the renewal is lost, so is that tail and the old summary counts, or the link
//!   shows the damage.

use std::ops::Range;

use crate::format::header::State;
use crate::format::{Link, SegmentId, Sequence, Stream};
use crate::interface::Memory;
use crate::store::Store;
use crate::store::log::{Log, SegmentState};

/// The number of renewals that can go below an open segment; the next closes it. A number is 48
/// bits, so there are enough for exabytes of main.
const MOST_BELOW: u64 = 64;

/// Numbers that an open segment of main sets aside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Below {
    /// Numbers that nothing has.
    numbers: Range<u64>,
    /// Segments of main of lower generations were sealed before those numbers.
    sealed: Sequence,
}

/// Durable renewals that only the link of an open segment can promise.
#[derive(Debug)]
struct Unpromised {
    /// The segment whose link leads to them.
    by: SegmentId,
    /// Main's tail after the last of them. They are promised when it is durable.
    tail: Sequence,
}

/// See [`Unpromised`].
#[derive(Debug, Default)]
pub(crate) struct Promises {
    open: Option<Unpromised>,
}

impl Promises {
    /// Whether whatever was renewed is promised by something durable.
    pub(crate) fn are_kept(&self) -> bool {
        self.open.is_none()
    }
}

impl Log {
    /// Sets numbers aside for renewals below a segment that is about to be opened.
    pub(crate) fn set_aside_below(&mut self, stream: Stream) -> Below {
        if stream != Stream::Main {
            return Below::default();
        }
        let first = self.next_number;
        self.next_number += MOST_BELOW * self.numbers_of_renewal();
        let order = &self.streams[stream as usize].order;
        let mut segments = order.iter().map(|id| &self.segments[id.0 as usize]);
        let unsealed = segments.find(|segment| segment.state == SegmentState::Filled);
        Below {
            numbers: first..self.next_number,
            sealed: unsealed.map_or(Sequence::new(self.epoch, first), |unsealed| {
                unsealed.generation
            }),
        }
    }

    /// A generation and each of its blocks.
    fn numbers_of_renewal(&self) -> u64 {
        1 + u64::from(self.geometry.slots_per_segment())
    }

    /// Takes numbers for a renewal of a segment below the open segment of main. Returns the open
    /// segment and the first number. `None` if no segment is open, or the renewal cannot go below
    /// it.
    ///
    /// A segment sealed by then (I19) is more than is needed, as the other rules are. Entries of a
    /// segment that was still being filled can have numbers above those set aside. A block renewed
    /// with a number set aside would lose to another entry of it that was numbered in between, and
    /// there is none:
    ///
    /// - The block got its place in the segment before the open one was opened, and its number when
    ///   its data had been written.
    /// - A promotion owns the block from before it takes the place until it has the number (I11).
    ///   Two other entries can number the block: a write takes the block away, so that the
    ///   promotion gives no number; a `Drop` needs a block that the index names, or that a write
    ///   owns.
    /// - A copy gets its number only if the index still names the copy that was read, and no
    ///   combined write of the block has its number (`may_publish`). Every other entry changes what
    ///   the index names.
    ///
    /// So all other entries of the block are older than its place, and lie below the numbers set
    /// aside. The look at the seal stays: with that look none of this has to be right.
    pub(crate) fn take_below(&mut self, segment: SegmentId) -> Option<(SegmentId, u64)> {
        let open = self.streams[Stream::Main as usize].open?;
        let needs = self.numbers_of_renewal();
        let generation = self.segment(segment).generation;
        let below = &mut self.filling(open).below;
        let first = below.numbers.start;
        if generation >= below.sealed || below.numbers.end - first < needs {
            return None;
        }
        below.numbers.start += needs;
        Some((open, first))
    }

    /// The link to the segment before this one in its stream.
    pub(crate) fn link_before(&self, stream: Stream, id: SegmentId) -> Option<Link> {
        let order = &self.streams[stream as usize].order;
        let at = order.iter().rposition(|other| *other == id)?;
        Some(self.link_to(*order.get(at.checked_sub(1)?)?))
    }
}

impl Store {
    /// Whether renewals wait for the seal of a segment that takes no more headers. Another renewal
    /// waits too: below the next segment it would have two seals to wait for, and at the young end
    /// no link from it leads to them.
    pub(crate) fn seal_is_to_promise(&self) -> bool {
        let open = self.log.streams[Stream::Main as usize].open;
        let unpromised = self.promises.open.as_ref();
        unpromised.is_some_and(|unpromised| open != Some(unpromised.by))
    }

    /// A renewal below `open` is durable, the tail has moved past its old position.
    pub(crate) fn await_promise(
        &mut self,
        renewed: SegmentId,
        open: SegmentId,
        memory: &mut dyn Memory,
    ) {
        let link = self.log.link_to(renewed);
        self.log.filling(open).previous = Some(link);
        let tail = self.log.tails[Stream::Main as usize];
        let by = self.promises.open.as_ref().map(|unpromised| unpromised.by);
        assert!(
            by.is_none_or(|by| by == open),
            "I14: one link leads to all of them"
        );
        self.promises.open = Some(Unpromised { by: open, tail });
        self.seal_if_complete(open, memory);
    }

    /// Whether renewals that are durable have only this segment's link to promise them.
    pub(crate) fn is_to_promise(&self, id: SegmentId) -> bool {
        let unpromised = self.promises.open.as_ref();
        unpromised.is_some_and(|unpromised| unpromised.by == id)
    }

    /// The seal of a segment is on the device: with its link, and the tails beside it.
    pub(crate) fn seal_promises(&mut self, id: SegmentId) {
        if let Some(unpromised) = &self.promises.open
            && unpromised.by == id
        {
            let mut tails = [Sequence::ZERO; Stream::COUNT];
            tails[Stream::Main as usize] = unpromised.tail;
            self.newest_complete_tails(Stream::Main, tails);
            // The next renewal waits for it.
            self.want_partial_flush();
        }
    }

    /// The state of the shard for a header or summary of a segment.
    pub(crate) fn state_in(&mut self, id: SegmentId) -> State {
        let state = self.log.state_of_filling(id);
        self.with_promised_tail(state, id)
    }

    /// The state as it may be said in a segment: main's tail no further than is promised, but where
    /// the link beside it is the promise.
    pub(crate) fn with_promised_tail(&self, mut state: State, id: SegmentId) -> State {
        if let Some(unpromised) = &self.promises.open
            && unpromised.by != id
        {
            state.tails[Stream::Main as usize] = self.durable_tail(Stream::Main);
        }
        state
    }

    /// The tails that a header can say now, and the stream that it has to be of to say main's.
    pub(crate) fn tails_to_say(&self) -> ([Sequence; Stream::COUNT], Option<Stream>) {
        let mut tails = self.log.tails;
        let Some(unpromised) = &self.promises.open else {
            return (tails, None);
        };
        if self.log.streams[Stream::Main as usize].open == Some(unpromised.by) {
            return (tails, Some(Stream::Main));
        }
        // The seal says it, and is on its way.
        tails[Stream::Main as usize] = self.durable_tail(Stream::Main);
        (tails, None)
    }

    /// Durable tails have moved: with main's, the links beside it are durable.
    pub(crate) fn end_promised(&mut self) {
        let durable = self.durable_tail(Stream::Main);
        let promised = |unpromised: &mut Unpromised| durable >= unpromised.tail;
        self.promises.open.take_if(promised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CacheId, Geometry, Superblock};
    use crate::interface::Nanos;

    const MAIN: Stream = Stream::Main;

    fn log() -> Log {
        let geometry = Geometry {
            block_bytes: 4096,
            segment_bytes: 16 * 4096,
            shards: 1,
            segments_per_shard: 16,
            region_bytes: 1 << 20,
        };
        let superblock = Superblock::new(CacheId([7; 16]), geometry, 4 << 20);
        let mut log = Log::new(&superblock, 0);
        log.free.ids().extend((0..8).map(SegmentId));
        log
    }

    fn open(log: &mut Log) -> SegmentId {
        log.open_segment(MAIN, Nanos(0))
    }

    fn leave(log: &mut Log, id: SegmentId, state: SegmentState) {
        log.segment(id).state = state;
        log.streams[MAIN as usize].open = None;
    }

    #[test]
    fn numbers_set_aside_lie_between_what_was_sealed_and_what_is_open() {
        let mut log = log();
        let sealed = open(&mut log);
        log.next_number += 40;
        let last_number = log.next_number - 1;
        leave(&mut log, sealed, SegmentState::Sealed);
        let young = open(&mut log);
        let generation = log.segment(young).generation;
        let mut before = last_number;
        for _ in 0..MOST_BELOW {
            let (below, first) = log.take_below(sealed).expect("there are numbers");
            assert_eq!(below, young);
            assert!(before < first, "nothing has them");
            before = first + u64::from(log.geometry.slots_per_segment());
            assert!(before < generation.number, "what is open is above");
        }
        assert_eq!(log.take_below(sealed), None, "they come to an end");
    }

    /// A segment that was full and not complete by then can hold entries with higher numbers than
    /// those set aside. A lower number would let an older version of the block win.
    #[test]
    fn only_what_was_sealed_is_renewed_with_them() {
        let mut log = log();
        let [sealed, filled, young_then] = [(); 3].map(|()| open_after(&mut log));
        leave(&mut log, young_then, SegmentState::Filled);
        log.segment(filled).state = SegmentState::Filled;
        log.segment(sealed).state = SegmentState::Sealed;
        open(&mut log);
        log.segment(filled).state = SegmentState::Sealed;
        assert!(log.take_below(sealed).is_some());
        assert_eq!(log.take_below(filled), None);
        assert_eq!(log.take_below(young_then), None);
    }

    fn open_after(log: &mut Log) -> SegmentId {
        log.streams[MAIN as usize].open = None;
        open(log)
    }

    #[test]
    fn the_link_before_a_segment_is_to_its_neighbour() {
        let mut log = log();
        let [first, second] = [(); 2].map(|()| open_after(&mut log));
        assert_eq!(log.link_before(MAIN, first), None);
        assert_eq!(log.link_before(MAIN, second), Some(log.link_to(first)));
    }
}
