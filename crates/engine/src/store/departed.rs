//! Blocks that were dropped, or evicted, and whose older entries may still survive a crash. Until
//! their `Drop`s and the tail are durable they count as cached: nothing may write them to the
//! origin before (I4).

use crate::format::{BlockKey, SegmentId, Slot};
use crate::map::locks::KeyMap;
use crate::planted::{self, Bug};
use crate::store::Store;
use crate::store::log::{Segment, SegmentState};

/// Blocks that were dropped in every stream, until that is durable.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// The number of the last `Drop` of each.
    blocks: KeyMap<u64>,
    /// The `Drop`s in the order of their numbers.
    by_number: Vec<(u64, BlockKey)>,
}

impl Dropped {
    /// A block was dropped in every stream.
    pub(crate) fn insert(&mut self, key: BlockKey, number: u64) {
        self.blocks.insert(key, number);
        self.by_number.push((number, key));
    }

    /// The number that must be durable first; `None` if the block is gone for good.
    pub(crate) fn get(&self, key: BlockKey) -> Option<u64> {
        if self.blocks.is_empty() {
            return None;
        }
        self.blocks.get(&key).copied()
    }

    /// Takes out a block that is cached again, and returns the number of its last `Drop`. A caller
    /// that lets the block leave again without a new `Drop` must see to it that this number is
    /// durable: nobody waits for it here any more.
    pub(crate) fn take(&mut self, key: BlockKey) -> u64 {
        if self.blocks.is_empty() {
            return 0;
        }
        self.blocks.remove(&key).unwrap_or(0)
    }

    /// Everything up to `number` is durable.
    pub(crate) fn durable(&mut self, number: u64) {
        let blocks = &mut self.blocks;
        self.by_number.retain(|(dropped, key)| {
            if *dropped > number {
                return true;
            }
            if blocks.get(key).is_some_and(|dropped| *dropped <= number) {
                blocks.remove(key);
            }
            false
        });
    }
}

impl Segment {
    /// The stream of the segment, as a bit, if an entry in it may survive a crash although nothing
    /// in it is cached; and the number up to which the `Drop`s of blocks evicted from it must be
    /// durable.
    pub(crate) fn survives(&self) -> (u8, u64) {
        match self.state {
            SegmentState::Emptying | SegmentState::Waiting | SegmentState::BelowTail => {
                (self.stream.bit(), self.superseded_by)
            }
            _ => (0, 0),
        }
    }
}

impl Store {
    /// The slot a block was evicted from, if its segment was not used again since.
    pub(crate) fn evicted_slot(&self, key: BlockKey) -> Option<Slot> {
        let slot = self.index.named(key)?;
        (!self.index.flags(slot).live()).then_some(slot)
    }

    /// The streams in which a block that is not cached needs a `Drop`, and the number that must be
    /// durable first; `None` if it is gone for good.
    pub(crate) fn departed(&self, key: BlockKey) -> Option<(u8, u64)> {
        let evicted = self.evicted_slot(key).map_or((0, 0), |slot| {
            let segment = self.log.per_segment().segment_of(slot);
            self.log.segments[segment.0 as usize].survives()
        });
        if evicted.0 != 0 {
            return Some(evicted);
        }
        self.dropped.get(key).map(|number| (0, number))
    }

    /// Whether nothing of a block is in the cache, or was and may survive a crash. `named` is what
    /// [`crate::map::index::Index::named`] says of it.
    pub(crate) fn is_new(&self, key: BlockKey, named: Option<Slot>) -> bool {
        named.is_none() && self.dropped.get(key).is_none()
    }

    /// A segment that holds nothing cached is going to be filled, or left: nothing that was evicted
    /// from it is there any more.
    pub(crate) fn forget_evicted(&mut self, id: SegmentId) {
        if !std::mem::take(&mut self.log.segment(id).evicted) {
            return;
        }
        if planted::is(Bug::EvictedRemembered) {
            return;
        }
        let geometry = self.log.geometry;
        for in_segment in geometry.first_slot()..geometry.slots_per_segment() {
            self.index
                .forget_evicted(geometry.slot(id, in_segment as u16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block can be dropped, be cached again and leave before its `Drop` is durable. No script of
    /// the simulator shows the cost of forgetting the number: it takes a read that brings something
    /// else once, and a stream that is gone round while a record of another is open.
    #[test]
    fn who_caches_a_block_again_is_told_of_its_drop() {
        let mut dropped = Dropped::default();
        let [first, other] = [1, 2].map(BlockKey);
        dropped.insert(first, 17);
        assert_eq!(dropped.get(first), Some(17));
        assert_eq!(dropped.take(first), 17);
        assert_eq!(dropped.take(other), 0);
        assert_eq!(dropped.take(first), 0, "it is told once");
    }
}
