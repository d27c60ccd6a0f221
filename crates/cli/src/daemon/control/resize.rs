//! Commands on the cache's space while clients use it: more of it, or less.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use forebay_cache::control::Command;
use forebay_engine::{MIN_SEGMENTS, Storage, Superblock};

use super::commands::{Hooks, Progress, cache_of};
use crate::daemon::data::served::TimedDevice;
use crate::daemon::life::lost_devices::LostDevice;
use crate::daemon::state::{CacheSide, Daemon};
use crate::device::attach::Opened;
use crate::device::cache_storage;
use crate::device::lost::what_is_lost;
use crate::device::same_device::Identity;
use crate::failure::{refuse, wrong_usage};
use crate::lock::lock;
use crate::units::size;

/// Progress of emptying the departing segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emptying {
    pub(super) left_bytes: u64,
    pub(super) all_bytes: u64,
    pub(in crate::daemon) seconds: f64,
}

/// Result of a resize.
#[derive(Clone, Debug)]
pub(super) struct Resized {
    /// Where its space on the device ends.
    pub(in crate::daemon) end_bytes: u64,
    pub(super) before_bytes: u64,
    pub(super) after_bytes: u64,
    pub(in crate::daemon) seconds: f64,
    /// The file that the daemon was started with, which must name the same devices.
    pub(in crate::daemon) configuration: Option<PathBuf>,
}

/// The step that leads to the size wanted.
enum Change {
    Nothing,
    /// Up to this offset, in bytes.
    Grow(u64),
    Shrink(Vec<Range<u32>>),
}

impl Daemon {
    /// Gives the cache so much of one of its devices, or all of it. Segments that leave are emptied
    /// first; `tell` hears the progress, and ends it by saying that nobody listens.
    pub(super) fn resize(
        &self,
        device: Option<&Path>,
        wanted_bytes: Option<u64>,
        tell: &mut dyn FnMut(Emptying) -> bool,
    ) -> Result<Resized> {
        let began = Instant::now();
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        let number = device_of(cache, device)?;
        let before_bytes = space_bytes(cache.superblock());
        let change = plan_change(cache, number, wanted_bytes)?;
        drop(admin);
        match change {
            Change::Nothing => {}
            Change::Grow(end_bytes) => {
                self.carry_out_at_once(Command::Grow(number, end_bytes))?;
            }
            Change::Shrink(gone) => self.shrink(gone, tell)?,
        }
        self.resized(number, before_bytes, began)
    }

    /// Adds a device to the cache. The device's contents are lost, which is refused without
    /// `force`, unless this cache has left them behind itself (I28).
    pub(super) fn add_cache_device(&self, path: &Path, force: bool) -> Result<Resized> {
        let began = Instant::now();
        self.check_new_device(path)?;
        if let Some(cache) = &self.admin().cache {
            check_not_emulated(cache)?;
        }
        let mut opened = self
            .surroundings
            .open(path)
            .with_context(|| format!("cannot add {} to the cache", path.display()))?;
        if !force
            && let Some(lost) = what_is_lost(&mut opened)?
            && !self.went_on_without(&mut opened)?
        {
            refuse!(
                "{} holds {lost}; to overwrite it, add --force",
                path.display()
            );
        }
        let size_bytes = opened.device.size_bytes();
        let (number, before_bytes) = {
            let mut admin = self.admin();
            let superblock = cache_of(&mut admin)?.superblock();
            let mut changed = superblock.clone();
            let number = changed.add_device(size_bytes)?;
            changed
                .grow(number, size_bytes)
                .with_context(|| format!("cannot add {} to the cache", path.display()))?;
            (number, space_bytes(superblock))
        };
        let hooks = Hooks {
            device: Some(TimedDevice {
                device: Arc::clone(&opened.device),
                emulation: None,
            }),
            storage: Some(opened.storage),
            ..Hooks::quiet()
        };
        self.carry_out(Command::AddDevice(size_bytes), hooks)?;
        self.change_planned_devices(|devices| devices.push(path.to_owned()));
        self.resized(number, before_bytes, began)
    }

    /// The number of a device of the cache, in use or lost.
    pub(super) fn number_of(&self, path: &Path) -> Result<u8> {
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        let lost = cache.lost_device_on(path);
        lost.map_or_else(|| device_of(cache, Some(path)), Ok)
    }

    /// The space of the cache, in bytes, if a device other than this one is in it.
    pub(super) fn space_with(&self, path: &Path, other_than: u8) -> Result<Option<u64>> {
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        let number = cache.device_on(&Identity::of(path));
        let is_in = number.is_some_and(|number| number != other_than);
        Ok(is_in.then(|| space_bytes(cache.superblock())))
    }

    /// Empties a device of the cache and lets it go. The number says which it is: another may be on
    /// the path of one that is lost.
    pub(super) fn remove_cache_device(
        &self,
        (number, path): (u8, &Path),
        tell: &mut dyn FnMut(Emptying) -> bool,
    ) -> Result<Resized> {
        let began = Instant::now();
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        // One that is out is not needed for that, nor looked at.
        let is_lost = cache.lost.iter().any(|lost| lost.number == number);
        let is_another_there = is_lost && cache.device_on(&Identity::of(path)).is_some();
        let superblock = cache.superblock();
        let before_bytes = space_bytes(superblock);
        let in_use = cache.storage.device_numbers().len();
        if !is_lost && in_use == 1 {
            refuse!(
                "{} is the only device of the cache; add another first, or stop serving with a cache",
                path.display()
            );
        }
        if !is_lost && in_use == 2 && superblock.copies > 1 {
            refuse!(
                "without {0} dirty data would be on one device: put another in its place with `forebay cache replace {0} NEW`, \
                 or `forebay set copies 1` first",
                path.display()
            );
        }
        let gone = superblock.extents.beyond(number, 0, &superblock.geometry)?;
        if superblock.extents.segments() - segments_in(&gone) < MIN_SEGMENTS {
            refuse!(
                "without {} the cache would be too small: {} remain, and it needs {}",
                path.display(),
                size(
                    space_bytes(superblock)
                        .saturating_sub(space_of(superblock, segments_in(&gone)))
                ),
                size(space_of(superblock, MIN_SEGMENTS)),
            );
        }
        drop(admin);
        self.shrink(gone, tell)?;
        if !is_lost {
            self.close(number)?;
        }
        self.change_planned_devices(|devices| {
            devices.retain(|known| !is_same(known, path));
            devices.extend(is_another_there.then(|| path.to_owned()));
        });
        self.record_all_on_two()?;
        self.resized(number, before_bytes, began)
    }

    /// Whether a device was this cache's, and nothing on it counts since the cache went on without
    /// it. One that another host went on with, without those that are here, has what these lack.
    fn went_on_without(&self, opened: &mut Opened) -> Result<bool> {
        let Ok((left, device)) = Superblock::of_device(&mut opened.storage, 0) else {
            return Ok(false);
        };
        let mut admin = self.admin();
        let now = cache_of(&mut admin)?.superblock();
        let mut in_use = now.devices_in_use();
        let is_behind = in_use.all(|on| on.serial != device.serial && !left.is_without(on.serial));
        Ok(left.id == now.id && left.membership < now.membership && is_behind)
    }

    fn shrink(&self, gone: Vec<Range<u32>>, tell: &mut dyn FnMut(Emptying) -> bool) -> Result<()> {
        let segment_bytes = segment_bytes(cache_of(&mut self.admin())?.superblock());
        let tell = |progress: Progress| {
            tell(Emptying {
                left_bytes: progress.of.segments_left * segment_bytes,
                all_bytes: progress.of.segments * segment_bytes,
                seconds: progress.seconds,
            })
        };
        self.carry_out(Command::Shrink(gone), Hooks::telling(tell))
            .context("the cache keeps the size it had")?;
        Ok(())
    }

    /// A device that the superblock no longer names is closed, and says nothing of the cache.
    fn close(&self, number: u8) -> Result<()> {
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        let Some(mut storage) = cache.storage.remove(number) else {
            return Ok(());
        };
        if let Err(error) = Superblock::wipe(&mut storage) {
            // It is known to have been removed all the same.
            tracing::warn!(
                "{} still has superblocks of the cache, which no longer count: {error}",
                storage.device().path().display()
            );
        }
        Ok(())
    }

    /// Changes the devices in the plan of the next start: a reload compares with that.
    fn change_planned_devices(&self, change: impl FnOnce(&mut Vec<PathBuf>)) {
        let mut plan = lock(&self.plan);
        if let Some(cache) = &mut plan.cache {
            change(&mut cache.devices);
        }
    }

    fn resized(&self, number: u8, before_bytes: u64, began: Instant) -> Result<Resized> {
        let mut admin = self.admin();
        let superblock = cache_of(&mut admin)?.superblock();
        let end_bytes = superblock.extents.end_bytes(number, &superblock.geometry);
        let after_bytes = space_bytes(superblock);
        drop(admin);
        if before_bytes != after_bytes {
            let what = format!(
                "the cache has {} instead of {}",
                size(after_bytes),
                size(before_bytes)
            );
            tracing::info!("{what}");
            self.events.note("resize", what);
        }
        let plan = lock(&self.plan);
        let source = plan.source.as_ref();
        Ok(Resized {
            end_bytes,
            before_bytes,
            after_bytes,
            seconds: began.elapsed().as_secs_f64(),
            configuration: source.and_then(|source| source.config.clone()),
        })
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    Identity::of(one) == Identity::of(other)
}

/// The number of the device that is meant; without a path the only one.
fn device_of(cache: &CacheSide, path: Option<&Path>) -> Result<u8> {
    let Some(path) = path else {
        let [only] = cache.storage.device_numbers()[..] else {
            wrong_usage!(
                "the cache has several devices; say which with --device: {}",
                cache_storage::names(&cache.storage)
            )
        };
        return Ok(only);
    };
    match cache.device_on(&Identity::of(path)) {
        Some(number) => Ok(number),
        None => wrong_usage!(
            "{} is no device of the cache; it has {}",
            path.display(),
            cache.names_with_lost()
        ),
    }
}

impl CacheSide {
    /// The number of the device on this path if the cache goes on without it. Of one that nobody
    /// knows the path of, any that is none of the others.
    fn lost_device_on(&self, path: &Path) -> Option<u8> {
        let wanted = Identity::of(path);
        let is_it = |known: &Path| known == path || Identity::of(known) == wanted;
        let mut lost = self.lost.iter();
        if let Some(found) = lost.find(|lost| lost.path.as_deref().is_some_and(is_it)) {
            return Some(found.number);
        }
        if self.device_on(&wanted).is_some() {
            return None;
        }
        let mut unknown = self.lost.iter().filter(|lost| lost.path.is_none());
        match (unknown.next(), unknown.next()) {
            (Some(only), None) => Some(only.number),
            _ => None,
        }
    }

    fn names_with_lost(&self) -> String {
        let names = cache_storage::names(&self.storage);
        if self.lost.is_empty() {
            return names;
        }
        let lost: Vec<String> = self.lost.iter().map(LostDevice::in_words).collect();
        format!("{names}, and goes on without {}", lost.join(", "))
    }
}

fn check_not_emulated(cache: &CacheSide) -> Result<()> {
    if cache.emulated {
        refuse!(
            "the cache has the timing of another device, which has the size it had: without `emulate` it can be resized"
        );
    }
    Ok(())
}

fn segments_in(ids: &[Range<u32>]) -> u32 {
    ids.iter().map(|ids| ids.end - ids.start).sum()
}

/// Bytes of all segments, but for those on devices that the cache goes on without.
fn space_bytes(superblock: &Superblock) -> u64 {
    let geometry = &superblock.geometry;
    let extents = superblock.extents.iter();
    let in_use = extents.filter(|extent| superblock.has_device(extent.device));
    in_use
        .map(|extent| extent.end_bytes(geometry) - extent.start_bytes)
        .sum()
}

/// Bytes of so many segments of each shard.
fn space_of(superblock: &Superblock, segments: u32) -> u64 {
    u64::from(segments) * superblock.geometry.row_bytes()
}

fn segment_bytes(superblock: &Superblock) -> u64 {
    u64::from(superblock.geometry.segment_bytes)
}

/// Everything is checked here, before anything is changed.
fn plan_change(cache: &mut CacheSide, number: u8, wanted_bytes: Option<u64>) -> Result<Change> {
    check_not_emulated(cache)?;
    let CacheSide {
        storage, control, ..
    } = cache;
    let storage = storage.device_mut(number).context("the device is gone")?;
    let device_bytes = cache_storage::look_at_size(storage)?;
    let path = storage.device().path().display();
    let wanted_bytes = wanted_bytes.unwrap_or(device_bytes);
    if wanted_bytes > device_bytes {
        refuse!(
            "{path} has {}: make it larger first, or ask for `max`",
            size(device_bytes)
        );
    }
    let superblock = control.superblock();
    let geometry = &superblock.geometry;
    let end_bytes = superblock.extents.end_bytes(number, geometry);
    if wanted_bytes >= end_bytes {
        if superblock.segments_in(wanted_bytes - end_bytes) == 0 {
            return Ok(Change::Nothing);
        }
        superblock
            .clone()
            .grow(number, wanted_bytes)
            .with_context(|| format!("the cache on {path} cannot grow"))?;
        return Ok(Change::Grow(wanted_bytes));
    }
    let gone = superblock
        .extents
        .beyond(number, wanted_bytes, geometry)
        .with_context(|| format!("the cache on {path} cannot end at {}", size(wanted_bytes)))?;
    let stay = superblock.extents.segments() - segments_in(&gone);
    if stay < MIN_SEGMENTS {
        let too_many = superblock.extents.segments().saturating_sub(MIN_SEGMENTS);
        refuse!(
            "{} is too small for this cache: it needs {}",
            size(wanted_bytes),
            size(end_bytes - space_of(superblock, too_many)),
        );
    }
    let whole = superblock.extents.beyond(number, 0, geometry)?;
    if segments_in(&whole) == segments_in(&gone) {
        refuse!("nothing of {path} would remain in use: take it away with `forebay cache remove`");
    }
    Ok(Change::Shrink(gone))
}
