//! Dirty blocks of a cache that failed (I15). They stay the newest until they are written
//! back, so they are put on record with the abandonment. The list gets shorter on record before
//! anything newer goes to the origin.
//!
//! Example: block 7 is dirty when the cache fails, and on record. Write-back saves it. A
//! write of block 7 then waits until the record is written again without it: a crash in between
//! would have the next start take block 7 from the cache, over the newer data of the write on the
//! origin.

use std::ops::Range;

use crate::buffer::MemoryBuffer;
use crate::format::{BlockKey, Slot};
use crate::ids::RequestIndex;
use crate::parts::Engine;
use crate::planted::{self, Bug};
use crate::store::failed::{Listed, Promise, Unsaved, ranges_of};
use crate::store::op::Op;

impl Engine {
    /// The cache failed, for another shard's reason: this one relies on it no more.
    pub fn fail_cache(&mut self, reason: &'static str) {
        self.store.stir();
        self.store.fail_cache(reason);
    }

    /// Whether data is on its way to the cache device of which it is open whether it lands.
    #[must_use]
    pub fn is_appending(&self) -> bool {
        let mut ops = self.store.operations.iter();
        ops.any(|op| matches!(op, Op::AppendData(_) | Op::FastWrite(_)))
    }

    /// The durable positions of this shard, for the record.
    #[must_use]
    pub fn promise(&self) -> Promise {
        Promise {
            shard: self.store.log.shard,
            durable: self.store.log.durable,
        }
    }

    /// The epoch of this life of the cache.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.store.log.epoch
    }

    /// Lists the dirty blocks now, to be put on record. When they are, the driver calls
    /// [`Engine::failure_recorded`]. `None` as long as the volume of any of them is not there:
    /// a list without them would replace a list that has them (I15).
    pub fn list_unsaved(&mut self) -> Option<Vec<Unsaved>> {
        let (index, buffer) = (&self.store.index, &self.buffer);
        let slots = (0..index.slots()).map(Slot);
        let dirty = slots.filter(|slot| index.flags(*slot).live() && index.flags(*slot).dirty());
        let listed = Listed::of(dirty.map(|slot| index.key(slot)).collect());
        let buffered = ranges_of(buffer.unfinished_keys().collect());
        let logged = listed.ranges.iter().map(|range| (*range, false));
        let ranges = logged.chain(buffered.into_iter().map(|range| (range, true)));
        let unsaved = ranges.map(|(range, in_memory)| self.named(range, in_memory));
        let unsaved: Option<Vec<Unsaved>> = unsaved.collect();
        let unsaved = unsaved?;
        if let Some(failed) = &mut self.store.failed {
            failed.reported = listed;
        }
        Some(unsaved)
    }

    /// Keeps of the cache only blocks that are dirty and listed: all others are older than the
    /// origin, or may be. A cache that failed is opened with this, to save its unsaved
    /// blocks.
    pub fn keep_only(&mut self, unsaved: &[Range<BlockKey>]) {
        let keys = unsaved.iter().flat_map(|range| range.start.0..range.end.0);
        let listed = Listed::of(keys.map(BlockKey).collect());
        for slot in (0..self.store.index.slots()).map(Slot) {
            let (key, flags) = (self.store.index.key(slot), self.store.index.flags(slot));
            let is_listed = listed.meets(key, key.plus(1)) || planted::is(Bug::ListNotAsked);
            let is_wanted = flags.dirty() && is_listed;
            if flags.live() && !is_wanted && self.store.index.find(key) == Some(slot) {
                self.store.index.remove(key);
                self.store.slot_dies(key, slot, flags);
            }
        }
        self.store.stir();
    }

    /// A range of blocks as the volume it belongs to has it.
    fn named(&self, (first, end): (BlockKey, BlockKey), in_memory: bool) -> Option<Unsaved> {
        let volume = self.store.volume_of(first)?;
        let base = self.store.find_volume(volume)?.config.base;
        let block_bytes = self.store.block_bytes() as u64;
        Some(Unsaved {
            volume,
            offset_bytes: (first.0 - base.0) * block_bytes,
            len_bytes: (end.0 - first.0) * block_bytes,
            in_memory,
        })
    }

    /// Whether somebody waits for a shorter list to be on record: [`Engine::list_unsaved`] has it.
    #[must_use]
    pub fn wants_revision(&self) -> bool {
        let dirty_blocks = self.store.stats.dirty_blocks;
        self.store.failed.as_ref().is_some_and(|failed| {
            let listed = &failed.listed;
            // As long as as many are dirty another list is the same.
            failed.recorded && listed.revision_wanted && dirty_blocks < listed.blocks()
        })
    }

    /// True if a failed write must not be answered yet (I10). As long as an older version of any of
    /// its blocks is on record, the next start would take data of the write that landed for that
    /// version. The memory buffer keeps its own writes, and tries them again.
    pub(crate) fn may_come_back(
        &mut self,
        index: RequestIndex,
        first: BlockKey,
        end: BlockKey,
    ) -> bool {
        let is_buffered = MemoryBuffer::part_of(self.request(index).id).is_some();
        if is_buffered || planted::is(Bug::LandedAnswered) {
            return false;
        }
        let Some(failed) = &mut self.store.failed else {
            return false;
        };
        let mut comes_back = false;
        for key in (first.0..end.0).map(BlockKey) {
            if !failed.landed.contains_key(&key) || !failed.listed.meets(key, key.plus(1)) {
                continue;
            }
            let slot = self.store.index.find(key);
            let unreadable = slot.is_some_and(|slot| self.store.unreadable.holds(key, slot));
            comes_back |= !unreadable;
            let dirty = slot.is_some_and(|slot| self.store.index.flags(slot).dirty());
            failed.listed.revision_wanted |= !dirty;
        }
        comes_back
    }
}
