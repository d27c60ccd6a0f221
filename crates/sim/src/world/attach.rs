//! Creation and attach, cut short as often as the plan says.

use std::sync::Arc;

use forebay_cache::{Host, Instruction, LossReports, Reports, Shard};
use forebay_engine::{
    AttachError, AttachOptions, Attached, CacheId, DeviceError, Engine, Extents, Mode, Superblock,
    SuperblockError, VolumeConfig, VolumeSlot, attach_promised, create,
};

use super::checkpoint::shards_of_checkpoints;
use super::{Check, Life, World};
use crate::device::Control;
use crate::disk::Survival;
use crate::rng::Rng;

/// Attempts before pages that never answer are replaced.
const MEND: usize = 3;

impl World<'_> {
    /// Makes the cache, over what another one left if the plan says so.
    pub(super) fn create(&mut self) -> Check {
        if self.plan.config.leftover {
            self.cache_id = CacheId([3; 16]);
            self.create_once(None)?;
            self.attach(&[])?;
            self.counts().add("leftover of another cache", 1);
            for volume in 0..self.volumes.len() as u16 {
                let range = crate::model::Range {
                    volume,
                    sector: 0,
                    count: self.volumes[usize::from(volume)].served_sectors(),
                };
                let value = self.fresh();
                let effect = crate::model::Effect::Store(value);
                self.request(range, super::Kind::Write { effect, fua: false })?;
            }
            self.quiesce()?;
            // Everything is written back, so that the origin is whole when the cache fails.
            for volume in 0..self.volumes.len() as u16 {
                self.drain(volume)?;
                self.request(
                    crate::model::Range {
                        volume,
                        sector: 0,
                        count: 0,
                    },
                    super::Kind::Flush,
                )?;
            }
            self.quiesce()?;
            self.stop()?;
            self.cache_id = CacheId([7; 16]);
        }
        for cut in &self.plan.config.creation_cuts.clone() {
            self.create_once(Some(*cut))?;
            self.counts().add("creation cut short", 1);
            let mut rng = self.rng.clone();
            self.cache.disk.cut(Survival::Any, &mut rng);
            self.rng = rng;
            // Whatever is there now, it is a whole cache or none.
            let mut rng = Rng::of(self.rng.bits(), 4);
            let found = Superblock::read(&mut Control::new(&mut self.cache, None, &mut rng));
            if let Ok(superblock) = found
                && superblock.volumes.len() == self.plan.config.volume_sectors.len()
                && superblock.id == self.cache_id
            {
                return Ok(());
            }
        }
        self.create_once(None)
    }

    fn create_once(&mut self, cut: Option<u32>) -> Check {
        let mut rng = Rng::of(self.rng.bits(), 5);
        let mut control = Control::new(&mut self.cache, cut, &mut rng);
        let result = create_with_volumes(&mut control, self.cache_id, self.plan);
        let was_cut = control.cut;
        match result {
            Ok(_) => {}
            Err(_) if was_cut => {}
            Err(error) => return Err(format!("creation failed: {error}")),
        }
        Ok(())
    }

    /// Attaches, after recoveries that are cut short as `cuts` says: after how many operations,
    /// and whether by a power cut.
    pub(super) fn attach(&mut self, cuts: &[(u32, bool)]) -> Check {
        self.forget_connections();
        self.rescue()?;
        self.keep_old_device();
        self.start_in_size();
        for (depth, (cut, power)) in cuts.iter().enumerate() {
            self.settle_origins();
            let finished = self.attach_once(Some(*cut), depth)?.is_some();
            if finished {
                self.recovered();
            }
            self.counts().add(
                [
                    "recovery cut short",
                    "recovery cut short twice",
                    "recovery cut short 3 times or more",
                ][depth.min(2)],
                1,
            );
            if *power {
                self.tell(|_| "power cut in recovery".to_owned());
                self.power_goes(Survival::Any);
            } else {
                self.tell(|_| "killed in recovery".to_owned());
            }
        }
        self.settle_origins();
        let attached = self
            .attach_once(None, cuts.len())?
            .ok_or("attach was cut short without a cut")?;
        self.recovered();
        self.start(attached)
    }

    pub(super) fn recovered(&mut self) {
        let block_sectors = self.plan.config.geometry.block_bytes as usize / 512;
        let buffered = &self.buffered;
        self.model
            .recovered(|volume, sector| buffered.contains(&(volume, sector / block_sectors)));
    }

    /// I12: data that an earlier life sent to the origins is durable or gone.
    pub(super) fn settle_origins(&mut self) {
        let mut rng = Rng::of(self.rng.bits(), 6);
        for origin in &mut self.origins {
            origin.settle_zombies(true, &mut rng);
            origin.disk.flush(origin.disk.order());
        }
    }

    pub(super) fn attach_once(
        &mut self,
        cut: Option<u32>,
        depth: usize,
    ) -> Check<Option<Attached>> {
        let mut boot_id = [0; 16];
        boot_id[..8].copy_from_slice(&self.boot.to_le_bytes());
        self.cache.numbers = self.devices_at_start();
        let mut misses_one = self.two_lost && self.cache.numbers != self.devices_in_use();
        let mut accept_damage = false;
        let mut last = String::new();
        for attempt in 0..8 {
            let mut rng = Rng::of(self.rng.bits(), 7);
            let options = AttachOptions {
                boot_id,
                accept_damage,
                without_missing: self.keeps_two(),
                from_checkpoint: self.plan.config.checkpoints,
            };
            let reads_before = self.cache.tally.reads;
            let twin = self.twin();
            let mut surviving = self.memory.surviving();
            self.cache.lost = false;
            let before = Some(self.cache.disk.clone());
            let faults_before = self.cache.tally.total();
            let mut control = Control::new(&mut self.cache, cut, &mut rng);
            let promises = self
                .abandoned
                .as_ref()
                .map(|record| record.promises.clone());
            let promises = promises.unwrap_or_default();
            let result = attach_promised(&mut control, &mut surviving, &options, &promises);
            let (was_cut, done) = (control.cut, control.done);
            self.touched.before_recovery = before;
            self.look_at_harm();
            self.touched.before_recovery = None;
            if std::mem::take(&mut self.cache.lost) {
                // As good as a power cut, for what was not flushed.
                self.model.power_cut();
            }
            self.outcome.operations += done;
            if accept_damage && result.is_err() {
                // A shard before the one that failed may have accepted what it could not read.
                self.forget_touched();
            }
            match result {
                // A machine that dies meanwhile reads less of the record than there is.
                Err(AttachError::Alone(missing)) if !was_cut => {
                    self.tell(|_| format!("attach says: alone on {missing:?}"));
                    if !self.may_be_alone_on(&missing) {
                        return Err(format!(
                            "a start without devices {missing:?} is refused, which the cache can do without"
                        ));
                    }
                    self.counts().add("starts that needed a missing device", 1);
                    misses_one = false;
                    if self.gives_up(boot_id) {
                        accept_damage = true;
                        continue;
                    }
                    // Of a record that a power cut interrupted, what says that it is out may be
                    // what cannot be read.
                    self.cache.numbers.extend(missing);
                    self.cache.numbers.sort_unstable();
                    self.cache.numbers.dedup();
                }
                Err(AttachError::Shard { source, .. }) if misses_one => {
                    self.tell(|_| format!("attach says: {source}"));
                    self.counts().add("starts without one of two refused", 1);
                    misses_one = false;
                    self.cache.numbers = self.devices_in_use();
                }
                Ok(attached) => {
                    self.compare(&attached, twin, &options, &promises)?;
                    if misses_one {
                        self.model.power_cut();
                    }
                    let (dirty, cached) = (
                        attached.report.dirty_blocks(),
                        attached.report.cached_blocks(),
                    );
                    self.tell(|_| format!("attached at depth {depth}, {cached} blocks cached, {dirty} dirty, {done} operations"));
                    let damage: Vec<String> = attached
                        .report
                        .damage()
                        .iter()
                        .map(|what| (*what).to_owned())
                        .collect();
                    if let Some(left) = &attached.report.clean_left {
                        self.clean_left(left)?;
                    }
                    if !damage.is_empty() {
                        self.damage_is_explained(&damage.join("; "))?;
                        if accept_damage {
                            // Blocks that this attempt could not read were accepted with the rest.
                            self.forget_touched();
                        }
                    }
                    // Who goes by a checkpoint does not look at summaries, and settles nothing.
                    let looked = shards_of_checkpoints(&attached) == 0;
                    self.settled_faults = looked.then_some(faults_before);
                    self.cache.numbers = self.devices_in_use();
                    return Ok(Some(attached));
                }
                Err(_) if was_cut => return Ok(None),
                Err(
                    AttachError::Shard { .. }
                    | AttachError::Device(_)
                    | AttachError::Superblock(SuperblockError::Device(_)),
                ) if self.needs_what_fails() => {
                    // Whoever has the record does not give the device up.
                    self.counts().add("starts that needed a failing device", 1);
                    self.mend_after(MEND);
                }
                Err(AttachError::Shard { source, .. }) => {
                    self.damage_is_explained(&source.to_string())?;
                    self.tell(|_| format!("attach says: {source}"));
                    last = source.to_string();
                    // The administrator decides; a transient error may be gone by the next try.
                    accept_damage = attempt >= 1;
                    self.mend_after(attempt);
                    if accept_damage {
                        self.counts().add("damage accepted", 1);
                        self.forget_touched();
                    }
                }
                Err(
                    AttachError::Superblock(SuperblockError::Device(error))
                    | AttachError::Device(error),
                ) if error != DeviceError::Gone => {
                    self.damage_is_explained(&error.to_string())?;
                    self.mend_after(attempt);
                }
                Err(AttachError::Superblock(SuperblockError::Out { .. })) if self.keeps_two() => {
                    // An attempt before has gone on without it, and failed later.
                    self.cache.numbers = self.devices_in_use();
                }
                Err(AttachError::Superblock(
                    error @ (SuperblockError::Incomplete { .. } | SuperblockError::Stale { .. }),
                )) if self.cache.tally.reads > reads_before => {
                    // The copies that say that the device has left, or that it has come, could not
                    // be read.
                    self.tell(|_| format!("attach says: {error}"));
                    self.mend_after(attempt);
                }
                Err(AttachError::Superblock(
                    SuperblockError::NotACache { .. } | SuperblockError::Blank,
                )) if self.cache.numbers != self.devices_in_use() => {
                    // Everything that named a device went with it.
                    self.cache.numbers = self.devices_in_use();
                }
                Err(error) => return Err(format!("attach failed: {error}")),
            }
        }
        Err(format!(
            "attach fails again and again, with damage accepted and no faults: {last}"
        ))
    }

    /// Pages that never answer are the administrator's to replace, after a few attempts.
    fn mend_after(&mut self, attempt: usize) {
        if attempt >= MEND {
            self.cache.heal();
            self.cache.faulty = false;
        }
    }

    /// Whether the device that fails may have dirty data alone, as the others have it on record.
    fn needs_what_fails(&self) -> bool {
        let failing = self.plan.config.failing_device;
        let there = failing.filter(|failing| self.cache.numbers.contains(failing));
        self.is_strict() && there.is_some_and(|failing| self.may_be_alone_on(&[failing]))
    }

    /// A cache that keeps two copies has forgotten its clean blocks: some were damaged.
    fn clean_left(&mut self, why: &str) -> Check {
        self.tell(|_| format!("clean blocks are forgotten: {why}"));
        self.counts().add("clean blocks forgotten for damage", 1);
        if self.cache.tally.total() == 0 {
            return Err(format!("clean blocks are forgotten without a fault: {why}"));
        }
        Ok(())
    }

    fn damage_is_explained(&mut self, what: &str) -> Check {
        self.counts().add("damage reported", 1);
        if self.is_strict() {
            return Err(format!(
                "recovery reports damage although the other device was sound: {what}"
            ));
        }
        if self.cache.tally.total() == 0 && self.options.fail_at.is_none() {
            return Err(format!(
                "recovery reports damage and nothing was damaged: {what}"
            ));
        }
        // I12: damage that a recovery decided, or an administrator accepted, is none to the next
        // one.
        if self.settled_faults == Some(self.cache.tally.total()) && self.options.fail_at.is_none() {
            return Err(format!(
                "recovery reports damage and nothing was damaged since the last one: {what}"
            ));
        }
        Ok(())
    }

    pub(super) fn start(&mut self, attached: Attached) -> Check {
        let Attached {
            mut superblock,
            shards,
            ..
        } = attached;
        self.check_fingerprints(&superblock)?;
        let away = self.origins_away();
        self.enter_volumes(&mut superblock, &away)?;
        self.write_at_start(&mut superblock)?;
        let mut control = forebay_cache::control::Control::new(superblock.clone());
        let mut boot_id = [0; 16];
        boot_id[..8].copy_from_slice(&self.boot.to_le_bytes());
        let settings = self.settings_in_force();
        let geometry = superblock.geometry;
        let threads = self.plan.config.threads.min(geometry.shards);
        let owners: Vec<u16> = (0..geometry.shards).map(|shard| shard % threads).collect();
        self.boot_of_daemon += 1;
        self.look_at_harm();
        self.touched.another_life();
        self.shared = Arc::default();
        self.failure_reports = Reports::new(usize::from(threads));
        self.served_devices = superblock.devices_in_use().map(|on| on.number).collect();
        self.loss_reports = LossReports::new(threads);
        self.losses_due.clear();
        for index in 0..threads {
            let shared = Arc::clone(&self.shared);
            let mut host = Host::new((index, threads), owners.clone(), geometry, shared);
            for number in &self.served_devices {
                host.add_cache_device(*number);
            }
            if superblock.membership > 0 {
                let out = superblock.devices_out();
                host.keep_two(out.map(|on| 1 << on.number).sum());
            }
            self.hosts.push(host);
        }
        for (number, recovered) in (0..).zip(shards) {
            let memory = &mut self.memory;
            let engine = Engine::new(settings.clone(), recovered, boot_id, memory);
            let host = usize::from(owners[usize::from(number)]);
            self.hosts[host].add_shard(number, Shard::Cached(Box::new(engine)));
        }
        let count = self.volumes.len() as u16;
        let own: Vec<_> = (0..count).map(|volume| self.own_settings(volume)).collect();
        let stripes: Vec<_> = (0..count).map(|volume| self.stripe(volume)).collect();
        for (at, volume) in (0..).zip(&mut self.volumes) {
            let mut records = superblock.volumes.iter();
            let record = records.find(|record| record.id == volume.record_id);
            let record = record.ok_or("a volume is missing")?;
            let mode = Mode::from_number(record.mode).ok_or("a volume has no mode")?;
            let config = VolumeConfig {
                base: record.base,
                reserved_blocks: record.reserved_blocks,
                size_bytes: volume.served_sectors() * 512,
                mode,
            };
            for host in &mut self.hosts {
                host.add_volume(VolumeSlot(at), config);
            }
            if let Some(own) = own[usize::from(at)] {
                for engine in self.hosts.iter_mut().flat_map(|host| host.engines()) {
                    engine.set_volume_settings(VolumeSlot(at), own);
                }
            }
            for engine in self.hosts.iter_mut().flat_map(|host| host.engines()) {
                engine.set_stripe(VolumeSlot(at), stripes[usize::from(at)]);
                engine
                    .set_origin_answers_hits(VolumeSlot(at), self.plan.config.origins_answer_hits);
            }
            let is_away = away[usize::from(at)];
            let slot = if is_away {
                for host in &mut self.hosts {
                    host.instruct(&Instruction::SetAway(VolumeSlot(at)));
                }
                control.add_away(record.id)
            } else {
                control.add_volume(record.id)
            };
            assert_eq!(slot, VolumeSlot(at), "volumes keep their numbers");
            let life = if is_away { Life::Away } else { Life::Served };
            (volume.base, volume.mode, volume.life) = (record.base, mode, life);
            (volume.through, volume.was_clean) = (false, false);
            volume.heard = 0;
            volume.on_origin.serve(mode);
        }
        self.commands.control = Some(control);
        self.held_at_rest = self.memory.held;
        for volume in 0..self.volumes.len() as u16 {
            self.note_through(volume);
        }
        self.look_for_clean()
    }

    /// Makes the daemon's writes before it serves.
    fn write_at_start(&mut self, superblock: &mut Superblock) -> Check {
        for attempt in 0..8 {
            let mut rng = Rng::of(self.rng.bits(), 15);
            let mut control = Control::new(&mut self.cache, None, &mut rng);
            if superblock.write(&mut control).is_ok() {
                return Ok(());
            }
            if attempt >= 3 {
                self.cache.heal();
                self.cache.faulty = false;
            }
        }
        Err("the superblock cannot be written at the start".to_owned())
    }

    /// If nothing is dirty and the mode writes through, the origin is whole from now on.
    pub(super) fn note_through(&mut self, volume: u16) {
        let idle = self.requests.is_empty() && self.dirty_blocks(volume) == 0;
        let state = &mut self.volumes[usize::from(volume)];
        state.through = state.mode != Mode::Writeback && (state.through || idle);
    }

    /// The daemon ends: its engines are dropped, their counts kept. Where no device of the cache
    /// failed none may have been found wrong.
    pub(super) fn stop(&mut self) -> Check {
        let mut checksum_errors = 0;
        for mut host in std::mem::take(&mut self.hosts) {
            for engine in host.engines() {
                crate::states::collect(&mut self.outcome.counts, engine);
                checksum_errors += engine.stats().checksum_errors;
            }
        }
        if checksum_errors > 0 && self.cache.tally.total() == 0 && self.options.fail_at.is_none() {
            return Err(format!(
                "{checksum_errors} checksum errors were counted and nothing was damaged"
            ));
        }
        self.deliveries = super::deliveries::Deliveries::default();
        self.commands = super::commands::Commands::default();
        self.control_flushes.clear();
        self.in_flight.clear();
        self.free_in_flight.clear();
        self.due.clear();
        self.record_due = None;
        self.replacing = None;
        self.stopped = None;
        self.losses_due.clear();
        self.requests.clear();
        self.memory.reset_buffers();
        Ok(())
    }
}

pub(super) fn name(volume: usize) -> String {
    format!("volume-{volume}")
}

fn create_with_volumes(
    control: &mut Control<'_>,
    id: CacheId,
    plan: &crate::plan::Plan,
) -> Result<Superblock, SuperblockError> {
    let mut superblock = create(control, id, plan.config.geometry)?;
    if !plan.config.alternates {
        superblock.extents = Extents::of_version_1(&superblock.geometry);
    }
    for (at, sectors) in plan.config.volume_sectors.iter().enumerate() {
        superblock.add_volume(&name(at), sectors * 512, plan.config.modes[at] as u8)?;
    }
    if plan.config.copies > 1 {
        let size_bytes = plan.config.geometry.device_bytes() + plan.config.spare_bytes;
        for _ in 1..plan.config.cache_devices - plan.config.spare_devices {
            let added = superblock.add_device(size_bytes)?;
            superblock.grow(added, size_bytes)?;
        }
        superblock.set_copies(plan.config.first_copies);
    }
    superblock.write(control)?;
    Ok(superblock)
}
