//! Volumes whose server has shut this host out: commands that would write them back end at once.

use anyhow::Result;
use forebay_cache::control::Command;
use forebay_engine::VolumeSlot;

use crate::daemon::state::{Daemon, VolumeSide};
use crate::failure::refuse;
use crate::quoting::in_shell;
use crate::units::size;

/// The volume that a command writes back.
pub(super) fn written_back_by(command: &Command) -> Option<VolumeSlot> {
    match command {
        Command::Drain { volume, .. }
        | Command::Detach(volume)
        | Command::Freeze(volume)
        | Command::HandOver(volume) => Some(*volume),
        _ => None,
    }
}

impl Daemon {
    /// The volume of this number, if its server has shut this host out.
    pub(super) fn shut_out_volume(&self, slot: VolumeSlot) -> Option<VolumeSide> {
        let admin = self.admin();
        let volume = admin.volume(slot)?;
        volume.device.has_shut_out().then(|| volume.clone())
    }

    /// Whether a stop goes on as if this volume were not there, whose server has shut this host out: it
    /// takes nothing of this host any more. No samples of its origin go on record.
    pub(super) fn passes_by(&self, slot: VolumeSlot) -> bool {
        let Some(volume) = self.shut_out_volume(slot) else {
            return false;
        };
        tracing::warn!(
            "volume {} is left as it is: {} has shut this host out (error 108); its dirty data stays in the cache",
            volume.name,
            volume.device.path().display()
        );
        true
    }

    /// Says what cannot be done with such a volume, where its dirty data is, and what can be done.
    pub(super) fn refuse_shut_out(&self, volume: &VolumeSide) -> Result<()> {
        let dirty_bytes = self.dirty_bytes_in(volume.slot)?;
        let dirty = match dirty_bytes {
            0 => "none of its data is dirty".to_owned(),
            bytes => format!("{} of dirty data stay in the cache", size(bytes)),
        };
        let (name, shell_name) = (&volume.name, in_shell(&volume.name));
        refuse!(
            "volume {name} cannot be written to {}, which has shut this host out (error 108): {dirty}. Start the \
             daemon again if no other host uses the export. If one does, stop the daemon, save that data with \
             `forebay rescue {shell_name} --cache DEVICE --to FILE`, and give the volume up with \
             `forebay detach {shell_name} --offline --cache DEVICE --force`",
            volume.device.path().display()
        )
    }
}
