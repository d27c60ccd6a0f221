//! A machine: simulated devices, the shards of one cache, clients, and virtual time.

mod aimed;
mod attach;
mod away;
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
mod own;
mod reconnect;
mod replacing;
mod resize;
mod served;
mod steps;
mod stripes;
mod superblocks;
mod touched;
mod two_copies;
mod two_lost;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use std::sync::Arc;

use forebay_cache::{ControlFlush, Host, Loss, LossReports, Order, Reports, Shared};
use forebay_engine::format::extents::place_of;
use forebay_engine::{
    Action, BlockKey, Buf, CacheId, Device as DeviceName, Engine, Mode, Nanos, OpId, Operation,
    VolumeSlot,
};

use crate::device::{Device, Fate, How, Tally};
use crate::disk::Disk;
use crate::memory::SimMemory;
use crate::model::{Effect, Event, Model, Range};
use crate::outcome::{Counts, Outcome, Violation};
use crate::payload::{self, INITIAL, Value};
use crate::plan::{FaultRates, Plan, Trap};
use crate::rng::{Rng, mix};

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

/// More events than a request of a few blocks needs to end, and more for each block of longer ones:
/// each may have to be written back first, one at a time.
const EVENT_LIMIT: u64 = 20_000;
const EVENTS_OF_A_BLOCK: u64 = 100;
/// More virtual time than any request needs to end.
const TIME_LIMIT: Nanos = Nanos(3_600 * Nanos::SECOND.0);

/// Ends a run: the fault, in words.
pub(crate) type Check<T = ()> = Result<T, String>;

/// A device operation in flight.
#[derive(Debug)]
struct InFlight {
    host: usize,
    /// Whose operation it is; a flush is its host's.
    shard: Option<u16>,
    action: Action,
    fate: Fate,
    /// Of a flush: the writes it covers. Of others: unused.
    order: u64,
    /// A write's data, if the device took it at once and not at the end.
    taken: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read { prefetch: bool },
    Write { effect: Effect, fua: bool },
    Flush,
}

/// A client's request in progress.
#[derive(Debug)]
struct Pending {
    kind: Kind,
    range: Range,
    /// The thread that has it.
    host: usize,
    /// A buffer for each piece that carries data.
    bufs: Vec<(Range, Buf)>,
    submitted: Event,
    /// The command that asks.
    command: Option<u32>,
    /// Its volume was being detached while it was in progress.
    leaving: bool,
    /// A flush of the origin had failed that not all shards had heard of.
    untold: bool,
    /// The number of faults before it.
    since: usize,
    /// Up to which of them failures of the origin's flushes had been told.
    heard: usize,
    /// Changes of its volume on the origin that had been answered before it.
    on_origin: u64,
    /// Of a flush: clients' changes on the origin are among what it is to make durable.
    is_owed: bool,
    /// It came upon dirty data in a cache that failed.
    met_dirty: bool,
    /// Where two devices were lost at a time: it may have come upon dirty data, which may have become
    /// clean since.
    found_dirty: bool,
}

#[derive(Debug)]
struct VolumeState {
    record_id: u32,
    base: BlockKey,
    name: String,
    life: Life,
    mode: Mode,
    sectors: u64,
    /// Sectors at the end that are not served yet.
    hidden: u64,
    /// The origin has them now.
    grown: bool,
    /// Nothing was dirty at some time since when the mode always wrote through.
    through: bool,
    /// Nothing was dirty when last looked.
    was_clean: bool,
    /// Failures of the origin's flushes up to this fault have been told.
    heard: usize,
    on_origin: on_origin::OnOrigin,
    /// Requests that were not sent since its origin is not there.
    missed: u32,
    /// A command forgets it, with its dirty data.
    forgotten: bool,
}

impl VolumeState {
    /// A volume before the first attach, by the name it was created with.
    fn new(at: usize, sectors: u64) -> VolumeState {
        VolumeState {
            record_id: 0,
            base: BlockKey(0),
            name: attach::name(at),
            life: Life::Served,
            mode: Mode::Writeback,
            sectors,
            hidden: 0,
            grown: false,
            through: false,
            was_clean: false,
            heard: 0,
            on_origin: on_origin::OnOrigin::default(),
            missed: 0,
            forgotten: false,
        }
    }
}

/// Whether clients may ask for anything of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Served,
    /// Whether it is detached is not known: it takes no requests until it is, or the next start.
    Refusing,
    /// Its origin is whole by itself, and used by itself.
    Detached,
    /// Its origin is not there.
    Away,
}

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

    fn fly(&mut self, host: usize, order: Order) -> Check {
        let (shard, action) = match order {
            Order::Transfer(shard, action) => (Some(shard), action),
            Order::Flush(device) => {
                let action = Action {
                    op: OpId(0),
                    device,
                    operation: Operation::Flush,
                };
                (None, action)
            }
        };
        self.submissions += 1;
        self.transfers += u64::from(shard.is_some());
        self.outcome.operations += 1;
        self.check_is_there(&action)?;
        let (is_cache, latency) = match action.device {
            DeviceName::Cache(_) => (true, self.plan.config.cache_latency),
            DeviceName::Origin(_) => (false, self.plan.config.origin_latency),
        };
        let mut duration = latency.least_ns + self.rng.below(latency.spread_ns + 1);
        if self.rng.in_10_000(latency.spikes) {
            duration *= 100;
        }
        let mut rng = self.rng.clone();
        let number = match action.device {
            DeviceName::Cache(number) => number,
            DeviceName::Origin(_) => 0,
        };
        let device = self.device(action.device);
        let fate = match &action.operation {
            Operation::Read { offset_bytes, .. } => device.read_fate(*offset_bytes, &mut rng),
            Operation::Write { offset_bytes, .. } => device.write_fate(*offset_bytes, &mut rng),
            Operation::Flush | Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                device.plain_fate(number, device.rates.flush, &mut rng)
            }
            Operation::Discard { offset_bytes, .. }
            | Operation::WriteZeroes { offset_bytes, .. } => {
                let (number, _) = place_of(*offset_bytes);
                device.plain_fate(number, device.rates.discard, &mut rng)
            }
        };
        let order = device.disk.order();
        self.rng = rng;
        self.connection_flushes(action.device, &action.operation);
        let fate = if self.options.fail_at == Some(self.submissions) {
            self.outcome.counts.add("failure point reached", 1);
            Fate::Fails {
                landing: self.rng.below(3) as u8,
                sticky: false,
            }
        } else {
            fate
        };
        let (fate, slower) = self.spring(action.device, &action.operation, fate);
        let fate = self.confined(host, &action, fate);
        duration += slower.0;
        if is_cache
            && matches!(fate, Fate::Lost | Fate::Elsewhere { .. })
            && matches!(action.operation, Operation::Write { .. })
        {
            self.lied = true;
        }
        let taken = match &action.operation {
            Operation::Write { bufs, .. } if self.rng.percent(30) => Some(self.gather(bufs)),
            _ => None,
        };
        let (kind, offset, len) = shape(&action.operation);
        self.hash(
            kind,
            offset ^ len.rotate_left(40) ^ u64::from(is_cache) << 63,
        );
        self.tell(|_| {
            format!(
                "  -> {:?} {} fate {fate:?}",
                action.device,
                describe(&action.operation)
            )
        });
        let at = self.free_in_flight.pop().unwrap_or(self.in_flight.len());
        if at == self.in_flight.len() {
            self.in_flight.push(None);
        }
        self.in_flight[at] = Some(InFlight {
            host,
            shard,
            action,
            fate,
            order,
            taken,
        });
        self.due.push(Reverse((
            self.now.after(Nanos(duration)),
            self.submissions,
            at,
        )));
        Ok(())
    }

    fn gather(&self, bufs: &[Buf]) -> Vec<u8> {
        let mut data = Vec::with_capacity(bufs.iter().map(|buf| buf.len_bytes as usize).sum());
        for buf in bufs {
            data.extend_from_slice(self.memory.landed(*buf));
        }
        data
    }

    /// The next thing that happens by itself. False if nothing will, or not before `until`.
    fn event(&mut self, until: Option<Nanos>) -> Check<bool> {
        let landing = self.due.peek().map(|Reverse((due, ..))| *due);
        let deadline = self.next_deadline().map(|at| at.max(self.now));
        let record = self.record_due.as_ref().map(|(due, _)| *due);
        let loss = self.loss_due();
        let Some(next) = [landing, deadline, record, loss, self.deliveries.next_due()]
            .into_iter()
            .flatten()
            .min()
        else {
            return Ok(false);
        };
        if until.is_some_and(|until| next > until) {
            return Ok(false);
        }
        if let Some((crash_at, power)) = self.options.crash_at
            && self.submissions >= crash_at
        {
            self.options.crash_at = None;
            self.outcome.counts.add("crash point reached", 1);
            self.crash_here(power)?;
            return Ok(true);
        }
        let advanced = next > self.now;
        self.now = next;
        if record == Some(next) {
            self.put_on_record()?;
        } else if loss == Some(next) {
            self.put_loss_on_record()?;
        } else if self.deliveries.next_due() == Some(next) {
            self.deliver()?;
        } else if landing == Some(next) {
            let Some(Reverse((_, _, at))) = self.due.pop() else {
                return Ok(false);
            };
            self.end_operation(at)?;
        } else {
            let before = self.submissions;
            for host in 0..self.hosts.len() {
                let due = self.hosts[host].next_deadline();
                if due.is_some_and(|at| at <= self.now) {
                    self.pump(host)?;
                }
            }
            let still = self.next_deadline();
            if !advanced && before == self.submissions && still.is_some_and(|at| at <= self.now) {
                // Nothing happens at this deadline, and it does not move.
                if let Some(landing) = landing {
                    self.now = landing;
                    let Some(Reverse((_, _, at))) = self.due.pop() else {
                        return Ok(false);
                    };
                    self.end_operation(at)?;
                } else {
                    return Err(format!(
                        "the engine's deadline {still:?} has come and nothing is done about it"
                    ));
                }
            }
        }
        Ok(true)
    }

    /// An operation completes.
    fn end_operation(&mut self, at: usize) -> Check {
        if let Some(operation) = &self.in_flight[at] {
            self.may_reconnect(operation.action.device);
        }
        let operation = self.in_flight[at].take().expect("an operation ends once");
        self.free_in_flight.push(at);
        let before = self.order_before(operation.action.device);
        let result = self.carry_out(&operation);
        self.connection_answered(&operation, before, &result);
        self.look_at_harm();
        if let (Operation::Flush, DeviceName::Origin(volume), Err(_)) = (
            &operation.action.operation,
            operation.action.device,
            &result,
        ) {
            self.note_failure(Some(How::Flush), Some(volume.0));
        }
        self.hash(
            7,
            u64::from(operation.action.op.0) << 1 | u64::from(result.is_ok()),
        );
        self.tell(|_| {
            format!(
                "  <- {:?} {} {result:?}",
                operation.action.device,
                describe(&operation.action.operation)
            )
        });
        let InFlight {
            host,
            shard,
            action,
            ..
        } = operation;
        let (thread, memory) = (&mut self.hosts[host], &mut self.memory);
        match shard {
            Some(shard) => thread.complete(self.now, shard, action.op, result, memory),
            None => thread.flushed(self.now, action.device, result, memory),
        }
        self.look_at_answered();
        self.pump(host)?;
        self.pump_starving(host)?;
        self.look_for_clean()
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

    fn next_deadline(&self) -> Option<Nanos> {
        self.hosts.iter().filter_map(Host::next_deadline).min()
    }

    fn carry_out(&mut self, operation: &InFlight) -> Result<(), forebay_engine::DeviceError> {
        if is_straight(&operation.action.operation) && self.rng.percent(3) {
            // A device that wants its memory aligned.
            return Err(forebay_engine::DeviceError::NotStraight);
        }
        let mut rng = self.rng.clone();
        let result = match &operation.action.operation {
            Operation::Read { offset_bytes, bufs } => {
                let mut data = vec![0; bufs.iter().map(|buf| buf.len_bytes as usize).sum()];
                let result = self.device(operation.action.device).read(
                    *offset_bytes,
                    &mut data,
                    operation.fate,
                );
                if result.is_ok() {
                    let mut at = 0;
                    for buf in bufs {
                        let len = buf.len_bytes as usize;
                        self.memory
                            .landing(*buf)
                            .copy_from_slice(&data[at..at + len]);
                        at += len;
                    }
                }
                result
            }
            Operation::Write { offset_bytes, bufs } => {
                let data = match &operation.taken {
                    Some(data) => data.clone(),
                    None => self.gather(bufs),
                };
                let fate = self.landing_of(operation.fate, data.len() as u64);
                self.device(operation.action.device)
                    .write(*offset_bytes, &data, fate, &mut rng)
            }
            Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                return Err(forebay_engine::DeviceError::Unsupported);
            }
            Operation::Flush => match operation.action.device {
                DeviceName::Origin(volume) => self.flush_origin(volume, operation, &mut rng),
                DeviceName::Cache(number) => {
                    let fate = operation.fate;
                    self.cache
                        .flush_one(number, operation.order, fate, &mut rng)
                }
            },
            Operation::Discard {
                offset_bytes,
                len_bytes,
            } => {
                let is_cache = matches!(operation.action.device, DeviceName::Cache(_));
                let support = if is_cache {
                    2
                } else {
                    self.plan.config.origin_discards
                };
                match support {
                    0 => Err(forebay_engine::DeviceError::Unsupported),
                    1 => self.zero(operation, *offset_bytes, 0, &mut rng),
                    _ => self.zero(operation, *offset_bytes, *len_bytes, &mut rng),
                }
            }
            Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => self.zero(operation, *offset_bytes, *len_bytes, &mut rng),
        };
        self.rng = rng;
        result
    }

    fn zero(
        &mut self,
        operation: &InFlight,
        offset_bytes: u64,
        len_bytes: u64,
        rng: &mut Rng,
    ) -> Result<(), forebay_engine::DeviceError> {
        let device = self.device(operation.action.device);
        let place = device.place(offset_bytes);
        if device.is_gone_at(offset_bytes) {
            return Err(forebay_engine::DeviceError::Gone);
        }
        if let Fate::Fails { landing, .. } = operation.fate {
            device.tally.writes += 1;
            device.harm(How::Write, place, len_bytes, &[]);
            if landing > 0 && rng.percent(50) {
                device.disk.zero(place, len_bytes);
            }
            return Err(forebay_engine::DeviceError::Io);
        }
        device.disk.zero(place, len_bytes);
        Ok(())
    }

    /// A flush of an origin: if it fails and loses something, the model learns what.
    fn flush_origin(
        &mut self,
        volume: VolumeSlot,
        operation: &InFlight,
        rng: &mut Rng,
    ) -> Result<(), forebay_engine::DeviceError> {
        let at = usize::from(volume.0);
        let sectors = self.volumes[at].sectors;
        if matches!(operation.fate, Fate::Good) {
            return self.origins[at].flush(operation.order, operation.fate, rng);
        }
        let mut before = vec![0; sectors as usize * 512];
        self.origins[at].disk.read(0, &mut before);
        let result = self.origins[at].flush(operation.order, operation.fate, rng);
        let mut after = vec![0; before.len()];
        self.origins[at].disk.read(0, &mut after);
        for sector in 0..sectors {
            let bytes = sector as usize * 512..(sector as usize + 1) * 512;
            let (before, after) = (&before[bytes.clone()], &after[bytes]);
            if before != after
                && let Ok(lost) = payload::decode(before, volume.0, sector)
                && let Ok(value) = payload::decode(after, volume.0, sector)
            {
                self.model.origin_lost(volume.0, sector, lost, value);
            }
        }
        result
    }

    /// Lets everything in flight end.
    fn quiesce(&mut self) -> Check {
        self.wait_for_requests(0)?;
        let idle = self.engines().all(Engine::is_idle);
        if idle && self.memory.held != self.held_at_rest {
            let (held, start) = (self.memory.held, self.held_at_rest);
            return Err(format!(
                "{held} buffers are held at rest, {start} at the start: {}",
                self.memory.state()
            ));
        }
        Ok(())
    }

    /// Lets things happen until no more than `left` requests are in flight (bounded liveness).
    fn wait_for_requests(&mut self, left: usize) -> Check {
        let blocks: u64 = self.requests.values().map(|on| on.range.count / 8).sum();
        let limit = EVENT_LIMIT + EVENTS_OF_A_BLOCK * blocks;
        let mut began = self.now;
        let mut events = 0;
        while self.requests.len() > left {
            let late = events >= limit || self.now.since(began) > TIME_LIMIT;
            if late
                && (self.cache.faulty
                    || self
                        .origins
                        .iter()
                        .any(|origin| origin.faulty || origin.has_bad_pages()))
            {
                // Only once faults have stopped must everything end.
                self.counts().add("faults ended so that requests can", 1);
                self.faults(false);
                for origin in &mut self.origins {
                    origin.heal();
                }
                (began, events) = (self.now, 0);
            }
            if events >= limit || self.now.since(began) > TIME_LIMIT {
                return Err(format!(
                    "after {events} events these requests have no answer: {}",
                    self.unanswered()
                ));
            }
            let (waits, done) = (self.deliveries.next_due().is_some(), self.work());
            if !self.event(None)? {
                return Err(format!(
                    "nothing will happen, but these requests have no answer: {}",
                    self.unanswered()
                ));
            }
            // A delivery can take longer than a shard takes for so many looks at its deadlines.
            if !waits || self.work() != done {
                events += 1;
            }
        }
        Ok(())
    }

    /// Counts of the work so far: operations begun and ended, deliveries sent and delivered.
    fn work(&self) -> (u64, usize, u64, usize) {
        (
            self.submissions,
            self.due.len(),
            self.deliveries.sent(),
            self.deliveries.len(),
        )
    }

    fn unanswered(&self) -> String {
        let some: Vec<String> = self
            .requests
            .values()
            .take(5)
            .map(|pending| format!("{:?} {:?}", pending.kind, pending.range))
            .collect();
        some.join("; ")
    }

    fn faults(&mut self, on: bool) {
        self.cache.faulty = on && self.cache.rates != FaultRates::NONE && !self.is_sound;
        for origin in &mut self.origins {
            origin.faulty = on && origin.rates != FaultRates::NONE;
        }
    }
}

fn shape(operation: &Operation) -> (u64, u64, u64) {
    match operation {
        Operation::Read { offset_bytes, bufs } => (1, *offset_bytes, bufs.len() as u64),
        Operation::Write { offset_bytes, bufs } => (2, *offset_bytes, bufs.len() as u64),
        Operation::Flush => (3, 0, 0),
        Operation::ReadEither { .. } | Operation::WriteBoth(_) => (6, 0, 0),
        Operation::Discard {
            offset_bytes,
            len_bytes,
        } => (4, *offset_bytes, *len_bytes),
        Operation::WriteZeroes {
            offset_bytes,
            len_bytes,
        } => (5, *offset_bytes, *len_bytes),
    }
}

fn describe(operation: &Operation) -> String {
    let total = |bufs: &[Buf]| bufs.iter().map(|buf| buf.len_bytes).sum::<u32>();
    match operation {
        Operation::Read { offset_bytes, bufs } => {
            format!("read {offset_bytes:#x} +{:#x}", total(bufs))
        }
        Operation::Write { offset_bytes, bufs } => {
            format!("write {offset_bytes:#x} +{:#x}", total(bufs))
        }
        Operation::Flush => "flush".to_owned(),
        Operation::ReadEither { .. } | Operation::WriteBoth(_) => "on two".to_owned(),
        Operation::Discard {
            offset_bytes,
            len_bytes,
        } => format!("discard {offset_bytes:#x} +{len_bytes:#x}"),
        Operation::WriteZeroes {
            offset_bytes,
            len_bytes,
        } => format!("zeroes {offset_bytes:#x} +{len_bytes:#x}"),
    }
}

/// Whether an operation is of a client's own memory.
fn is_straight(operation: &Operation) -> bool {
    match operation {
        Operation::Read { bufs, .. } | Operation::Write { bufs, .. } => {
            bufs.iter().any(|buf| buf.is_of_client())
        }
        _ => false,
    }
}
