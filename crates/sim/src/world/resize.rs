//! Extents come and go while clients write and machines die.

use forebay_engine::format::extents::place_of;
use forebay_engine::{DATA_OFFSET_BYTES, DeviceError, Engine, Storage, Superblock};

use super::served::Served;
use super::{Check, World};
use crate::disk::Disk;

/// More looks than emptying a cache takes.
const LOOK_LIMIT: u32 = 100_000;

/// Segments that are on their way out.
#[derive(Debug)]
pub(super) struct Shrinking {
    /// The superblock without them.
    changed: Superblock,
    /// Its write is cut short after this many device operations.
    cut: Option<u32>,
}

impl World<'_> {
    fn may_resize(&self) -> bool {
        let failed = self.engines().any(|engine| engine.failure().is_some());
        self.shrinking.is_none() && !failed && !self.cache.gone
    }

    /// Adds so many segments to each shard, on a device that is in the cache or not.
    pub(super) fn grow(&mut self, device: u8, segments: u32, cut: Option<u32>) -> Check {
        if !self.may_resize() {
            return Ok(());
        }
        let mut changed = self.superblock.clone().expect("attached");
        let span = self.cache.span_bytes();
        let is_in = |superblock: &Superblock| {
            let mut numbers = superblock.devices.iter().map(|on| on.number);
            numbers.any(|number| number == device)
        };
        // The lowest number that is free is given, which may be another's.
        if !is_in(&changed) && (changed.add_device(span).is_err() || !is_in(&changed)) {
            return Ok(());
        }
        let geometry = changed.geometry;
        let more_bytes = u64::from(segments) * geometry.row_bytes();
        let end = changed.extents.end_bytes(device, &geometry) + more_bytes;
        if changed.grow(device, end.min(span)).is_err() {
            return Ok(());
        }
        self.tell(|_| format!("grow: {:?}", changed.extents));
        if self.write_changed(changed, cut)? {
            self.counts().add("grown", 1);
            self.use_extents()?;
        }
        Ok(())
    }

    /// Begins to empty what lies on a device from a per mille of its size on.
    pub(super) fn shrink(&mut self, device: u8, keep: u64, cut: Option<u32>) -> Check {
        if !self.may_resize() {
            return Ok(());
        }
        let mut changed = self.superblock.clone().expect("attached");
        let from = DATA_OFFSET_BYTES + (self.cache.span_bytes() - DATA_OFFSET_BYTES) * keep / 1000;
        let from = if keep == 0 { 0 } else { from };
        let Ok(gone) = changed.extents.beyond(device, from, &changed.geometry) else {
            return Ok(());
        };
        if gone.is_empty() {
            return Ok(());
        }
        changed.shrink(&gone);
        if self
            .engines_mut()
            .any(|engine| engine.retire(gone.clone()).is_err())
        {
            self.keep_all();
            return Ok(());
        }
        self.tell(|_| format!("shrink by {gone:?}"));
        self.counts().add("shrinking", 1);
        self.shrinking = Some(Shrinking { changed, cut });
        self.pump_all()
    }

    /// What is on its way out stays after all.
    pub(super) fn keep(&mut self) -> Check {
        if self.shrinking.take().is_some() {
            self.tell(|_| "keep what was to leave".to_owned());
            self.counts().add("shrinking taken back", 1);
            self.keep_all();
        }
        self.pump_all()
    }

    fn keep_all(&mut self) {
        for engine in self.engines_mut() {
            engine.keep_retiring();
        }
    }

    /// Takes away what has been emptied in every shard.
    pub(super) fn advance_shrink(&mut self) -> Check {
        if self.shrinking.is_none() {
            return Ok(());
        }
        if self.engines().any(|engine| engine.failure().is_some()) {
            return self.keep();
        }
        let left = |engine: &Engine| engine.retiring().map_or(0, |(left, _)| left);
        if self.cache.gone || self.engines().any(|engine| left(engine) > 0) {
            return Ok(());
        }
        let Some(Shrinking { mut changed, cut }) = self.shrinking.take() else {
            return Ok(());
        };
        // Volumes may have come and gone meanwhile.
        let now = self.superblock.as_ref().expect("attached");
        changed.volumes.clone_from(&now.volumes);
        changed.sequence = now.sequence;
        (changed.next_base, changed.next_volume_id) = (now.next_base, now.next_volume_id);
        let again = changed.clone();
        if self.write_changed(changed, cut)? {
            self.counts().add("shrunk", 1);
            self.use_extents()?;
        } else if self.engines().any(|engine| engine.retiring().is_some()) {
            // It counts or not; so what is empty stays empty, and it is tried again.
            self.shrinking = Some(Shrinking {
                changed: again,
                cut: None,
            });
        }
        Ok(())
    }

    /// Lets what is on its way out leave, if nothing is in its way; else it stays.
    pub(super) fn finish_shrink(&mut self) -> Check {
        let mut looks = 0;
        while self.shrinking.is_some() {
            looks += 1;
            let goes_on = self.event(None)?;
            if self.shrinking.is_none() {
                break;
            }
            if looks > LOOK_LIMIT || !goes_on {
                if self.cache.tally.total() == 0 {
                    let left: Vec<_> = self.engines().map(Engine::retiring).collect();
                    return Err(format!("what is to leave is not emptied: {left:?}"));
                }
                return self.keep();
            }
        }
        Ok(())
    }

    /// Has the machine die of a shrink now, if that is what will become of it.
    pub(super) fn finish_deadly_shrink(&mut self) -> Check {
        let deadly = self.shrinking.as_ref().is_some_and(|on| on.cut.is_some());
        if deadly { self.finish_shrink() } else { Ok(()) }
    }

    /// True if it was written; false if it was not, or if the machine died and is up again.
    fn write_changed(&mut self, changed: Superblock, cut: Option<u32>) -> Check<bool> {
        let mut superblock = self.superblock.take().expect("attached");
        let mut numbers = self.cache.numbers.clone();
        numbers.extend(changed.devices.iter().map(|on| on.number));
        numbers.sort_unstable();
        numbers.dedup();
        self.cache.numbers = numbers;
        let life = self.boot_of_daemon;
        let mut control = Served::new(self, cut);
        let result = superblock.replace(changed, &mut control);
        let (was_cut, trouble) = (control.cut, control.trouble.take());
        trouble.map_or(Ok(()), Err)?;
        if self.boot_of_daemon != life {
            return Ok(false);
        }
        self.superblock = Some(superblock);
        if was_cut {
            self.counts().add("resize cut short", 1);
            let power = self.rng.percent(50);
            self.crash_here(power)?;
            return Ok(false);
        }
        Ok(result.is_ok())
    }

    fn use_extents(&mut self) -> Check {
        let superblock = self.superblock.clone().expect("just written");
        let known = std::mem::take(&mut self.served_devices);
        self.served_devices = superblock.devices.iter().map(|on| on.number).collect();
        for number in self.served_devices.clone() {
            if !known.contains(&number) {
                for host in &mut self.hosts {
                    host.add_cache_device(number);
                }
            }
        }
        for engine in self.engines_mut() {
            engine.set_extents(&superblock);
        }
        self.let_go(&known)?;
        self.cache.numbers = superblock.devices.iter().map(|on| on.number).collect();
        self.pump_all()
    }

    /// Devices that are in the cache no more are flushed no more.
    fn let_go(&mut self, known: &[u8]) -> Check {
        for number in known {
            if self.served_devices.contains(number) {
                continue;
            }
            for host in 0..self.hosts.len() {
                while !self.hosts[host].remove_cache_device(*number) {
                    if !self.event(None)? {
                        return Err(format!("a flush of device {number} never ends"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Which devices belong to the cache: those that the newest superblock of all names.
    pub(super) fn devices_named(&self) -> Vec<u8> {
        let newest = (0..self.cache.device_count())
            .filter_map(|number| {
                let start = self.cache.place(u64::from(number) << 56);
                let mut view = View(&self.cache.disk, start, self.cache.span_bytes());
                Superblock::of_device(&mut view, 0).ok()
            })
            .map(|(superblock, _)| superblock)
            .max_by_key(|superblock| (superblock.epoch, superblock.sequence));
        newest.map_or(vec![0], |superblock| {
            superblock.devices.iter().map(|on| on.number).collect()
        })
    }
}

/// One device of several on a disk, whatever its number.
struct View<'a>(&'a Disk, u64, u64);

impl Storage for View<'_> {
    fn size_bytes(&self) -> u64 {
        self.2
    }

    fn device_numbers(&self) -> Vec<u8> {
        vec![0]
    }

    fn size_of(&self, _number: u8) -> u64 {
        self.2
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (_, offset_bytes) = place_of(offset_bytes);
        self.0.read(self.1 + offset_bytes, into);
        Ok(())
    }

    fn write(&mut self, _offset_bytes: u64, _from: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
}
