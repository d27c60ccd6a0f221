//! The state of one shard and its three calls: submit, complete, next action.

mod checkpoint;
pub(crate) mod control;
mod leaving;

use std::collections::VecDeque;

use crate::ahead::ReadAhead;
use crate::buffer::MemoryBuffer;
use crate::interface::{
    Ack, Action, DeviceError, Failure, MAX_REQUEST_BYTES, Memory, Nanos, OpId, Request,
    RequestKind, SECTOR_BYTES, VolumeSlot,
};
use crate::jobs::{Jobs, Turn};
use crate::origin::Origin;
use crate::parts::{Engine, Looks};
use crate::planted::{self, Bug};
use crate::policy::Policy;
use crate::recovery::Recovered;
use crate::scrub::Scrub;
use crate::settings::Settings;
use crate::shm_journal::{self, ShmIdentity};
use crate::slab::Slab;
use crate::space::Space;
use crate::spare::Spare;
use crate::store::op::Op;
use crate::store::{Store, earlier};

/// The longest discard or write-zeroes one request may carry, in bytes.
pub const MAX_RANGE_BYTES: u32 = 64 << 20;

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
        let identity = ShmIdentity {
            cache: log.id,
            shard: log.shard,
            epoch: log.epoch,
            boot_id,
        };
        shm_journal::initialise(memory.journal_mut(log.shard), identity);
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
            jobs: Jobs::default(),
            space: Space::new(block_bytes, memory),
            origin: Origin::new(block_bytes, memory),
            spare_buffered: Spare::default(),
            stalled_reads: Vec::new(),
            scrub: Scrub::default(),
            looks: Looks::default(),
            acks: VecDeque::new(),
            unheard: Vec::new(),
        };
        engine.store.keep_spare_pages(memory);
        engine.space.begin_mirroring(&mut engine.store);
        engine.adopt_buffer(memory);
        engine
    }

    /// Takes a request. Its answer comes from [`Engine::next_ack`], possibly at once.
    pub fn submit(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        self.store.operations.times.now = now;
        if let Err(failure) = self.check(&request) {
            self.acks.push_back(Ack {
                id: request.id,
                result: Err(failure),
                bypassed: false,
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
        if request.buf.is_of_client() && planted::is(Bug::BufferPassedBy) {
            self.serve(now, request, memory);
        } else if request.buf.is_of_client() {
            self.refuse_straight(&request);
        } else if !self.submit_to_buffer(now, &request, memory) {
            self.serve(now, request, memory);
        }
        self.run(now, memory);
    }

    /// Serves a request that the memory buffer has nothing to do with.
    #[inline(always)]
    pub(crate) fn serve(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        // A write that is logged or sent past the cache at once has nobody go on before it is done.
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
        let volume = self.store.find_volume(request.volume);
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
        self.store.operations.times.now = now;
        let op = self
            .store
            .operations
            .end(op, result.is_ok())
            .expect("an operation in flight");
        match op {
            Op::FastWrite(write) => self.fast_write_done(now, write, result, memory),
            Op::WholeHit(hit) => self.whole_hit_done(now, hit, result, memory),
            Op::HitRead(read) => self.hit_read_done(now, read, result, memory),
            op => self.end_operation(now, op, result, memory),
        }
        self.run(now, memory);
    }

    /// Sends the end of an operation to its path. Out of the way of hits and fast writes, which
    /// are counted in instructions.
    #[inline(never)]
    fn end_operation(
        &mut self,
        now: Nanos,
        op: Op,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.stir_if(!matches!(op, Op::PastWrite(_)));
        match op {
            // Moved out: a check whether it is to be dropped would be made for every operation.
            Op::FastWrite(write) => unreachable!("{write:?} has ended already"),
            Op::WholeHit(hit) => unreachable!("{hit:?} has ended already"),
            Op::HitRead(read) => unreachable!("{read:?} has ended already"),
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
            Op::HitFromOrigin(read) => self.hit_from_origin_done(now, read, result, memory),
            Op::MissRead(read) => self.miss_read_done(now, read, result, memory),
            Op::DoubtfulRead(read) => self.doubtful_read_done(now, *read, memory),
            Op::PromoteOneRead(promotion, reader) => {
                self.promote_one_read_done(now, promotion, reader, result, memory)
            }
            Op::PromoteOneWrite(promotion, run, checksum) => {
                self.promote_one_written(now, promotion, (run, checksum), result, memory)
            }
            Op::VictimRead(read) => self.victim_read_done(now, *read, result, memory),
            Op::Scrub { slot, buf } => self.scrub_read_done((slot, buf), result, memory),
            Op::ReadAhead(piece) => self.read_ahead_done(now, piece, result, memory),
            Op::PromoteRead(job) => self.promote_read_done(now, job, result, memory),
            Op::FillFromCache { job, edge, slot } => {
                self.fill_from_cache_done(now, job, edge, slot, result, memory)
            }
            Op::FillFromOrigin { job, edge } => {
                self.fill_from_origin_done(now, job, edge, result, memory)
            }
            Op::JobOrigin { job } => self.write_origin_done(now, job, result, memory),
            Op::PastWrite(write) => self.past_write_done(now, write, result, memory),
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
            Op::RetainRead(part) => {
                self.space
                    .retain_read_done(&mut self.store, now, part, result, memory);
                self.tell_appended(now, memory);
            }
            Op::Renewal(segment) => self.store.renewal_done(segment, result, memory),
            Op::Mend { slot, buf } => self.store.mended(slot, buf, memory),
            Op::SegmentDiscard(segment) => self.space.segment_discarded(&mut self.store, segment),
        }
    }

    /// Does everything that became possible or due. To be called after a batch of submissions and
    /// completions, and when [`Engine::next_deadline`] has come.
    #[inline]
    pub fn advance(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.store.operations.times.now = now;
        if self.store.is_stirred() || now >= self.looks.quiet_until {
            self.look_at_everything(now, memory);
        }
    }

    /// When [`Engine::advance`] finds something to do, if nothing happens before: zero if that is now.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Nanos {
        match self.store.is_stirred() {
            true => Nanos(0),
            false => self.looks.quiet_until,
        }
    }

    fn look_at_everything(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.store.clear_stirred();
        if self.is_at_rest() {
            self.looks.quiet_until = Nanos::NEVER;
            return;
        }
        if self
            .ahead
            .deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.ahead.drop_all(memory);
        }
        if !self.origin.throttle.is_empty() {
            self.release_throttled(now, memory);
        }
        self.run(now, memory);
        let jobs_wait = !self.jobs.stalled.is_empty();
        self.origin.writeback.note_waiting_jobs(jobs_wait);
        self.space.advance_reclaim(
            &mut self.store,
            &mut self.policy,
            &mut self.origin,
            now,
            memory,
        );
        // After reclaim: the segment it has just freed may be the last thing that happens.
        if !self.jobs.stalled.is_empty() {
            let stalled = std::mem::take(&mut self.jobs.stalled);
            self.jobs
                .runnable
                .extend(stalled.into_iter().map(Turn::Job));
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
        self.advance_scrub(now, memory);
        // Jobs that go on only now were seen by nothing above.
        let all_seen = self.jobs.runnable.is_empty();
        self.run(now, memory);
        let again = self.store.promises()
            || !self.jobs.stalled.is_empty()
            || !self.stalled_reads.is_empty()
            || !self.buffer.waiting.is_empty();
        self.store.stir_if(again);
        self.looks.quiet_until = self.first_deadline().unwrap_or(Nanos::NEVER);
        self.looks.steady = all_seen && self.is_steady();
    }

    /// Whether all that a logged block could bring about has its time already, and nothing tries
    /// again whenever something happens.
    fn is_steady(&self) -> bool {
        self.space.reclaim_waits(&self.store)
            && self.origin.writeback_waits(&self.store)
            && self.store.durability_waits()
            && self.nobody_waits()
    }

    /// Whether nothing waits for room or memory, or to be told what has become of the cache.
    pub(crate) fn nobody_waits(&self) -> bool {
        !self.store.failed_cache()
            && self.origin.throttle.is_empty()
            && self.store.is_caught_up()
            && self.buffer.unfinished_count == 0
    }

    /// Lets jobs go on whose turn came.
    #[inline(always)]
    pub(crate) fn run(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if !self.jobs.runnable.is_empty() || !self.jobs.ended_promotions.is_empty() {
            self.run_jobs(now, memory);
        }
    }

    #[cold]
    fn run_jobs(&mut self, now: Nanos, memory: &mut dyn Memory) {
        loop {
            self.end_promotions(memory);
            match self.jobs.runnable.pop_front() {
                Some(Turn::Job(job)) => self.resume_job(now, job, memory),
                Some(Turn::Buffer) => self.resume_buffer(now, memory),
                None => break,
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

    /// A volume whose client asked for a flush that failed, so that writes before it may be lost. The
    /// client is yet to hear of that (I10). Ask before a failure from [`Engine::next_ack`] is told.
    #[inline]
    pub fn next_unheard(&mut self) -> Option<VolumeSlot> {
        self.unheard.pop()
    }

    /// Whether an orderly stop has come to its end.
    fn is_at_rest(&self) -> bool {
        self.looks.held && self.is_settled()
    }

    /// When [`Engine::advance`] must be called next, if nothing else happens.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.store.is_stirred() {
            return self.first_deadline();
        }
        let due = self.looks.quiet_until;
        (due != Nanos::NEVER).then_some(due)
    }

    /// The first of the parts' deadlines.
    fn first_deadline(&self) -> Option<Nanos> {
        if self.is_at_rest() {
            return None;
        }
        let mut next = self.buffer.retry_at;
        for deadline in [
            self.store.durability_deadline(),
            self.store.origins_deadline(),
            self.origin.throttle.deadline(),
            self.origin.writeback_deadline(&self.store),
            self.ahead.deadline(),
            self.scrub_deadline(),
            self.space
                .shrink
                .deadline()
                .filter(|_| !self.store.failed_cache()),
        ] {
            next = earlier(next, deadline);
        }
        next
    }

    /// Whether no request, job or operation is in progress, nor anything kept for a client that
    /// reads in sequence.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.store.operations.is_empty()
            && self.requests.is_empty()
            && self.jobs.table.is_empty()
            && self.origin.runs() == 0
            && self.space.jobs() == 0
            && self.origin.throttle.is_empty()
            && self.ahead.is_empty()
            && self.buffer_is_at_rest()
    }

    /// True if everything published is durable and every record written: an orderly stop waits for
    /// that after a flush.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_idle()
            && ((self.store.all_durable() && !self.store.promises()) || self.store.failed_cache())
    }

    /// Whether the driver must record, durably and outside the cache device, that the cache is
    /// abandoned at this epoch. It answers with [`Engine::failure_recorded`]; until then
    /// nothing that the log cannot record is written.
    #[must_use]
    pub fn wants_record(&self) -> Option<u32> {
        self.store.wants_record()
    }

    /// The abandonment is durable, with the last list of [`Engine::list_unsaved`].
    pub fn failure_recorded(&mut self) {
        self.store.failure_recorded();
    }

    /// Writes down how far everything is durable, so that recovery misses records that are not
    /// there any more (I14). Part of an orderly stop: in between, ordinary headers say it a little
    /// late. Done when [`Engine::is_settled`] says so.
    pub fn settle(&mut self) {
        self.store.settle();
    }

    /// A flush of the cache device failed, here or in another shard: every shard is told before it
    /// is given the end of a later one (I21).
    pub fn cache_flush_failed(&mut self) {
        self.store.cache_flush_failed();
    }
}
