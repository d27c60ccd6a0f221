//! `cache replace` (I28): a device is added, dirty data is on two again, and the old one leaves, sound or
//! lost, while clients go on. A crash in between leaves one device more than before.

use forebay_cache::control::Command;

use super::{Check, World};

/// Segments of each shard on the device that is added, at most.
const MOST_SEGMENTS: u64 = 100;

/// A replacement in progress: the numbers of the devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacing {
    old: u8,
    new: u8,
}

impl World<'_> {
    /// Begins to put a device that is not in the cache in the place of one that is.
    pub(super) fn replace(&mut self, old: u8, cut: Option<u32>) -> Check {
        if !self.may_resize() || self.second_is_gone() || self.replacing.is_some() {
            return Ok(());
        }
        let count = self.cache.device_count();
        let superblock = self.superblock();
        let row_bytes = superblock.geometry.row_bytes();
        let is_named = |number: u8| superblock.devices.iter().any(|on| on.number == number);
        let free = (0..count).find(|number| !is_named(*number));
        let Some(new) = free.filter(|_| is_named(old)) else {
            return Ok(());
        };
        let added = self.add_device(new, MOST_SEGMENTS * row_bytes, cut)?;
        if added.is_some() {
            self.tell(|_| format!("device {old} is being replaced by {new}"));
            self.replacing = Some(Replacing { old, new });
        }
        Ok(())
    }

    /// Has the old device leave, once the new one is there and all dirty data is on two devices.
    pub(super) fn replacing_goes_on(&mut self) -> Check {
        let Some(Replacing { old, new }) = self.replacing else {
            return Ok(());
        };
        if self.commands_run_of(|what| matches!(what, Command::AddDevice(_))) {
            return Ok(());
        }
        let is_in = self
            .superblock()
            .devices_in_use()
            .any(|on| on.number == new);
        if !is_in {
            self.replacing = None;
        } else if self.is_whole() {
            self.replacing = None;
            self.counts().add("cache devices being replaced", 1);
            self.shrink(old, 0, None)?;
        }
        Ok(())
    }
}
