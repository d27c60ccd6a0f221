//! Extents come and go while clients write and machines die.

use forebay_cache::control::Command;
use forebay_engine::DATA_OFFSET_BYTES;

use super::{Check, World};

impl World<'_> {
    pub(super) fn may_resize(&self) -> bool {
        let failed = self.engines().any(|engine| engine.failure().is_some());
        !failed && (self.cache.gone.is_empty() || self.is_strict())
    }

    /// Adds so many segments to each shard, on a device that is in the cache or not.
    pub(super) fn grow(&mut self, device: u8, segments: u32, cut: Option<u32>) -> Check {
        if !self.may_resize() {
            return Ok(());
        }
        let (span, may_add) = (self.cache.span_bytes(), !self.second_is_gone());
        let superblock = self.superblock();
        let numbers = || superblock.devices.iter().map(|on| on.number);
        let more_bytes = u64::from(segments) * superblock.geometry.row_bytes();
        if numbers().any(|number| number == device) {
            let end = superblock.extents.end_bytes(device, &superblock.geometry) + more_bytes;
            let end = end.min(span);
            return self.command(Command::Grow(device, end), cut).map(drop);
        }
        // The lowest number that is free is given, which may be another's.
        if !may_add || (0..device).any(|lower| numbers().all(|number| number != lower)) {
            return Ok(());
        }
        self.add_device(device, more_bytes, cut).map(drop)
    }

    /// Adds another device under the lowest number that is free, with so much room for segments, at
    /// most. Returns the command.
    pub(super) fn add_device(
        &mut self,
        number: u8,
        room_bytes: u64,
        cut: Option<u32>,
    ) -> Check<Option<u32>> {
        let size_bytes = (DATA_OFFSET_BYTES + room_bytes).min(self.cache.span_bytes());
        // Another one is in its place.
        self.cache.gone.remove(&number);
        self.command(Command::AddDevice(size_bytes), cut)
    }

    /// Begins to empty what lies on a device from a per mille of its size on.
    pub(super) fn shrink(&mut self, device: u8, keep: u64, cut: Option<u32>) -> Check {
        if !self.may_resize() {
            return Ok(());
        }
        let from = DATA_OFFSET_BYTES + (self.cache.span_bytes() - DATA_OFFSET_BYTES) * keep / 1000;
        let from = if keep == 0 { 0 } else { from };
        let superblock = self.superblock();
        let Ok(gone) = (superblock.extents).beyond(device, from, &superblock.geometry) else {
            return Ok(());
        };
        if gone.is_empty() {
            return Ok(());
        }
        self.tell(|_| format!("shrink by {gone:?}"));
        self.counts().add("shrinking", 1);
        self.command(Command::Shrink(gone), cut).map(drop)
    }

    /// The devices of the cache, as the newest superblock of all names them.
    pub(super) fn devices_named(&self) -> Vec<u8> {
        self.newest_superblock().map_or(vec![0], |superblock| {
            superblock.devices.iter().map(|on| on.number).collect()
        })
    }
}
