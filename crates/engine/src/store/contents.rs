//! Contents of the store: a block enters the index, is replaced, and leaves.

use crate::format::{BlockKey, Slot, Stream};
use crate::interface::{Memory, Nanos, VolumeSlot};
use crate::map::index::{MAX_HITS, SlotFlags, foreign_shadows, hash};
use crate::planted::{self, Bug};
use crate::store::Store;
use crate::store::log::{Claim, SegmentState};

/// A written block comes back only from the younger part of the ghost. Writes spread evenly over
/// more than there is room for would each be copied into main otherwise.
const WRITTEN_LEFT_BEFORE: u32 = 3;

/// Properties of a block for the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockKind {
    pub(crate) dirty: bool,
    pub(crate) zero: bool,
    /// True if the block was carried over from a segment being emptied, which costs it a hit.
    pub(crate) retained: bool,
}

impl Store {
    /// Makes `slot` the newest version of a block in the index, with the shadows of the version it
    /// replaces (I3). True if it replaces a version.
    #[inline(never)]
    pub(crate) fn index_block(
        &mut self,
        key: BlockKey,
        slot: Slot,
        checksum: u32,
        kind: BlockKind,
    ) -> bool {
        self.index_here(key, slot, checksum, kind)
    }

    /// [`Store::index_block`] for the path of most blocks, where their properties are known as it
    /// is compiled.
    #[inline(always)]
    pub(crate) fn index_here(
        &mut self,
        key: BlockKey,
        slot: Slot,
        checksum: u32,
        kind: BlockKind,
    ) -> bool {
        let BlockKind {
            dirty,
            zero,
            retained,
        } = kind;
        let mut shadows = 0;
        let mut drop_number = self.dropped.take(key);
        self.unreadable.replaced(key);
        let mut hits = 0;
        let mut dirtier = i64::from(dirty);
        let mut more = 1;
        let old = self.index.put(key, slot, checksum);
        if let Some((old, flags)) = old
            && flags.live()
        {
            // Within one stream the older entry goes first, so no `Drop` is ever needed there but
            // for the newest.
            let last_number = self.last_number();
            let segment = self.log.segment_of(old);
            shadows |= flags.shadows() | segment.stream.bit();
            // A write is a use as a read is. A copy starts main without hits, and pays for each
            // further round with one.
            hits = match (retained, segment.stream) {
                (false, _) => flags.hits() + 1,
                (true, Stream::Main) => flags.hits().saturating_sub(1),
                (true, _) => 0,
            };
            dirtier -= i64::from(flags.dirty());
            more = 0;
            segment.live -= 1;
            segment.dirty -= u32::from(flags.dirty());
            segment.superseded_by = last_number;
        } else {
            if let Some((evicted, _)) = old {
                let (stream, number) = self.log.segment_of(evicted).survives();
                shadows = stream;
                drop_number = drop_number.max(number);
            }
            if dirty {
                hits = self.hits_of_written(key);
            }
        }
        self.index
            .set_flags(slot, SlotFlags::new(dirty, zero, shadows).with_hits(hits));
        if self.has_away() {
            let old = old.filter(|(_, flags)| flags.live() && flags.dirty());
            self.away_block_moves(key, old.map(|(old, _)| old), dirty.then_some(slot));
        }
        let segment = self.log.segment_of(slot);
        segment.live += 1;
        segment.dirty += u32::from(dirty);
        segment.superseded_by = segment.superseded_by.max(drop_number);
        if dirtier != 0 || more != 0 {
            self.stats.dirty_blocks = self
                .stats
                .dirty_blocks
                .checked_add_signed(dirtier)
                .expect("dirty blocks are counted");
            self.account_volume(key, dirtier, more);
        }
        more == 0
    }

    /// A slot the index no longer names, for an entry that has its number: its segment counts one
    /// block less.
    pub(crate) fn slot_dies(&mut self, key: BlockKey, slot: Slot, flags: SlotFlags) {
        self.log.segment_of(slot).superseded_by = self.last_number();
        self.slot_leaves(key, slot, flags);
    }

    /// Counts a slot out of its segment like [`Store::slot_dies`], where no entry says so. A crash
    /// that brings the block back brings the contents of the origin.
    pub(crate) fn slot_leaves(&mut self, key: BlockKey, slot: Slot, flags: SlotFlags) {
        let dirty = u32::from(flags.dirty());
        if self.has_away() && flags.dirty() {
            self.away_block_moves(key, Some(slot), None);
        }
        let segment = self.log.segment_of(slot);
        segment.live -= 1;
        segment.dirty -= dirty;
        self.stats.dirty_blocks -= u64::from(dirty);
        self.account_volume(key, -i64::from(dirty), -1);
    }

    /// Takes a clean block out of the cache, with a `Drop` in every stream that may hold an
    /// entry of it (I3). Returns the number that must be durable before the origin may be ahead
    /// (I4), or `None` if there is no room to say so; the block then stays.
    pub(crate) fn drop_block(
        &mut self,
        now: Nanos,
        key: BlockKey,
        reclaim: bool,
        memory: &mut dyn Memory,
    ) -> Option<u64> {
        let cached = self.index.find(key);
        let departed = self.departed(key);
        let mut streams = departed.map_or(0, |(bit, _)| bit);
        if let Some(slot) = cached {
            let flags = self.index.flags(slot);
            assert!(!flags.dirty(), "I5: dirty is never dropped");
            streams |= flags.shadows() | self.log.stream_of(slot).bit();
        }
        if streams == 0 {
            // The block may still be read where it was (see `victim`), and the origin gets
            // something newer.
            if !planted::is(Bug::EvictedServedStale) {
                self.index.remove(key);
            }
            return Some(departed.map_or(0, |(_, number)| number));
        }
        if !self.log_drops(now, key, streams, Claim::of(reclaim), memory) {
            return None;
        }
        if let Some((slot, flags)) = self.index.remove(key) {
            self.slot_dies(key, slot, flags);
        }
        let number = self.last_number();
        self.dropped.insert(key, number);
        Some(number)
    }

    /// Takes back a write-through that failed: nobody was told that it is stored, and the version
    /// it replaced is on the origin. Kept dirty it would fill the cache of an origin that takes
    /// nothing more. Without room to say so it stays.
    pub(crate) fn forget_unacknowledged(
        &mut self,
        now: Nanos,
        key: BlockKey,
        memory: &mut dyn Memory,
    ) {
        let Some(slot) = self.index.find(key) else {
            return;
        };
        let has_room = !self.failed_cache()
            && Stream::ALL
                .into_iter()
                .all(|stream| self.ensure_entry_room(now, stream, 1, Claim::Reclaim, memory));
        if !has_room || !self.index.flags(slot).dirty() {
            return;
        }
        self.index.set_clean(slot);
        self.log.segment_of(slot).dirty -= 1;
        self.stats.dirty_blocks -= 1;
        self.account_volume(key, -1, 0);
        let dropped = self.drop_block(now, key, true, memory);
        assert!(dropped.is_some(), "room was made");
    }

    /// Whether the newest version of a block is dirty.
    pub(crate) fn is_dirty(&self, key: BlockKey) -> bool {
        self.index
            .find(key)
            .is_some_and(|slot| self.index.flags(slot).dirty())
    }

    /// The count of hits with which a written block starts that was not cached. It has to be in the
    /// write stream (I17). A block that left a short while ago moves on from there, which is a
    /// copy.
    #[inline]
    pub(crate) fn hits_of_written(&mut self, key: BlockKey) -> u8 {
        if !self.settings.replacement.has_ghost() {
            return 0;
        }
        match self.ghost.take(hash(key)) {
            Some(later) if later < WRITTEN_LEFT_BEFORE => MAX_HITS,
            _ => 0,
        }
    }

    /// A block whose key has this hash was evicted from this stream.
    pub(crate) fn remember_evicted(&mut self, hash: u64, stream: Stream) {
        if stream != Stream::Main && self.settings.replacement.has_ghost() {
            self.ghost.insert(hash);
        }
    }

    /// Keeps the volume's counts in step with the index.
    pub(crate) fn account_volume(&mut self, key: BlockKey, dirty: i64, cached: i64) {
        let hint = self.volume_hint;
        let found = match self.volumes.get(hint) {
            Some(Some(volume)) if volume.contains(key) => Some(hint),
            _ => self
                .volumes
                .iter()
                .position(|volume| volume.as_ref().is_some_and(|volume| volume.contains(key))),
        };
        let Some(found) = found else { return };
        self.volume_hint = found;
        if let Some(volume) = &mut self.volumes[found] {
            volume.dirty_blocks = volume
                .dirty_blocks
                .checked_add_signed(dirty)
                .expect("dirty blocks are counted");
            volume.cached_blocks = volume
                .cached_blocks
                .checked_add_signed(cached)
                .expect("cached blocks are counted");
        }
    }

    /// The volume whose blocks these are.
    pub(crate) fn volume_of(&self, key: BlockKey) -> Option<VolumeSlot> {
        let found = self
            .volumes
            .iter()
            .position(|volume| volume.as_ref().is_some_and(|volume| volume.contains(key)))?;
        Some(VolumeSlot(found as u16))
    }

    /// A read of a slot has ended.
    #[inline(always)]
    pub(crate) fn unpin(&mut self, slot: Slot) {
        let segment = self.log.segment_of(slot);
        segment.pins -= 1;
        if segment.state == SegmentState::BelowTail {
            // Reclaim may have waited for this read alone, and others for reclaim.
            self.stir();
        }
    }

    /// Evicts a clean block of a segment that is being emptied: a `Drop` in every other stream that
    /// may hold an entry of it (I3). It counts as cached until the segment is free (I4,
    /// `departed`), and can be read there even longer (`paths::victim`). False if there is no room
    /// for the `Drop`s.
    pub(crate) fn evict(
        &mut self,
        now: Nanos,
        key: BlockKey,
        slot: Slot,
        stream: Stream,
        memory: &mut dyn Memory,
    ) -> bool {
        let flags = self.index.flags(slot);
        assert!(!flags.dirty(), "I5: dirty is never evicted");
        let mut shadows = foreign_shadows(flags, stream);
        if planted::is(Bug::DropForgotten) {
            shadows = 0;
        }
        if !self.log_drops(now, key, shadows, Claim::Tails, memory) {
            return false;
        }
        let hash = hash(key);
        self.index.evict(slot);
        self.log.segment_of(slot).evicted = true;
        if shadows == 0 {
            self.slot_leaves(key, slot, flags);
        } else {
            self.slot_dies(key, slot, flags);
        }
        self.stats.evicted_blocks += 1;
        self.remember_evicted(hash, stream);
        true
    }

    /// Whether a dirty block is on its way to the origin, or there and waits for a flush. A copy
    /// made now would have to be written back again. Where dirty data is most of the stream that
    /// would go on for ever, since copies make no room.
    pub(crate) fn is_about_to_be_clean(&mut self, key: BlockKey, slot: Slot) -> bool {
        if !self.is_written(key, slot) {
            return self.origin_locks.holds(key);
        }
        if let Some(volume) = self.volume_of(key) {
            self.want_origin_flush(volume);
        }
        true
    }
}
