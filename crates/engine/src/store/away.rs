//! Volumes whose origin is not there. Their blocks stay in the cache, and nothing is written back
//! (I25): they count as no dirty data that a client could wait for, and take their room from the
//! capacity of which the settings give shares.
//!
//! Example: of 1,000 blocks of a cache 200 are dirty and of a volume that is away. A dirty limit of
//! 50 % is then 400 blocks, for the other volumes.

use crate::format::{BlockKey, SegmentId, Slot, Stream};
use crate::interface::VolumeSlot;
use crate::store::Store;
use crate::store::volumes::VolumeConfig;

/// Blocks of volumes that are away, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Away {
    /// Whether any volume is.
    any: bool,
    /// Dirty blocks of all of them.
    dirty: u64,
}

impl Store {
    /// Serves a volume no more, before any request of it: its origin is not there.
    pub(crate) fn set_away(&mut self, slot: VolumeSlot) {
        self.stir();
        self.volume(slot).away = true;
        self.count_away();
    }

    /// Serves a volume again whose origin was away, as it is now.
    pub(crate) fn bring_back(&mut self, slot: VolumeSlot, config: VolumeConfig) {
        self.stir();
        let volume = self.volume(slot);
        volume.away = false;
        volume.config = config;
        self.count_away();
    }

    /// Forgets that a volume is away, whose blocks have left.
    pub(crate) fn forget_away(&mut self, slot: VolumeSlot) {
        if std::mem::take(&mut self.volume(slot).away) {
            self.count_away();
        }
    }

    /// Counts anew the dirty blocks of volumes that are away.
    fn count_away(&mut self) {
        let volumes = self.volumes.iter().flatten();
        let away = volumes.filter(|volume| volume.away);
        let dirty: Vec<u64> = away.map(|volume| volume.dirty_blocks).collect();
        self.away = Away {
            any: !dirty.is_empty(),
            dirty: dirty.iter().sum(),
        };
        self.reckon_shared();
        for segment in &mut self.log.segments {
            segment.away = 0;
        }
        if self.away.dirty == 0 {
            return;
        }
        for slot in (0..self.log.geometry.slots()).map(Slot) {
            let flags = self.index.flags(slot);
            if flags.live() && flags.dirty() && self.is_away(self.index.key(slot)) {
                self.log.segment_of(slot).away += 1;
            }
        }
    }

    /// Whether the origin of any volume is not there.
    #[inline(always)]
    pub(crate) fn has_away(&self) -> bool {
        self.away.any
    }

    /// Counts a dirty block out of the segment of one slot and into that of another, if its volume
    /// is away.
    #[cold]
    #[inline(never)]
    pub(crate) fn away_block_moves(&mut self, key: BlockKey, from: Option<Slot>, to: Option<Slot>) {
        if !self.is_of_an_absent_volume(key) {
            return;
        }
        if let Some(from) = from {
            self.log.segment_of(from).away -= 1;
            self.away.dirty -= 1;
        }
        if let Some(to) = to {
            self.log.segment_of(to).away += 1;
            self.away.dirty += 1;
        }
        self.reckon_shared();
    }

    /// Reckons anew the blocks that the settings give shares of.
    pub(super) fn reckon_shared(&mut self) {
        self.shared_blocks = self.capacity_blocks.saturating_sub(self.away.dirty);
        let possible = self.log.dirty_part(self.capacity_blocks);
        self.dirty_room = possible.saturating_sub(self.away.dirty);
        self.reckon_marks();
    }

    /// Whether a block is of a volume whose origin is not there.
    #[inline(always)]
    pub(crate) fn is_away(&self, key: BlockKey) -> bool {
        self.away.any && self.is_of_an_absent_volume(key)
    }

    #[cold]
    #[inline(never)]
    fn is_of_an_absent_volume(&self, key: BlockKey) -> bool {
        let volume = self.volume_of(key);
        volume.is_some_and(|slot| self.attached(slot).away)
    }

    /// Dirty blocks that write-back has a place for.
    #[inline(always)]
    pub(crate) fn present_dirty(&self) -> u64 {
        self.stats.dirty_blocks - self.away.dirty
    }

    /// Dirty blocks of a segment that write-back has a place for.
    pub(crate) fn present_dirty_of(&self, id: SegmentId) -> u32 {
        let segment = &self.log.segments[id.0 as usize];
        segment.dirty - segment.away
    }

    /// Whether it frees room to append blocks again that are away, when the write stream is gone
    /// through. At most half of it is such blocks. Where appends would stop, two segments of room
    /// do.
    #[cold]
    pub(crate) fn may_carry_away(&self, in_need: bool) -> bool {
        let geometry = &self.log.geometry;
        let places = u64::from(geometry.slots_per_segment() - geometry.first_slot() - 1);
        let segments = self.log.streams[Stream::Write as usize].order.len() as u64;
        let half_is_other = self.away.dirty * 2 <= segments.saturating_sub(1) * places;
        let room_in_need = self.away.dirty.div_ceil(places) + 2 <= segments;
        half_is_other || (in_need && room_in_need)
    }
}
