//! Which block device a volume is, and what its users are told.

use anyhow::Result;
use forebay_engine::format::VolumeState;
use forebay_engine::{MAX_REQUEST_BYTES, VolumeSlot};
use forebay_frontend::ublk::device::Owner;
use forebay_frontend::ublk::parameters::Parameters;
use ring::digest::{Context, SHA256};

use crate::daemon::data::ublk::export::{self, Exported, Wanted};
use crate::daemon::data::ublk::in_use::{in_use_by, user_of};
use crate::daemon::data::ublk::path;
use crate::daemon::state::{CacheSide, Daemon, VolumeSide};
use crate::device::network::uri;
use crate::failure::{describe, refuse};
use crate::lock::lock;
use crate::settings::Rates;

/// The optimal length where the origin does not say one, in bytes.
const OPTIMAL_BYTES: u32 = 64 << 10;

impl Daemon {
    /// Makes every volume a block device that is not one yet, if that is wanted.
    pub(in crate::daemon) fn export_block_devices(&self) -> Result<()> {
        let slots: Vec<VolumeSlot> = self.admin().volumes.iter().map(|on| on.slot).collect();
        for slot in slots {
            self.export_block_device(slot)?;
        }
        Ok(())
    }

    /// Makes a volume a block device, if that is wanted and it is none yet. One that is being taken off
    /// gets none: the next volume of its number would be served there.
    pub(super) fn export_block_device(&self, slot: VolumeSlot) -> Result<()> {
        let Some(most_bytes) = self.block_devices.most_bytes else {
            return Ok(());
        };
        let closed = lock(&self.block_devices.closed);
        if *closed {
            return Ok(());
        }
        let wanted = {
            let admin = self.admin();
            let cache = admin.cache.as_ref();
            let volume = admin.volume(slot);
            let leaves = cache.is_some_and(|cache| cache.control.leaves(slot));
            match volume.filter(|volume| volume.block_device.is_none() && !leaves) {
                None => return Ok(()),
                Some(volume) => wanted(volume, cache, most_bytes),
            }
        };
        let exported = match export::export(&self.links, &wanted) {
            Ok(exported) => exported,
            Err(error) => {
                // A device that could not be taken over, but has its queues here, leaves with its volume.
                let half_way = export::half_way(&self.links, &wanted);
                self.note_block_device(slot, half_way);
                return Err(error);
            }
        };
        self.note_block_device(slot, Some(exported));
        drop(closed);
        if exported.size_bytes < wanted.parameters.size_bytes {
            self.grow_block_device(slot);
        }
        Ok(())
    }

    /// Makes no block devices any more: the daemon stops.
    pub(in crate::daemon) fn close_block_devices(&self) {
        *lock(&self.block_devices.closed) = true;
    }

    /// Gives a volume's block device, if it is one, the size that the volume has by now. Where that
    /// cannot be, the device goes on in its size.
    pub(super) fn grow_block_device(&self, slot: VolumeSlot) {
        if let Err(error) = self.try_to_grow_block_device(slot) {
            tracing::error!("{}", describe(&error));
        }
    }

    fn try_to_grow_block_device(&self, slot: VolumeSlot) -> Result<()> {
        let _closed = lock(&self.block_devices.closed);
        let Some((volume, number)) = self.block_device_of(slot) else {
            return Ok(());
        };
        let size_bytes = whole_blocks_bytes(&volume);
        if export::grow(&self.links, slot, number, size_bytes)? {
            self.note_block_device(slot, Some(Exported { number, size_bytes }));
        } else {
            tracing::warn!(
                "{} keeps its old size: the kernel cannot change that of a block device in use (Linux 6.16 and newer \
                 can); take volume {} out of use, `forebay stop`, and start again",
                path(number),
                volume.name
            );
        }
        Ok(())
    }

    fn note_block_device(&self, slot: VolumeSlot, exported: Option<Exported>) {
        let mut admin = self.admin();
        let mut known = admin.volumes.iter_mut();
        if let Some(known) = known.find(|known| known.slot == slot) {
            known.block_device = exported.map(|exported| exported.number);
            known.block_device_bytes = exported.map_or(0, |exported| exported.size_bytes);
        }
    }

    /// A volume as it is now, with the number of its block device, if it is one.
    fn block_device_of(&self, slot: VolumeSlot) -> Option<(VolumeSide, u32)> {
        let volume = self.admin().volume(slot)?.clone();
        let number = volume.block_device?;
        Some((volume, number))
    }

    /// Refuses if somebody would lose a volume's block device.
    pub(super) fn check_unused(&self, slot: VolumeSlot, instead: &str) -> Result<()> {
        if let Some((volume, number)) = self.block_device_of(slot)
            && let Some(user) = user_of(path(number).as_ref())?
        {
            let in_use = in_use_by(&user, &path(number), &volume.name);
            refuse!("{in_use}: {instead}");
        }
        Ok(())
    }

    /// Takes a volume's block device away, if it is one and nobody uses it.
    pub(super) fn take_block_device(&self, slot: VolumeSlot, instead: &str) -> Result<()> {
        self.check_unused(slot, instead)?;
        match self.remove_block_device(slot)? {
            Removed::Yes => Ok(()),
            Removed::InUse(in_use) => refuse!("{in_use}: {instead}"),
        }
    }

    /// Takes a volume's block device away, if it is one. Of its users those alone are seen that the
    /// driver tells of.
    pub(in crate::daemon) fn remove_block_device(&self, slot: VolumeSlot) -> Result<Removed> {
        let _closed = lock(&self.block_devices.closed);
        let Some((volume, number)) = self.block_device_of(slot) else {
            return Ok(Removed::Yes);
        };
        // The driver waits for every request, also for those that wait for their volume's rate.
        self.put_rates_into_force(&volume, Rates::default())?;
        let removed = export::remove(&self.links, slot, &volume.name, number);
        if !matches!(removed, Ok(true)) {
            self.put_rates_into_force(&volume, volume.own.rates)?;
        }
        if !removed? {
            return Ok(Removed::InUse(in_use_by(
                "open in another program",
                &path(number),
                &volume.name,
            )));
        }
        self.note_block_device(slot, None);
        Ok(Removed::Yes)
    }

    fn put_rates_into_force(&self, volume: &VolumeSide, rates: Rates) -> Result<()> {
        let slot = volume.slot;
        for link in &self.links {
            link.call(move |worker| worker.set_rates(slot, rates))?;
        }
        Ok(())
    }

    /// Has a volume's block device, if it is one, follow its name.
    pub(super) fn rename_block_device(&self, volume: &VolumeSide) {
        if let Some(number) = volume.block_device {
            export::rename(&volume.name, number);
        }
    }
}

/// Whether a block device was taken away.
pub(in crate::daemon) enum Removed {
    Yes,
    /// In words for a message.
    InUse(String),
}

fn logical_block_bytes(volume: &VolumeSide) -> u32 {
    volume.device.logical_block_bytes().clamp(512, 4096)
}

/// A file may have any length; bytes beyond its last whole block cannot be addressed.
pub(in crate::daemon) fn whole_blocks_bytes(volume: &VolumeSide) -> u64 {
    volume.size_bytes - volume.size_bytes % u64::from(logical_block_bytes(volume))
}

fn wanted(volume: &VolumeSide, cache: Option<&CacheSide>, most_bytes: u32) -> Wanted {
    let device = &volume.device;
    let logical_block_bytes = logical_block_bytes(volume);
    let physical_block_bytes = cache.map_or(4096, |cache| cache.superblock().geometry.block_bytes);
    let optimal_bytes = device
        .optimal_bytes()
        .filter(|bytes| bytes.is_power_of_two() && *bytes >= physical_block_bytes)
        .unwrap_or(OPTIMAL_BYTES.max(physical_block_bytes));
    let parameters = Parameters {
        size_bytes: whole_blocks_bytes(volume),
        logical_block_bytes,
        physical_block_bytes,
        optimal_bytes,
        max_transfer_bytes: most_bytes.min(MAX_REQUEST_BYTES),
    };
    Wanted {
        name: volume.name.clone(),
        slot: volume.slot,
        owner: owner(volume, cache),
        parameters,
    }
}

/// A volume's id is never given twice (I16), so a device left by another volume is never taken
/// for this one's.
fn owner(volume: &VolumeSide, cache: Option<&CacheSide>) -> Owner {
    let mut identity = Context::new(&SHA256);
    let record = cache.and_then(|cache| {
        let attached =
            cache.superblock().volumes.iter().find(|record| {
                record.state == VolumeState::Attached && record.name == volume.name
            })?;
        Some((cache.superblock().id, attached.id))
    });
    match record {
        Some((cache, volume)) => {
            identity.update(&cache.0);
            identity.update(&volume.to_le_bytes());
        }
        None => {
            identity.update(volume.device.identity().as_bytes());
            // Other servers may have an export of that name.
            let place = uri::place(volume.device.path()).unwrap_or_default();
            identity.update(place.as_bytes());
        }
    }
    let digest = identity.finish();
    let mut first = [0; 4];
    first.copy_from_slice(&digest.as_ref()[..4]);
    Owner::of_volume(u32::from_le_bytes(first))
}
