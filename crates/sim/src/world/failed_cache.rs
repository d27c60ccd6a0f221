//! The cache failed: its record, and the next life's use of it.

use forebay_cache::{Abandonment, Report};
use forebay_engine::{Superblock, VolumeSlot};

use super::deliveries::{CONTROL, Delivery};
use super::{Check, World};
use crate::device::Control;
use crate::rng::Rng;

/// Record outside the cache devices.
pub(super) type Record = Abandonment;

impl World<'_> {
    /// A thread says what is to be on record.
    pub(super) fn reported(&mut self, host: u16, report: Report) -> Check {
        self.tell(|_| format!("thread {host} reports its failure: {report:?}"));
        if self.is_strict() {
            let reason = report.reason;
            return Err(format!(
                "the cache failed although a device is sound: {reason}"
            ));
        }
        if self.cache.tally.total() == 0
            && self.cache.gone.is_empty()
            && self.options.fail_at.is_none()
        {
            let reason = report.reason;
            return Err(format!("the cache failed without a fault: {reason}"));
        }
        if let Some(all) = self.failure_reports.take(host, report) {
            // The record is made somewhere else and takes its time.
            let due = self.now.after(self.plan.config.record_delay);
            self.record_due = Some((due, all));
        }
        Ok(())
    }

    /// Puts the report on record.
    pub(super) fn put_on_record(&mut self) -> Check {
        let Some((_, record)) = self.record_due.take() else {
            return Ok(());
        };
        self.tell(|_| format!("on record: {record:?}"));
        let serials = record.serials.clone();
        let revised = self.abandoned.replace(record).is_some();
        let what = if revised {
            "abandonment revised"
        } else {
            "abandoned"
        };
        self.counts().add(what, 1);
        if let [serial] = serials.as_slice() {
            self.hosts[0].recorded(*serial);
            return self.pump(0);
        }
        for (host, serial) in serials.into_iter().enumerate() {
            self.post(CONTROL, host, Delivery::Recorded(serial));
        }
        Ok(())
    }

    /// Does an administrator's work on a cache that failed: unsaved data is written to the
    /// origins, and then the cache is made anew.
    pub(super) fn rescue(&mut self) -> Check {
        let Some(record) = self.abandoned.clone() else {
            return Ok(());
        };
        self.counts().add("rescues", 1);
        self.settle_origins();
        let attached = self.attach_once(None, 0)?;
        self.recovered();
        self.start(attached.ok_or("attach was cut short without a cut")?)?;
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        let in_log = record.unsaved.iter().filter(|range| !range.in_memory);
        let keys = in_log.map(|range| {
            let base = self.volumes[usize::from(range.volume.0)].base;
            let first = base.plus(range.offset_bytes / block_bytes);
            first..first.plus(range.len_bytes / block_bytes)
        });
        let keys: Vec<_> = keys.collect();
        for engine in self.engines_mut() {
            engine.keep_only(&keys);
        }
        let cache_was_faulty = self.cache.faulty;
        let faulty: Vec<bool> = self.origins.iter().map(|origin| origin.faulty).collect();
        for origin in &mut self.origins {
            origin.heal();
        }
        self.faults(false);
        let mut left = 0;
        for volume in 0..self.volumes.len() as u16 {
            if !self.drain(volume)? {
                left += self.dirty_blocks(volume);
                self.take_as_unreadable(volume);
            }
        }
        self.outcome
            .counts
            .add("blocks rescued none could read", left);
        for (origin, faulty) in self.origins.iter_mut().zip(faulty) {
            origin.faulty = faulty;
            origin.disk.flush(origin.disk.order());
        }
        self.stop()?;
        self.make_anew()?;
        self.cache.faulty = cache_was_faulty;
        self.abandoned = None;
        Ok(())
    }

    /// Gives up unreadable blocks, and nothing else.
    fn take_as_unreadable(&mut self, volume: u16) {
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        let slot = VolumeSlot(volume);
        for sector in 0..self.volumes[usize::from(volume)].sectors {
            let offset = sector * 512 / block_bytes * block_bytes;
            if self
                .engines()
                .any(|engine| engine.block_state(slot, offset).1)
            {
                self.model.forget_sector(volume, sector);
            }
        }
    }

    /// Nothing that the cache holds counts any more.
    fn make_anew(&mut self) -> Check {
        let mut rng = Rng::of(self.rng.bits(), 8);
        let was_faulty = std::mem::take(&mut self.cache.faulty);
        let mut control = Control::new(&mut self.cache, None, &mut rng);
        let mut superblock = Superblock::read(&mut control)
            .map_err(|error| format!("the superblock is lost: {error}"))?;
        for volume in &mut superblock.volumes {
            volume.valid_from_epoch = volume.valid_from_epoch.max(superblock.epoch + 1);
        }
        superblock
            .write(&mut control)
            .map_err(|error| format!("the superblock cannot be written: {error}"))?;
        self.cache.faulty = was_faulty;
        // A memory buffer and a crash journal belong to the cache that was.
        self.memory.reset_shared();
        Ok(())
    }
}
