//! The state of one shard and its three calls: submit, complete, next action.

use std::collections::VecDeque;

use crate::buffer::MemoryBuffer;
use crate::buffer::requests::BUFFER_ENDED;
use crate::format::{CacheId, Geometry, Slot};
use crate::interface::{
    Ack, Action, DeviceError, Failure, MAX_REQUEST_BYTES, Memory, Nanos, OpId, Request,
    RequestKind, SECTOR_BYTES, VolumeSlot,
};
use crate::jobs::Job;
use crate::origin::Origin;
use crate::paths::read_ahead::ReadAhead;
use crate::policy::Policy;
use crate::policy::trials::Trials;
use crate::recovery::Recovered;
use crate::requests::RequestState;
use crate::ring::{self, RingIdentity};
use crate::settings::replacement::Replacement;
use crate::settings::{Commit, Mode, Settings};
use crate::slab::Slab;
use crate::space::reclaim::Reclaim;
use crate::space::shrink::Retire;
use crate::spare::Spare;
use crate::stats::Stats;
use crate::store::op::{HitRead, Op};
use crate::store::volumes::{Volume, VolumeConfig};
use crate::store::{Store, earlier};

/// The longest discard or write-zeroes one request may carry, in bytes.
pub const MAX_RANGE_BYTES: u32 = 64 << 20;

/// One shard of a cache: every decision about it, and no I/O.
///
/// The driver calls [`Engine::submit`] and [`Engine::complete`] as things happen, then
/// [`Engine::advance`] once per batch, and carries out what [`Engine::next_action`] gives it.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) policy: Policy,
    pub(crate) origin: Origin,
    pub(crate) ahead: ReadAhead,
    pub(crate) buffer: MemoryBuffer,
    identity: RingIdentity,
    pub(crate) requests: Slab<RequestState>,
    /// Writes and promotions in progress that have no job.
    pub(crate) singles_in_flight: usize,
    pub(crate) jobs: Slab<Job>,
    pub(crate) runnable: VecDeque<u32>,
    pub(crate) ended_promotions: Vec<u32>,
    /// Write jobs that wait for a free segment, for memory or for the abandonment to be durable.
    pub(crate) stalled_jobs: Vec<u32>,
    pub(crate) spare_retain: Spare,
    pub(crate) spare_buffered: Spare,
    pub(crate) stalled_reads: Vec<HitRead>,
    pub(crate) reclaim: Reclaim,
    pub(crate) retire: Retire,
    /// Otherwise nothing becomes due before.
    quiet_until: Nanos,
    /// One logged block more or less makes no difference to the next [`Engine::advance`].
    steady: bool,
    pub(crate) acks: VecDeque<Ack>,
}

impl Engine {
    /// The engine of a recovered shard, in a new epoch that is durable already (I1).
    ///
    /// # Panics
    /// If the settings are not valid; see [`Settings::validate`].
    pub fn new(
        settings: Settings,
        recovered: Recovered,
        boot_id: [u8; 16],
        memory: &mut dyn Memory,
    ) -> Engine {
        settings.validate().expect("valid settings");
        let Recovered { log, index, .. } = recovered;
        let identity = RingIdentity {
            cache: log.id,
            shard: log.shard,
            epoch: log.epoch,
            boot_id,
        };
        ring::initialise(memory.ring_mut(log.shard), identity);
        let slots = log.usable_slots();
        let block_bytes = log.geometry.block_bytes as usize;
        let policy = Policy::new(slots, &settings);
        let store = Store::new(settings, log, index, memory);
        let mut engine = Engine {
            store,
            policy,
            ahead: ReadAhead::default(),
            buffer: MemoryBuffer::default(),
            identity,
            requests: Slab::default(),
            singles_in_flight: 0,
            jobs: Slab::default(),
            runnable: VecDeque::new(),
            ended_promotions: Vec::new(),
            stalled_jobs: Vec::new(),
            spare_retain: Spare::new(block_bytes, memory),
            origin: Origin::new(block_bytes, memory),
            spare_buffered: Spare::default(),
            stalled_reads: Vec::new(),
            reclaim: Reclaim::default(),
            retire: Retire::default(),
            quiet_until: Nanos(0),
            steady: false,
            acks: VecDeque::new(),
        };
        engine.store.keep_spare_pages(memory);
        engine.adopt_buffer(memory);
        engine
    }

    /// Attaches a volume and says how requests name it.
    pub fn add_volume(&mut self, config: VolumeConfig) -> VolumeSlot {
        let free = self.store.volumes.iter().position(Option::is_none);
        let slot = VolumeSlot(free.unwrap_or(self.store.volumes.len()) as u16);
        self.add_volume_at(slot, config);
        slot
    }

    /// Attaches a volume that requests name so.
    ///
    /// # Panics
    /// If they name another one so.
    pub fn add_volume_at(&mut self, slot: VolumeSlot, config: VolumeConfig) {
        let mut volume = Volume::new(config);
        for slot in 0..self.store.log.geometry.slots() {
            let flags = self.store.index.flags(Slot(slot));
            if flags.live() && volume.contains(self.store.index.key(Slot(slot))) {
                volume.cached_blocks += 1;
                volume.dirty_blocks += u64::from(flags.dirty());
            }
        }
        let at = usize::from(slot.0);
        let count = self.store.volumes.len().max(at + 1);
        self.store.volumes.resize_with(count, || None);
        assert!(
            self.store.volumes[at].is_none(),
            "volume {at} is served already"
        );
        self.store.volumes[at] = Some(volume);
        self.store.stir();
    }

    /// Forgets a volume that has no dirty data and no requests in progress. Its clean blocks
    /// leave the index; what the log still says of it is void once the superblock says the
    /// volume is detached (I15).
    ///
    /// # Errors
    /// With the number of dirty blocks if there are any, or of requests in progress.
    pub fn remove_volume(&mut self, slot: VolumeSlot) -> Result<(), u64> {
        let Some(Some(volume)) = self.store.volumes.get(usize::from(slot.0)) else {
            return Ok(());
        };
        if volume.dirty_blocks > 0 {
            return Err(volume.dirty_blocks);
        }
        // A flush of its origin that ends later would be taken for one of the next volume in
        // this place, which began before that volume's writes (I6).
        let busy = self.requests.len()
            + self.singles_in_flight
            + self.jobs.len()
            + self.origin.runs()
            + usize::from(volume.is_flushing())
            + self.buffer.requests();
        if busy > 0 {
            return Err(busy as u64);
        }
        let (first, end) = volume.keys();
        let buffered = self.buffer.blocks_unfinished(first, end);
        if buffered > 0 {
            return Err(buffered);
        }
        for at in 0..self.store.log.geometry.slots() {
            let slot = Slot(at);
            let key = self.store.index.key(slot);
            if !(first..end).contains(&key) {
                continue;
            }
            if self.store.index.flags(slot).live() {
                let (slot, flags) = self.store.index.remove(key).expect("live");
                self.store.slot_dies(key, slot, flags);
            } else if self.store.index.named(key) == Some(slot) {
                // Its keys may be those of another volume next.
                self.store.index.hide_evicted(slot);
            }
        }
        self.store.volumes[usize::from(slot.0)] = None;
        Ok(())
    }

    /// Changes a volume's mode for requests submitted from now on. Dirty data stays and is
    /// written back as before.
    pub fn set_mode(&mut self, slot: VolumeSlot, mode: Mode) {
        self.store.stir();
        let volume = self.store.volume(slot);
        volume.config.mode = mode;
    }

    /// The mode of a volume.
    #[must_use]
    pub fn mode(&self, slot: VolumeSlot) -> Option<Mode> {
        Some(
            self.store
                .volumes
                .get(usize::from(slot.0))?
                .as_ref()?
                .config
                .mode,
        )
    }

    /// Starts or stops writing everything of a volume back as fast as the origin takes it.
    pub fn set_draining(&mut self, slot: VolumeSlot, draining: bool) {
        self.store.stir();
        self.store.volume(slot).draining = draining;
        if draining {
            self.store.try_unreadable_again(slot);
        }
    }

    /// Takes no more requests for a volume but flushes; others fail with [`Failure::Detached`].
    pub fn set_detaching(&mut self, slot: VolumeSlot, detaching: bool) {
        self.store.volume(slot).detaching = detaching;
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// If they are not valid; the old ones stay.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), String> {
        settings.validate()?;
        self.store.stir();
        self.policy
            .gate
            .set(&settings, self.store.log.usable_slots());
        self.buffer.in_use |= settings.commit == Commit::Memory;
        let tried = |of: &Settings| (of.replacement, of.probation_percent, of.promotion_hits);
        if tried(&settings) != tried(&self.store.settings) {
            self.policy.trials = Trials::new(self.store.log.usable_slots(), &settings);
        }
        self.store.settings = settings;
        Ok(())
    }

    /// Uses a memory buffer that the driver has from now on ([`Memory::buffer_mut`]), if there was
    /// none before.
    pub fn adopt_buffer(&mut self, memory: &mut dyn Memory) {
        if !self.buffer.has_place() {
            self.buffer = MemoryBuffer::adopt(self.identity, self.store.block_bytes(), memory);
            self.store.stir();
            if self.buffer.has_place() {
                self.spare_buffered = Spare::new(self.store.block_bytes(), memory);
            }
            self.buffer.in_use |= self.store.settings.commit == Commit::Memory;
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.store.settings
    }

    /// Takes a request. Its answer comes from [`Engine::next_ack`], possibly at once.
    pub fn submit(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        if let Err(failure) = self.check(&request) {
            self.acks.push_back(Ack {
                id: request.id,
                result: Err(failure),
                around: false,
            });
            return;
        }
        if self.buffer.in_use {
            return self.submit_with_buffer(now, request, memory);
        }
        self.serve(now, request, memory);
        self.run(now, memory);
    }

    #[cold]
    fn submit_with_buffer(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        if !self.submit_to_buffer(now, &request, memory) {
            self.serve(now, request, memory);
        }
        self.run(now, memory);
    }

    /// Serves a request that the memory buffer has nothing to do with.
    #[inline(always)]
    pub(crate) fn serve(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        // A write that is logged at once changes nothing else before it is done.
        self.store.stir_if(!matches!(
            request.kind,
            RequestKind::Read | RequestKind::Write { .. }
        ));
        match request.kind {
            RequestKind::Read => self.read(now, request, memory),
            RequestKind::Prefetch => self.prefetch(now, request, memory),
            RequestKind::Write { .. } | RequestKind::WriteZeroes { .. } | RequestKind::Discard => {
                self.write(now, request, memory);
            }
            RequestKind::Flush => self.flush(now, now, request),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Failure> {
        let volume = self
            .store
            .volumes
            .get(usize::from(request.volume.0))
            .and_then(Option::as_ref);
        let volume = volume.ok_or(Failure::Detached)?;
        if request.kind == RequestKind::Flush {
            return Ok(());
        }
        if volume.detaching {
            return Err(Failure::Detached);
        }
        let sector = SECTOR_BYTES as u64;
        let end = request
            .offset_bytes
            .checked_add(u64::from(request.len_bytes))
            .ok_or(Failure::Invalid)?;
        let aligned = request.offset_bytes.is_multiple_of(sector)
            && u64::from(request.len_bytes).is_multiple_of(sector);
        let limit = match request.kind {
            RequestKind::Read | RequestKind::Write { .. } | RequestKind::Prefetch => {
                MAX_REQUEST_BYTES
            }
            _ => MAX_RANGE_BYTES,
        };
        let carries_data = matches!(request.kind, RequestKind::Read | RequestKind::Write { .. });
        let has_data = !carries_data || request.buf.len_bytes == request.len_bytes;
        if !aligned
            || request.len_bytes == 0
            || end > volume.config.size_bytes
            || request.len_bytes > limit
            || !has_data
        {
            return Err(Failure::Invalid);
        }
        Ok(())
    }

    /// Takes the end of a device operation.
    ///
    /// # Panics
    /// If the operation is not in flight.
    pub fn complete(
        &mut self,
        now: Nanos,
        op: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let op = self
            .store
            .operations
            .end(op)
            .expect("an operation in flight");
        let stirs = match op {
            Op::HitRead(_) => false,
            Op::SingleWrite(_) => !self.steady,
            _ => true,
        };
        self.store.stir_if(stirs);
        match op {
            Op::SingleWrite(write) => self.single_done(now, write, result, memory),
            Op::AppendData(placed) => {
                self.store.append_data_done(now, *placed, result, memory);
                self.tell_appended(now, memory);
            }
            Op::Header(record) => {
                self.store.header_done(now, record, result, memory);
                self.tell_appended(now, memory);
            }
            Op::Seal {
                segment,
                which,
                buf,
            } => self.store.seal_done(segment, which, buf, result, memory),
            Op::CacheFlush => self.cache_flushed(now, result, memory),
            Op::OriginFlush(volume) => self.origin_flush_done(now, volume, result, memory),
            Op::HitRead(read) => self.hit_read_done(now, read, result, memory),
            Op::MissRead(read) => self.miss_read_done(now, read, result, memory),
            Op::DoubtfulRead(read) => self.doubtful_read_done(now, *read, memory),
            Op::PromoteOneRead(promotion, reader) => {
                self.promote_one_read_done(now, promotion, reader, result, memory)
            }
            Op::PromoteOneWrite(promotion, placed) => {
                self.promote_one_written(now, promotion, placed, result, memory)
            }
            Op::LateRead(read) => self.late_read_done(now, *read, result, memory),
            Op::ReadAhead(piece) => self.read_ahead_done(now, piece, result, memory),
            Op::PromoteRead(job) => self.promote_read_done(now, job, result, memory),
            Op::FillFromCache { job, edge, slot } => {
                self.fill_from_cache_done(now, job, edge, slot, result, memory)
            }
            Op::FillFromOrigin { job, edge } => {
                self.fill_from_origin_done(now, job, edge, result, memory)
            }
            Op::JobOrigin { job } => self.write_origin_done(now, job, result, memory),
            Op::WritebackRead(part) => {
                let store = &mut self.store;
                self.origin
                    .writeback_read_done(store, now, part, result, memory);
                self.wake_origin_waiters();
            }
            Op::WritebackWrite { job } => {
                let store = &mut self.store;
                self.origin
                    .writeback_write_done(store, now, job, result, memory);
                self.wake_origin_waiters();
            }
            Op::RetainRead(part) => self.retain_read_done(now, part, result, memory),
            Op::Renewal(segment) => self.store.renewal_done(segment, result, memory),
            Op::SegmentDiscard(segment) => self.segment_discarded(segment),
        }
        self.run(now, memory);
    }

    /// Does what became possible or due: to be called after a batch of submissions and
    /// completions, and when [`Engine::next_deadline`] has come.
    #[inline]
    pub fn advance(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if self.store.is_stirred() || now >= self.quiet_until {
            self.look_at_everything(now, memory);
        }
    }

    fn look_at_everything(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.store.take_stirred();
        if self
            .ahead
            .deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.ahead.give_up(memory);
        }
        if !self.origin.throttle.is_empty() {
            self.release_throttled(now, memory);
        }
        self.run(now, memory);
        self.advance_reclaim(now, memory);
        // After reclaim: the segment it has just freed may be the last thing that happens.
        if !self.stalled_jobs.is_empty() {
            let stalled = std::mem::take(&mut self.stalled_jobs);
            self.runnable.extend(stalled);
        }
        if !self.store.has_found_room() {
            self.store.retry_backlog(now, memory);
            self.tell_appended(now, memory);
        }
        if !self.stalled_reads.is_empty() {
            self.retry_stalled_reads(now, memory);
        }
        if self.buffer.unfinished_count > 0 {
            self.advance_buffer(now, memory);
        }
        if self.store.has_combined() {
            self.store.flush_combined(now, memory);
            self.tell_appended(now, memory);
        }
        if self.store.has_cleans() {
            self.store.log_cleans(now, memory);
        }
        self.origin
            .advance_writeback(&mut self.store, &self.buffer, now, memory);
        if self.store.failed_cache() {
            self.fail_durable_waiters(now);
        } else {
            self.store.advance_durability(now, memory);
        }
        self.store.advance_origins(now);
        // What goes on only now was seen by nothing above.
        let all_seen = self.runnable.is_empty();
        self.run(now, memory);
        let again = self.store.promises()
            || !self.stalled_jobs.is_empty()
            || !self.stalled_reads.is_empty()
            || !self.buffer.waiting.is_empty();
        self.store.stir_if(again);
        self.quiet_until = self.next_deadline().unwrap_or(Nanos(u64::MAX));
        self.steady = all_seen && self.is_steady();
    }

    /// Whether all that a logged block could bring about has its time already, and nothing tries
    /// again whenever something happens.
    fn is_steady(&self) -> bool {
        self.reclaim_waits()
            && self.origin.writeback_waits(&self.store)
            && self.store.durability_waits()
            && !self.store.failed_cache()
            && self.origin.throttle.is_empty()
            && self.store.is_caught_up()
            && self.buffer.unfinished_count == 0
    }

    /// Lets jobs go on whose turn came.
    #[inline(always)]
    pub(crate) fn run(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if !self.runnable.is_empty() || !self.ended_promotions.is_empty() {
            self.run_jobs(now, memory);
        }
    }

    #[cold]
    fn run_jobs(&mut self, now: Nanos, memory: &mut dyn Memory) {
        loop {
            self.end_promotions(memory);
            let Some(job) = self.runnable.pop_front() else {
                break;
            };
            if job == BUFFER_ENDED {
                self.resume_buffer(now, memory);
            } else {
                self.resume_job(now, job, memory);
            }
        }
    }

    /// The next device operation to carry out.
    #[inline]
    pub fn next_action(&mut self) -> Option<Action> {
        self.store.operations.next()
    }

    /// The next answer to a request.
    #[inline]
    pub fn next_ack(&mut self) -> Option<Ack> {
        self.acks.pop_front()
    }

    /// When [`Engine::advance`] must be called next, if nothing else happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let mut next = self.buffer.retry_at;
        for deadline in [
            self.store.durability_deadline(),
            self.store.origins_deadline(),
            self.origin.throttle.deadline(),
            self.origin.writeback_deadline(&self.store),
            self.ahead.deadline(),
            self.retire
                .deadline()
                .filter(|_| !self.store.failed_cache()),
        ] {
            next = earlier(next, deadline);
        }
        next
    }

    /// How many device operations are in flight or waiting to be taken.
    #[must_use]
    pub fn operations_in_flight(&self) -> usize {
        self.store.operations.len()
    }

    /// Whether no request, job or operation is in progress, nor anything kept for a client that
    /// reads in sequence.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.store.operations.is_empty()
            && self.requests.is_empty()
            && self.jobs.is_empty()
            && self.origin.runs() == 0
            && self.origin.throttle.is_empty()
            && self.ahead.is_empty()
            && self.buffer_is_at_rest()
    }

    /// Whether everything published is durable and every record written: what an orderly stop
    /// waits for after a flush.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_idle()
            && ((self.store.all_durable() && !self.store.promises()) || self.store.failed_cache())
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.store.stats
    }

    /// Dirty and cached blocks of a volume. Those in the memory buffer alone are dirty too: the
    /// origin does not have them.
    #[must_use]
    pub fn volume_blocks(&self, slot: VolumeSlot) -> Option<(u64, u64)> {
        let volume = self.store.volumes.get(usize::from(slot.0))?.as_ref()?;
        let (first, end) = volume.keys();
        let buffered = self.buffer.blocks_unfinished(first, end);
        Some((volume.dirty_blocks + buffered, volume.cached_blocks))
    }

    /// Blocks of a volume that are on its origin and become clean with the origin's next flush;
    /// some may have been written again since. For showing progress.
    #[must_use]
    pub fn unflushed_blocks(&self, slot: VolumeSlot) -> u64 {
        self.store.unflushed_blocks(slot)
    }

    /// Starts no more write-back: part of an orderly stop, after which an origin is to stay as it
    /// is. What is on its way ends.
    pub fn hold_writeback(&mut self) {
        self.origin.writeback.hold();
    }

    /// How many dirty blocks of a volume write-back could not read and tries no more.
    #[must_use]
    pub fn unreadable_blocks(&self, volume: VolumeSlot) -> u64 {
        self.store.unreadable_blocks(volume)
    }

    /// Dirty blocks that cannot be read from the cache device, by offset on the volume in bytes:
    /// lost unless an administrator finds another copy.
    #[must_use]
    pub fn unreadable_dirty(&self, volume: VolumeSlot) -> Vec<u64> {
        self.store.unreadable_dirty(volume)
    }

    /// How many blocks are cached and how many fit, at most.
    #[must_use]
    pub fn occupancy(&self) -> (u64, u64) {
        (
            u64::from(self.store.index.len()),
            self.store.capacity_blocks(),
        )
    }

    /// The manner that `adaptive` replacement is in just now; none under another policy.
    #[must_use]
    pub fn manner(&self) -> Option<&'static str> {
        let adapts = self.store.settings.replacement == Replacement::Adaptive;
        adapts.then(|| self.policy.trials.best().name())
    }

    /// Whether a block of a volume is cached, and whether it is dirty.
    #[must_use]
    pub fn block_state(&self, slot: VolumeSlot, offset_bytes: u64) -> (bool, bool) {
        let Some(Some(volume)) = self.store.volumes.get(usize::from(slot.0)) else {
            return (false, false);
        };
        let key = volume.key_at(offset_bytes, self.store.block_bytes());
        if self.buffer.is_unfinished(key) {
            return (true, true);
        }
        self.store.index.find(key).map_or((false, false), |slot| {
            (true, self.store.index.flags(slot).dirty())
        })
    }

    /// Where on the cache devices the newest copy of a block is, as an address
    /// ([`crate::format::extents`]); none if it is not cached.
    #[must_use]
    pub fn address_of(&self, slot: VolumeSlot, offset_bytes: u64) -> Option<u64> {
        let volume = self.store.volumes.get(usize::from(slot.0))?.as_ref()?;
        let found = self
            .store
            .index
            .find(volume.key_at(offset_bytes, self.store.block_bytes()))?;
        Some(self.store.log.map.slot_address(found))
    }

    /// Whether the newest contents of a block are in the memory buffer alone.
    #[must_use]
    pub fn is_buffered(&self, slot: VolumeSlot, offset_bytes: u64) -> bool {
        let volume = self.store.volumes.get(usize::from(slot.0));
        let volume = volume.and_then(Option::as_ref);
        volume.is_some_and(|volume| {
            let key = volume.key_at(offset_bytes, self.store.block_bytes());
            self.buffer.is_unfinished(key)
        })
    }

    /// Why the cache stepped aside, if it did (I15).
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        self.store.failed.as_ref().map(|failed| failed.reason)
    }

    /// Whether the driver must record, durably and outside the cache device, that the cache is
    /// abandoned at this epoch. It answers with [`Engine::abandonment_recorded`]; until then
    /// nothing that the log cannot record is written.
    #[must_use]
    pub fn wants_abandonment(&self) -> Option<u32> {
        self.store.wants_abandonment()
    }

    /// The abandonment is durable, with what [`Engine::list_unsaved`] said last.
    pub fn abandonment_recorded(&mut self) {
        self.store.abandonment_recorded();
    }

    /// Writes down how far everything is durable, so that recovery misses what is not there any
    /// more (I14). Part of an orderly stop: in between, ordinary headers say it a little late.
    /// Done when [`Engine::is_settled`] says so.
    pub fn settle(&mut self) {
        self.store.settle();
    }

    /// A flush of the cache device failed, here or in another shard: every shard is told before it
    /// is given the end of a later one (I21).
    pub fn cache_flush_failed(&mut self) {
        self.store.cache_flush_failed();
    }

    /// The shape of the cache.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.store.log.geometry
    }

    /// The identity of the cache.
    #[must_use]
    pub fn cache_id(&self) -> CacheId {
        self.store.log.id
    }
}
