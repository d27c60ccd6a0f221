//! The state of one shard and its three calls: submit, complete, next action.

use std::collections::VecDeque;

use crate::append::{Appended, Piece, PlacedPiece, SPARE_PAGES};
use crate::append_one::Placed;
use crate::buffer::MemoryBuffer;
use crate::departed::Dropped;
use crate::durability::Durability;
use crate::format::{BlockKey, CacheId, Geometry, PAGE_BYTES, SegmentId, Slot};
use crate::gate::Gate;
use crate::ghost::Ghost;
use crate::index::Index;
use crate::interface::{
    Ack, Action, Buf, Device, DeviceError, Failure, MAX_REQUEST_BYTES, Memory, Nanos, OpId,
    Operation, Request, RequestKind, SECTOR_BYTES, VolumeSlot,
};
use crate::jobs::Job;
use crate::locks::{KeyMap, Locks, Owner};
use crate::log::{Log, Version};
use crate::main_hand::MainHand;
use crate::paths::buffered::BUFFER_ENDED;
use crate::paths::late::LateRead;
use crate::paths::promote::Reader;
use crate::paths::promote_one::PromoteOne;
use crate::paths::read::{HitRead, MissRead};
use crate::paths::read_ahead::ReadAhead;
use crate::paths::single::SingleWrite;
use crate::reclaim::Reclaim;
use crate::recovery::Recovered;
use crate::renew::Renewals;
use crate::renew_below::Promises;
use crate::replacement::{Allowance, Replacement};
use crate::requests::RequestState;
use crate::retire::Retire;
use crate::ring::{self, RingIdentity};
use crate::settings::{Commit, Mode, Settings};
use crate::slab::Slab;
use crate::spare::Spare;
use crate::stats::Stats;
use crate::throttle::Throttle;
use crate::trials::Trials;
use crate::unreadable::Unreadable;
use crate::unsaved::Listed;
use crate::volume::{Volume, VolumeConfig};
use crate::writeback::Writeback;

/// The longest discard or write-zeroes one request may carry, in bytes.
pub const MAX_RANGE_BYTES: u32 = 64 << 20;

/// What a device operation was for.
#[derive(Debug)]
pub(crate) enum Op {
    /// Boxed, so that the table of operations stays small.
    AppendData(Box<PlacedPiece>),
    SingleWrite(SingleWrite),
    Header(u32),
    Seal {
        segment: SegmentId,
        which: u8,
        buf: Buf,
    },
    CacheFlush,
    OriginFlush(VolumeSlot),
    HitRead(HitRead),
    MissRead(MissRead),
    /// One whose answer does not count, and what it was.
    DoubtfulRead(Box<Op>),
    PromoteOneRead(PromoteOne, Reader),
    PromoteOneWrite(PromoteOne, Placed),
    /// Boxed as above; it is rare.
    LateRead(Box<LateRead>),
    ReadAhead(u32),
    PromoteRead(u32),
    FillFromCache {
        job: u32,
        edge: u8,
        slot: Slot,
    },
    FillFromOrigin {
        job: u32,
        edge: u8,
    },
    JobOrigin {
        job: u32,
    },

    WritebackRead {
        job: u32,
        first: u16,
        count: u16,
    },
    WritebackWrite {
        job: u32,
    },
    RetainRead {
        job: u32,
        first: u16,
        count: u16,
    },
    Renewal(SegmentId),
    SegmentDiscard(SegmentId),
}

/// One shard of a cache: every decision about it, and no I/O.
///
/// The driver calls [`Engine::submit`] and [`Engine::complete`] as things happen, then
/// [`Engine::advance`] once per batch, and carries out what [`Engine::next_action`] gives it.
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) index: Index,
    pub(crate) locks: Locks,
    pub(crate) origin_locks: KeyMap<Owner>,
    pub(crate) origin_lock_waiters: Vec<u32>,
    /// Versions written to the origin that wait for its flush.
    pub(crate) written: KeyMap<Slot>,
    /// Blocks of combined writes that have their number and are being written.
    pub(crate) numbered: KeyMap<()>,
    pub(crate) dropped: Dropped,
    pub(crate) ghost: Ghost,
    pub(crate) ahead: ReadAhead,
    pub(crate) main_hand: MainHand,
    pub(crate) trials: Trials,
    pub(crate) allowance: Allowance,
    pub(crate) gate: Gate,
    pub(crate) buffer: MemoryBuffer,
    identity: RingIdentity,
    pub(crate) volumes: Vec<Option<Volume>>,
    pub(crate) volume_hint: usize,
    /// Blocks that the segments can hold when headers take little.
    pub(crate) capacity_blocks: u64,
    pub(crate) requests: Slab<RequestState>,
    /// Writes and promotions in progress that have no job.
    pub(crate) singles_in_flight: usize,
    pub(crate) jobs: Slab<Job>,
    pub(crate) runnable: VecDeque<u32>,
    pub(crate) ended_promotions: Vec<u32>,
    /// Write jobs that wait for a free segment, for memory or for the abandonment to be durable.
    pub(crate) stalled_jobs: Vec<u32>,
    pub(crate) combined: VecDeque<Piece>,
    pub(crate) backlog: VecDeque<Piece>,
    /// Ends of appends that their owners have not been told of.
    pub(crate) appended: VecDeque<Appended>,
    /// Versions that became clean while there was no room to say so.
    pub(crate) unlogged_cleans: VecDeque<Version>,
    pub(crate) headers_waiting: Vec<u32>,
    pub(crate) spare_pages: Vec<Buf>,
    pub(crate) spare_summary: Spare,
    pub(crate) spare_retain: Spare,
    pub(crate) spare_writeback: Spare,
    pub(crate) spare_buffered: Spare,
    pub(crate) seals_waiting: Vec<SegmentId>,
    pub(crate) stalled_reads: Vec<HitRead>,
    pub(crate) durability: Durability,
    pub(crate) reclaim: Reclaim,
    pub(crate) retire: Retire,
    pub(crate) renewals: Renewals,
    pub(crate) promises: Promises,
    pub(crate) writeback: Writeback,
    pub(crate) unreadable: Unreadable,
    pub(crate) throttle: Throttle,
    pub(crate) sync_writer: SyncWriter,
    pub(crate) failed: Option<FailedCache>,
    /// Something happened since the last [`Engine::advance`] besides hits, and besides writes that
    /// were logged while it was steady.
    pub(crate) stirred: bool,
    /// Otherwise nothing becomes due before.
    quiet_until: Nanos,
    /// One logged block more or less makes no difference to the next [`Engine::advance`].
    steady: bool,
    pub(crate) acks: VecDeque<Ack>,
    pub(crate) stats: Stats,
    pub(crate) ops: Slab<Op>,
    actions: VecDeque<Action>,
}

/// Why and how far the cache is given up.
#[derive(Debug)]
pub(crate) struct FailedCache {
    pub(crate) reason: &'static str,
    /// "Abandoned at this epoch" is durable outside the cache device (I15).
    pub(crate) recorded: bool,
    /// What is on record as newer in the cache than on its origin.
    pub(crate) listed: Listed,
    /// The same of the last report, which is not on record yet.
    pub(crate) reported: Listed,
    /// Blocks of writes that failed and may be in the log all the same.
    pub(crate) landed: KeyMap<()>,
    /// Requests to flush a volume that wait for that list to be empty.
    pub(crate) flushes: Vec<(u32, VolumeSlot)>,
}

/// Notices a client that flushes after each write, which then pays one write and one flush.
#[derive(Debug, Default)]
pub(crate) struct SyncWriter {
    writes_since_flush: u32,
    streak: u32,
}

impl SyncWriter {
    pub(crate) fn wrote(&mut self) {
        self.writes_since_flush += 1;
        if self.writes_since_flush > 2 {
            self.streak = 0;
        }
    }

    pub(crate) fn flushed(&mut self) {
        if (1..=2).contains(&self.writes_since_flush) {
            self.streak += 1;
        }
        self.writes_since_flush = 0;
    }

    pub(crate) fn is_one(&self) -> bool {
        self.streak >= 3
    }
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
        let capacity_blocks = log.capacity_blocks();
        let block_bytes = log.geometry.block_bytes as usize;
        let spare_summary = Spare::new(log.geometry.summary_bytes() as usize, memory);
        let mut engine = Engine {
            trials: Trials::new(slots, &settings),
            allowance: Allowance::new(slots, settings.retain_percent),
            settings,
            log,
            index,
            locks: Locks::default(),
            origin_locks: KeyMap::default(),
            origin_lock_waiters: Vec::new(),
            written: KeyMap::default(),
            numbered: KeyMap::default(),
            dropped: Dropped::default(),
            ghost: Ghost::of(slots),
            ahead: ReadAhead::default(),
            main_hand: MainHand::default(),
            gate: Gate::default(),
            buffer: MemoryBuffer::default(),
            identity,
            volumes: Vec::new(),
            volume_hint: 0,
            capacity_blocks,
            requests: Slab::default(),
            singles_in_flight: 0,
            jobs: Slab::default(),
            runnable: VecDeque::new(),
            ended_promotions: Vec::new(),
            stalled_jobs: Vec::new(),
            combined: VecDeque::new(),
            backlog: VecDeque::new(),
            appended: VecDeque::new(),
            unlogged_cleans: VecDeque::new(),
            headers_waiting: Vec::new(),
            spare_summary,
            spare_retain: Spare::new(block_bytes, memory),
            spare_writeback: Spare::new(block_bytes, memory),
            spare_buffered: Spare::default(),
            spare_pages: (0..SPARE_PAGES)
                .filter_map(|_| memory.alloc(PAGE_BYTES))
                .collect(),
            seals_waiting: Vec::new(),
            stalled_reads: Vec::new(),
            durability: Durability::default(),
            reclaim: Reclaim::default(),
            retire: Retire::default(),
            renewals: Renewals::default(),
            promises: Promises::default(),
            writeback: Writeback::default(),
            unreadable: Unreadable::default(),
            throttle: Throttle::default(),
            sync_writer: SyncWriter::default(),
            failed: None,
            stirred: true,
            quiet_until: Nanos(0),
            steady: false,
            acks: VecDeque::new(),
            stats: Stats::default(),
            ops: Slab::default(),
            actions: VecDeque::new(),
        };
        engine.stats.dirty_blocks = engine
            .log
            .segments
            .iter()
            .map(|segment| u64::from(segment.dirty))
            .sum();
        engine.adopt_buffer(memory);
        engine.tails_are_durable();
        engine.gate.set(&engine.settings, slots);
        engine
    }

    /// Attaches a volume and says how requests name it.
    pub fn add_volume(&mut self, config: VolumeConfig) -> VolumeSlot {
        let free = self.volumes.iter().position(Option::is_none);
        let slot = VolumeSlot(free.unwrap_or(self.volumes.len()) as u16);
        self.add_volume_at(slot, config);
        slot
    }

    /// Attaches a volume that requests name so.
    ///
    /// # Panics
    /// If they name another one so.
    pub fn add_volume_at(&mut self, slot: VolumeSlot, config: VolumeConfig) {
        let mut volume = Volume::new(config);
        for slot in 0..self.log.geometry.slots() {
            let flags = self.index.flags(Slot(slot));
            if flags.live() && volume.contains(self.index.key(Slot(slot))) {
                volume.cached_blocks += 1;
                volume.dirty_blocks += u64::from(flags.dirty());
            }
        }
        let at = usize::from(slot.0);
        let count = self.volumes.len().max(at + 1);
        self.volumes.resize_with(count, || None);
        assert!(self.volumes[at].is_none(), "volume {at} is served already");
        self.volumes[at] = Some(volume);
        self.stirred = true;
    }

    /// Forgets a volume that has no dirty data and no requests in progress. Its clean blocks
    /// leave the index; what the log still says of it is void once the superblock says the
    /// volume is detached (I15).
    ///
    /// # Errors
    /// With the number of dirty blocks if there are any, or of requests in progress.
    pub fn remove_volume(&mut self, slot: VolumeSlot) -> Result<(), u64> {
        let Some(Some(volume)) = self.volumes.get(usize::from(slot.0)) else {
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
        for at in 0..self.log.geometry.slots() {
            let slot = Slot(at);
            let key = self.index.key(slot);
            if !(first..end).contains(&key) {
                continue;
            }
            if self.index.flags(slot).live() {
                let (slot, flags) = self.index.remove(key).expect("live");
                self.slot_dies(key, slot, flags);
            } else if self.index.named(key) == Some(slot) {
                // Its keys may be those of another volume next.
                self.index.hide_evicted(slot);
            }
        }
        self.volumes[usize::from(slot.0)] = None;
        Ok(())
    }

    /// Changes a volume's mode for requests submitted from now on. Dirty data stays and is
    /// written back as before.
    pub fn set_mode(&mut self, slot: VolumeSlot, mode: Mode) {
        self.stirred = true;
        let volume = self.volume(slot);
        volume.config.mode = mode;
    }

    /// The mode of a volume.
    #[must_use]
    pub fn mode(&self, slot: VolumeSlot) -> Option<Mode> {
        Some(self.volumes.get(usize::from(slot.0))?.as_ref()?.config.mode)
    }

    /// Starts or stops writing everything of a volume back as fast as the origin takes it.
    pub fn set_draining(&mut self, slot: VolumeSlot, draining: bool) {
        self.stirred = true;
        self.volume(slot).draining = draining;
        if draining {
            self.try_unreadable_again(slot);
        }
    }

    /// Takes no more requests for a volume but flushes; others fail with [`Failure::Detached`].
    pub fn set_detaching(&mut self, slot: VolumeSlot, detaching: bool) {
        self.volume(slot).detaching = detaching;
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// If they are not valid; the old ones stay.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), String> {
        settings.validate()?;
        self.stirred = true;
        self.gate.set(&settings, self.log.usable_slots());
        self.buffer.in_use |= settings.commit == Commit::Memory;
        let tried = |of: &Settings| (of.replacement, of.probation_percent, of.promotion_hits);
        if tried(&settings) != tried(&self.settings) {
            self.trials = Trials::new(self.log.usable_slots(), &settings);
        }
        self.settings = settings;
        Ok(())
    }

    /// Uses a memory buffer that the driver has from now on ([`Memory::buffer_mut`]), if there was
    /// none before.
    pub fn adopt_buffer(&mut self, memory: &mut dyn Memory) {
        if !self.buffer.has_place() {
            self.buffer = MemoryBuffer::adopt(self.identity, self.block_bytes(), memory);
            self.stirred = true;
            if self.buffer.has_place() {
                self.spare_buffered = Spare::new(self.block_bytes(), memory);
            }
            self.buffer.in_use |= self.settings.commit == Commit::Memory;
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
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
        self.stirred |= !matches!(request.kind, RequestKind::Read | RequestKind::Write { .. });
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
        let op = self.ops.remove(op.0).expect("an operation in flight");
        self.stirred |= match op {
            Op::HitRead(_) => false,
            Op::SingleWrite(_) => !self.steady,
            _ => true,
        };
        match op {
            Op::SingleWrite(write) => self.single_done(now, write, result, memory),
            Op::AppendData(placed) => {
                self.append_data_done(now, *placed, result, memory);
                self.tell_appended(now, memory);
            }
            Op::Header(record) => {
                self.header_done(now, record, result, memory);
                self.tell_appended(now, memory);
            }
            Op::Seal {
                segment,
                which,
                buf,
            } => self.seal_done(segment, which, buf, result, memory),
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
            Op::WritebackRead { job, first, count } => {
                self.writeback_read_done(now, job, first, count, result, memory)
            }
            Op::WritebackWrite { job } => self.writeback_write_done(now, job, result, memory),
            Op::RetainRead { job, first, count } => {
                self.retain_read_done(now, job, first, count, result, memory)
            }
            Op::Renewal(segment) => self.renewal_done(segment, result, memory),
            Op::SegmentDiscard(segment) => self.segment_discarded(segment),
        }
        self.run(now, memory);
    }

    /// Does what became possible or due: to be called after a batch of submissions and
    /// completions, and when [`Engine::next_deadline`] has come.
    #[inline]
    pub fn advance(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if self.stirred || now >= self.quiet_until {
            self.look_at_everything(now, memory);
        }
    }

    fn look_at_everything(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.stirred = false;
        if self
            .ahead
            .deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.ahead.give_up(memory);
        }
        if !self.throttle.is_empty() {
            self.release_throttled(now, memory);
        }
        self.run(now, memory);
        self.advance_reclaim(now, memory);
        // After reclaim: the segment it has just freed may be the last thing that happens.
        if !self.stalled_jobs.is_empty() {
            let stalled = std::mem::take(&mut self.stalled_jobs);
            self.runnable.extend(stalled);
        }
        if !self.backlog.is_empty()
            || !self.headers_waiting.is_empty()
            || !self.seals_waiting.is_empty()
        {
            self.retry_backlog(now, memory);
            self.tell_appended(now, memory);
        }
        if !self.stalled_reads.is_empty() {
            self.retry_stalled_reads(now, memory);
        }
        if self.buffer.unfinished_count > 0 {
            self.advance_buffer(now, memory);
        }
        if !self.combined.is_empty() {
            self.flush_combined(now, memory);
            self.tell_appended(now, memory);
        }
        if !self.unlogged_cleans.is_empty() {
            self.log_cleans(now, memory);
        }
        self.advance_writeback(now, memory);
        if self.failed_cache() {
            self.fail_durable_waiters(now);
        } else {
            self.advance_durability(now, memory);
        }
        self.advance_origins(now);
        // What goes on only now was seen by nothing above.
        let all_seen = self.runnable.is_empty();
        self.run(now, memory);
        self.stirred |= self.promises()
            || !self.stalled_jobs.is_empty()
            || !self.stalled_reads.is_empty()
            || !self.buffer.waiting.is_empty();
        self.quiet_until = self.next_deadline().unwrap_or(Nanos(u64::MAX));
        self.steady = all_seen && self.is_steady();
    }

    /// Whether all that a logged block could bring about has its time already, and nothing tries
    /// again whenever something happens.
    fn is_steady(&self) -> bool {
        self.reclaim_waits()
            && self.writeback_waits()
            && self.durability_waits()
            && !self.failed_cache()
            && self.throttle.is_empty()
            && self.backlog.is_empty()
            && self.headers_waiting.is_empty()
            && self.seals_waiting.is_empty()
            && self.combined.is_empty()
            && self.unlogged_cleans.is_empty()
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
        self.actions.pop_front()
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
            self.durability_deadline(),
            self.origins_deadline(),
            self.throttle.deadline(),
            self.writeback_deadline(),
            self.ahead.deadline(),
            self.retire.deadline().filter(|_| !self.failed_cache()),
        ] {
            next = earlier(next, deadline);
        }
        next
    }

    pub(crate) fn issue(&mut self, op: Op, device: Device, operation: Operation) {
        match (&operation, device) {
            (Operation::Read { bufs, .. }, Device::Cache(_)) => {
                self.stats.cache_data_read_bytes += total_bytes(bufs);
            }
            (Operation::Read { bufs, .. }, Device::Origin(_)) => {
                self.stats.origin_read_bytes += total_bytes(bufs)
            }
            (Operation::Write { bufs, .. }, Device::Origin(_)) => {
                self.stats.origin_written_bytes += total_bytes(bufs)
            }
            _ => {}
        }
        self.stirred = true;
        self.issue_quietly(op, device, operation);
    }

    /// The same of an operation that stirs nothing and whose bytes the caller counts: hits and
    /// single writes, which are counted in instructions.
    #[inline(always)]
    pub(crate) fn issue_quietly(&mut self, op: Op, device: Device, operation: Operation) {
        let op = OpId(self.ops.insert(op));
        self.actions.push_back(Action {
            op,
            device,
            operation,
        });
    }

    /// How many device operations are in flight or waiting to be taken.
    #[must_use]
    pub fn operations_in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Has the next [`Engine::advance`] look at everything.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether no request, job or operation is in progress, nor anything kept for a client that
    /// reads in sequence.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ops.is_empty()
            && self.requests.is_empty()
            && self.jobs.is_empty()
            && self.throttle.is_empty()
            && self.ahead.is_empty()
            && self.buffer_is_at_rest()
    }

    /// Whether everything published is durable and every record written: what an orderly stop
    /// waits for after a flush.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_idle() && ((self.all_durable() && !self.promises()) || self.failed_cache())
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Dirty and cached blocks of a volume. Those in the memory buffer alone are dirty too: the
    /// origin does not have them.
    #[must_use]
    pub fn volume_blocks(&self, slot: VolumeSlot) -> Option<(u64, u64)> {
        let volume = self.volumes.get(usize::from(slot.0))?.as_ref()?;
        let (first, end) = volume.keys();
        let buffered = self.buffer.blocks_unfinished(first, end);
        Some((volume.dirty_blocks + buffered, volume.cached_blocks))
    }

    /// How many blocks are cached and how many fit, at most.
    #[must_use]
    pub fn occupancy(&self) -> (u64, u64) {
        (u64::from(self.index.len()), self.capacity_blocks)
    }

    /// The manner that `adaptive` replacement is in just now; none under another policy.
    #[must_use]
    pub fn manner(&self) -> Option<&'static str> {
        let adapts = self.settings.replacement == Replacement::Adaptive;
        adapts.then(|| self.trials.best().name())
    }

    /// Whether a block of a volume is cached, and whether it is dirty.
    #[must_use]
    pub fn block_state(&self, slot: VolumeSlot, offset_bytes: u64) -> (bool, bool) {
        let Some(Some(volume)) = self.volumes.get(usize::from(slot.0)) else {
            return (false, false);
        };
        let key = volume.key_at(offset_bytes, self.block_bytes());
        if self.buffer.is_unfinished(key) {
            return (true, true);
        }
        self.index.find(key).map_or((false, false), |slot| {
            (true, self.index.flags(slot).dirty())
        })
    }

    /// Where on the cache devices the newest copy of a block is, as an address
    /// ([`crate::format::extents`]); none if it is not cached.
    #[must_use]
    pub fn address_of(&self, slot: VolumeSlot, offset_bytes: u64) -> Option<u64> {
        let volume = self.volumes.get(usize::from(slot.0))?.as_ref()?;
        let found = self
            .index
            .find(volume.key_at(offset_bytes, self.block_bytes()))?;
        Some(self.log.map.slot_address(found))
    }

    /// Whether the newest contents of a block are in the memory buffer alone.
    #[must_use]
    pub fn is_buffered(&self, slot: VolumeSlot, offset_bytes: u64) -> bool {
        let volume = self.volumes.get(usize::from(slot.0));
        let volume = volume.and_then(Option::as_ref);
        volume.is_some_and(|volume| {
            let key = volume.key_at(offset_bytes, self.block_bytes());
            self.buffer.is_unfinished(key)
        })
    }

    /// Why the cache stepped aside, if it did (I15).
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        self.failed.as_ref().map(|failed| failed.reason)
    }

    /// Whether the driver must record, durably and outside the cache device, that the cache is
    /// abandoned at this epoch. It answers with [`Engine::abandonment_recorded`]; until then
    /// nothing that the log cannot record is written.
    #[must_use]
    pub fn wants_abandonment(&self) -> Option<u32> {
        let failed = self.failed.as_ref();
        failed
            .filter(|failed| !failed.recorded)
            .map(|_| self.log.epoch)
    }

    /// The abandonment is durable, with what [`Engine::list_unsaved`] said last.
    pub fn abandonment_recorded(&mut self) {
        self.stirred = true;
        if let Some(failed) = &mut self.failed {
            failed.recorded = true;
            failed.listed = std::mem::take(&mut failed.reported);
        }
    }

    /// The shape of the cache.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.log.geometry
    }

    /// The identity of the cache.
    #[must_use]
    pub fn cache_id(&self) -> CacheId {
        self.log.id
    }

    pub(crate) fn failed_cache(&self) -> bool {
        self.failed.is_some()
    }

    /// The cache device can no longer be relied on: it steps aside.
    pub(crate) fn fail_cache(&mut self, reason: &'static str) {
        self.failed.get_or_insert_with(|| FailedCache {
            reason,
            recorded: false,
            listed: Listed::default(),
            reported: Listed::default(),
            landed: KeyMap::default(),
            flushes: Vec::new(),
        });
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.log.geometry.block_bytes as usize
    }

    /// The block of a volume that holds this byte.
    pub(crate) fn key_at(&self, volume: VolumeSlot, offset_bytes: u64) -> BlockKey {
        let volume = self.volumes[usize::from(volume.0)]
            .as_ref()
            .expect("attached");
        volume.key_at(offset_bytes, self.block_bytes())
    }

    /// The first block of a request, and the one after its last.
    pub(crate) fn keys_of(&self, request: &Request) -> (BlockKey, BlockKey) {
        let end_bytes = request.offset_bytes + u64::from(request.len_bytes);
        (
            self.key_at(request.volume, request.offset_bytes),
            self.key_at(request.volume, end_bytes - 1).plus(1),
        )
    }

    /// Where a block is on its origin, and how much of it the origin has.
    pub(crate) fn origin_range(
        &self,
        volume: VolumeSlot,
        key: BlockKey,
        blocks: u64,
    ) -> (u64, usize) {
        let config = self.volumes[usize::from(volume.0)]
            .as_ref()
            .expect("attached")
            .config;
        let block_bytes = self.block_bytes() as u64;
        let start = (key.0 - config.base.0) * block_bytes;
        let end = (start + blocks * block_bytes).min(config.size_bytes);
        (start, (end - start) as usize)
    }
}

/// The earlier of two times, if any.
#[inline]
pub(crate) fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one < other { one } else { other }),
        (one, other) => one.or(other),
    }
}

fn total_bytes(bufs: &[Buf]) -> u64 {
    bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum()
}
