//! Origins that grow while their volumes are served. The reference model has all of an origin from
//! the beginning; clients ask for nothing beyond what is served.

use forebay_cache::control::{Command, NewVolume};
use forebay_engine::VolumeSlot;

use super::{Check, VolumeState, World};
use crate::plan::Step;

impl VolumeState {
    /// Its size for clients, in sectors.
    pub(super) fn served_sectors(&self) -> u64 {
        self.sectors - self.hidden
    }

    /// The size of its origin, in sectors.
    pub(super) fn origin_sectors(&self) -> u64 {
        if self.grown {
            self.sectors
        } else {
            self.served_sectors()
        }
    }
}

impl World<'_> {
    /// Volumes that are to grow begin with whole blocks of about half of their size.
    pub(super) fn begin_small(&mut self) {
        let block = u64::from(self.plan.config.geometry.block_bytes) / 512;
        for (_, step) in &self.plan.steps {
            if let Step::GrowVolume { volume, .. } = step {
                let state = &mut self.volumes[usize::from(*volume)];
                let small = state.sectors / 2 / block * block;
                state.hidden = if small > 0 { state.sectors - small } else { 0 };
            }
        }
    }

    pub(super) fn grow_volume(&mut self, volume: u16, cut: Option<u32>) -> Check {
        let state = &mut self.volumes[usize::from(volume)];
        state.grown = true;
        if state.hidden == 0 {
            return Ok(());
        }
        let grow = Command::GrowVolume(VolumeSlot(volume), state.sectors * 512);
        self.command(grow, cut).map(drop)
    }

    /// A daemon that starts serves all that an origin has.
    pub(super) fn start_in_size(&mut self) {
        for volume in self.volumes.iter_mut().filter(|volume| volume.grown) {
            volume.hidden = 0;
        }
    }

    /// A volume was attached in this size.
    pub(super) fn attached_in_size(&mut self, at: usize, new: &NewVolume) {
        let state = &mut self.volumes[at];
        if new.size_bytes == state.sectors * 512 {
            state.hidden = 0;
        }
    }
}
