//! Origins that became larger while they are served, and their volumes.

use anyhow::Result;
use forebay_cache::control::Command;
use forebay_engine::VolumeSlot;

use crate::daemon::state::{Daemon, VolumeSide};
use crate::device::attach::{self, whole_sectors_bytes};
use crate::failure;
use crate::lock::lock;
use crate::units::size;

impl Daemon {
    /// Looks at the sizes of all origins, and has volumes grow with them. Returns the volumes that
    /// did, in words.
    pub(super) fn grow_volumes(&self) -> Vec<String> {
        let _one_at_a_time = lock(&self.origin_look);
        let volumes = self.admin().volumes.clone();
        let grown = volumes.iter().filter_map(|volume| self.grow_volume(volume));
        grown.collect()
    }

    fn grow_volume(&self, volume: &VolumeSide) -> Option<String> {
        // An origin that cannot be looked at fails requests too, which are told of.
        let now_bytes = volume.device.size_now().ok()?;
        let size_bytes = whole_sectors_bytes(&volume.device, now_bytes);
        if size_bytes <= volume.size_bytes {
            if volume.not_grown.is_some() {
                self.note_growth(volume.slot, |known| known.not_grown = None);
            }
            return None;
        }
        match self.grow_to(volume, size_bytes) {
            Ok(()) => {
                let from = size(volume.size_bytes);
                let said = format!(
                    "volume {} grew from {from} to {}",
                    volume.name,
                    size(size_bytes)
                );
                tracing::info!("{said}: clients that connect from now on see it");
                self.events.note_of(&volume.name, "grow", said.clone());
                Some(said)
            }
            Err(why) => {
                let why = failure::describe(&why);
                self.note_growth(volume.slot, |known| known.not_grown = Some(why));
                None
            }
        }
    }

    /// In this order: transfers may go so far, the size is on record, the threads of the data path
    /// take requests up to it, clients are told.
    fn grow_to(&self, volume: &VolumeSide, size_bytes: u64) -> Result<()> {
        let has_cache = {
            let admin = self.admin();
            if let Some(cache) = &admin.cache {
                let superblock = cache.superblock();
                let mut known = attach::attached_volumes(superblock);
                let path = volume.device.path();
                if let Some(record) = known.find(|record| record.name == volume.name) {
                    attach::check_room(superblock, record, path, size_bytes)?;
                    attach::check_ends_with_block(superblock, record, path, size_bytes)?;
                }
            }
            admin.cache.is_some()
        };
        volume.device.look_at_size()?;
        if has_cache {
            self.carry_out_at_once(Command::GrowVolume(volume.slot, size_bytes))?;
        }
        self.note_growth(volume.slot, |known| {
            (known.size_bytes, known.not_grown) = (size_bytes, None);
        });
        self.exports.grow(volume.slot, size_bytes);
        self.follow_in_size(volume.slot, size_bytes);
        self.grow_block_device(volume.slot);
        Ok(())
    }

    fn note_growth(&self, slot: VolumeSlot, note: impl FnOnce(&mut VolumeSide)) {
        if let Some(known) = self.admin().volume_mut(slot) {
            note(known);
        }
    }
}
