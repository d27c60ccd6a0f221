//! Crashes: their losses, their remains, and writes that may still arrive.

use std::collections::BTreeSet;

use forebay_engine::{Operation, VolumeSlot};

use super::{Check, World};
use crate::device::Zombie;
use crate::disk::Survival;
use crate::plan::Crash;
use crate::rng::Rng;

impl World<'_> {
    pub(super) fn crash(&mut self, crash: &Crash) -> Check {
        self.tell(|_| format!("{crash:?}"));
        let dirty = self.dirty_total();
        let in_flight = self.blocks_in_flight();
        let is_forgotten = self.volumes.iter().any(|volume| volume.forgotten);
        let cache_failed = self.engines().any(|engine| engine.failure().is_some());
        self.end_in_flight(crash.power);
        self.forgive_the_device();
        self.buffered = self.buffered_blocks();
        self.stop()?;
        if crash.power {
            self.counts().add("power cuts", 1);
            self.power_goes(crash.survival);
        } else {
            self.counts().add("daemon kills", 1);
        }
        // A device that was gone is back after the restart, as it was.
        self.cache.gone.clear();
        self.an_out_device_is_refused()?;
        self.an_old_device_is_refused()?;
        self.attach(&crash.recoveries)?;
        let strict = !crash.power
            && crash.recoveries.is_empty()
            && !cache_failed
            && !is_forgotten
            && self.cache.tally.total() == 0;
        if strict && self.dirty_total() + in_flight < dirty {
            return Err(format!(
                "{dirty} blocks were dirty and at most {in_flight} in flight when the daemon was killed, {} are dirty after recovery",
                self.dirty_total()
            ));
        }
        let percent = self.plan.config.verify_percent;
        self.verify(percent)
    }

    /// A life of the daemon ends: losses and lies of the cache device may show from now on.
    pub(super) fn forgive_the_device(&mut self) {
        self.model.killed();
        if self.is_strict() {
            self.cache.lost = false;
            return;
        }
        if std::mem::take(&mut self.cache.lost) {
            // The cache device lost what it had not flushed, as in a power cut.
            self.model.power_cut();
        }
        if self.lied {
            // Now, and at every later crash: damage to a summary can show much later.
            self.forget_touched();
        }
    }

    pub(super) fn crash_here(&mut self, power: bool) -> Check {
        let recoveries = vec![
            (self.rng.below(40) as u32, power),
            (self.rng.below(40) as u32, power),
        ];
        self.crash(&Crash {
            power,
            survival: Survival::Any,
            recoveries,
        })
    }

    pub(super) fn dirty_total(&self) -> u64 {
        (0..self.volumes.len() as u16)
            .map(|volume| self.dirty_blocks(volume))
            .sum()
    }

    /// Blocks whose newest contents are in a memory buffer alone, by volume.
    pub(super) fn buffered_blocks(&self) -> BTreeSet<(usize, usize)> {
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        let mut blocks = BTreeSet::new();
        for (volume, state) in self.volumes.iter().enumerate() {
            let slot = VolumeSlot(volume as u16);
            for block in 0..(state.sectors * 512).div_ceil(block_bytes) {
                let mut engines = self.engines();
                if engines.any(|engine| engine.is_buffered(slot, block * block_bytes)) {
                    blocks.insert((volume, block as usize));
                }
            }
        }
        blocks
    }

    /// Blocks of requests and operations in flight, at most.
    fn blocks_in_flight(&self) -> u64 {
        let block = u64::from(self.plan.config.geometry.block_bytes) / 512;
        self.requests
            .values()
            .map(|pending| pending.range.count / block + 2)
            .sum()
    }

    /// Power is gone: volatile caches and shared memory with it.
    pub(super) fn power_goes(&mut self, survival: Survival) {
        let mut rng = Rng::of(self.rng.bits(), 9);
        for device in std::iter::once(&mut self.cache).chain(&mut self.origins) {
            device.settle_zombies(true, &mut rng);
            device.disk.cut(survival, &mut rng);
        }
        self.memory.reset_shared();
        self.buffered.clear();
        self.boot += 1;
        self.model.power_cut();
    }

    /// Ends the operations in flight: each happened, in part, or not; after a kill it may still
    /// happen.
    pub(super) fn end_in_flight(&mut self, power: bool) {
        let mut rng = Rng::of(self.rng.bits(), 10);
        for operation in std::mem::take(&mut self.in_flight).into_iter().flatten() {
            let zombie = match &operation.action.operation {
                Operation::Write { offset_bytes, bufs } => {
                    let data = operation.taken.clone().unwrap_or_else(|| self.gather(bufs));
                    Zombie {
                        offset_bytes: *offset_bytes,
                        data: Ok(data),
                    }
                }
                Operation::WriteZeroes {
                    offset_bytes,
                    len_bytes,
                } => Zombie {
                    offset_bytes: *offset_bytes,
                    data: Err(*len_bytes),
                },
                Operation::Discard {
                    offset_bytes,
                    len_bytes,
                } if self.plan.config.origin_discards == 2 => Zombie {
                    offset_bytes: *offset_bytes,
                    data: Err(*len_bytes),
                },
                _ => continue,
            };
            let device = self.device(operation.action.device);
            device.zombies.push(zombie);
        }
        for device in std::iter::once(&mut self.cache).chain(&mut self.origins) {
            device.settle_zombies(power, &mut rng);
        }
    }
}
