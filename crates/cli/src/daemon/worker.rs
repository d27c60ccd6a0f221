//! One thread of the data path: a ring, a driver, some shards and some clients.
//!
//! The path of a request, all of it on the client's thread unless its shard lives on another:
//!
//! ```text
//! socket ─ recv ─> client.rs: NBD bytes to requests ─> flight.rs: cut to shards
//! (ublk driver ─> ublk/queue.rs: descriptors to requests ─> flight.rs)
//!     ─> Shard::submit ─> next_action ─> Driver ─ io_uring ─> complete ─> next_ack
//!     ─> flight.rs: all parts answered ─> client.rs: reply ─ send ─> socket
//! ```
//!
//! Everything that has piled up is done in one turn; there is one system call per turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use forebay_engine::{
    Commit, Device, Engine, Geometry, Nanos, Settings, Stats, VolumeConfig, VolumeSlot,
};
use forebay_frontend::nbd::{Export, ExportId, ExportName, ExportTable, Limits};
use forebay_io::{
    Arena, Completion, Done, Driver, DriverDevice, DriverError, Emulation, RealDevice, Token,
    Uring, UringError,
};

use super::Notice;
use super::anticipation::Anticipation;
use super::client::Client;
use super::flight::Flight;
use super::link::{Link, Message};
use super::shard::Shard;
use super::slots::Slots;
use super::socket::{Listener, Tls};
use super::tap::Taps;
use super::ublk::queue::Queues;
use crate::failure::in_words;
use crate::shared_memory;

pub(super) const RECEIVED: u8 = 1;
pub(super) const SENT: u8 = 2;
const LISTENER: u8 = 3;

/// How many entries the ring has; what is beyond waits in its backlog.
const RING_ENTRIES: u32 = 1024;
/// How many transfers a device has at a time.
const DEVICE_DEPTH: usize = 256;
/// How often limits on time are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The daemon's clock: the same for all threads, so that times can be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn now(self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}

/// A device with the timing of another, if that is wanted.
#[derive(Clone, Debug)]
pub(super) struct TimedDevice {
    pub(super) device: Arc<RealDevice>,
    pub(super) emulation: Option<Emulation>,
}

/// A volume as the data path knows it.
#[derive(Clone, Debug)]
pub(super) struct ServedVolume {
    pub(super) config: VolumeConfig,
    pub(super) origin: TimedDevice,
    pub(super) export: Export,
}

/// One thread's part of the daemon.
pub(super) struct Worker {
    pub(super) index: usize,
    pub(super) clock: Clock,
    pub(super) now: Nanos,
    pub(super) ring: Uring,
    pub(super) driver: Driver,
    /// Buffers of requests and of the engines.
    pub(super) arena: Arena,
    /// Buffers that sockets are received into, apart so that they can be read while payloads are
    /// copied to the arena.
    pub(super) inlet: Arena,
    inbox: Receiver<Message>,
    notices: Sender<Notice>,
    pub(super) peers: Vec<Link>,
    /// Which worker has each shard.
    pub(super) owners: Vec<usize>,
    pub(super) geometry: Geometry,
    shards: Vec<Option<Shard>>,
    own_shards: Vec<u16>,
    /// The cache's devices by number, one of the driver's for each shard.
    cache_devices: Vec<(u8, DriverDevice)>,
    pub(super) volumes: Vec<Option<(ServedVolume, DriverDevice)>>,
    pub(super) exports: ExportTable,
    pub(super) limits: Limits,
    /// Who watches which volume.
    pub(super) taps: Taps,
    pub(super) flights: Slots<Flight>,
    pub(super) clients: Slots<Box<Client>>,
    /// Queues of block devices.
    pub(super) ublk: Queues,
    /// Clients with something to do this turn.
    pub(super) busy: Vec<u32>,
    /// Clients that wait for memory.
    pub(super) starving: Vec<u32>,
    /// Kept so that giving buffers back allocates nothing.
    pub(super) released: Vec<u64>,
    listeners: Vec<(Listener, Tls)>,
    next_worker: usize,
    /// A request was answered this turn.
    pub(super) landed: bool,
    anticipation: Anticipation,
    /// No request is taken from clients (while a volume is removed).
    pub(super) paused: bool,
    completions: Vec<Completion>,
    done: Vec<Done>,
    housekept: Nanos,
    reported_abandonment: bool,
    stop: bool,
}

/// What a worker is made of.
pub(super) struct WorkerParts {
    pub(super) index: usize,
    pub(super) clock: Clock,
    pub(super) arena: Arena,
    pub(super) inlet: Arena,
    pub(super) inbox: Receiver<Message>,
    pub(super) notices: Sender<Notice>,
    pub(super) owners: Vec<usize>,
    pub(super) geometry: Geometry,
    pub(super) limits: Limits,
}

impl Worker {
    /// Makes the worker in the thread that will run it.
    pub(super) fn new(parts: WorkerParts) -> Result<Worker, UringError> {
        let ring = Uring::new(RING_ENTRIES, parts.arena.view().clone())?;
        let shards = parts.owners.len();
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
            peers: Vec::new(),
            owners: parts.owners,
            geometry: parts.geometry,
            shards: (0..shards).map(|_| None).collect(),
            own_shards: Vec::new(),
            cache_devices: Vec::new(),
            volumes: Vec::new(),
            exports: ExportTable::default(),
            limits: parts.limits,
            taps: Taps::default(),
            flights: Slots::default(),
            clients: Slots::default(),
            ublk: Queues::default(),
            busy: Vec::new(),
            starving: Vec::new(),
            released: Vec::new(),
            listeners: Vec::new(),
            next_worker: 0,
            landed: false,
            anticipation: Anticipation::default(),
            paused: false,
            completions: Vec::new(),
            done: Vec::new(),
            housekept: Nanos(0),
            reported_abandonment: false,
            stop: false,
        })
    }

    /// Takes a shard over.
    pub(super) fn add_shard(&mut self, number: u16, shard: Shard, cache: &[(u8, TimedDevice)]) {
        self.shards[usize::from(number)] = Some(shard);
        self.own_shards.push(number);
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

    /// Takes a device of the cache in, which its shards use once they hear of its extents.
    pub(super) fn add_cache_device(&mut self, number: u8, device: &TimedDevice) {
        for at in 0..self.own_shards.len() {
            self.route_cache_device(self.own_shards[at], number, device);
        }
    }

    /// Lets a device of the cache go that holds nothing any more; false as long as it has work.
    pub(super) fn remove_cache_device(&mut self, number: u8) -> bool {
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

    /// Serves a volume from now on; all workers give it the same slot, as they add and remove
    /// volumes in the same order.
    pub(super) fn add_volume(&mut self, volume: ServedVolume) -> VolumeSlot {
        let free = self.volumes.iter().position(Option::is_none);
        let slot = VolumeSlot(free.unwrap_or(self.volumes.len()) as u16);
        let TimedDevice { device, emulation } = &volume.origin;
        let device = self
            .driver
            .add_device(&mut self.ring, Arc::clone(device), emulation.as_ref());
        for &number in &self.own_shards {
            self.driver.route(number, Device::Origin(slot), device);
            if let Some(engine) = self.shards[usize::from(number)]
                .as_mut()
                .and_then(Shard::engine)
            {
                let own = engine.add_volume(volume.config);
                assert_eq!(own, slot, "engines number volumes as their workers do");
            }
        }
        if usize::from(slot.0) == self.volumes.len() {
            self.volumes.push(None);
        }
        let export = Export {
            id: ExportId(u32::from(slot.0)),
            ..volume.export.clone()
        };
        self.volumes[usize::from(slot.0)] = Some((volume, device));
        if let Err(error) = self.exports.add(export) {
            // Names were checked against those in use; the volume is whole, only not exported.
            tracing::error!("{error}");
        }
        slot
    }

    /// Offers a volume under another name. Clients that have it open keep it.
    pub(super) fn rename_volume(&mut self, slot: VolumeSlot, name: ExportName) {
        if let Some(Some((volume, _))) = self.volumes.get_mut(usize::from(slot.0)) {
            volume.export.name = name.clone();
        }
        if let Err(error) = self.exports.rename(ExportId(u32::from(slot.0)), name) {
            // Names were checked against those in use; it goes on under the old one.
            tracing::error!("{error}");
        }
    }

    /// Offers a volume no longer, closes its clients and has its engines refuse requests.
    pub(super) fn retire_volume(&mut self, slot: VolumeSlot) {
        self.exports.remove(ExportId(u32::from(slot.0)));
        self.taps.end(slot);
        for engine in self.engines() {
            engine.set_detaching(slot, true);
        }
        self.close_clients_of(slot);
    }

    /// Forgets a retired volume; says how much still stands in the way.
    pub(super) fn remove_volume(&mut self, slot: VolumeSlot) -> Result<(), u64> {
        let used = self
            .clients
            .iter_mut()
            .filter(|client| client.volume == Some(slot))
            .count();
        if used > 0 || self.flights.len() > 0 {
            return Err(used as u64 + self.flights.len() as u64);
        }
        for engine in self.engines() {
            engine.remove_volume(slot)?;
        }
        let Some(Some((_, device))) = self.volumes.get(usize::from(slot.0)) else {
            return Ok(());
        };
        if self.driver.remove_device(&mut self.ring, *device).is_err() {
            return Err(1);
        }
        self.volumes[usize::from(slot.0)] = None;
        // Of somebody who came while it was being taken off.
        self.taps.end(slot);
        Ok(())
    }

    /// The engines of this worker.
    pub(super) fn engines(&mut self) -> impl Iterator<Item = &mut Engine> {
        self.shards.iter_mut().flatten().filter_map(Shard::engine)
    }

    /// The counters of this worker's shards, added to `total`.
    fn is_short_of_memory(&self) -> bool {
        !self.starving.is_empty() || self.ublk.any_waits()
    }

    /// Gives back memory that serves no request yet; says whether there was any, of which what a
    /// device is reading into follows.
    pub(super) fn give_up_spare_memory(&mut self) -> bool {
        let mut any = false;
        for shard in self.shards.iter_mut().flatten() {
            any |= shard.give_up_spare_memory(&mut self.arena);
        }
        any
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten()
    }

    /// The shard of this number, if it is this worker's.
    pub(super) fn shard(&mut self, number: u16) -> Option<&mut Shard> {
        self.shards.get_mut(usize::from(number))?.as_mut()
    }

    /// Copies of the counters of every shard here.
    pub(super) fn stats(&self) -> Vec<Stats> {
        self.shards().map(|shard| shard.stats().clone()).collect()
    }

    pub(super) fn set_settings(&mut self, settings: &Settings) -> Result<(), String> {
        if settings.commit == Commit::Memory {
            self.make_buffers(settings)?;
        }
        self.engines()
            .try_for_each(|engine| engine.set_settings(settings.clone()))
    }

    /// Makes the memory buffers of shards that have none.
    fn make_buffers(&mut self, settings: &Settings) -> Result<(), String> {
        settings.validate()?;
        let shards = self.owners.len();
        for &number in &self.own_shards {
            let Some(Some(Shard::Cached(engine))) = self.shards.get_mut(usize::from(number)) else {
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
            let buffer =
                made.map_err(|error| format!("no memory buffer could be made: {error}"))?;
            self.arena.attach_buffer(number, buffer);
            engine.adopt_buffer(&mut self.arena);
        }
        Ok(())
    }

    /// Whether nothing is on its way and everything published is durable.
    pub(super) fn is_settled(&self) -> bool {
        self.flights.len() == 0
            && self.driver.in_flight() == 0
            && self.shards().all(Shard::is_settled)
    }

    /// Gives the rings and memory buffers of this worker's shards back, removing their files. A
    /// buffer that still holds what is nowhere else stays, for the next daemon.
    pub(super) fn remove_shared_memory(&mut self) {
        for &number in &self.own_shards {
            let shard = self.shards.get(usize::from(number));
            let held = match shard.and_then(Option::as_ref) {
                Some(Shard::Cached(engine)) => engine.buffer_occupancy().1,
                _ => 0,
            };
            let buffer = self.arena.detach_buffer(number).filter(|_| held == 0);
            if held > 0 {
                tracing::warn!(
                    "{held} acknowledged blocks of a volume that is not there stay in memory until the next start: do not restart the machine before"
                );
            }
            let shared = self.arena.detach_ring(number).into_iter().chain(buffer);
            for error in shared.filter_map(|memory| memory.remove().err()) {
                tracing::warn!("{error}");
            }
        }
    }

    pub(super) fn listen(&mut self, listener: Listener, tls: Tls) {
        self.ring.poll(
            listener.as_fd(),
            POLL_IN,
            Token::new(LISTENER, self.listeners.len() as u64),
        );
        self.listeners.push((listener, tls));
    }

    pub(super) fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Ends the loop after this turn.
    pub(super) fn stop(&mut self) {
        self.stop = true;
    }

    /// Submits a request to a shard here, or sends it to where the shard is.
    pub(super) fn submit(&mut self, number: u16, request: forebay_engine::Request) {
        let owner = self.owners[usize::from(number)];
        if owner != self.index {
            self.peers[owner].send(Message::Submit(number, request));
        } else if let Some(shard) = &mut self.shards[usize::from(number)] {
            shard.submit(self.now, request, &mut self.arena);
        }
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
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
        let timeout = self.time_to_wait();
        let work_left = self.busy.is_empty();
        if std::mem::take(&mut self.landed) && work_left && self.flights.len() == 0 {
            self.ring.submit_and_wait(0, None)?;
            let ring = &mut self.ring;
            self.anticipation.look(|| ring.has_completions());
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
        // Replies free slots and buffers, so that requests which waited can go on.
        loop {
            self.wake_starving();
            self.serve_clients();
            self.serve_queues();
            if !self.drive_shards() {
                break;
            }
        }
        self.report_abandonment();
        Ok(())
    }

    fn time_to_wait(&self) -> Duration {
        let deadline = self.shards().filter_map(Shard::next_deadline).min();
        let Some(deadline) = deadline else {
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
            LISTENER => self.accept_clients(value as usize),
            _ => {}
        }
    }

    fn read_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Submit(number, request) => self.submit(number, request),
                Message::Answer(ack) => self.answered(ack),
                Message::Client(socket, tls) => self.add_client(socket, tls),
                Message::Ask(question) => self.asked(question),
                Message::Told(flight, extents) => self.told(flight, &extents),
                Message::Task(task) => task(self),
            }
        }
    }

    fn accept_clients(&mut self, at: usize) {
        let mut accepted = Vec::new();
        let Some((listener, tls)) = self.listeners.get(at) else {
            return;
        };
        loop {
            match listener.accept(tls) {
                Ok(client) => accepted.push(client),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    let error = in_words(&error);
                    tracing::warn!("a client could not be accepted: {error}");
                    break;
                }
            }
        }
        self.ring
            .poll(listener.as_fd(), POLL_IN, Token::new(LISTENER, at as u64));
        for (socket, tls) in accepted {
            self.next_worker = (self.next_worker + 1) % self.peers.len();
            if self.next_worker == self.index {
                self.add_client(socket, tls);
            } else {
                self.peers[self.next_worker].send(Message::Client(socket, tls));
            }
        }
    }

    /// Lets every shard do what became possible, until none has anything left that needs no
    /// waiting. Says whether a request may go on that waited: a client was answered, or memory
    /// may have come back that one waits for.
    fn drive_shards(&mut self) -> bool {
        let mut goes_on = !self.done.is_empty() && self.is_short_of_memory();
        let mut failed = false;
        loop {
            for done in self.done.drain(..) {
                if let Some(shard) = &mut self.shards[usize::from(done.shard)] {
                    shard.complete(self.now, done.op, done.result, &mut self.arena);
                }
                if done.result.is_err() {
                    failed = true;
                }
            }
            if std::mem::take(&mut failed) {
                self.tell_failed_flushes();
            }
            for at in 0..self.own_shards.len() {
                let number = self.own_shards[at];
                let Some(shard) = &mut self.shards[usize::from(number)] else {
                    continue;
                };
                shard.advance(self.now, &mut self.arena);
                while let Some(action) = shard.next_action() {
                    self.driver
                        .submit(&mut self.ring, number, action, &mut self.done);
                }
                while let Some(ack) = self.shards[usize::from(number)]
                    .as_mut()
                    .and_then(Shard::next_ack)
                {
                    goes_on = true;
                    self.answered(ack);
                }
            }
            if self.done.is_empty() {
                return goes_on;
            }
        }
    }

    /// Tells every other shard of the cache, here and on other threads, of flushes that failed
    /// in one (I10).
    fn tell_failed_flushes(&mut self) {
        for number in 0..self.shards.len() {
            while let Some(Shard::Cached(engine)) = &mut self.shards[number]
                && let Some(device) = engine.next_failed_flush()
            {
                self.flush_failed(device, Some(number));
                for (at, peer) in self.peers.iter().enumerate() {
                    if at != self.index {
                        let task = move |worker: &mut Worker| worker.flush_failed(device, None);
                        peer.send(Message::Task(Box::new(task)));
                    }
                }
            }
        }
    }

    /// A flush of a device failed, in the shard `known` if it is one of these.
    fn flush_failed(&mut self, device: Device, known: Option<usize>) {
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let Some(Shard::Cached(engine)) = shard else {
                continue;
            };
            match device {
                _ if Some(number) == known => {}
                Device::Cache(_) => engine.cache_flush_failed(self.now, &mut self.arena),
                Device::Origin(volume) => {
                    engine.origin_flush_failed(self.now, volume, &mut self.arena);
                }
            }
        }
    }

    /// Has every shard write down how far it is durable, as the last thing of an orderly stop.
    pub(super) fn settle(&mut self) {
        self.engines().for_each(Engine::settle);
    }

    /// Leaves the origins as they are from now on.
    pub(super) fn hold_writeback(&mut self) {
        self.engines().for_each(Engine::hold_writeback);
    }

    fn housekeep(&mut self) {
        if self.now.since(self.housekept) < Nanos(HOUSEKEEPING.as_nanos() as u64) {
            return;
        }
        self.housekept = self.now;
        self.end_slow_clients();
    }

    fn report_abandonment(&mut self) {
        if self.reported_abandonment {
            return;
        }
        let wanted = self.shards.iter().flatten().find_map(|shard| match shard {
            Shard::Cached(engine) => Some((engine.wants_abandonment()?, engine.failure()?)),
            Shard::Plain(_) => None,
        });
        if let Some((epoch, reason)) = wanted {
            self.reported_abandonment = true;
            let notice = Notice::Abandonment {
                worker: self.index,
                epoch,
                reason,
            };
            // Without a main thread nothing is recorded, and nothing is written.
            let _ = self.notices.send(notice);
        }
    }

    /// The abandonment is durable: the engines here may go on without their cache.
    pub(super) fn abandonment_recorded(&mut self) {
        for engine in self.engines() {
            engine.abandonment_recorded();
        }
        self.reported_abandonment = false;
    }
}

/// POLLIN of poll(2).
const POLL_IN: u32 = 1;
