//! A thread of the data path: a ring, a driver, some shards and some clients.
//!
//! The path of a request, all of it on the client's thread unless its shard lives on another:
//!
//! ```text
//! socket ─ recv ─> client.rs: NBD bytes to requests ─> flight.rs: buffers
//! (ublk driver ─> ublk/queue.rs: descriptors to requests ─> flight.rs)
//!     ─> Host::submit ─> next_order ─> Driver ─ io_uring ─> complete ─> next_answer
//!     ─> flight.rs ─> client.rs: reply ─ send ─> socket
//! ```
//!
//! Everything that has piled up is done in one turn; there is one system call per turn, and another
//! after long writes, whose checksums are made while the device has them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use forebay_cache::{Answer, ControlFlush, Host, Instruction, LossReport, Order, Shard, Shared};
use forebay_engine::{
    Action, Buf, CHECKSUMMED_LATER_BYTES, Commit, Device, DeviceError, Engine, Geometry, Nanos,
    Operation, Settings, Slots, Stats, VolumeSlot,
};
use forebay_frontend::nbd::ExportTable;
use forebay_io::{
    Arena, Carried, Completion, DeviceKind, Done, Driver, DriverDevice, DriverError, Token, Uring,
    UringError,
};

use super::adaptive_polling::AdaptivePolling;
use super::client::Client;
use super::held_back::{HeldBackList, HeldChange};
use super::in_flight::{InFlight, Requester};
use super::link::{Link, Message};
use super::served::{Clock, ServedVolume, TimedDevice};
use super::shortage::Shortage;
use super::tap::Taps;
use super::ublk::queue::Queues;
use super::volume_times::VolumeTimes;
use crate::daemon::notice::Notice;
use crate::daemon::observe::failing::Failing;
use crate::daemon::seldom;
use crate::device::shared_memory;
use crate::settings::OwnSettings;

pub(super) const RECEIVED: u8 = 1;
pub(super) const SENT: u8 = 2;

/// Entries of the ring; others wait in its backlog.
const RING_ENTRIES: u32 = 1024;
/// The most transfers a device has at a time.
const DEVICE_DEPTH: usize = 256;
/// Interval of the look at limits on time.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A thread's part of the daemon.
pub(in crate::daemon) struct Worker {
    pub(in crate::daemon) index: usize,
    pub(in crate::daemon) clock: Clock,
    pub(in crate::daemon) now: Nanos,
    pub(in crate::daemon) ring: Uring,
    pub(in crate::daemon) driver: Driver,
    /// Buffers of requests and of the engines.
    pub(in crate::daemon) arena: Arena,
    /// Buffers that sockets are received into, apart so that they can be read while payloads are
    /// copied to the arena.
    pub(in crate::daemon) inlet: Arena,
    inbox: Receiver<Message>,
    notices: Sender<Notice>,
    losses: Sender<LossReport>,
    pub(in crate::daemon) peers: Vec<Link>,
    /// This thread's part of the cache.
    pub(in crate::daemon) host: Host<InFlight>,
    /// The cache's devices by number, one of the driver's for each shard.
    pub(in crate::daemon) cache_devices: Vec<(u8, DriverDevice)>,
    pub(in crate::daemon) volumes: Vec<Option<(ServedVolume, DriverDevice)>>,
    /// A client opens its export at the entrance.
    pub(super) no_exports: ExportTable,
    /// Taps of volumes.
    pub(in crate::daemon) taps: Taps,
    /// Durations of requests of this thread's clients.
    pub(in crate::daemon) times: VolumeTimes,
    /// Askers of blocks that another worker knows of.
    pub(super) status_queries: Slots<Requester>,
    /// Waiters for flushes of the control plane.
    control_flushes: Vec<(Device, Sender<ControlFlush>)>,
    failing: Arc<Failing>,
    pub(super) clients: Slots<Box<Client>>,
    /// Queues of block devices.
    pub(in crate::daemon) ublk: Queues,
    /// Clients with something to do this turn.
    pub(in crate::daemon) busy: Vec<u32>,
    /// Clients that wait for memory.
    pub(super) starving: Vec<u32>,
    /// The time in which nothing was seen that gives memory back, if a request waits for some.
    pub(super) shortage: Option<Shortage>,
    /// Requests that wait for their volume's rate.
    pub(super) held_back: HeldBackList,
    pub(super) held_changes: Vec<HeldChange>,
    /// Kept so that giving buffers back allocates nothing.
    pub(in crate::daemon) released: Vec<u64>,
    /// Shards whose long writes were issued this turn, and have no checksums yet.
    long_writes: Vec<u16>,
    /// A request was answered this turn.
    pub(super) has_finished: bool,
    adaptive_polling: AdaptivePolling,
    completions: Vec<Completion>,
    /// Operations at an end that nobody has looked at.
    pub(super) done: Vec<Done>,
    housekept: Nanos,
    stop: bool,
}

/// Parts of which a worker is made.
pub(in crate::daemon) struct WorkerParts {
    pub(in crate::daemon) index: usize,
    pub(in crate::daemon) clock: Clock,
    pub(in crate::daemon) arena: Arena,
    pub(in crate::daemon) inlet: Arena,
    pub(in crate::daemon) inbox: Receiver<Message>,
    pub(in crate::daemon) notices: Sender<Notice>,
    pub(in crate::daemon) losses: Sender<LossReport>,
    /// Which worker has each shard.
    pub(in crate::daemon) owners: Vec<u16>,
    pub(in crate::daemon) workers: u16,
    pub(in crate::daemon) shared: Arc<Shared>,
    pub(in crate::daemon) geometry: Geometry,
    pub(in crate::daemon) failing: Arc<Failing>,
}

/// Whether its checksums may be made while the cache device has it.
fn is_long_write(action: &Action) -> bool {
    let Operation::Write { bufs, .. } = &action.operation else {
        return false;
    };
    let is_long = |buf: &Buf| buf.len_bytes >= CHECKSUMMED_LATER_BYTES;
    matches!(action.device, Device::Cache(_)) && bufs.first().is_some_and(is_long)
}

impl Worker {
    /// Makes the worker in the thread that will run it.
    pub(in crate::daemon) fn new(parts: WorkerParts) -> Result<Worker, UringError> {
        let ring = Uring::new(RING_ENTRIES, parts.arena.view().clone())?;
        let place = (parts.index as u16, parts.workers);
        let host = Host::new(place, parts.owners, parts.geometry, parts.shared);
        Ok(Worker {
            index: parts.index,
            clock: parts.clock,
            now: parts.clock.now(),
            ring,
            driver: Driver::new(DEVICE_DEPTH),
            arena: parts.arena,
            inlet: parts.inlet,
            inbox: parts.inbox,
            notices: parts.notices,
            losses: parts.losses,
            peers: Vec::new(),
            host,
            cache_devices: Vec::new(),
            volumes: Vec::new(),
            no_exports: ExportTable::default(),
            taps: Taps::default(),
            times: VolumeTimes::default(),
            status_queries: Slots::default(),
            control_flushes: Vec::new(),
            failing: parts.failing,
            clients: Slots::default(),
            ublk: Queues::default(),
            busy: Vec::new(),
            starving: Vec::new(),
            shortage: None,
            held_back: HeldBackList::default(),
            held_changes: Vec::new(),
            released: Vec::new(),
            long_writes: Vec::new(),
            has_finished: false,
            adaptive_polling: AdaptivePolling::default(),
            completions: Vec::new(),
            done: Vec::new(),
            housekept: Nanos(0),
            stop: false,
        })
    }

    /// Takes a shard over.
    pub(in crate::daemon) fn add_shard(
        &mut self,
        number: u16,
        shard: Shard,
        cache: &[(u8, TimedDevice)],
    ) {
        self.host.add_shard(number, shard);
        for (device, timed) in cache {
            self.route_cache_device(number, *device, timed);
        }
    }

    fn route_cache_device(&mut self, shard: u16, number: u8, timed: &TimedDevice) {
        let TimedDevice { device, emulation } = timed;
        let added = self
            .driver
            .add_device(&mut self.ring, Arc::clone(device), emulation.as_ref());
        self.driver.route(shard, Device::Cache(number), added);
        self.cache_devices.push((number, added));
    }

    /// Does what a command wants of this worker: its part of the cache, and the driver beside it.
    pub(in crate::daemon) fn instruct(
        &mut self,
        instruction: &Instruction,
        volume: Option<&ServedVolume>,
        device: Option<&TimedDevice>,
    ) -> Answer {
        match (instruction, volume, device) {
            (Instruction::AddVolume(slot, config), Some(volume), _) => {
                let volume = ServedVolume {
                    config: *config,
                    ..volume.clone()
                };
                self.add_volume(*slot, volume);
                Answer::Done
            }
            (Instruction::BringBack(slot, config), Some(volume), _) => {
                let volume = ServedVolume {
                    config: *config,
                    ..volume.clone()
                };
                self.route_volume(*slot, volume);
                self.host.instruct(instruction)
            }
            (Instruction::SetDetaching(slot, true), ..) => {
                self.taps.end(*slot);
                self.close_clients_of(*slot);
                self.host.instruct(instruction)
            }
            (Instruction::RemoveVolume(slot), ..) => match self.remove_volume(*slot) {
                Ok(()) => Answer::Done,
                Err(left) => Answer::Left(left),
            },
            (Instruction::AddDevice(number), _, Some(device)) => {
                for shard in self.host.own_shards().to_vec() {
                    self.route_cache_device(shard, *number, device);
                }
                self.host.instruct(instruction)
            }
            (Instruction::RemoveDevice(number), ..) => {
                Answer::Left(u64::from(!self.remove_cache_device(*number)))
            }
            (Instruction::CountUnsettled, ..) => Answer::Left(u64::from(!self.is_settled())),
            _ => self.host.instruct(instruction),
        }
    }

    /// Lets a device of the cache go that holds nothing any more; false as long as it has work.
    fn remove_cache_device(&mut self, number: u8) -> bool {
        if !self.host.remove_cache_device(number) {
            return false;
        }
        let Worker {
            cache_devices,
            driver,
            ring,
            ..
        } = self;
        cache_devices.retain(|(known, device)| {
            *known != number || driver.remove_device(ring, *device) == Err(DriverError::Busy)
        });
        cache_devices.iter().all(|(known, _)| *known != number)
    }

    /// Serves a volume from now on, under this number. Clients see it once it is offered
    /// ([`super::exports::Exports`]), when all workers serve it.
    pub(in crate::daemon) fn add_volume(&mut self, slot: VolumeSlot, volume: ServedVolume) {
        self.host.add_volume(slot, volume.config);
        self.route_volume(slot, volume);
    }

    /// Has operations on a volume's origin go to its device.
    fn route_volume(&mut self, slot: VolumeSlot, volume: ServedVolume) {
        let TimedDevice { device, emulation } = &volume.origin;
        let stripe = device.stripe();
        let is_disk = device.kind() == DeviceKind::Block;
        for engine in self.engines() {
            engine.set_stripe(slot, stripe);
            engine.set_origin_answers_hits(slot, is_disk);
        }
        let device = self
            .driver
            .add_device(&mut self.ring, Arc::clone(device), emulation.as_ref());
        for number in self.host.own_shards() {
            self.driver.route(*number, Device::Origin(slot), device);
        }
        let at = usize::from(slot.0);
        if self.volumes.len() <= at {
            self.volumes.resize_with(at + 1, || None);
        }
        self.volumes[at] = Some((volume, device));
    }

    /// Forgets a detached volume; says how much still stands in the way.
    fn remove_volume(&mut self, slot: VolumeSlot) -> Result<(), u64> {
        let used = self
            .clients
            .iter_mut()
            .filter(|client| client.volume == slot)
            .count();
        let used = used + self.ublk.queues_of(slot);
        if used > 0 {
            return Err(used as u64);
        }
        self.host.remove_volume(slot)?;
        let Some(Some((_, device))) = self.volumes.get(usize::from(slot.0)) else {
            return Ok(());
        };
        if self.driver.remove_device(&mut self.ring, *device).is_err() {
            return Err(1);
        }
        self.volumes[usize::from(slot.0)] = None;
        // Of somebody who came while it was being taken off.
        self.taps.end(slot);
        self.times.forget(slot);
        Ok(())
    }

    /// The engines of this worker.
    pub(in crate::daemon) fn engines(&mut self) -> impl Iterator<Item = &mut Engine> {
        self.host.engines()
    }

    pub(in crate::daemon) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.host.shards()
    }

    /// Copies of the counters of every shard here.
    pub(in crate::daemon) fn stats(&self) -> Vec<Stats> {
        self.shards().map(|shard| shard.stats().clone()).collect()
    }

    pub(in crate::daemon) fn set_settings(&mut self, settings: &Settings) -> Result<(), String> {
        if settings.commit == Commit::Memory {
            self.make_buffers(settings)?;
        }
        self.engines()
            .try_for_each(|engine| engine.set_settings(settings.clone()))?;
        self.set_polling(settings.polling_percent);
        Ok(())
    }

    /// Bounds the time awake for a client's next request to so many percent of a core.
    pub(in crate::daemon) fn set_polling(&mut self, percent: u8) {
        self.adaptive_polling.set_percent(percent);
    }

    /// Gives a volume settings of its own.
    pub(in crate::daemon) fn set_volume_settings(&mut self, slot: VolumeSlot, own: OwnSettings) {
        self.engines()
            .for_each(|engine| engine.set_volume_settings(slot, own.engine));
        self.set_rates(slot, own.rates);
    }

    /// Makes the memory buffers of shards that have none.
    fn make_buffers(&mut self, settings: &Settings) -> Result<(), String> {
        settings.validate()?;
        let shards = self.host.shard_count();
        for number in self.host.own_shards().to_vec() {
            let Some(Shard::Cached(engine)) = self.host.shard(number) else {
                continue;
            };
            if self.arena.has_buffer(number) {
                continue;
            }
            let made = shared_memory::create_buffer(
                engine.cache_id(),
                usize::from(number),
                shards,
                settings,
            );
            let buffer = made.map_err(|error| {
                let why = crate::failure::describe(&error);
                format!("no memory buffer could be made: {why}")
            })?;
            self.arena.attach_buffer(number, buffer);
            engine.adopt_buffer(&mut self.arena);
        }
        Ok(())
    }

    /// Whether nothing is on its way and everything published is durable.
    pub(super) fn is_settled(&self) -> bool {
        self.driver.in_flight() == 0 && self.host.is_settled()
    }

    /// Gives the crash journals and memory buffers of this worker's shards back, removing their
    /// files. A buffer that still holds what is nowhere else stays, for the next daemon.
    pub(in crate::daemon) fn remove_shared_memory(&mut self) {
        for number in self.host.own_shards().to_vec() {
            let engine = self.host.engine(number);
            let held = engine.map_or(0, |engine| engine.buffer_occupancy().1);
            let buffer = self.arena.detach_buffer(number).filter(|_| held == 0);
            if held > 0 {
                tracing::warn!(
                    "{held} acknowledged blocks of a volume that is not there stay in memory until the next start: do not restart the machine before"
                );
            }
            let shared = self.arena.detach_journal(number).into_iter().chain(buffer);
            for error in shared.filter_map(|memory| memory.remove().err()) {
                let why = crate::failure::describe(&error.into());
                tracing::warn!("{why}; see `forebay memory`");
            }
        }
    }

    /// Ends the loop after this turn.
    pub(in crate::daemon) fn stop(&mut self) {
        self.stop = true;
    }

    /// Runs until it is told to stop.
    pub(in crate::daemon) fn run(mut self) {
        while !self.stop {
            if let Err(error) = self.turn() {
                let reason = crate::failure::describe(&anyhow::Error::from(error));
                // Without its main thread there is nobody to tell.
                let _ = self.notices.send(Notice::Failed {
                    worker: self.index,
                    reason,
                });
                return;
            }
        }
        self.abandon_clients();
    }

    fn turn(&mut self) -> Result<(), UringError> {
        self.checksum_long_writes()?;
        let timeout = self.time_to_wait();
        let work_left = self.busy.is_empty();
        if std::mem::take(&mut self.has_finished) && work_left && self.host.requests() == 0 {
            self.ring.submit_and_wait(0, None)?;
            let (ring, clock) = (&mut self.ring, self.clock);
            self.adaptive_polling
                .look(|| clock.now(), || ring.has_completions());
        }
        self.ring
            .submit_and_wait(usize::from(work_left), Some(timeout))?;
        self.now = self.clock.now();
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.reap(&mut completions);
        for completion in completions.drain(..) {
            self.completed(&completion);
        }
        self.completions = completions;
        self.housekeep();
        self.wake_held_back();
        // What waits with memory came before what waits without.
        self.host.submit_thawed(self.now, &mut self.arena);
        self.wake_held_changes();
        // Replies free slots and buffers, so that requests which waited can go on.
        loop {
            self.wake_starving();
            self.serve_clients();
            self.serve_queues();
            if !self.drive_shards() {
                break;
            }
        }
        self.report_failure();
        self.report_losses();
        self.answer_control();
        Ok(())
    }

    /// Makes the checksums of long writes while the devices have them.
    fn checksum_long_writes(&mut self) -> Result<(), UringError> {
        if self.long_writes.is_empty() {
            return Ok(());
        }
        self.ring.submit_and_wait(0, None)?;
        while let Some(shard) = self.long_writes.pop() {
            self.host.checksum_long_writes(shard, &self.arena);
        }
        Ok(())
    }

    fn time_to_wait(&self) -> Duration {
        let deadlines = [self.host.next_deadline(), self.held_back.next()];
        let Some(deadline) = deadlines.into_iter().flatten().min() else {
            return HOUSEKEEPING;
        };
        Duration::from_nanos(deadline.since(self.clock.now()).0).min(HOUSEKEEPING)
    }

    fn completed(&mut self, completion: &Completion) {
        if self
            .driver
            .complete(&mut self.ring, completion, &mut self.done)
        {
            return;
        }
        if completion.token == Token::WAKE {
            return self.read_inbox();
        }
        let value = completion.token.value() as u32;
        match completion.token.tag() {
            Token::STANDING_TAG => self.arrived(completion.token.value(), completion.result),
            RECEIVED => self.received(value, completion.result),
            SENT => self.sent(value, completion.result),
            _ => {}
        }
    }

    fn read_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Host(message) => self.host.receive(self.now, message, &mut self.arena),
                Message::Client(admitted) => self.add_client(*admitted),
                Message::StatusQuery(query) => self.answer_status_query(query),
                Message::StatusReply(in_flight, extents) => {
                    self.take_status_reply(in_flight, &extents)
                }
                Message::Task(task) => task(self),
            }
        }
    }

    /// Lets every shard do what became possible, until none has anything left that needs no
    /// waiting. Says whether a request may go on that waited: a client was answered, or memory
    /// may have come back that one waits for.
    fn drive_shards(&mut self) -> bool {
        let mut goes_on = !self.done.is_empty() && self.is_short_of_memory();
        loop {
            let mut done = std::mem::take(&mut self.done);
            for Done { what, result } in done.drain(..) {
                self.carried_out(what, result);
            }
            self.done = done;
            for failed in self.driver.take_failed() {
                self.failing.note(&failed);
            }
            self.host.advance(self.now, &mut self.arena);
            while let Some(order) = self.host.next_order() {
                self.carry_out(order);
            }
            while let Some((peer, message)) = self.host.next_message() {
                self.peers[usize::from(peer)].send(Message::Host(message));
            }
            while let Some(answer) = self.host.next_answer() {
                goes_on = true;
                self.finish(answer);
            }
            if self.done.is_empty() {
                return goes_on;
            }
        }
    }

    fn carried_out(&mut self, what: Carried, result: Result<(), DeviceError>) {
        match what {
            Carried::Transfer(shard, op) => {
                let memory = &mut self.arena;
                self.host.complete(self.now, shard, op, result, memory);
            }
            Carried::Flush(device) => {
                let name = self.name_of(device);
                let name = name.expect("a device is let go when no flush of it is wanted");
                self.host.flushed(self.now, name, result, &mut self.arena);
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Transfer(shard, action) => {
                if is_long_write(&action) && self.long_writes.last() != Some(&shard) {
                    self.long_writes.push(shard);
                }
                self.driver
                    .submit(&mut self.ring, shard, action, &mut self.done);
            }
            Order::Flush(name) => {
                let device = self.device_of(name);
                let device = device.expect("a device is let go when no flush of it is wanted");
                self.driver.flush(&mut self.ring, device, &mut self.done);
            }
        }
    }

    /// The driver's device for a name of the cache's: any one, where each shard has its own.
    pub(in crate::daemon) fn device_of(&self, name: Device) -> Option<DriverDevice> {
        match name {
            Device::Cache(number) => {
                let mut devices = self.cache_devices.iter();
                devices
                    .find(|(known, _)| *known == number)
                    .map(|(_, device)| *device)
            }
            Device::Origin(slot) => {
                let volume = self.volumes.get(usize::from(slot.0))?.as_ref();
                volume.map(|(_, device)| *device)
            }
        }
    }

    fn name_of(&self, device: DriverDevice) -> Option<Device> {
        let mut caches = self.cache_devices.iter();
        if let Some((number, _)) = caches.find(|(_, known)| *known == device) {
            return Some(Device::Cache(*number));
        }
        let is_it = |volume: &Option<(ServedVolume, DriverDevice)>| {
            volume.as_ref().is_some_and(|(_, known)| *known == device)
        };
        let at = self.volumes.iter().position(is_it)?;
        Some(Device::Origin(VolumeSlot(at as u16)))
    }

    /// Flushes a device for the control plane, through the gate that all threads share (I21).
    /// False if it is none that is served.
    pub(in crate::daemon) fn flush_for_control(
        &mut self,
        device: Device,
        answer: Sender<ControlFlush>,
    ) -> bool {
        let served = self.host.flush_for_control(device);
        if served {
            self.control_flushes.push((device, answer));
        }
        served
    }

    fn answer_control(&mut self) {
        while let Some(flush) = self.host.next_control_flush() {
            let mut waiting = self.control_flushes.iter();
            if let Some(at) = waiting.position(|(known, _)| *known == flush.device) {
                let (_, answer) = self.control_flushes.remove(at);
                // The requester may have stopped waiting.
                let _ = answer.send(flush);
            }
        }
    }

    fn housekeep(&mut self) {
        if self.now.since(self.housekept) < Nanos(HOUSEKEEPING.as_nanos() as u64) {
            return;
        }
        self.housekept = self.now;
        self.end_slow_clients();
        self.look_for_straight_ways();
        let times: Vec<_> = self.engines().map(|engine| engine.cache_times()).collect();
        self.adaptive_polling.heed(&times);
        if self.index == 0 {
            seldom::catch_up();
        }
    }

    /// It is on record that the cache goes on without a device, or could not be put there.
    pub(in crate::daemon) fn loss_recorded(&mut self, device: u8, well: bool) {
        let memory = &mut self.arena;
        self.host.loss_recorded(self.now, device, well, memory);
    }

    fn report_losses(&mut self) {
        while let Some(report) = self.host.next_loss() {
            // Without a daemon to put it on record the ends of writes stay held.
            let _ = self.losses.send(report);
        }
    }

    fn report_failure(&mut self) {
        if let Some(report) = self.host.next_report() {
            let notice = Notice::CacheFailed {
                worker: self.index,
                report,
            };
            // Without a main thread nothing is recorded, and nothing is written.
            let _ = self.notices.send(notice);
        }
    }
}
