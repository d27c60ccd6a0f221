//! Origins that are not there when a daemon starts: the volume comes back by a command or with a
//! later start, or it is forgotten.

use forebay_cache::control::{Command, Refusal};
use forebay_engine::{Action, Device, VolumeSlot};

use super::{Check, Life, World};
use crate::model::Range;
use crate::rng::Rng;

/// Requests of a volume that is away before something is done about it.
const MISSED: u32 = 12;
const AWAY_PURPOSE: u64 = 31;

impl World<'_> {
    /// Which origins this daemon does not find. A draw of its own leaves everything else as it was.
    pub(super) fn origins_away(&self) -> Vec<bool> {
        let percent = self.plan.config.away_percent;
        let all_stay = self.origins_stay || self.abandoned.is_some();
        let mut rng = Rng::of(self.plan.schedule, AWAY_PURPOSE + self.boot_of_daemon);
        let away = self
            .volumes
            .iter()
            .map(|_| rng.percent(percent) && !all_stay);
        away.collect()
    }

    /// I25: nothing is sent to an origin that is not there, and is not on its way back either.
    pub(super) fn check_is_there(&self, action: &Action) -> Check {
        let Device::Origin(slot) = action.device else {
            return Ok(());
        };
        let volume = &self.volumes[usize::from(slot.0)];
        let comes =
            |what: &Command| matches!(what, Command::Attach(new) if new.name == volume.name);
        if volume.life == Life::Away && !self.commands_run_of(comes) {
            return Err(format!(
                "volume {} is away, and asked for {action:?}",
                slot.0
            ));
        }
        Ok(())
    }

    /// A client finds no volume. After some of these the origin is there, or the volume is
    /// forgotten.
    pub(super) fn misses(&mut self, volume: u16) -> Check {
        let state = &mut self.volumes[usize::from(volume)];
        state.missed += 1;
        if !state.missed.is_multiple_of(MISSED) {
            return Ok(());
        }
        let is_forgotten = state.missed.is_multiple_of(MISSED * 3);
        let is_coming = self.commands_run_of(|what| matches!(what, Command::Attach(_)));
        if is_coming || self.is_leaving(volume) {
            return Ok(());
        }
        if is_forgotten {
            self.volumes[usize::from(volume)].forgotten = true;
            return self
                .command(Command::Forget(VolumeSlot(volume)), None)
                .map(drop);
        }
        let superblock = self.superblock().clone();
        self.check_fingerprints(&superblock)?;
        self.counts().add("origins that came back", 1);
        let new = self.new_volume(usize::from(volume));
        self.command(Command::Attach(new), None).map(drop)
    }

    /// A volume was forgotten, or not.
    pub(super) fn forget_ended(&mut self, volume: u16, result: Result<(), Refusal>) -> Check {
        match result {
            Ok(()) => {
                self.volumes[usize::from(volume)].name = self.another_name(usize::from(volume));
                self.loses_dirty_data(volume);
                let state = &mut self.volumes[usize::from(volume)];
                (state.life, state.forgotten) = (Life::Detached, false);
                self.attach_detached()
            }
            // The next start knows whether it is.
            Err(Refusal::Uncertain(_)) => Ok(()),
            Err(_) => {
                self.volumes[usize::from(volume)].forgotten = false;
                Ok(())
            }
        }
    }

    /// Nothing of the cache counts for a volume any more. Its user writes all of it anew on the
    /// origin alone, so that no older block can come back unnoticed.
    pub(super) fn loses_dirty_data(&mut self, volume: u16) {
        self.counts().add("volumes forgotten", 1);
        let sectors = self.volumes[usize::from(volume)].sectors;
        for sector in 0..sectors {
            self.model.forget_sector(volume, sector);
        }
        self.write_alone(Range::of(volume, 0, sectors));
    }
}
