//! Dirty data on two devices (I28): one of them fails, is lost, and comes back old. Nothing that was
//! acknowledged may be lost or fail by that, so no fault of a device explains anything here.

use forebay_cache::control::{Change, Command};
use forebay_cache::{Loss, LossReport};
use forebay_engine::{Action, Engine, Nanos, Operation, Superblock, SuperblockError};

use super::deliveries::{CONTROL, Delivery};
use super::served::Served;
use super::{Check, World, touched};
use crate::device::{Control, Fate};
use crate::disk::PAGE_BYTES;
use crate::rng::Rng;

/// Time before the control plane tries again, while a command writes the superblock.
const AGAIN: Nanos = Nanos(200_000);
/// Attempts to put a loss on record.
const ATTEMPTS: u32 = 8;

impl World<'_> {
    /// Whether dirty data is on two devices, of which one at a time fails.
    pub(super) fn keeps_two(&self) -> bool {
        self.plan.config.copies > 1
    }

    /// Whether a device is gone that is not the one that fails, of a cache that keeps two copies.
    pub(super) fn second_is_gone(&self) -> bool {
        let failing = self.plan.config.failing_device;
        let mut gone = self.cache.gone.iter();
        self.keeps_two() && gone.any(|number| Some(*number) != failing)
    }

    /// A device goes that is not the one that fails, where that one is out and dirty data is on two
    /// others.
    pub(super) fn second_gone(&mut self, device: u8) {
        let failing = self.plan.config.failing_device;
        let is_in = |number: u8| self.served_devices.contains(&number);
        let comes = self.commands_run_of(|what| matches!(what, Command::AddDevice(_)));
        let failing_is_in = comes || failing.is_some_and(is_in);
        let is_alone = |engine: &Engine| engine.is_alone_on(device) || engine.is_mirroring();
        if self.is_sound
            || self.second_is_gone()
            || failing_is_in
            || failing == Some(device)
            || !is_in(device)
            || self.served_devices.len() < 2
            || self.engines().any(is_alone)
        {
            return;
        }
        self.tell(|_| format!("device {device} of the cache is gone too"));
        self.counts().add("two cache devices gone in turn", 1);
        self.cache.gone.insert(device);
        self.cache.tally.damage += 1;
    }

    /// The fate of an operation where one device alone fails: a write that the device lies about is
    /// one of two. A cache cannot know of any other (MODEL.md).
    pub(super) fn confined(&self, host: usize, action: &Action, fate: Fate) -> Fate {
        let is_lie = matches!(fate, Fate::Lost | Fate::Elsewhere { .. })
            && matches!(action.operation, Operation::Write { .. });
        if self.keeps_two() && is_lie && !self.hosts[host].is_one_of_two(action.op) {
            Fate::Good
        } else {
            fate
        }
    }

    /// The fate of a write that lands now, likewise: one that would spoil what cannot be missed is lost.
    pub(super) fn landing_of(&self, fate: Fate, len_bytes: u64) -> Fate {
        let Fate::Elsewhere { offset_bytes } = fate else {
            return fate;
        };
        let mut pages = (offset_bytes..offset_bytes + len_bytes).step_by(PAGE_BYTES);
        if pages.all(|at| self.damage_may_be_at(at)) {
            fate
        } else {
            Fate::Lost
        }
    }

    /// Whether the page at a place on the disk may be damaged.
    pub(super) fn damage_may_be_at(&self, place: u64) -> bool {
        !self.keeps_two()
            || touched::damage_shows(&self.cache, &touched::page_at(&self.cache.disk, place))
    }

    /// Waits until all dirty data is on two devices, and lets devices fail from then on.
    pub(super) fn copies_whole(&mut self) -> Check {
        if !self.is_sound {
            return Ok(());
        }
        let mut life = None;
        while life != Some(self.boot_of_daemon) {
            life = Some(self.boot_of_daemon);
            self.finish_commands()?;
            if life != Some(self.boot_of_daemon) {
                continue;
            }
            if !self.superblock().keeps_two() && self.command(Command::Copies(2), None)?.is_none() {
                self.counts().add("one device left, and no second copy", 1);
                return Ok(());
            }
            // A thread looks at its shards when it starts.
            self.pump_all()?;
            self.wait_for("two copies of dirty data", Self::is_whole)?;
            if self.superblock().keeps_two() {
                self.command(Command::AllOnTwo, None)?;
                self.finish_commands()?;
            }
        }
        self.counts().add("dirty data copied to a second device", 1);
        self.is_sound = false;
        self.faults(true);
        Ok(())
    }

    /// Puts on record that all dirty data is on two devices, as soon as it is.
    pub(super) fn note_all_on_two(&mut self) -> Check {
        if self.hosts.is_empty() || !self.keeps_two() || self.second_is_gone() {
            return Ok(());
        }
        let superblock = self.superblock();
        let wants_it = superblock.keeps_two() && !superblock.is_all_on_two();
        if !wants_it
            || self.commands_run_of(|what| matches!(what, Command::AllOnTwo))
            || !self.has_two_of_all()
        {
            return Ok(());
        }
        let cut = self.rng.percent(5).then(|| self.rng.below(12) as u32);
        self.counts().add("all dirty data on two devices", 1);
        self.command(Command::AllOnTwo, cut).map(drop)
    }

    /// Whether each shard is sound, and has all dirty data on two devices.
    pub(super) fn has_two_of_all(&self) -> bool {
        let mut engines = self.engines();
        engines.all(|engine| engine.failure().is_none() && !engine.is_alone_somewhere())
    }

    /// Whether a start may be refused because a device is missing: dirty data may be on it alone, as
    /// far as is on record on the others.
    pub(super) fn may_be_alone_on(&self, missing: &[u8]) -> bool {
        let there = self.cache.numbers.iter().copied();
        let there = there.filter(|number| !missing.contains(number));
        let Some(superblock) = self.newest_superblock_on(there) else {
            return true;
        };
        let is_dispensable = |number: u8| {
            let mut devices = superblock.devices.iter();
            devices.any(|on| on.number == number && on.dispensable)
        };
        missing.len() > 1 || !missing.iter().all(|number| is_dispensable(*number))
    }

    pub(super) fn is_whole(&self) -> bool {
        !self.commands_run_of(|what| matches!(what, Command::Copies(_)))
            && self.engines().all(|engine| !engine.is_mirroring())
    }

    /// A thread says that a device is being lost.
    pub(super) fn loss_reported(&mut self, report: LossReport) -> Check {
        self.tell(|_| format!("a thread loses device {}", report.device));
        if self.cache.tally.total() == 0 && self.cache.gone.is_empty() {
            return Err(format!("device {} is lost without a fault", report.device));
        }
        if let Some(loss) = self.loss_reports.take(report) {
            let due = self.now.after(self.plan.config.record_delay);
            self.losses_due.push((due, loss));
        }
        Ok(())
    }

    /// When the next loss is put on record.
    pub(super) fn loss_due(&self) -> Option<Nanos> {
        self.losses_due.iter().map(|(due, _)| *due).min()
    }

    /// Puts a loss on record, on the other devices, and tells all threads.
    pub(super) fn put_loss_on_record(&mut self) -> Check {
        let (_, loss) = self.losses_due.remove(0);
        if !self.loss_reports.may_record(&loss) {
            return self.loss_is_not_recorded(loss.device);
        }
        let Some(mut superblock) = self.commands.take_superblock() else {
            self.losses_due.push((self.now.after(AGAIN), loss));
            return Ok(());
        };
        let Loss {
            device, clean_from, ..
        } = loss;
        let change = Change::LoseDevice(device, clean_from);
        self.cache.numbers.retain(|number| *number != device);
        self.served_devices.retain(|number| *number != device);
        let cut = self.rng.percent(15).then(|| self.rng.below(12) as u32);
        // What is watched after an orderly stop is the shards.
        let cut = cut.filter(|_| self.stopped.is_none());
        let life = self.boot_of_daemon;
        let mut result = Ok(());
        for attempt in 0..ATTEMPTS {
            let changed = match change.of(&superblock) {
                Ok(changed) => changed,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            let mut served = Served::new(self, cut.filter(|_| attempt == 0));
            result = superblock.replace(changed, &mut served);
            let (was_cut, trouble) = (served.cut, served.trouble.take());
            trouble.map_or(Ok(()), Err)?;
            if self.boot_of_daemon != life {
                return Ok(());
            }
            if was_cut {
                self.commands.give_superblock(superblock);
                self.counts().add("loss of a device cut short", 1);
                let power = self.rng.percent(50);
                return self.crash_here(power);
            }
            if result.is_ok() {
                break;
            }
        }
        self.commands.give_superblock(superblock);
        self.tell(|_| format!("on record: device {device} is out: {result:?}"));
        self.counts().add("cache devices lost", 1);
        self.loss_told(device, result.is_ok());
        Ok(())
    }

    /// Tells all threads that a loss is on record, or could not be put there.
    pub(super) fn loss_told(&mut self, device: u8, well: bool) {
        self.loss_reports.recorded(well);
        for host in 0..self.hosts.len() {
            self.post(CONTROL, host, Delivery::LossRecorded(device, well));
        }
    }

    /// A machine starts without the device that fails, if the plan says so. Returns the devices that
    /// are there.
    pub(super) fn devices_at_start(&mut self) -> Vec<u8> {
        let mut named = self.devices_in_use();
        if self.two_lost {
            return self.one_of_two_is_missing(named);
        }
        let misses = self.is_strict()
            && !self.is_sound
            && self.rng.percent(self.plan.config.missing_percent);
        if misses
            && named.len() > 1
            && let Some(failing) = self.plan.config.failing_device
            && named.contains(&failing)
        {
            self.counts().add("starts without a cache device", 1);
            self.tell(|_| format!("device {failing} is missing at this start"));
            named.retain(|number| *number != failing);
        }
        named
    }

    /// The devices that are in the cache and not out, as the newest superblock says.
    pub(super) fn devices_in_use(&self) -> Vec<u8> {
        let newest = self.newest_superblock();
        newest.map_or(vec![0], |superblock| {
            superblock.devices_in_use().map(|on| on.number).collect()
        })
    }

    /// Has somebody try to use the cache with a device that is out, as it was or as it is.
    pub(super) fn an_out_device_is_refused(&mut self) -> Check {
        let Some(superblock) = self.newest_superblock() else {
            return Ok(());
        };
        if superblock.devices_out().next().is_none() {
            return Ok(());
        }
        let (faulty, numbers) = (
            std::mem::take(&mut self.cache.faulty),
            std::mem::take(&mut self.cache.numbers),
        );
        let gone = std::mem::take(&mut self.cache.gone);
        self.cache.numbers = superblock.devices.iter().map(|on| on.number).collect();
        let mut rng = Rng::new(1);
        let found = Superblock::read(&mut Control::new(&mut self.cache, None, &mut rng));
        (self.cache.faulty, self.cache.numbers, self.cache.gone) = (faulty, numbers, gone);
        self.counts().add("devices that are out, and back", 1);
        match found {
            Err(SuperblockError::Out { .. } | SuperblockError::Device(_)) => Ok(()),
            other => Err(format!("a device that is out is believed: {other:?}")),
        }
    }
}
