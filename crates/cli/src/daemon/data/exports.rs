//! Exports that new clients find, in one table for all listeners.

use std::sync::{Mutex, MutexGuard};

use anyhow::Result;
use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::{Export, ExportId, ExportName, ExportTable};

use crate::device::attach::Origin;
use crate::lock::lock;

/// The table, and exports that are taken out of it for a while.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Exports {
    offered: Mutex<ExportTable>,
    withdrawn: Mutex<Vec<Export>>,
}

/// The export of a volume, still without its number.
pub(in crate::daemon) fn of_volume(origin: &Origin) -> Result<Export> {
    let device = &origin.opened.device;
    Ok(Export {
        id: ExportId(0),
        name: ExportName::new(origin.name.clone())?,
        description: ExportName::new(format!("volume on {}", device.path().display()))?,
        size_bytes: origin.size_bytes(),
        min_block_bytes: device.logical_block_bytes().clamp(512, 4096),
        read_only: false,
        rotational: false,
        fast_zero: false,
    })
}

impl Exports {
    /// Offers a volume that all workers serve.
    pub(in crate::daemon) fn offer(&self, slot: VolumeSlot, export: Export) {
        let export = Export {
            id: id_of(slot),
            ..export
        };
        self.withdrawn().retain(|other| other.id != export.id);
        if let Err(error) = self.offered().add(export) {
            // Names were checked against those in use; the volume is whole, only not exported.
            tracing::error!("{error}");
        }
    }

    /// Offers a volume under another name. Clients that have it open keep it.
    pub(in crate::daemon) fn rename(&self, slot: VolumeSlot, name: ExportName) {
        if let Err(error) = self.offered().rename(id_of(slot), name) {
            // Names were checked against those in use; it goes on under the old one.
            tracing::error!("{error}");
        }
    }

    /// Offers a volume in its larger size. Clients that have it open keep the size they were told.
    pub(in crate::daemon) fn grow(&self, slot: VolumeSlot, size_bytes: u64) {
        if let Err(error) = self.offered().grow(id_of(slot), size_bytes) {
            // Sizes of volumes are whole sectors; it goes on in its old size.
            tracing::error!("{error}");
        }
    }

    /// Lets no more clients open a volume. Those who opened it before are on their way to their
    /// workers already, ahead of whatever the workers are told next.
    pub(in crate::daemon) fn withdraw(&self, slot: VolumeSlot) {
        let export = self.offered().remove(id_of(slot));
        self.withdrawn().extend(export);
    }

    /// Offers a volume again that stays after all.
    pub(in crate::daemon) fn offer_again(&self, slot: VolumeSlot) {
        let mut withdrawn = self.withdrawn();
        let at = withdrawn.iter().position(|export| export.id == id_of(slot));
        let export = at.map(|at| withdrawn.swap_remove(at));
        drop(withdrawn);
        if let Some(export) = export {
            self.offer(slot, export);
        }
    }

    /// The table, which stays as it is until the guard is dropped.
    pub(super) fn offered(&self) -> MutexGuard<'_, ExportTable> {
        lock(&self.offered)
    }

    fn withdrawn(&self) -> MutexGuard<'_, Vec<Export>> {
        lock(&self.withdrawn)
    }
}

fn id_of(slot: VolumeSlot) -> ExportId {
    ExportId(u32::from(slot.0))
}
