//! A thread's part of a cache: its shards, the requests of its clients, and its messages to the
//! other threads.
//!
//! The driver calls [`Host::submit`], [`Host::complete`], [`Host::flushed`] and [`Host::receive`]
//! as things happen, then [`Host::advance`] once per batch. It then takes the results: orders for
//! devices, messages for other hosts, answers for clients, and, when the cache fails, the
//! report to be put on record.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_engine::{
    Action, BlockKey, Device, DeviceError, Engine, Geometry, Memory, Nanos, OpId, Operation,
    Request, VolumeConfig, VolumeSlot,
};

use crate::awake::Awake;
use crate::failure::Failure;
use crate::flushes::Flushes;
use crate::frozen::Frozen;
use crate::join::{Join, Joined};
use crate::message::Message;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::two_copies::TwoCopies;
use forebay_engine::Slots;

/// Something for a device to do.
#[derive(Debug)]
pub enum Order {
    /// An operation of a shard that is no flush; its end goes to [`Host::complete`].
    Transfer(u16, Action),
    /// Flush this device; the end goes to [`Host::flushed`].
    Flush(Device),
}

/// See the module. `T` is what the driver knows a request by.
#[derive(Debug)]
pub struct Host<T> {
    pub(crate) index: u16,
    hosts: u16,
    /// Which host has each shard.
    pub(crate) owners: Vec<u16>,
    pub(crate) geometry: Geometry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) shards: Vec<Option<Shard>>,
    pub(crate) own: Vec<u16>,
    awake: Awake,
    /// By shard: its position in `own`.
    positions: Vec<usize>,
    /// The first block of each volume.
    pub(crate) bases: Vec<Option<BlockKey>>,
    pub(crate) joins: Slots<Join<T>>,
    pub(crate) flushes: Flushes,
    pub(crate) failure: Failure<T>,
    pub(crate) frozen: Frozen<T>,
    pub(crate) two: TwoCopies,
    pub(crate) orders: VecDeque<Order>,
    pub(crate) outbox: VecDeque<(u16, Message)>,
    pub(crate) answers: VecDeque<Joined<T>>,
}

impl<T> Host<T> {
    /// Host `index` of so many, before it has its shards. `owners` says which host each shard of
    /// the cache is with.
    #[must_use]
    pub fn new(
        (index, hosts): (u16, u16),
        owners: Vec<u16>,
        geometry: Geometry,
        shared: Arc<Shared>,
    ) -> Host<T> {
        Host {
            index,
            hosts,
            geometry,
            shared,
            shards: owners.iter().map(|_| None).collect(),
            positions: vec![0; owners.len()],
            owners,
            own: Vec::new(),
            awake: Awake::default(),
            bases: Vec::new(),
            joins: Slots::default(),
            flushes: Flushes::default(),
            failure: Failure::default(),
            frozen: Frozen::default(),
            two: TwoCopies::default(),
            orders: VecDeque::new(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Takes a shard over.
    pub fn add_shard(&mut self, number: u16, shard: Shard) {
        self.shards[usize::from(number)] = Some(shard);
        self.positions[usize::from(number)] = self.own.len();
        self.own.push(number);
        self.awake.add();
    }

    /// The shards here, by number.
    #[must_use]
    pub fn own_shards(&self) -> &[u16] {
        &self.own
    }

    /// The number of shards of the cache.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.owners.len()
    }

    /// Which host has a shard.
    #[must_use]
    pub fn owner_of(&self, shard: u16) -> u16 {
        self.owners[usize::from(shard)]
    }

    /// The shape of the cache.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The shards here.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten()
    }

    /// The shards here, to change.
    pub fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.awake.wake_all();
        self.shards.iter_mut().flatten()
    }

    /// The shard of this number, if it is here.
    pub fn shard(&mut self, number: u16) -> Option<&mut Shard> {
        let shard = self.shards.get_mut(usize::from(number))?.as_mut()?;
        self.awake.wake(self.positions[usize::from(number)]);
        Some(shard)
    }

    /// The engine of a shard, if it is here and there is a cache.
    #[must_use]
    pub fn engine(&self, number: u16) -> Option<&Engine> {
        match self.shards.get(usize::from(number))?.as_ref()? {
            Shard::Cached(engine) => Some(engine),
            Shard::Plain(_) => None,
        }
    }

    /// The engines here.
    pub fn engines(&mut self) -> impl Iterator<Item = &mut Engine> {
        self.shards_mut().filter_map(Shard::engine)
    }

    /// A device of the cache that is flushed with the others from now on.
    pub fn add_cache_device(&mut self, number: u8) {
        self.flushes.add_cache_device(number, &self.shared);
        self.shared.use_device(number);
    }

    /// A device of the cache that holds nothing any more; false as long as a flush of it is
    /// wanted.
    pub fn remove_cache_device(&mut self, number: u8) -> bool {
        if self.hears_of_loss(number) {
            return false;
        }
        let is_removed = self.flushes.remove_cache_device(number);
        if is_removed {
            self.shared.forget_device(number);
            self.forget_lost(number);
        }
        is_removed
    }

    /// Serves a volume from now on, under this number, which is free.
    pub fn add_volume(&mut self, slot: VolumeSlot, config: VolumeConfig) {
        for engine in self.engines() {
            engine.add_volume_at(slot, config);
        }
        let at = usize::from(slot.0);
        self.bases.resize(self.bases.len().max(at + 1), None);
        self.bases[at] = Some(config.base);
        self.flushes.add_volume(slot, &self.shared);
        self.shared.unheard().forget(slot);
    }

    /// Forgets a detached volume.
    ///
    /// # Errors
    /// How much still stands in the way.
    pub fn remove_volume(&mut self, slot: VolumeSlot) -> Result<(), u64> {
        let wanted = self.flushes.wanted(Device::Origin(slot));
        let joins = self.joins.iter().filter(|join| join.volume == slot).count();
        if joins + wanted > 0 {
            return Err((joins + wanted) as u64);
        }
        for engine in self.engines() {
            engine.remove_volume(slot)?;
        }
        if let Some(base) = self.bases.get_mut(usize::from(slot.0)) {
            *base = None;
        }
        Ok(())
    }

    /// The number of requests in flight.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.joins.len()
    }

    /// When [`Host::advance`] must be called next, if nothing else happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let mut first = self.awake.first_due();
        let mut next = self.awake.next(0);
        while let Some(at) = next {
            let shard = self.shards[usize::from(self.own[at])].as_ref();
            if let Some(deadline) = shard.and_then(Shard::next_deadline) {
                first = first.min(deadline);
            }
            next = self.awake.next(at + 1);
        }
        (first != Nanos::NEVER).then_some(first)
    }

    /// Whether nothing is on its way and everything published is durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.joins.is_empty() && self.shards().all(Shard::is_settled)
    }

    /// Takes the end of an operation of a shard.
    pub fn complete(
        &mut self,
        now: Nanos,
        shard: u16,
        op: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if self.took_part(now, shard, op, result, memory) {
            return;
        }
        self.tell_end(now, shard, op, result, memory);
    }

    /// Takes a message of another host.
    pub fn receive(&mut self, now: Nanos, message: Message, memory: &mut dyn Memory) {
        match message {
            Message::Submit(shard, request) => self.submit_to_shard(now, shard, request, memory),
            Message::Answer(ack) => self.answered(now, ack, memory),
            Message::Flush(device) => self.flush_now(device),
            Message::Flushed {
                device,
                failed,
                failures,
            } => self.flushed_by_another(now, device, failed, failures, memory),
            Message::FlushFailed { device, failures } => {
                self.note_failures(now, device, failures, &[], memory);
            }
            Message::DeviceLeaves(device, loss) => self.device_leaves(now, device, loss, memory),
            Message::CacheFailed(reason) => self.fail_cache(reason),
        }
    }

    /// Does what became possible or due on every shard here, and takes what they want done.
    pub fn advance(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.submit_thawed(now, memory);
        self.advance_shards(now, memory);
        while self.end_unasked(now, memory) {
            self.advance_shards(now, memory);
        }
    }

    fn advance_shards(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if let [number] = *self.own.as_slice() {
            self.advance_shard(now, number, memory);
            return self.take_results(now, number, memory);
        }
        self.awake.wake_due(now);
        let mut next = self.awake.next(0);
        while let Some(at) = next {
            let number = self.own[at];
            let due = self.advance_shard(now, number, memory);
            self.awake.sleep(at, now, due);
            self.take_results(now, number, memory);
            next = self.awake.next(at + 1);
        }
    }

    /// Does what became possible or due on a shard, and returns when it is to be advanced again.
    #[inline(always)]
    fn advance_shard(&mut self, now: Nanos, number: u16, memory: &mut dyn Memory) -> Nanos {
        if let Some(shard) = self.own_shard(number) {
            shard.advance(now, memory);
        }
        // Before an answer of any shard here leaves (I22).
        if let Some(reason) = self.new_failure(number) {
            self.spread_failure(reason);
        }
        self.own_shard(number)
            .map_or(Nanos::NEVER, |shard| shard.due())
    }

    #[inline(always)]
    fn take_results(&mut self, now: Nanos, number: u16, memory: &mut dyn Memory) {
        while let Some(ack) = self.own_shard(number).and_then(Shard::next_ack) {
            if ack.result.is_err() {
                self.count_failures(number);
            }
            self.answered(now, ack, memory);
        }
        while let Some(action) = self.own_shard(number).and_then(Shard::next_action) {
            self.take_action(now, number, action);
        }
    }

    /// Before the answer that tells of them leaves (I10).
    #[cold]
    fn count_failures(&mut self, number: u16) {
        while let Some(volume) = self.own_shard(number).and_then(Shard::next_unheard) {
            self.shared.unheard().add(volume);
        }
    }

    /// Why a shard failed, if one did since the last look: the one that was just advanced, or one that
    /// something happened to.
    #[inline(always)]
    fn new_failure(&mut self, advanced: u16) -> Option<&'static str> {
        if self.awake.are_looked_at {
            return self.shards[usize::from(advanced)].as_ref()?.failure();
        }
        self.failure_of_awake()
    }

    /// Why a shard failed, of those that something happened to since they were advanced.
    pub(crate) fn failure_of_awake(&mut self) -> Option<&'static str> {
        let mut next = self.awake.next(0);
        while let Some(at) = next {
            let shard = self.shards[usize::from(self.own[at])].as_ref();
            if let Some(reason) = shard.and_then(Shard::failure) {
                return Some(reason);
            }
            next = self.awake.next(at + 1);
        }
        self.awake.are_looked_at = true;
        None
    }

    fn own_shard(&mut self, number: u16) -> Option<&mut Shard> {
        self.shards[usize::from(number)].as_mut()
    }

    fn take_action(&mut self, now: Nanos, shard: u16, action: Action) {
        match action.operation {
            Operation::Flush => self.want_flush(shard, action.op, action.device),
            _ => self.order_transfer(now, shard, action),
        }
    }

    /// Submits a request to a shard here, or sends it to where the shard is.
    pub(crate) fn submit_to_shard(
        &mut self,
        now: Nanos,
        number: u16,
        request: Request,
        memory: &mut dyn Memory,
    ) {
        let owner = self.owners[usize::from(number)];
        if owner != self.index {
            self.send(owner, Message::Submit(number, request));
        } else if let Some(shard) = self.shard(number) {
            shard.submit(now, request, memory);
        }
    }

    pub(crate) fn other_hosts(&self) -> impl Iterator<Item = u16> + use<T> {
        let own = self.index;
        (0..self.hosts).filter(move |host| *host != own)
    }

    pub(crate) fn send(&mut self, host: u16, message: Message) {
        self.outbox.push_back((host, message));
    }

    /// Makes checksums of writes that devices have been given, of a shard here
    /// ([`Engine::checksum_long_writes`]).
    pub fn checksum_long_writes(&mut self, number: u16, memory: &dyn Memory) {
        if let Some(Shard::Cached(engine)) = self.own_shard(number) {
            engine.checksum_long_writes(memory);
        }
    }

    /// The next thing for a device to do.
    pub fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// The next message, and which host it is for.
    pub fn next_message(&mut self) -> Option<(u16, Message)> {
        self.outbox.pop_front()
    }
}
