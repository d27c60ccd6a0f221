//! What commands do to volumes while clients use them: attach, detach, mode, drain.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_engine::format::VolumeState;
use forebay_engine::{Device, Mode, Storage, Superblock, VolumeSlot};
use forebay_io::Emulation;
use forebay_model::ModelOptions;

use super::report::{Backlog, backlog};
use super::served_storage::{ServedStorage, failures_of, flush_served};
use super::worker::Worker;
use super::{Admin, CacheSide, Daemon, VolumeSide, start};
use crate::attach::{self, Origin};
use crate::cache_storage;
use crate::failure::{Interrupted, wrong_usage};
use crate::fingerprint;
use crate::nearest::suggestion;
use crate::profiles;
use crate::same_device::Identity;
use crate::wall_clock::since_1970;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a volume may take to become free once its clients are gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far a drain is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) backlog: Backlog,
    pub(super) began_with_bytes: u64,
    pub(super) seconds: f64,
}

impl Progress {
    /// What has been written back: clean, or on the origin and clean with its next flush. An
    /// origin with a large cache takes its time for that, and a drain would seem to stand still.
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
    pub(super) fn find_volume(&self, name: Option<&str>) -> Result<VolumeSide> {
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
            (None, _) if names.is_empty() => {
                wrong_usage!("this daemon serves no volume now; `forebay attach` gives it one")
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

    pub(super) fn each_worker(
        &self,
        task: impl Fn(&mut Worker) + Clone + Send + 'static,
    ) -> Result<()> {
        for link in &self.links {
            link.call(task.clone())?;
        }
        Ok(())
    }

    /// Switches a volume's mode, now and for the next attach.
    pub(super) fn set_mode(&self, name: &str, mode: Mode) -> Result<()> {
        let volume = self.find_volume(Some(name))?;
        let mut admin = self.admin();
        if admin.cache.is_none() {
            wrong_usage!(
                "volume `{name}` is served without a cache: a mode means nothing; start it with --cache"
            )
        }
        // On record first: a mode that is in force and not on record would be gone with a crash.
        change_record(&mut admin, volume.slot, |record| record.mode = mode as u8)?;
        drop(admin);
        self.each_worker(move |worker| {
            worker
                .engines()
                .for_each(|engine| engine.set_mode(volume.slot, mode))
        })?;
        tracing::info!("volume {name} is now in mode {}", mode.name());
        self.events.note(
            "mode",
            format!("volume {name} is now in mode {}", mode.name()),
        );
        Ok(())
    }

    /// Writes everything back, telling how far it is; stops when `tell` says that nobody listens.
    pub(super) fn drain(
        &self,
        volume: &VolumeSide,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Progress> {
        let slot = volume.slot;
        let drain = move |on| {
            move |worker: &mut Worker| {
                worker
                    .engines()
                    .for_each(|engine| engine.set_draining(slot, on));
            }
        };
        self.each_worker(drain(true))?;
        self.events
            .note("drain", format!("volume {} is drained", volume.name));
        let result = self.watch_drain(slot, tell);
        self.each_worker(drain(false))?;
        result
    }

    fn watch_drain(
        &self,
        slot: VolumeSlot,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Progress> {
        let began = Instant::now();
        let began_with_bytes = backlog(self, slot)?.dirty_bytes;
        loop {
            let progress = Progress {
                backlog: backlog(self, slot)?,
                began_with_bytes,
                seconds: began.elapsed().as_secs_f64(),
            };
            if progress.backlog.dirty_bytes == 0 {
                return Ok(progress);
            }
            if !tell(progress) {
                return Err(Interrupted("the volume goes on as it was".to_owned()).into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Opens an origin that is to be added to the running cache, with every check that can be made
    /// before anything is changed.
    pub(super) fn open_new_origin(
        &self,
        path: &Path,
        name: Option<String>,
        mode: Option<Mode>,
    ) -> Result<Origin> {
        self.check_new_device(path)?;
        let mut origin = Origin::open(path, name, mode, &self.surroundings)
            .with_context(|| format!("cannot attach the origin device {}", path.display()))?;
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
    pub(super) fn attach(
        &self,
        origin: &mut Origin,
        emulate: Option<ModelOptions>,
    ) -> Result<Vec<String>> {
        let emulation = emulate.map(|options| Emulation::new(&options, origin.size_bytes()));
        let mut admin = self.admin();
        // Another command may have taken the name since the origin was opened.
        check_may_attach(&admin, origin)?;
        let first_mode = profiles::first_mode(admin.profile);
        let Some(cache) = &mut admin.cache else {
            wrong_usage!("this daemon serves no cache to attach to; start one with --cache")
        };
        let mut superblock = cache.superblock.clone();
        let config = attach::enter_volume(&mut superblock, origin, first_mode)?;
        write_superblock(cache, superblock)?;
        let slot = start::add_volume(
            &self.links,
            start::served_volume(origin, config, emulation)?,
        )?;
        let side = start::volume_side(origin, slot);
        admin.give_name_away(&side.name);
        admin.volumes.push(side.clone());
        drop(admin);
        tracing::info!("volume {} is attached", origin.name);
        self.events
            .note("attach", format!("volume {} is attached", origin.name));
        self.follow(&side)?;
        self.export_block_device(&side)
            .with_context(|| format!("volume {} is attached, but could not be made a block device; mend the cause, detach and attach it again, or use it over NBD", side.name))?;
        let admin = self.admin();
        let attached = admin.volumes.iter().filter(|known| known.slot == slot);
        Ok(attached.flat_map(|volume| self.uris_for(volume)).collect())
    }

    /// Takes a volume off: everything is written back, clients are closed, and the origin is
    /// whole by itself.
    pub(super) fn detach(
        &self,
        volume: &VolumeSide,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<()> {
        if self.admin().cache.is_none() {
            wrong_usage!(
                "volume `{}` has no cache to be detached from; stop the daemon instead",
                volume.name
            );
        }
        let unused = || Self::check_unused(volume, "unmount it or take it out of use first");
        unused()?;
        // Most of it while clients go on; the rest when no more can come.
        self.drain(volume, tell)?;
        unused()?;
        self.remove_block_device(volume)?;
        let slot = volume.slot;
        self.each_worker(move |worker| worker.retire_volume(slot))?;
        self.drain(volume, &mut |_| true)?;
        self.record_detached(volume)?;
        self.each_worker(|worker| worker.paused = true)?;
        let removed = self.remove_from_workers(slot);
        self.each_worker(Worker::resume)?;
        removed?;
        self.admin().volumes.retain(|other| other.slot != slot);
        tracing::info!("volume {} is detached", volume.name);
        self.events
            .note("detach", format!("volume {} is detached", volume.name));
        Ok(())
    }

    fn remove_from_workers(&self, slot: VolumeSlot) -> Result<()> {
        let began = Instant::now();
        for link in &self.links {
            while let Err(left) = link.call(move |worker| worker.remove_volume(slot))? {
                if began.elapsed() > PATIENCE {
                    anyhow::bail!(
                        "{left} operations are still in progress: the origin is whole by itself, and let go when the daemon stops"
                    );
                }
                std::thread::sleep(LOOK / 10);
            }
        }
        Ok(())
    }

    /// I15: nothing of this volume counts any more. The fingerprint is not needed again: should
    /// the origin come back, it comes as a new volume.
    fn record_detached(&self, volume: &VolumeSide) -> Result<()> {
        let mut admin = self.admin();
        let Some(cache) = &admin.cache else {
            return Ok(());
        };
        let next_epoch = cache.superblock.epoch.saturating_add(1);
        change_record(&mut admin, volume.slot, |record| {
            record.state = VolumeState::Detached;
            record.valid_from_epoch = next_epoch;
        })
    }

    /// Notes what each origin looks like, now that nobody writes to it any more.
    pub(super) fn record_fingerprints(&self) -> Result<()> {
        let mut admin = self.admin();
        let volumes = admin.volumes.clone();
        let Some(cache) = &mut admin.cache else {
            return Ok(());
        };
        let mut superblock = cache.superblock.clone();
        for volume in &volumes {
            let mut storage = volume
                .device
                .storage()
                .context("no memory to read the origin device; free some")?;
            // Clients' flushes leave out what write-back wrote: a power cut right after must not
            // make another origin of this one.
            let origin = Device::Origin(volume.slot);
            flush_served(&cache.link, origin, failures_of(&cache.link, origin))
                .unwrap_or_else(|| storage.flush())
                .with_context(|| {
                    format!(
                        "cannot flush the origin device {}",
                        volume.device.path().display()
                    )
                })?;
            let taken =
                fingerprint::take(&mut storage, volume.device.identity(), volume.size_bytes)
                    .with_context(|| {
                        format!(
                            "cannot read the origin device {}",
                            volume.device.path().display()
                        )
                    })?;
            let attached = |record: &&mut forebay_engine::VolumeRecord| {
                record.state == VolumeState::Attached && record.name == volume.name
            };
            if let Some(record) = superblock.volumes.iter_mut().find(attached) {
                record.fingerprint = taken;
                record.fingerprint_at = since_1970().as_secs().max(1);
            }
        }
        write_superblock(cache, superblock)
    }

    pub(super) fn uris_for(&self, volume: &VolumeSide) -> Vec<String> {
        let block_device = volume.block_device.map(super::ublk::path);
        let exports = self
            .listening
            .iter()
            .map(|listening| listening.uri(&volume.name));
        block_device.into_iter().chain(exports).collect()
    }

    pub(super) fn uris_of(&self, admin: &Admin) -> Vec<String> {
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
    match attach::attached_volumes(&cache.superblock).find(|known| known.name == origin.name) {
        Some(known) => attach::check_origin(&cache.superblock, known, origin),
        None => Ok(()),
    }
}

/// Changes what the cache has on record of a volume: by the name it has now, since it may have been
/// renamed after a command found it.
pub(super) fn change_record(
    admin: &mut Admin,
    slot: VolumeSlot,
    change: impl FnOnce(&mut forebay_engine::VolumeRecord),
) -> Result<()> {
    let name = admin.name_of(slot)?;
    let cache = admin.cache.as_mut().context("there is no cache")?;
    let mut superblock = cache.superblock.clone();
    let record = superblock
        .volumes
        .iter_mut()
        .find(|record| record.state == VolumeState::Attached && record.name == name)
        .with_context(|| format!("the cache has no record of volume `{name}`"))?;
    change(record);
    write_superblock(cache, superblock)
}

pub(super) fn write_superblock(cache: &mut CacheSide, superblock: Superblock) -> Result<()> {
    let mut storage = ServedStorage::new(&mut cache.storage, &cache.link);
    cache
        .superblock
        .replace(superblock, &mut storage)
        .with_context(|| {
            format!(
                "cannot write the superblock of the cache on {}",
                cache_storage::names(&cache.storage)
            )
        })
}
