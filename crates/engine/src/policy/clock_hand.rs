//! The hand that goes round main, and asks the block it is at to make way for one that comes back.
//!
//! Where a load goes round more blocks than there is room for, a main that takes each of them
//! pushes out the others just before they come back too. With a hand only as many come in as were
//! found without hits, and a part stays. Unlike CLOCK's it moves on by a block for each block that
//! asks, and the blocks it finds leave no sooner for that: segments are freed in order (I2).

use crate::format::{SegmentId, Sequence, Stream};
use crate::policy::Policy;
use crate::store::Store;
use crate::store::log::SegmentState;

/// Places without a block that it passes at a time, at most.
const MOST_PASSED: u32 = 8;

/// Where the hand is.
#[derive(Debug, Default)]
pub(crate) struct MainHand {
    /// The segment, and the generation it had.
    at: Option<(SegmentId, Sequence)>,
    in_segment: u32,
}

impl Policy {
    /// Moves the hand on, and says whether the block it was at was not hit; if it was, that costs
    /// it a hit.
    pub(crate) fn main_makes_way(&mut self, store: &mut Store) -> bool {
        for _ in 0..MOST_PASSED {
            let Some(segment) = self.segment_at_hand(store) else {
                return true;
            };
            let in_segment = self.hand.in_segment as u16;
            let slot = store.log.geometry.slot(segment, in_segment);
            self.hand.in_segment += 1;
            let flags = store.index.flags(slot);
            if flags.live() {
                store.index.set_hits(slot, flags.hits().saturating_sub(1));
                return flags.hits() == 0;
            }
        }
        true
    }

    /// The segment the hand is in, or the next: the oldest after the youngest.
    fn segment_at_hand(&mut self, store: &mut Store) -> Option<SegmentId> {
        let mut after = Sequence::ZERO;
        if let Some((id, generation)) = self.hand.at {
            let segment = store.log.segment(id);
            let is_there = segment.generation == generation
                && segment.stream == Stream::Main
                && segment.state == SegmentState::Sealed;
            if is_there && self.hand.in_segment < store.log.geometry.slots_per_segment() {
                return Some(id);
            }
            after = generation;
        }
        let order = &store.log.streams[Stream::Main as usize].order;
        let segments = &store.log.segments;
        let next = order.partition_point(|id| segments[id.0 as usize].generation <= after);
        let mut round = order.range(next..).chain(order.range(..next));
        let id = *round.find(|id| segments[id.0 as usize].state == SegmentState::Sealed)?;
        self.hand = MainHand {
            at: Some((id, segments[id.0 as usize].generation)),
            in_segment: store.log.geometry.first_slot(),
        };
        Some(id)
    }
}
