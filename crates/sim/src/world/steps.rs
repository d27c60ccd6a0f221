//! The steps of a plan.

use forebay_cache::control::Command;
use forebay_engine::{Memory, Nanos, Settings, VolumeSlot};

use super::{Check, Kind, Life, World};
use crate::device::How;
use crate::disk::{PAGE_BYTES, Survival};
use crate::model::{Effect, Range};
use crate::payload::{self, ZERO};
use crate::plan::Step;
use crate::rng::Rng;

impl World<'_> {
    pub(super) fn do_step(&mut self, step: &Step) -> Check {
        match step {
            Step::Write {
                volume,
                sector,
                count,
                fua,
            } => {
                let effect = Effect::Store(self.fresh());
                self.request(
                    Range::of(*volume, *sector, *count),
                    Kind::Write { effect, fua: *fua },
                )
            }
            Step::Zeroes {
                volume,
                sector,
                count,
                fua,
            } => {
                let effect = Effect::Store(ZERO);
                self.request(
                    Range::of(*volume, *sector, *count),
                    Kind::Write { effect, fua: *fua },
                )
            }
            Step::Discard {
                volume,
                sector,
                count,
            } => {
                let kind = Kind::Write {
                    effect: Effect::Discard,
                    fua: false,
                };
                self.request(Range::of(*volume, *sector, *count), kind)
            }
            Step::Read {
                volume,
                sector,
                count,
            } => self.request(
                Range::of(*volume, *sector, *count),
                Kind::Read { prefetch: false },
            ),
            Step::Prefetch {
                volume,
                sector,
                count,
            } => self.request(
                Range::of(*volume, *sector, *count),
                Kind::Read { prefetch: true },
            ),
            Step::Flush { volume } => self.request(Range::of(*volume, 0, 0), Kind::Flush),
            Step::Settle => self.quiesce(),
            Step::Pass { ms } => self.pass(*ms),
            Step::Crash(crash) => self.crash(crash),
            Step::SetMode { volume, mode, cut } => self
                .command(Command::SetMode(VolumeSlot(*volume), *mode), *cut)
                .map(drop),
            Step::Drain { volume, on: true } => self.command(drain(*volume), None).map(drop),
            Step::Drain { volume, on: false } => {
                self.interrupt(|what| drains(what, *volume));
                Ok(())
            }
            Step::Set(settings) => self.set(settings),
            Step::Faults { on } => {
                self.faults(*on);
                Ok(())
            }
            Step::Rot { place, metadata } => {
                self.rot(*place, *metadata);
                Ok(())
            }
            Step::Trap(trap) => {
                self.traps.push(*trap);
                Ok(())
            }
            Step::Harm {
                volume,
                block,
                harm,
            } => {
                self.harm(*volume, *block, *harm);
                Ok(())
            }
            Step::Heal => {
                self.cache.heal();
                Ok(())
            }
            Step::ExpectClean { volume } => match self.dirty_blocks(*volume) {
                0 => Ok(()),
                dirty => Err(format!("{dirty} blocks are dirty, and none should be")),
            },
            Step::CacheGone => {
                self.tell(|_| "the cache device is gone".to_owned());
                self.cache.gone = (0..self.cache.device_count()).collect();
                self.cache.tally.damage += 1;
                self.counts().add("cache device gone", 1);
                Ok(())
            }
            Step::DeviceGone { .. } if self.is_sound || self.second_is_gone() => Ok(()),
            Step::DeviceGone { device } => {
                self.tell(|_| format!("device {device} of the cache is gone"));
                self.cache.gone.insert(*device);
                self.cache.tally.damage += 1;
                self.counts().add("one cache device gone", 1);
                Ok(())
            }
            Step::SecondGone { device } => {
                self.second_gone(*device);
                Ok(())
            }
            Step::BothGone { device } => {
                self.both_gone(*device);
                Ok(())
            }
            Step::Grow {
                device,
                segments,
                cut,
            } => self.grow(*device, *segments, *cut),
            Step::Shrink { device, keep, cut } => self.shrink(*device, *keep, *cut),
            Step::Replace { device, cut } => self.replace(*device, *cut),
            Step::Copies { copies, cut } => self.command(Command::Copies(*copies), *cut).map(drop),
            Step::CopiesWhole => self.copies_whole(),
            Step::Keep => {
                self.interrupt(|what| matches!(what, Command::Shrink(_)));
                Ok(())
            }
            Step::Detach { volume, cut } => self.detach(Command::Detach(VolumeSlot(*volume)), *cut),
            Step::HandOver { volume, cut } => {
                self.detach(Command::HandOver(VolumeSlot(*volume)), *cut)
            }
            Step::Freeze { volume } => self
                .command(Command::Freeze(VolumeSlot(*volume)), None)
                .map(drop),
            Step::Rename { volume, cut } => {
                let name = self.another_name(usize::from(*volume));
                self.command(Command::Rename(VolumeSlot(*volume), name), *cut)
                    .map(drop)
            }
            Step::GrowVolume { volume, cut } => self.grow_volume(*volume, *cut),
            Step::Await => self.finish_commands(),
            Step::Stop { power } => self.stop_in_order(*power),
        }
    }

    pub(super) fn pump_all(&mut self) -> Check {
        for host in 0..self.hosts.len() {
            self.pump(host)?;
        }
        Ok(())
    }

    pub(super) fn pass(&mut self, ms: u64) -> Check {
        let until = self.now.after(Nanos(ms * 1_000_000));
        let mut events = 0u32;
        while self.event(Some(until))? {
            events += 1;
            if events > 400_000 {
                return Err(format!(
                    "{events} events in {ms} ms: the engine does not come to rest"
                ));
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn set(&mut self, settings: &Settings) -> Check {
        for engine in self.engines_mut() {
            engine
                .set_settings(settings.clone())
                .map_err(|error| format!("settings refused: {error}"))?;
        }
        self.pump_all()
    }

    /// The settings of a restarted daemon: the last that were set.
    pub(super) fn settings_in_force(&self) -> Settings {
        let last = self
            .plan
            .steps
            .iter()
            .take_while(|(name, _)| *name <= self.step)
            .filter_map(|(_, step)| match step {
                Step::Set(settings) => Some(settings),
                _ => None,
            });
        last.last().unwrap_or(&self.plan.config.settings).clone()
    }

    /// Flips a bit of a page that is in use.
    fn rot(&mut self, place: u64, metadata: bool) {
        if self.is_sound {
            return;
        }
        let mut rng = Rng::new(place);
        let data = self.cache.rotting_data();
        let pages = (data.end - data.start) / PAGE_BYTES as u64;
        for _ in 0..200 {
            let offset_bytes = data.start + rng.below(pages) * PAGE_BYTES as u64;
            let mut page = [0; PAGE_BYTES];
            self.cache.disk.read(offset_bytes, &mut page);
            let is_metadata = page.starts_with(b"FBRH") || page.starts_with(b"FBSM");
            if page.iter().all(|byte| *byte == 0)
                || is_metadata != metadata
                || !self.damage_may_be_at(offset_bytes)
            {
                continue;
            }
            self.cache
                .harm(How::Lasting, offset_bytes, PAGE_BYTES as u64, &page);
            self.look_at_harm();
            self.cache.disk.rot(
                offset_bytes + rng.below(PAGE_BYTES as u64),
                rng.below(8) as u8,
            );
            self.cache.tally.damage += 1;
            // Data that no later header promises yet cannot be told from data that was never
            // complete: even data that rots can then be lost without a word by a crash (MODEL.md).
            self.lied = self.plan.config.forgive_rot;
            self.counts().add(
                if metadata {
                    "rot in metadata"
                } else {
                    "rot in data"
                },
                1,
            );
            self.tell(|_| format!("rot at {offset_bytes:#x}"));
            return;
        }
    }

    /// Writes everything of a volume back. False if faults keep it from ending.
    pub(super) fn drain(&mut self, volume: u16) -> Check<bool> {
        let began = self.now;
        let mut events = 0u32;
        let mut life = None;
        loop {
            if life != Some(self.boot_of_daemon) {
                // Another daemon has not been told.
                life = Some(self.boot_of_daemon);
                self.command(drain(volume), None)?;
            }
            if !self.commands_run_of(|what| drains(what, volume)) {
                break;
            }
            events += 1;
            let late = events > 100_000 || self.now.since(began) > Nanos(600 * Nanos::SECOND.0);
            if late {
                self.interrupt(|what| drains(what, volume));
            }
            if events > 200_000 || !self.event(None)? {
                return Err(format!("a drain of volume {volume} does not end"));
            }
        }
        Ok(self.dirty_blocks(volume) == 0)
    }

    /// Somebody uses the origin without its cache.
    pub(super) fn use_alone(&mut self, volume: u16) {
        let sectors = self.volumes[usize::from(volume)].sectors;
        let sector = self.rng.below(sectors);
        let count = self.rng.between(1, sectors - sector);
        self.write_alone(Range::of(volume, sector, count));
    }

    /// Somebody writes to the origin without its cache, durably.
    pub(super) fn write_alone(&mut self, range: Range) {
        let value = self.fresh();
        let Range {
            volume,
            sector,
            count,
        } = range;
        let buf = self.memory.take(count as usize * 512);
        payload::fill(self.memory.bytes_mut(buf), volume, sector, value);
        let submitted = self.model.write(range, Effect::Store(value));
        let disk = &mut self.origins[usize::from(volume)].disk;
        disk.write(sector * 512, self.memory.bytes(buf));
        disk.flush(disk.order());
        self.memory.give(buf);
        self.model
            .written(range, Effect::Store(value), submitted, true, true);
    }

    /// The end of every run: faults stop, everything finishes, everything is read, written back
    /// and read again after a last crash.
    pub(super) fn finish(&mut self) -> Check {
        self.faults(false);
        self.origins_stay = true;
        for origin in &mut self.origins {
            origin.heal();
        }
        self.finish_commands()?;
        self.quiesce()?;
        for origin in &mut self.origins {
            origin.heal();
        }
        let refuses = self
            .volumes
            .iter()
            .any(|volume| volume.life != Life::Served);
        let failed = self.engines().any(|engine| engine.failure().is_some());
        if !self.cache.gone.is_empty() || failed || refuses {
            let crash = crate::plan::Crash {
                power: false,
                survival: Survival::Any,
                recoveries: Vec::new(),
            };
            self.crash(&crash)?;
        }
        self.verify(100)?;
        if self.cache.tally.total() == 0 {
            self.finish_sound()?;
        } else {
            self.heal()?;
        }
        for volume in 0..self.volumes.len() as u16 {
            self.request(Range::of(volume, 0, 0), Kind::Flush)?;
        }
        self.quiesce()?;
        let crash = crate::plan::Crash {
            power: true,
            survival: Survival::Any,
            recoveries: vec![(20, true)],
        };
        self.crash(&crash)?;
        self.verify(100)?;
        self.stop()?;
        Ok(())
    }

    fn finish_sound(&mut self) -> Check {
        for volume in 0..self.volumes.len() as u16 {
            if !self.drain(volume)? {
                return Err(format!(
                    "volume {volume} does not drain: {} dirty blocks stay",
                    self.dirty_blocks(volume)
                ));
            }
            self.origin_alone(volume, "the volume is drained")?;
        }
        self.verify(100)
    }

    /// Unreadable dirty blocks are written anew; then the volume drains as any other.
    fn heal(&mut self) -> Check {
        self.cache.heal();
        for origin in &mut self.origins {
            origin.heal();
        }
        for volume in 0..self.volumes.len() as u16 {
            let count = self.volumes[usize::from(volume)].sectors;
            // Whole blocks: a part of one could not be completed from what cannot be read.
            let block = u64::from(self.plan.config.geometry.block_bytes) / 512;
            for sector in (0..count).step_by(block as usize) {
                let effect = Effect::Store(self.fresh());
                let range = Range {
                    volume,
                    sector,
                    count: (count - sector).min(block),
                };
                self.request(range, Kind::Write { effect, fua: false })?;
            }
        }
        self.quiesce()?;
        if self.engines().any(|engine| engine.failure().is_some()) {
            return Ok(());
        }
        for volume in 0..self.volumes.len() as u16 {
            if !self.drain(volume)? {
                return Err(format!(
                    "volume {volume}, healed, does not drain: {} dirty blocks stay",
                    self.dirty_blocks(volume)
                ));
            }
        }
        self.verify(100)
    }
}

fn drain(volume: u16) -> Command {
    Command::Drain {
        volume: VolumeSlot(volume),
        left_blocks: 0,
    }
}

fn drains(what: &Command, of: u16) -> bool {
    matches!(what, Command::Drain { volume, .. } if volume.0 == of)
}
