//! Contents that no superblock of ours has (see `plausible`): counters must have room to be counted
//! up, and identities given once must have been given.

use super::{Superblock, VolumeRecord, VolumeState};
use crate::format::extents::MAX_DEVICES;
use crate::format::plausible::EPOCH_END;
use crate::format::{BlockKey, Sequence};

/// The number after the highest serial and the highest id of a volume.
const ID_END: u32 = 1 << 31;

impl Superblock {
    /// Returns the fault of the superblock, if it has any. Its geometry and its extents make sense
    /// already.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.sequence >= u64::MAX / 2 || self.epoch >= EPOCH_END {
            return Some("it was written or attached more often than can be");
        }
        if self.decided_epoch > self.epoch {
            return Some("an epoch was decided before it began");
        }
        if self.next_serial >= ID_END || self.next_volume_id >= ID_END {
            return Some("it had more volumes, devices or extents than can be");
        }
        self.fault_of_devices()
            .or_else(|| self.fault_of_copies())
            .or_else(|| self.fault_of_volumes())
    }

    fn fault_of_copies(&self) -> Option<&'static str> {
        if !(1..=2).contains(&self.copies) || self.membership >= ID_END {
            return Some(
                "it keeps neither one copy nor two, or changed that more often than can be",
            );
        }
        if self.devices.iter().all(|on| on.out) {
            return Some("it goes on without any device");
        }
        let shards = usize::from(self.geometry.shards);
        if !self.clean_from.is_empty() && self.clean_from.len() != shards {
            return Some("its shards are more or fewer than its shape says");
        }
        let can_be =
            |from: &Sequence| from.epoch <= self.epoch && from.number < Sequence::NUMBER_END;
        if !self.clean_from.iter().all(can_be) {
            return Some("a device was lost after the last attach");
        }
        None
    }

    fn fault_of_devices(&self) -> Option<&'static str> {
        for (at, on) in self.devices.iter().enumerate() {
            let before = &self.devices[..at];
            let is_twin =
                |other: &super::CacheDevice| other.number == on.number || other.serial == on.serial;
            if usize::from(on.number) >= MAX_DEVICES || before.iter().any(is_twin) {
                return Some("two devices have one number");
            }
            if on.serial >= self.next_serial {
                return Some("a device has a serial that was never given");
            }
        }
        let given = |serial: u32| serial < self.next_serial;
        if !self.extents.iter().all(|extent| given(extent.serial)) {
            return Some("an extent has a serial that was never given");
        }
        None
    }

    fn fault_of_volumes(&self) -> Option<&'static str> {
        let region_blocks = u64::from(self.geometry.region_bytes / self.geometry.block_bytes);
        if self.next_base.0 > BlockKey::END {
            return Some("more block numbers were given than there are");
        }
        for (at, volume) in self.volumes.iter().enumerate() {
            let (base, reserved) = (volume.base.0, volume.reserved_blocks);
            let in_range = base
                .checked_add(reserved)
                .is_some_and(|end| end <= self.next_base.0);
            if !in_range || volume.id >= self.next_volume_id {
                return Some("a volume has block numbers or an id that were never given");
            }
            if !base.is_multiple_of(region_blocks) || !reserved.is_multiple_of(region_blocks) {
                return Some("a volume does not begin and end with a region");
            }
            if volume.size_bytes > self.room_bytes(volume) {
                return Some("a volume is larger than its block numbers allow");
            }
            if volume.name.is_empty() || volume.name.chars().any(char::is_control) {
                return Some("a volume has a name that none can have");
            }
            if volume.valid_from_epoch > self.epoch + 1 {
                return Some("a volume was taken off after the last attach");
            }
            let before = &self.volumes[..at];
            if before.iter().any(|other| are_twins(other, volume)) {
                return Some("two volumes share a name, an id or block numbers");
            }
        }
        None
    }
}

fn are_twins(one: &VolumeRecord, other: &VolumeRecord) -> bool {
    let end = |volume: &VolumeRecord| volume.base.0 + volume.reserved_blocks;
    let share_blocks = one.base.0 < end(other) && other.base.0 < end(one);
    let both_attached = [one, other]
        .iter()
        .all(|volume| volume.state == VolumeState::Attached);
    one.id == other.id || share_blocks || (both_attached && one.name == other.name)
}
