//! Freezing a volume for a snapshot of its origin, and handing one over to another host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use forebay_cache::control::Command;
use forebay_engine::VolumeSlot;
use serde_json::{Value, json};

use super::commands::{Done, Hooks};
use super::volumes::Progress;
use crate::daemon::state::{Daemon, Freeze, VolumeSide};
use crate::failure::{refuse, wrong_usage};
use crate::quoting::in_shell;
use crate::thread;
use crate::units::duration;

impl Daemon {
    /// Puts everything that was acknowledged on the volume's origin, and has changes wait until a
    /// thaw; at the latest after this time.
    pub(super) fn freeze(
        self: &Arc<Daemon>,
        volume: &VolumeSide,
        most: Option<Duration>,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Value> {
        let name = &volume.name;
        self.check_has_cache(name, "frozen", "use `fsfreeze` on its file system")?;
        let done = self.carry_out_telling(Command::Freeze(volume.slot), tell)?;
        let began = Instant::now();
        self.set_freeze(volume.slot, Some(Freeze { began, over: None }));
        let text = format!("volume {name} is frozen: its writes wait");
        tracing::info!("{text}");
        self.events.note_of(name, "freeze", text);
        if let Some(most) = most {
            // Nobody would thaw it.
            if let Err(error) = self.thaw_after(most, volume.slot, began) {
                self.carry_out_at_once(Command::Thaw(volume.slot))?;
                self.set_freeze(volume.slot, None);
                return Err(error.context(format!("volume {name} is not frozen")));
            }
        }
        Ok(json!({
            "name": name,
            "origin": volume.device.path().display().to_string(),
            "clients_waited_seconds": done.clients_waited.as_secs_f64(),
            "thaws_after_seconds": most.map(|most| most.as_secs_f64()),
        }))
    }

    /// Lets changes of a frozen volume go on.
    pub(super) fn thaw(&self, volume: &VolumeSide) -> Result<Value> {
        let name = &volume.name;
        match volume.freeze {
            None => refuse!("volume {name} is not frozen"),
            Some(Freeze { over: Some(at), .. }) => {
                self.set_freeze(volume.slot, None);
                refuse!(
                    "volume {name} is not frozen any more: it thawed by itself {} ago, when its time was up. What was copied from its origin since then \
                     may not be whole; give `forebay freeze {} --for` more time",
                    duration(at.elapsed().as_secs_f64()),
                    in_shell(name)
                )
            }
            Some(freeze) => {
                self.carry_out_at_once(Command::Thaw(volume.slot))?;
                self.set_freeze(volume.slot, None);
                let text = format!("volume {name} is thawed");
                tracing::info!("{text}");
                self.events.note_of(name, "thaw", text);
                Ok(json!({
                    "name": name,
                    "frozen_seconds": freeze.began.elapsed().as_secs_f64(),
                }))
            }
        }
    }

    /// Thaws a volume by itself, unless somebody does it before.
    fn thaw_after(
        self: &Arc<Daemon>,
        most: Duration,
        slot: VolumeSlot,
        began: Instant,
    ) -> Result<()> {
        let daemon = Arc::downgrade(self);
        thread::start("forebay-thaw", move || {
            std::thread::sleep(most);
            let Some(daemon) = daemon.upgrade() else {
                return;
            };
            let is_it = |volume: &&VolumeSide| {
                let freeze = volume.freeze.as_ref();
                volume.slot == slot && freeze.is_some_and(|freeze| freeze.began == began)
            };
            let Some(volume) = daemon.admin().volumes.iter().find(is_it).cloned() else {
                return;
            };
            let over = Some(Instant::now());
            match daemon.carry_out_at_once(Command::Thaw(slot)) {
                Ok(_) => {
                    daemon.set_freeze(slot, Some(Freeze { began, over }));
                    let text = format!("volume {} thawed by itself: its time was up", volume.name);
                    tracing::warn!("{text}");
                    daemon.events.note_of(&volume.name, "thaw", text);
                }
                // A stop, or a thaw that came at the same moment.
                Err(error) => tracing::info!("volume {}: {error}", volume.name),
            }
        })
        .map(drop)
    }

    /// Thaws all volumes before a stop: whoever took a snapshot hears of it when there is no daemon to
    /// thaw.
    pub(in crate::daemon) fn thaw_all(&self) {
        let volumes = self.admin().volumes.clone();
        let frozen = |volume: &&VolumeSide| volume.freeze.is_some_and(|it| it.over.is_none());
        for volume in volumes.iter().filter(frozen) {
            match self.carry_out_at_once(Command::Thaw(volume.slot)) {
                Ok(_) => tracing::warn!(
                    "volume {} is thawed: the daemon stops. A snapshot of its origin that is not \
                     finished may not be whole",
                    volume.name
                ),
                Err(error) => tracing::warn!("volume {} stays frozen: {error}", volume.name),
            }
        }
    }

    /// Freezes a volume, and takes it off for another host to serve its origin.
    pub(super) fn hand_over(
        &self,
        volume: &VolumeSide,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Value> {
        let done = self.take_off(Command::HandOver(volume.slot), volume, "handed over", tell)?;
        Ok(json!({
            "name": volume.name,
            "origin": volume.device.path().display().to_string(),
            "clients_waited_seconds": done.clients_waited.as_secs_f64(),
        }))
    }

    fn carry_out_telling(
        &self,
        command: Command,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Done> {
        let block_bytes = self.admin().block_bytes();
        let hooks = Hooks::telling(|progress| tell(Progress::of(progress, block_bytes)));
        self.carry_out(command, hooks)
    }

    fn set_freeze(&self, slot: VolumeSlot, freeze: Option<Freeze>) {
        if let Some(volume) = self.admin().volume_mut(slot) {
            volume.freeze = freeze;
        }
    }

    pub(super) fn check_has_cache(&self, name: &str, what: &str, instead: &str) -> Result<()> {
        if self.admin().cache.is_none() {
            wrong_usage!("volume `{name}` has no cache, and cannot be {what}; {instead}");
        }
        Ok(())
    }
}
