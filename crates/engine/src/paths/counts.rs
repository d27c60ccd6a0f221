//! Hits and misses: each block of a request is counted once, here, whichever way it takes.

use crate::bypass::{BypassReason, Bypassed};
use crate::format::{BlockKey, Slot};
use crate::interface::{Nanos, Request};
use crate::parts::Engine;

impl Engine {
    /// Counts blocks in a row that a read finds in the cache, at `slot` and the slots after it.
    #[inline(always)]
    pub(crate) fn count_read_hits(&mut self, now: Nanos, key: BlockKey, count: u16, slot: Slot) {
        self.count_hits_elsewhere(now, count);
        for i in 0..u32::from(count) {
            self.store.index.hit(Slot(slot.0 + i));
            self.policy.note_use(key.plus(u64::from(i)));
        }
    }

    /// Counts blocks that a read finds in the memory buffer, or where they were before they were
    /// evicted.
    #[inline(always)]
    pub(crate) fn count_hits_elsewhere(&mut self, now: Nanos, count: u16) {
        self.store.stats.read_blocks_hit += u64::from(count);
        self.origin.writeback.cache_is_used(now);
    }

    /// Counts blocks that a read does not find. Promotion counts their use.
    #[inline]
    pub(super) fn count_read_misses(&mut self, count: u16) {
        self.store.stats.read_blocks_missed += u64::from(count);
    }

    /// Counts a block of a write: a use, and a hit or a miss.
    #[inline]
    pub(super) fn count_write(&mut self, key: BlockKey, was_cached: bool) {
        self.policy.note_use(key);
        self.store.stats.write_blocks_hit += u64::from(was_cached);
        self.store.stats.write_blocks_missed += u64::from(!was_cached);
    }

    /// Counts blocks of a write, of zeroes or of a discard that bypass the cache. `at` is when it was
    /// submitted.
    #[inline]
    pub(super) fn count_bypassed_write(
        &mut self,
        at: Nanos,
        request: &Request,
        reason: BypassReason,
        blocks: u64,
    ) {
        let what = Bypassed {
            volume: request.volume,
            offset_bytes: request.offset_bytes,
            len_bytes: u64::from(request.len_bytes),
            write: true,
            at,
        };
        self.store.stats.bypasses.count(reason, blocks, what);
    }
}
