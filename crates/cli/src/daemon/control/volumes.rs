//! Commands on volumes while clients use them: attach, detach, mode, drain.

use std::path::Path;

use anyhow::{Context, Result};
use forebay_cache::control::Command;
use forebay_engine::Mode;
use forebay_io::Emulation;
use forebay_model::ModelOptions;

use super::commands::{self, Done, Hooks};
use super::who::Who;
use crate::config::VolumePlan;
use crate::daemon::data::exports;
use crate::daemon::data::served::ServedVolume;
use crate::daemon::data::ublk;
use crate::daemon::state::{Admin, CacheSide, Daemon, VolumeSide};
use crate::device::attach::{self, Origin};
use crate::device::same_device::Identity;
use crate::failure::{refuse, wrong_usage};
use crate::nearest::suggestion;
use crate::profiles;
use crate::units::size;

/// Data of a volume to write back, all shards together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    pub(in crate::daemon) dirty_bytes: u64,
    /// Of these, what the origin has already but may still lose: clean with its next flush.
    pub(super) unflushed_bytes: u64,
}

/// Progress of a drain.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Progress {
    pub(super) backlog: Backlog,
    pub(super) began_with_bytes: u64,
    /// So much may be left at the end.
    pub(super) may_leave_bytes: u64,
    pub(in crate::daemon) seconds: f64,
}

impl Progress {
    pub(in crate::daemon) fn of(progress: commands::Progress, block_bytes: u64) -> Progress {
        let commands::Progress { of, seconds } = progress;
        Progress {
            backlog: Backlog {
                dirty_bytes: of.backlog.dirty_blocks * block_bytes,
                unflushed_bytes: of.backlog.unflushed_blocks * block_bytes,
            },
            began_with_bytes: of.began_with_blocks * block_bytes,
            may_leave_bytes: 0,
            seconds,
        }
    }

    /// Data that has been written back: clean, or on the origin and clean with its next flush. An
    /// origin with a large cache takes its time for that flush, and a drain would seem to stand
    /// still.
    pub(super) fn drained_bytes(&self) -> u64 {
        let Backlog {
            dirty_bytes,
            unflushed_bytes,
        } = self.backlog;
        self.began_with_bytes
            .saturating_sub(dirty_bytes - unflushed_bytes)
    }
}

impl Admin {
    /// The volume whose origin this is.
    pub(super) fn volume_on(&self, wanted: &Identity) -> Option<&VolumeSide> {
        let mut volumes = self.volumes.iter();
        volumes.find(|volume| Identity::of(volume.device.path()) == *wanted)
    }
}

impl CacheSide {
    /// The number of the cache's device that this is.
    pub(super) fn device_on(&self, wanted: &Identity) -> Option<u8> {
        let mut devices = self.storage.devices();
        let found = devices.find(|(_, storage)| Identity::of(storage.device().path()) == *wanted);
        found.map(|(number, _)| number)
    }
}

impl Daemon {
    /// A volume by name; without a name the only one.
    pub(in crate::daemon) fn find_volume(&self, name: Option<&str>) -> Result<VolumeSide> {
        let names = || -> Vec<String> {
            self.admin()
                .volumes
                .iter()
                .map(|volume| volume.name.clone())
                .collect()
        };
        let found = match name {
            Some(name) => self.volume(name),
            None => {
                let admin = self.admin();
                match admin.volumes.as_slice() {
                    [only] => Some(only.clone()),
                    _ => None,
                }
            }
        };
        let names = names();
        match (found, name) {
            (Some(found), _) => Ok(found),
            (None, name)
                if names.is_empty()
                    && let Some(away) = self.only_away(name) =>
            {
                refuse!("{}", away.in_words())
            }
            (None, _) if names.is_empty() => {
                wrong_usage!("this daemon serves no volume now; `forebay attach` gives it one")
            }
            (None, Some(name)) if let Some(away) = self.away_volume(name) => {
                refuse!("{}", away.in_words())
            }
            (None, Some(old)) if let Some(name) = self.renamed(old) => {
                wrong_usage!("volume `{old}` was renamed: it is called `{name}` now")
            }
            (None, Some(name)) => wrong_usage!(
                "there is no volume `{name}`{}; there are: {}",
                suggestion(name, names.iter().map(String::as_str)),
                names.join(", ")
            ),
            (None, None) => wrong_usage!("say which volume; there are: {}", names.join(", ")),
        }
    }

    /// Switches a volume's mode, now and for the next attach.
    pub(super) fn set_mode(&self, name: &str, mode: Mode, who: &Who) -> Result<()> {
        let volume = self.find_volume(Some(name))?;
        let Some(before) = self.admin().mode_of(name) else {
            wrong_usage!(
                "volume `{name}` is served without a cache: a mode means nothing; start it with --cache"
            )
        };
        self.carry_out_at_once(Command::SetMode(volume.slot, mode))?;
        let (now, before) = (mode.name(), before.name());
        tracing::info!("volume {name} is now in mode {now}, was in {before}: by {who}");
        self.events.note_of(
            name,
            "mode",
            format!("volume {name} is now in mode {}", mode.name()),
        );
        Ok(())
    }

    /// Writes a volume back until no more than so many bytes are dirty, telling how far it is; stops
    /// when `tell` says that nobody listens.
    pub(in crate::daemon) fn drain(
        &self,
        volume: &VolumeSide,
        left_bytes: u64,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Progress> {
        let block_bytes = self.admin().block_bytes();
        if self.admin().cache.is_none() {
            // Without a cache nothing is newer anywhere.
            return Ok(Progress::of(commands::Progress::default(), block_bytes));
        }
        let said = match left_bytes {
            0 => format!("volume {} is drained", volume.name),
            bytes => format!("volume {} is drained to {}", volume.name, size(bytes)),
        };
        self.events.note_of(&volume.name, "drain", said);
        let hooks = Hooks::telling(|progress| {
            tell(Progress {
                may_leave_bytes: left_bytes,
                ..Progress::of(progress, block_bytes)
            })
        });
        let drain = Command::Drain {
            volume: volume.slot,
            left_blocks: left_bytes / block_bytes,
        };
        let done = self.carry_out(drain, hooks)?;
        Ok(Progress::of(done.progress, block_bytes))
    }

    /// Opens an origin that is to be added to the running cache, with every check that can be made
    /// before anything is changed.
    pub(super) fn open_new_origin(&self, planned: &VolumePlan) -> Result<Origin> {
        self.check_new_device(&planned.origin)?;
        let mut origin = Origin::open(planned, &self.surroundings).with_context(|| {
            format!(
                "cannot attach the origin device {}",
                planned.origin.display()
            )
        })?;
        check_may_attach(&self.admin(), &mut origin)?;
        Ok(origin)
    }

    /// Refuses a device that this daemon uses already: the lock on it would only say that somebody
    /// does.
    pub(super) fn check_new_device(&self, path: &Path) -> Result<()> {
        let Some(wanted) = Identity::of_existing(path) else {
            return Ok(());
        };
        let admin = self.admin();
        if admin
            .cache
            .iter()
            .any(|cache| cache.device_on(&wanted).is_some())
        {
            wrong_usage!(
                "{} is a cache device of this daemon already; name another",
                path.display()
            );
        }
        if let Some(volume) = admin.volume_on(&wanted) {
            wrong_usage!(
                "{} is served by this daemon already, as volume {}; name another",
                path.display(),
                volume.name
            );
        }
        Ok(())
    }

    /// Adds an origin to the running cache.
    pub(in crate::daemon) fn attach(
        &self,
        origin: &mut Origin,
        emulate: Option<ModelOptions>,
    ) -> Result<Vec<String>> {
        let emulation = emulate.map(|options| Emulation::new(&options, origin.size_bytes()));
        let admin = self.admin();
        // Another command may have taken the name since the origin was opened.
        check_may_attach(&admin, origin)?;
        let new = attach::new_volume(origin, profiles::first_mode(admin.profile));
        drop(admin);
        let (volume, export) = (
            ServedVolume::new(origin, emulation),
            exports::of_volume(origin)?,
        );
        let hooks = Hooks {
            volume: Some(volume),
            ..Hooks::quiet()
        };
        let slot = self.carry_out(Command::Attach(new), hooks)?.slot;
        let slot = slot.context("the volume has no number")?;
        let side = VolumeSide::new(origin, slot);
        let mut admin = self.admin();
        admin.give_name_away(&side.name);
        admin.away.retain(|away| away.name != side.name);
        admin.volumes.push(side.clone());
        drop(admin);
        self.exports.offer(slot, export);
        tracing::info!("volume {} is attached", origin.name);
        let said = format!("volume {} is attached", origin.name);
        self.events.note_of(&origin.name, "attach", said);
        self.follow(&side)?;
        self.export_block_device(slot)
            .with_context(|| format!("volume {} is attached, but could not be made a block device; mend the cause, detach and attach it again, or use it over NBD", side.name))?;
        let admin = self.admin();
        let attached = admin.volume(slot).into_iter();
        Ok(attached.flat_map(|volume| self.uris_for(volume)).collect())
    }

    /// Adds an origin to the running cache, with the settings that the configuration has for it.
    pub(super) fn attach_planned(
        &self,
        origin: &mut Origin,
        planned: &VolumePlan,
        who: &Who,
    ) -> Result<()> {
        let attached = self.attach(origin, planned.emulate.clone());
        // Also if it could not be made a block device.
        if self.volume(&origin.name).is_some() {
            self.put_own_into_force(&origin.name, planned.own, who)?;
        }
        attached.map(drop)
    }

    /// Takes a volume off: everything is written back, clients are closed, and the origin is
    /// whole by itself.
    pub(super) fn detach(
        &self,
        volume: &VolumeSide,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<()> {
        self.take_off(Command::Detach(volume.slot), volume, "detached", tell)
            .map(drop)
    }

    /// Carries out a command that takes a volume off, if nobody uses its block device.
    pub(super) fn take_off(
        &self,
        command: Command,
        volume: &VolumeSide,
        done: &str,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Done> {
        self.check_has_cache(&volume.name, done, "stop the daemon instead")?;
        let slot = volume.slot;
        let instead = ublk::in_use::TAKE_OUT_OF_USE;
        self.check_unused(slot, instead)?;
        let block_bytes = self.admin().block_bytes();
        let hooks = Hooks {
            release: Box::new(|| self.take_block_device(slot, instead)),
            ..Hooks::telling(|progress| tell(Progress::of(progress, block_bytes)))
        };
        let how = self.carry_out(command, hooks)?;
        self.admin()
            .volumes
            .retain(|other| other.slot != volume.slot);
        let said = format!("volume {} is {done}", volume.name);
        tracing::info!("{said}");
        self.events.note_of(&volume.name, "detach", said);
        Ok(how)
    }

    pub(super) fn uris_for(&self, volume: &VolumeSide) -> Vec<String> {
        let block_device = volume.block_device.map(ublk::path);
        let exports = self
            .listening
            .iter()
            .map(|listening| listening.uri(&volume.name));
        block_device.into_iter().chain(exports).collect()
    }

    pub(in crate::daemon) fn uris_of(&self, admin: &Admin) -> Vec<String> {
        admin
            .volumes
            .iter()
            .flat_map(|volume| self.uris_for(volume))
            .collect()
    }
}

/// That an origin can be added: two volumes of one name would share one record, and with it their
/// place in the cache.
fn check_may_attach(admin: &Admin, origin: &mut Origin) -> Result<()> {
    if admin
        .volumes
        .iter()
        .any(|volume| volume.name == origin.name)
    {
        wrong_usage!(
            "there is a volume `{}` already; choose another name with --name",
            origin.name
        );
    }
    let Some(cache) = &admin.cache else {
        wrong_usage!("this daemon serves no cache to attach to; start one with --cache")
    };
    match attach::attached_volumes(cache.superblock()).find(|known| known.name == origin.name) {
        Some(known) => attach::check_origin(cache.superblock(), known, origin),
        None => attach::check_new_origins(None, std::iter::once(origin)),
    }
}
