//! A machine: simulated devices, the shards of one cache, clients, and virtual time.

mod aimed;
mod attach;
mod away;
mod carrying_out;
mod check;
mod checkpoint;
mod client;
mod commands;
mod crash;
mod deliveries;
mod failed_cache;
mod frozen;
mod given_up;
mod growth;
mod old_device;
mod on_origin;
mod operations;
mod own;
mod reconnect;
mod replacing;
mod request;
mod resize;
mod served;
mod steps;
mod stripes;
mod superblocks;
mod time;
mod touched;
mod two_copies;
mod two_lost;
mod volume;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use std::sync::Arc;

use forebay_cache::{ControlFlush, Host, Loss, LossReports, Reports, Shared};
use forebay_engine::{CacheId, Device as DeviceName, Engine, Nanos};

use crate::device::{Device, Tally};
use crate::disk::Disk;
use crate::memory::SimMemory;
use crate::model::Model;
use crate::outcome::{Counts, Outcome, Violation};
use crate::payload::{self, INITIAL, Value};
use crate::plan::{FaultRates, Plan, Trap};
use crate::rng::{Rng, mix};
use operations::InFlight;
use request::{Kind, Pending};
use volume::{Life, VolumeState};

/// Options of a run besides its plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Tell what happens.
    pub trace: bool,
    /// Crash when this many device operations were submitted: how many, and whether power is cut.
    pub crash_at: Option<(u64, bool)>,
    /// Fail this device operation.
    pub fail_at: Option<u64>,
}

/// Ends a run: the fault, in words.
pub(crate) type Check<T = ()> = Result<T, String>;

/// See the module.
pub(crate) struct World<'a> {
    plan: &'a Plan,
    options: Options,
    rng: Rng,
    now: Nanos,
    cache: Device,
    origins: Vec<Device>,
    /// The driver's side of each origin.
    connections: Vec<reconnect::Connection>,
    memory: SimMemory,
    /// The threads of the daemon.
    hosts: Vec<Host<u64>>,
    shared: Arc<Shared>,
    /// Cache devices that the hosts flush.
    served_devices: Vec<u8>,
    /// Counts daemons.
    boot_of_daemon: u64,
    deliveries: deliveries::Deliveries,
    commands: commands::Commands,
    control_flushes: Vec<ControlFlush>,
    /// Origins are there at every start from now on.
    origins_stay: bool,
    /// Result of an orderly stop.
    stopped: Option<bool>,
    names_given: u32,
    cache_id: CacheId,
    volumes: Vec<VolumeState>,
    model: Model,
    in_flight: Vec<Option<InFlight>>,
    free_in_flight: Vec<usize>,
    due: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    submissions: u64,
    /// Of these, transfers of shards.
    transfers: u64,
    /// Cache devices before the last orderly stop.
    devices_before_stop: usize,
    requests: BTreeMap<u64, Pending>,
    next_request: u64,
    next_value: Value,
    boot: u64,
    /// Blocks that were in memory buffers alone when the daemon was killed.
    buffered: BTreeSet<(usize, usize)>,
    /// The record outside the cache device: that the cache failed, and the ranges that are
    /// newer in it than on its origins (I15).
    abandoned: Option<failed_cache::Record>,
    /// The reports of this life's hosts.
    failure_reports: Reports,
    /// Likewise, of devices that are being lost.
    loss_reports: LossReports,
    /// Losses that are to be put on record, and when.
    losses_due: Vec<(Nanos, Loss)>,
    /// A device of the cache as it was before an attach.
    old: Option<old_device::OldDevice>,
    /// Blocks that faults touched.
    touched: touched::Touched,
    superblocks: superblocks::Superblocks,
    /// Buffers of engines that have nothing to do.
    held_at_rest: u64,
    /// A device lied where only a checksum of what is gone could tell.
    lied: bool,
    /// The number of faults of the cache's devices before the last attach that succeeded began: it
    /// has found and settled their damage.
    settled_faults: Option<u64>,
    /// No cache device may fail yet: dirty data may be on one.
    is_sound: bool,
    /// Two cache devices are lost at a time.
    two_lost: bool,
    /// A cache device is being replaced.
    replacing: Option<replacing::Replacing>,
    /// Faults that wait for their operation.
    traps: Vec<Trap>,
    /// The next record, and its time.
    record_due: Option<(Nanos, failed_cache::Record)>,
    step: u32,
    outcome: Outcome,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan, options: Options) -> Outcome {
    crate::quiet::catch(|sink| {
        let mut world = World::new(plan, options);
        world.begin_small();
        let result = world.run();
        world.count_faults();
        if let Err(what) = result {
            world.outcome.violation = Some(Violation {
                step: world.step,
                what,
            });
        }
        sink(std::mem::take(&mut world.outcome));
    })
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: Options) -> World<'a> {
        let config = &plan.config;
        let rng = Rng::of(plan.schedule, 2);
        let span_bytes = config.geometry.device_bytes() + config.spare_bytes;
        let disk_bytes = span_bytes * u64::from(config.cache_devices);
        let cache = Disk::new(disk_bytes, config.cache_unit_bytes);
        let origins = config
            .volume_sectors
            .iter()
            .enumerate()
            .map(|(volume, sectors)| {
                let mut disk = Disk::new(sectors * 512, config.origin_unit_bytes);
                let mut bytes = vec![0; *sectors as usize * 512];
                payload::fill(&mut bytes, volume as u16, 0, INITIAL);
                disk.write(0, &bytes);
                disk.flush(disk.order());
                Device::new(disk, config.origin_faults)
            });
        World {
            plan,
            options,
            rng,
            now: Nanos(0),
            cache: Device::several(cache, span_bytes, config.cache_faults)
                .failing(config.failing_device)
                .apart(config.copies > 1),
            is_sound: config.changes_copies,
            two_lost: false,
            replacing: None,
            origins: origins.collect(),
            connections: Vec::new(),
            memory: SimMemory::new(
                config.geometry.shards,
                config.memory_bytes,
                config.buffer_bytes,
            ),
            hosts: Vec::new(),
            shared: Arc::default(),
            served_devices: Vec::new(),
            boot_of_daemon: 0,
            deliveries: deliveries::Deliveries::default(),
            commands: commands::Commands::default(),
            control_flushes: Vec::new(),
            origins_stay: false,
            stopped: None,
            names_given: 0,
            cache_id: CacheId([7; 16]),
            volumes: (config.volume_sectors.iter().enumerate())
                .map(|(at, sectors)| VolumeState::new(at, *sectors))
                .collect(),
            model: Model::new(&config.volume_sectors),
            in_flight: Vec::new(),
            free_in_flight: Vec::new(),
            due: BinaryHeap::new(),
            submissions: 0,
            transfers: 0,
            devices_before_stop: 0,
            requests: BTreeMap::new(),
            next_request: 1,
            next_value: INITIAL + 1,
            boot: 1,
            buffered: BTreeSet::new(),
            abandoned: None,
            failure_reports: Reports::new(0),
            loss_reports: LossReports::default(),
            losses_due: Vec::new(),
            old: None,
            touched: touched::Touched::default(),
            superblocks: superblocks::Superblocks::default(),
            held_at_rest: 0,
            lied: false,
            settled_faults: None,
            traps: Vec::new(),
            record_due: None,
            step: 0,
            outcome: Outcome::default(),
        }
    }

    fn run(&mut self) -> Check {
        self.create()?;
        self.attach(&[])?;
        for (name, step) in &self.plan.steps {
            self.step = *name;
            self.rng = Rng::of(self.plan.schedule, 1000 + u64::from(*name));
            self.replacing_goes_on()?;
            self.look_for_both();
            self.note_all_on_two()?;
            self.do_step(step)?;
            let events = if self.plan.config.pace == 0 {
                0
            } else {
                self.rng.below(self.plan.config.pace + 1)
            };
            for _ in 0..events {
                if !self.event(None)? {
                    break;
                }
            }
        }
        self.step += 1;
        self.rng = Rng::of(self.plan.schedule, 3);
        self.finish()
    }

    /// Counts the devices' faults in this run, by kind, and its shards and devices.
    fn count_faults(&mut self) {
        let config = &self.plan.config;
        let several_shards = u64::from(config.geometry.shards > 1);
        let several_threads = u64::from(config.threads > 1);
        let several_devices = u64::from(config.cache_devices > 1);
        let of_cache = self.cache.tally;
        let of_origins: Vec<Tally> = self.origins.iter().map(|origin| origin.tally).collect();
        let origins = |kind: fn(&Tally) -> u64| of_origins.iter().map(kind).sum();
        let counts = self.counts();
        counts.add("runs of several shards", several_shards);
        counts.add("runs of several threads", several_threads);
        counts.add("runs of several cache devices", several_devices);
        counts.add("fault: cache read failed", of_cache.reads);
        counts.add("fault: cache read returned else", of_cache.bad_reads);
        counts.add("fault: cache write failed", of_cache.writes);
        counts.add("fault: cache flush failed", of_cache.flushes);
        counts.add("fault: cache damaged or gone", of_cache.damage);
        counts.add("fault: origin read failed", origins(|tally| tally.reads));
        counts.add("fault: origin write failed", origins(|tally| tally.writes));
        counts.add("fault: origin flush failed", origins(|tally| tally.flushes));
    }

    fn tell(&mut self, what: impl FnOnce(&World<'_>) -> String) {
        if self.options.trace {
            let line = format!("{:>4} {:>14} ns  {}", self.step, self.now.0, what(self));
            crate::quiet::note(line.clone());
            self.outcome.trace.push(line);
        }
    }

    fn hash(&mut self, a: u64, b: u64) {
        self.outcome.hash = mix(self.outcome.hash ^ mix(a.wrapping_mul(31).wrapping_add(b)));
    }

    fn device(&mut self, name: DeviceName) -> &mut Device {
        match name {
            DeviceName::Cache(_) => &mut self.cache,
            DeviceName::Origin(volume) => &mut self.origins[usize::from(volume.0)],
        }
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.outcome.counts
    }

    /// The shards of the cache, by number.
    fn engines(&self) -> impl Iterator<Item = &Engine> {
        let shards =
            (0..self.plan.config.geometry.shards).map(|shard| (shard, self.host_of(shard)));
        shards.filter_map(|(shard, host)| self.hosts.get(host)?.engine(shard))
    }

    /// The engines, to change.
    fn engines_mut(&mut self) -> impl Iterator<Item = &mut Engine> {
        self.hosts.iter_mut().flat_map(Host::engines)
    }

    fn host_of(&self, shard: u16) -> usize {
        usize::from(shard) % self.hosts.len().max(1)
    }

    /// Lets a thread do what became possible, and takes what it wants done.
    fn pump(&mut self, host: usize) -> Check {
        loop {
            self.hosts[host].advance(self.now, &mut self.memory);
            self.look_for_failure();
            self.note_dirty_met();
            let mut idle = true;
            while let Some(answer) = self.hosts[host].next_answer() {
                idle = false;
                self.answered(host, answer)?;
            }
            while let Some(order) = self.hosts[host].next_order() {
                self.fly(host, order)?;
            }
            self.checksum_long_writes(host);
            while let Some((to, message)) = self.hosts[host].next_message() {
                self.post(
                    host,
                    usize::from(to),
                    deliveries::Delivery::FromHost(message),
                );
            }
            if let Some(report) = self.hosts[host].next_report() {
                self.reported(host as u16, report)?;
            }
            while let Some(report) = self.hosts[host].next_loss() {
                self.loss_reported(report)?;
            }
            if idle {
                return Ok(());
            }
        }
    }

    /// A driver need not do this, so it is done every other time.
    fn checksum_long_writes(&mut self, host: usize) {
        if self.now.0.is_multiple_of(2) {
            for shard in self.hosts[host].own_shards().to_vec() {
                self.hosts[host].checksum_long_writes(shard, &self.memory);
            }
        }
    }

    /// If somebody waits for memory, what a thread did may have freed it.
    fn pump_starving(&mut self, host: usize) -> Check {
        if self.memory.refusals > 0 {
            self.memory.refusals = 0;
            self.outcome.counts.add("memory refused", 1);
            for other in (0..self.hosts.len()).filter(|other| *other != host) {
                self.pump(other)?;
            }
        }
        Ok(())
    }

    fn faults(&mut self, on: bool) {
        self.cache.faulty = on && self.cache.rates != FaultRates::NONE && !self.is_sound;
        for origin in &mut self.origins {
            origin.faulty = on && origin.rates != FaultRates::NONE;
        }
    }
}
