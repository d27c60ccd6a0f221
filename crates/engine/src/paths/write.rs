//! Write, write-zeroes and discard.
//!
//! A job takes a request through its stages: own the blocks (I11), complete partial blocks, log
//! cached blocks, make the entries durable that must be before the origin may be touched (I4),
//! write the origin, make the write durable if FUA asks for it, answer.

mod fast;
mod origin;
mod partial;
mod past;
mod refused;
pub(crate) mod sums_later;

use smallvec::SmallVec;

use crate::bypass::{BypassReason, Direction};
use crate::format::{BlockKey, Stream};
use crate::ids::{JobId, RequestIndex};
use crate::interface::{Buf, Failure, Memory, Nanos, Request, RequestKind};
use crate::jobs::write::{Edge, Order, Run, Stage, WriteJob};
use crate::jobs::{Job, Turn};
use crate::map::index::SlotFlags;
use crate::map::locks::Owner;
use crate::parts::Engine;
use crate::planted::{self, Bug};
use crate::policy::admission::SEQUENTIAL_BYTES;
use crate::settings::mode::Writes;
use crate::store::append::{AppendRun, Keys};
use crate::store::durability::Waiter;

/// Write-zeroes up to this length are logged in write-back mode; longer ones the origin does
/// better itself.
const LOGGED_ZEROES_BYTES: u32 = 1 << 20;
/// Write-throughs of at least this length drop what is cached of their blocks first. Shorter ones
/// are in the log as soon as a `Drop` would be.
const DROPPED_BYTES: u32 = 32 << 10;
/// Repeats of a read that completes a partial block.
const FILL_ATTEMPTS: u8 = 2;

/// Cuts a run where partial blocks begin and end: first block, how many, and the partial block if
/// it is one.
fn pieces(
    run: Run,
    edges: [Option<Edge>; 2],
) -> impl Iterator<Item = (BlockKey, u16, Option<Edge>)> {
    let end = run.end();
    let mut key = run.key;
    std::iter::from_fn(move || {
        if key >= end {
            return None;
        }
        let first = key;
        let edge = edges.iter().flatten().find(|edge| edge.key == key).copied();
        let later = edges
            .iter()
            .flatten()
            .map(|edge| edge.key)
            .filter(|next| *next > first);
        key = match edge {
            Some(_) => key.plus(1),
            None => later.min().map_or(end, |next| next.min(end)),
        };
        Some((first, (key.0 - first.0) as u16, edge))
    })
}

impl Engine {
    /// Whether recovery could find an older entry of one of these blocks.
    fn may_survive(&self, run: Run) -> bool {
        run.keys()
            .any(|key| self.store.index.find(key).is_some() || self.store.departed(key).is_some())
    }

    pub(crate) fn write(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        if request.buf.is_of_client() && !self.may_write_straight(request.volume) {
            return self.refuse_straight(&request);
        }
        let len_bytes = u64::from(request.len_bytes);
        let volume = self.store.volume(request.volume);
        let writes = volume.config.mode.writes();
        let stream_bytes = volume.writes.request(request.offset_bytes, len_bytes);
        match request.kind {
            RequestKind::Discard => self.store.stats.discard_requests += 1,
            _ => {
                self.store.stats.write_requests += 1;
                self.store.sync_writer.wrote();
            }
        }
        if stream_bytes <= SEQUENTIAL_BYTES {
            self.origin.writeback.cache_is_used(now);
        }
        self.origin.writeback.client_writes(now);
        let bypass = self
            .policy
            .write_bypass(&self.store, now, (&request, writes), stream_bytes);
        // I25: a write that the memory buffer had from an earlier life has nowhere else to go.
        let bypass =
            bypass.filter(|_| !self.store.has_away() || !self.store.volume(request.volume).away);
        let is_begun = match bypass {
            Some(reason) => self.write_past(now, &request, reason),
            None => writes == Writes::Log && self.write_fast(now, &request, memory),
        };
        if !is_begun {
            self.write_in_steps(now, request, (writes, bypass), memory);
        }
    }

    /// Takes a write that is not simple enough for the short ways, which have no part in its frame.
    #[inline(never)]
    fn write_in_steps(
        &mut self,
        now: Nanos,
        request: Request,
        (writes, bypass): (Writes, Option<BypassReason>),
        memory: &mut dyn Memory,
    ) {
        self.store.stir();
        let index = self.begin_request(now, request);
        let logs =
            writes == Writes::Log && bypass.is_none() && request.kind != RequestKind::Discard;
        let len_bytes = u64::from(request.len_bytes);
        let blocks = len_bytes.div_ceil(self.store.block_bytes() as u64);
        if logs && self.origin.throttles(&self.store, now, blocks) {
            self.store.stats.throttled_requests += 1;
            self.origin.throttle.hold(index, blocks);
        } else {
            self.start_write(now, index, bypass, memory);
        }
    }

    pub(crate) fn start_write(
        &mut self,
        now: Nanos,
        index: RequestIndex,
        bypass: Option<BypassReason>,
        memory: &mut dyn Memory,
    ) {
        let request = self.request(index);
        let block_bytes = self.store.block_bytes() as u64;
        let mut range = self.store.keys_of(&request);
        if request.kind == RequestKind::Discard {
            // Only whole blocks can be discarded; the last block of a volume may be short.
            let size_bytes = self.store.volume(request.volume).config.size_bytes;
            let end_bytes = request.offset_bytes + u64::from(request.len_bytes);
            if !request.offset_bytes.is_multiple_of(block_bytes) {
                range.0 = range.0.plus(1);
            }
            if !end_bytes.is_multiple_of(block_bytes) && end_bytes != size_bytes {
                range.1 = BlockKey(range.1.0 - 1);
            }
            if range.0 >= range.1 {
                return self.finish_part(now, index, Ok(()));
            }
        }
        let job = WriteJob::new(index, request, range, bypass, now);
        let job = self.jobs.table.insert(Job::Write(Box::new(job)));
        self.resume_write(now, job, memory);
    }

    pub(crate) fn resume_write(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) {
        loop {
            let stage = self.write_job(job).stage;
            let goes_on = match stage {
                Stage::Locking => self.write_locks(job),
                Stage::Preparing => self.write_prepares(now, job, memory),
                Stage::Filling | Stage::Logging | Stage::Origin => {
                    if self.write_job(job).outstanding > 0 {
                        false
                    } else if stage == Stage::Filling {
                        self.write_logs(now, job, memory)
                    } else if stage == Stage::Logging {
                        self.write_logged_all(job)
                    } else {
                        self.write_ended_everywhere(now, job, memory)
                    }
                }
                Stage::Durable | Stage::ForcedCache | Stage::ForcedOrigin => false,
                Stage::OriginLocks => self.write_starts_origin(now, job, memory),
                Stage::Ended => {
                    self.end_write(now, job, memory);
                    false
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn write_locks(&mut self, job: JobId) -> bool {
        let (mut key, end) = (self.write_job(job).next_lock, self.write_job(job).end);
        while key < end {
            match self.store.locks.lock_or_owner(key, Owner::Job(job)) {
                None => {}
                Some(owner) if self.promotes(owner) => {
                    // I11: a write cancels the promotion of its block.
                    self.store.locks.steal(key, Owner::Job(job));
                }
                Some(_) => {
                    self.store.locks.wait(key, job);
                    self.write_job(job).next_lock = key;
                    return false;
                }
            }
            key = key.plus(1);
        }
        let state = self.write_job(job);
        state.next_lock = end;
        self.route(job);
        self.write_job(job).stage = Stage::Preparing;
        true
    }

    fn promotes(&self, owner: Owner) -> bool {
        match owner {
            Owner::Promotion(_) => true,
            Owner::Job(job) => matches!(self.jobs.table.get(job), Some(Job::Promote(_))),
            Owner::FastWrite | Owner::Retain(_) => false,
        }
    }

    /// Decides for each block whether it is logged or bypasses the cache.
    fn route(&mut self, job: JobId) {
        let state = self.write_job(job);
        let (first, end, request, bypass) = (state.first, state.end, state.request, state.bypass);
        let index = state.index;
        let is_zero = state.is_zero();
        let writes = self.store.volume(request.volume).config.mode.writes();
        let mut any_dirty = false;
        let mut all_cached = true;
        let mut is_new = true;
        for key in (first.0..end.0).map(BlockKey) {
            let named = self.store.index.named(key);
            is_new &= self.store.is_new(key, named);
            let flags = named.map(|slot| self.store.index.flags(slot));
            let is_cached = flags.is_some_and(SlotFlags::live);
            self.count_write(key, is_cached);
            all_cached &= is_cached;
            any_dirty |= is_cached
                && flags.is_some_and(SlotFlags::dirty)
                && !planted::is(Bug::DirtyBypassed);
        }
        let is_away = self.store.volume(request.volume).away;
        if self.store.failed_cache() && (any_dirty || is_away) {
            // The log cannot record a newer version and the origin must not get one (I5, I25).
            self.write_job(job).failure = Some(Failure::Io);
            return;
        }
        let short_zeroes = is_zero
            && request.kind != RequestKind::Discard
            && request.len_bytes <= LOGGED_ZEROES_BYTES;
        let whole_logged = if is_zero {
            bypass.is_none() && writes == Writes::Log && short_zeroes
        } else {
            any_dirty
                || bypass.is_none()
                || (writes == Writes::LogAndOriginIfCached
                    && all_cached
                    && !self.store.failed_cache())
        };
        let mut logged: SmallVec<[Run; 2]> = SmallVec::new();
        let mut bypassing: SmallVec<[Run; 2]> = SmallVec::new();
        let whole = Run {
            key: first,
            count: u16::try_from(end.0 - first.0).expect("a request is cut to length"),
        };
        if whole_logged {
            logged.push(whole);
        } else if is_zero && any_dirty {
            self.divide_at_dirty(whole, &mut logged, &mut bypassing);
        } else {
            bypassing.push(whole);
        }
        let bypassing_blocks: u64 = bypassing.iter().map(|run| u64::from(run.count)).sum();
        let is_long = is_zero && !short_zeroes && request.kind != RequestKind::Discard;
        let by_size = (is_long && writes == Writes::Log).then_some(BypassReason::Size);
        if let Some(reason) = bypass.or(by_size) {
            let at = self.submitted_at(index);
            self.count_bypassed_write(at, &request, reason, bypassing_blocks);
        }
        if request.buf.is_of_client() && !logged.is_empty() {
            // What is logged is compared with its checksum later, and has to be seen for that.
            self.write_job(job).failure = Some(Failure::NotStraight);
            return;
        }
        let state = self.write_job(job);
        state.replaces_dirty = any_dirty;
        if is_new {
            // There is nothing to drop.
            state.next_drop = end;
        }
        state.through = writes.are_through() && !planted::is(Bug::ThroughEarly);
        state.logged = logged;
        state.bypassing = bypassing;
    }

    /// I5: of zeroes and discards, those parts are logged that touch a dirty block.
    fn divide_at_dirty(
        &self,
        whole: Run,
        logged: &mut SmallVec<[Run; 2]>,
        bypassing: &mut SmallVec<[Run; 2]>,
    ) {
        for key in whole.keys() {
            let runs = match self.store.is_dirty(key) {
                true => &mut *logged,
                false => &mut *bypassing,
            };
            match runs.last_mut() {
                Some(run) if run.end() == key => run.count += 1,
                _ => runs.push(Run { key, count: 1 }),
            }
        }
    }

    /// Drops the cached copies of blocks that bypass the cache, then completes partial blocks.
    fn write_prepares(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) -> bool {
        if self.write_job(job).failure.is_some() {
            self.write_job(job).stage = Stage::Ended;
            return true;
        }
        if self.drops_first(job) {
            self.write_job(job).order = Order::Beside;
        }
        if !self.drop_blocks(now, job, memory) {
            self.jobs.stalled.push(job);
            return false;
        }
        let volume = self.write_job(job).request.volume;
        if self.store.wants_record().is_some() && !planted::is(Bug::AbandonedSilently) {
            // I15: no origin write that the log cannot record before that is on record.
            self.jobs.stalled.push(job);
            return false;
        }
        let (first, end) = (self.write_job(job).first, self.write_job(job).end);
        if self.store.failed_cache()
            && (first.0..end.0).any(|key| self.store.is_dirty(BlockKey(key)))
        {
            // As when it was routed; the cache may have failed since (I5).
            self.write_job(job).failure = Some(Failure::Io);
            self.write_job(job).stage = Stage::Ended;
            return true;
        }
        if self.store.failed_cache() && self.store.is_listed(first, end) {
            // I15: blocks on record as newer in the cache must be so no more, on record.
            self.jobs.stalled.push(job);
            return false;
        }
        if !self.write_job(job).logged.is_empty() && !self.fill_edges(now, job, volume, memory) {
            self.jobs.stalled.push(job);
            return false;
        }
        self.write_job(job).stage = Stage::Filling;
        true
    }

    /// Whether a long write-through drops what is cached of its blocks. The `Drop` is durable sooner
    /// than its own entries, which wait for its data, and takes their place before the origin.
    fn drops_first(&mut self, job: JobId) -> bool {
        let state = self.write_job(job);
        let (through, request, first, end) = (state.through, state.request, state.first, state.end);
        let is_long = request.len_bytes >= DROPPED_BYTES;
        // I5: what is dirty stays. A partial block needs what is cached of it.
        if !through || !is_long || state.replaces_dirty || state.logged.is_empty() {
            return false;
        }
        let blocks = end.0 - first.0;
        let (start_bytes, len_bytes) = self.store.origin_range(request.volume, first, blocks);
        (start_bytes, len_bytes) == (request.offset_bytes, request.len_bytes as usize)
    }

    /// Drops the cached copies of blocks before their origin is written.
    fn drop_blocks(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) -> bool {
        let state = self.write_job(job);
        if state.next_drop == state.end {
            return true;
        }
        let (from, mut dropped_runs) = (state.next_drop, state.bypassing.clone());
        if state.order == Order::Beside {
            dropped_runs.extend(state.logged.iter().copied());
        }
        let keys = dropped_runs.iter().flat_map(|run| run.keys());
        let mut number = self.write_job(job).durable_number;
        for key in keys.filter(|key| *key >= from) {
            if self.store.failed_cache() {
                // The log takes nothing more; its abandonment voids what it says (I15).
                if let Some((slot, flags)) = self.store.index.remove(key) {
                    self.store.slot_dies(key, slot, flags);
                }
                continue;
            }
            match self.store.drop_block(now, key, false, memory) {
                Some(_) if planted::is(Bug::BypassEarly) => {}
                Some(dropped) => number = number.max(dropped),
                None => {
                    let state = self.write_job(job);
                    state.next_drop = key;
                    state.durable_number = number;
                    return false;
                }
            }
        }
        let state = self.write_job(job);
        state.next_drop = state.end;
        state.durable_number = number;
        true
    }

    /// Merges the request into its partial blocks and appends everything that is logged.
    fn write_logs(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) -> bool {
        if self.write_job(job).failure.is_some() {
            self.write_job(job).stage = Stage::Ended;
            return true;
        }
        self.write_job(job).stage = Stage::Logging;
        for at in 0..2 {
            if let Some(edge) = self.write_job(job).edges[at] {
                self.merge_edge(job, edge, memory);
            }
        }
        self.choose_order(job);
        if self.write_job(job).order != Order::Beside {
            self.append_all(now, job, memory);
        }
        true
    }

    /// I9: where an older entry of a block survives, the origin waits for the newer one.
    fn choose_order(&mut self, job: JobId) {
        let state = self.write_job(job);
        if !state.through || state.logged.is_empty() || state.order == Order::Beside {
            return;
        }
        let logged = state.logged.clone();
        let survives =
            logged.iter().any(|run| self.may_survive(*run)) && !planted::is(Bug::BesideEarly);
        self.write_job(job).order = match survives {
            true => Order::AfterEntries,
            false => Order::Beside,
        };
    }

    /// Appends everything that is logged.
    fn append_all(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) {
        let state = self.write_job(job);
        state.logging_since = now;
        let logged = state.logged.clone();
        state.outstanding += logged.iter().map(|run| u32::from(run.count)).sum::<u32>();
        for run in logged {
            self.append_run(now, job, run, memory);
        }
    }

    /// Appends a run: partial blocks from their own buffers, the rest from the request's.
    fn append_run(&mut self, now: Nanos, job: JobId, run: Run, memory: &mut dyn Memory) {
        let block_bytes = self.store.block_bytes();
        let (request, edges, is_zero) = {
            let state = self.write_job(job);
            (state.request, state.edges, state.is_zero())
        };
        for (key, count, edge) in pieces(run, edges) {
            let buf = match edge {
                Some(edge) => edge.buf,
                None if is_zero => Buf::EMPTY,
                None => {
                    let (start, _) = self.store.origin_range(request.volume, key, 1);
                    request.buf.slice(
                        (start - request.offset_bytes) as usize,
                        usize::from(count) * block_bytes,
                    )
                }
            };
            let run = AppendRun {
                stream: Stream::Write,
                keys: Keys::Run(key, count),
                buf,
                dirty: true,
                zero: is_zero && edge.is_none(),
                owner: Owner::Job(job),
                reclaim: false,
                copies: None,
                places: 0,
            };
            self.append(now, run, memory);
        }
    }

    /// Blocks of a write were logged, or cannot be.
    pub(crate) fn write_logged(
        &mut self,
        now: Nanos,
        job: JobId,
        blocks: u16,
        result: Result<(), Failure>,
    ) {
        let is_failed = self.store.failed_cache();
        let state = self.write_job(job);
        state.outstanding -= u32::from(blocks);
        match result {
            Ok(()) => {}
            Err(_) if is_failed && state.can_do_without_log() => state.order = Order::Alone,
            Err(failure) => drop(state.failure.get_or_insert(failure)),
        }
        let took = now.since(state.logging_since);
        let (is_last, is_beside) = (state.outstanding == 0, state.order == Order::Beside);
        if is_last {
            self.jobs.runnable.push_back(Turn::Job(job));
        }
        // Where the origin is written too, the last to end is seldom the log.
        if (is_last || is_beside) && self.policy.gate.watches {
            self.policy.gate.answered(Direction::Write, now, took);
        }
    }

    fn write_logged_all(&mut self, job: JobId) -> bool {
        let last_number = self.store.last_number();
        let durable = self.store.log.durable_number;
        let failed = self.store.failed_cache();
        let counts_still = self.store.wants_record().is_some();
        let state = self.write_job(job);
        if state.failure.is_some() {
            state.stage = Stage::Ended;
            return true;
        }
        if state.order == Order::Alone && !state.logged.is_empty() {
            return self.write_goes_alone(job);
        }
        if state.order == Order::AfterEntries {
            state.durable_number = last_number;
        }
        let touches_origin = state.through || !state.bypassing.is_empty();
        if !touches_origin {
            state.stage = Stage::Origin;
            return true;
        }
        let number = state.durable_number;
        if number > durable && counts_still {
            // I15: an older entry survives in a log of which nothing more becomes durable.
            self.jobs.stalled.push(job);
            return false;
        }
        if number > durable && !failed {
            state.stage = Stage::Durable;
            self.store.await_durable(number, Waiter::Job(job));
            return false;
        }
        state.stage = Stage::OriginLocks;
        true
    }

    /// The cache failed before the origin was touched: everything bypasses it.
    fn write_goes_alone(&mut self, job: JobId) -> bool {
        let state = self.write_job(job);
        state.order = Order::Alone;
        let logged = std::mem::take(&mut state.logged);
        state.bypassing.extend(logged);
        // Parts of it may be in the log, which counts no more.
        state.next_drop = state.first;
        state.durable_number = 0;
        state.stage = Stage::Preparing;
        true
    }

    pub(crate) fn write_durable(&mut self, now: Nanos, job: JobId, result: Result<(), Failure>) {
        let is_failed = self.store.failed_cache();
        let state = self.write_job(job);
        let goes_alone = result.is_err() && is_failed && state.can_do_without_log();
        if goes_alone && state.stage == Stage::Durable {
            self.write_goes_alone(job);
        } else if goes_alone && state.through {
            // The origin has it, and makes it durable without the cache.
            state.order = Order::Alone;
            self.write_forces_origin(now, job);
            return;
        } else if let Err(failure) = result {
            state.failure.get_or_insert(failure);
            state.stage = Stage::Ended;
        } else {
            state.stage = match state.stage {
                Stage::Durable => Stage::OriginLocks,
                Stage::ForcedCache => {
                    self.write_forces_origin(now, job);
                    return;
                }
                other => panic!("a write in stage {other:?} waits for nothing durable"),
            };
        }
        self.jobs.runnable.push_back(Turn::Job(job));
    }

    /// All that was begun has ended, in the log and on the origin.
    fn write_ended_everywhere(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) -> bool {
        if self.log_takes_refused(now, job) {
            return true;
        }
        self.note_versions_on_origin(now, job, memory);
        self.write_forces(now, job)
    }

    /// FUA: the log first, then the origin.
    fn write_forces(&mut self, now: Nanos, job: JobId) -> bool {
        let last_number = self.store.last_number();
        let durable = self.store.all_durable();
        let state = self.write_job(job);
        if state.failure.is_some() || !state.fua() {
            state.stage = Stage::Ended;
            return true;
        }
        if !state.logged.is_empty() && !durable && state.order != Order::Alone {
            state.stage = Stage::ForcedCache;
            self.store.await_durable(last_number, Waiter::Job(job));
            return false;
        }
        self.write_forces_origin(now, job);
        false
    }

    fn end_write(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) {
        let state = self.write_job(job);
        let failed = state.failure.is_some() || state.order == Order::Alone;
        let (request, first, end) = (state.index, state.first, state.end);
        if failed
            && (self.store.wants_record().is_some() || self.may_come_back(request, first, end))
        {
            // I10, I15: the append may have landed; before anyone hears of its end, the log must
            // be void.
            self.jobs.stalled.push(job);
            return;
        }
        let Some(Job::Write(state)) = self.jobs.table.remove(job) else {
            return;
        };
        if !state.bypassing.is_empty() || state.order == Order::Alone {
            self.note_bypass(state.index);
        }
        for edge in state.edges.into_iter().flatten() {
            memory.free(edge.buf);
        }
        let owned = (state.first.0..state.next_lock.0).map(BlockKey);
        for key in owned {
            if let Some(next) = self.store.locks.unlock_here(key, Owner::Job(job)) {
                self.jobs.runnable.push_back(Turn::Job(next));
            }
        }
        let failure = match state.failure {
            Some(Failure::Io) if state.request.buf.is_of_client() => Some(Failure::NotStraight),
            failure => failure,
        };
        self.finish_part(now, state.index, failure.map_or(Ok(()), Err));
    }
}
