//! The part of a write that goes to the origin: bypassed blocks, and everything in the modes that
//! write through.

use smallvec::SmallVec;

use crate::buffer::MemoryBuffer;
use crate::ids::JobId;
use crate::interface::{
    Bufs, Device, DeviceError, Failure, Memory, Nanos, Operation, RequestKind, one_buf,
};
use crate::jobs::Turn;
use crate::jobs::write::{Edge, Order, Run, Stage};
use crate::map::origin_locks::OriginWriter;
use crate::parts::Engine;
use crate::store::op::Op;
use crate::store::volumes::OriginWaiter;

use super::pieces;

impl Engine {
    /// Writes the origin, once no write-back of the same blocks is in flight (I11), and logs beside
    /// it where it may.
    pub(super) fn write_starts_origin(
        &mut self,
        now: Nanos,
        job: JobId,
        memory: &mut dyn Memory,
    ) -> bool {
        let state = self.write_job(job);
        let volume = state.request.volume;
        let mut runs: SmallVec<[Run; 2]> = SmallVec::from_slice(&state.bypassing);
        if state.through {
            runs.extend_from_slice(&state.logged);
        }
        let locks = &mut self.store.origin_locks;
        if runs.iter().any(|run| locks.holds_any(run.key, run.end())) {
            locks.wait(job);
            return false;
        }
        for run in &runs {
            locks.lock(run.key, run.end(), OriginWriter::Client(job));
        }
        let failed_flushes = self.store.attached(volume).failed_flushes();
        let state = self.write_job(job);
        state.failed_flushes = failed_flushes;
        state.origin_locked = true;
        state.stage = Stage::Origin;
        state.outstanding = 1;
        for run in runs {
            self.issue_origin(now, job, run);
        }
        let is_failed = self.store.failed_cache();
        let state = self.write_job(job);
        match state.order {
            Order::Beside if is_failed => state.order = Order::Alone,
            Order::Beside => self.append_all(now, job, memory),
            _ => {}
        }
        let state = self.write_job(job);
        state.outstanding -= 1;
        true
    }

    /// The origin operation for a run: the request's bytes of it, whole where it was partial and
    /// the origin may not have the rest.
    fn issue_origin(&mut self, now: Nanos, job: JobId, run: Run) {
        let (request, edges) = {
            let state = self.write_job(job);
            (state.request, state.edges)
        };
        let (run_start, run_bytes) =
            self.store
                .origin_range(request.volume, run.key, u64::from(run.count));
        let request_end = request.offset_bytes + u64::from(request.len_bytes);
        let mut start = run_start.max(request.offset_bytes);
        let mut end = (run_start + run_bytes as u64).min(request_end);
        let mut bufs = Bufs::new();
        let in_run = |edge: &Edge| run.contains(edge.key);
        let mut middle_start = start;
        let mut middle_end = end;
        let mut tail = None;
        for edge in edges.iter().flatten().filter(|edge| in_run(edge)) {
            let (edge_start, edge_bytes) = self.store.origin_range(request.volume, edge.key, 1);
            if edge_start <= start {
                start = edge_start;
                middle_start =
                    (edge_start + edge_bytes as u64).min(end.max(edge_start + edge_bytes as u64));
                bufs.push(edge.buf.slice(0, edge_bytes));
            } else {
                middle_end = edge_start;
                tail = Some(edge.buf.slice(0, edge_bytes));
            }
            end = end.max(edge_start + edge_bytes as u64);
        }
        let operation = match request.kind {
            RequestKind::Write { .. } => {
                if middle_start < middle_end {
                    let skip = (middle_start - request.offset_bytes) as usize;
                    bufs.push(
                        request
                            .buf
                            .slice(skip, (middle_end - middle_start) as usize),
                    );
                }
                bufs.extend(tail);
                Operation::Write {
                    offset_bytes: start,
                    bufs,
                }
            }
            // A partial block of zeroes was merged only because it is dirty: its rest is not on
            // the origin, so it goes there as data.
            _ if !bufs.is_empty() || tail.is_some() => {
                return self.issue_zeroes_with_edges(now, job, run);
            }
            // Blocks logged as zeroes become clean once they are on the origin, so they have to be
            // zeroes there; a discard may leave the old contents.
            RequestKind::Discard if !self.is_logged(job, run.key) => Operation::Discard {
                offset_bytes: start,
                len_bytes: end - start,
            },
            _ => Operation::WriteZeroes {
                offset_bytes: start,
                len_bytes: end - start,
            },
        };
        self.issue_for(now, job, operation);
    }

    fn issue_for(&mut self, now: Nanos, job: JobId, operation: Operation) {
        let state = self.write_job(job);
        state.outstanding += 1;
        state.on_origin += 1;
        let volume = state.request.volume;
        self.store.volume(volume).client_writes(now);
        self.store
            .issue(Op::JobOrigin { job }, Device::Origin(volume), operation);
    }

    fn issue_zeroes_with_edges(&mut self, now: Nanos, job: JobId, run: Run) {
        let (request, edges) = {
            let state = self.write_job(job);
            (state.request, state.edges)
        };
        for (key, count, edge) in pieces(run, edges) {
            let (offset_bytes, len_bytes) =
                self.store
                    .origin_range(request.volume, key, u64::from(count));
            let operation = match edge {
                Some(edge) => Operation::Write {
                    offset_bytes,
                    bufs: one_buf(edge.buf.slice(0, len_bytes)),
                },
                None => Operation::WriteZeroes {
                    offset_bytes,
                    len_bytes: len_bytes as u64,
                },
            };
            self.issue_for(now, job, operation);
        }
    }

    pub(crate) fn write_origin_done(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let volume = self.write_job(job).request.volume;
        let is_discard = self.write_job(job).request.kind == RequestKind::Discard;
        let state = self.store.volume(volume);
        let failed_flushes = state.failed_flushes();
        state.client_has_written(now);
        match result {
            Ok(()) => {}
            // A discard is a hint; an origin that cannot take it keeps its data.
            Err(DeviceError::Unsupported) if is_discard => {}
            Err(error) => {
                let failure = self.failure_of_origin(error);
                self.write_job(job).failure.get_or_insert(failure);
            }
        }
        let state = self.write_job(job);
        state.outstanding -= 1;
        state.on_origin -= 1;
        let (first, end, has_all) = (state.first, state.end, state.on_origin == 0);
        // A flush that failed since may have lost it (I10). A client's own request is failed by its
        // host; the client of a buffered write has its answer, and its next flush says so.
        if state.failed_flushes != failed_flushes
            && !state.bypassing.is_empty()
            && MemoryBuffer::part_of(state.request.id).is_some()
        {
            self.store.volume(volume).flush_error = true;
        }
        self.store
            .origin_written(now, volume, first, end.0 - first.0);
        if has_all {
            self.origin_has_it(job);
        }
        self.resume_write(now, job, memory);
    }

    /// Counts the error of a client's write to an origin, and says it in the client's words.
    pub(super) fn failure_of_origin(&mut self, error: DeviceError) -> Failure {
        let is_error = error != DeviceError::NotStraight;
        self.store.stats.origin_write_errors += u64::from(is_error);
        match error {
            DeviceError::NoSpace => Failure::NoSpace,
            _ => Failure::Io,
        }
    }

    /// The origin has the data of the job, in its volatile cache at least; after an error perhaps.
    /// Its blocks may be written back from now on: an append beside it may wait for that room.
    fn origin_has_it(&mut self, job: JobId) {
        self.release_origin_locks(job);
        let volume = self.write_job(job).request.volume;
        self.store.volume(volume).owes_flush = true;
    }

    /// Versions of a write-through that are in the log are on the origin too.
    pub(super) fn note_versions_on_origin(
        &mut self,
        now: Nanos,
        job: JobId,
        memory: &mut dyn Memory,
    ) {
        let state = self.write_job(job);
        if !state.through {
            return;
        }
        let (volume, failed) = (state.request.volume, state.failure.is_some());
        let failed_flushes = state.failed_flushes;
        let (logged, replaces_dirty) = (state.logged.clone(), state.replaces_dirty);
        if !logged.is_empty() {
            // A flush of the origin may have ended while they were being logged: they need another.
            let (first, end) = (state.first, state.end);
            let blocks = end.0 - first.0;
            self.store.origin_written(now, volume, first, blocks);
        }
        // I6: what a failed flush may have taken from the origin again goes there once more.
        let is_kept = self.store.attached(volume).failed_flushes() == failed_flushes;
        for key in logged.iter().flat_map(|run| run.keys()) {
            if failed && !replaces_dirty {
                self.store.forget_unacknowledged(now, key, memory);
            } else if !failed
                && is_kept
                && let Some(slot) = self.store.index.find(key)
                && self.store.index.flags(slot).dirty()
            {
                self.store.version_written(volume, key, slot);
            }
        }
    }

    pub(super) fn release_origin_locks(&mut self, job: JobId) {
        let state = self.write_job(job);
        if !std::mem::take(&mut state.origin_locked) {
            return;
        }
        let (first, end) = (state.first, state.end);
        let writer = OriginWriter::Client(job);
        self.store.origin_locks.unlock(first, end, writer);
        self.wake_origin_waiters();
    }

    /// Has writes that waited for the end of another write of their blocks look again (I11).
    pub(crate) fn wake_origin_waiters(&mut self) {
        let waiters = self.store.origin_locks.take_waiting();
        self.jobs
            .runnable
            .extend(waiters.into_iter().map(Turn::Job));
    }

    pub(super) fn write_forces_origin(&mut self, now: Nanos, job: JobId) {
        let state = self.write_job(job);
        let volume = state.request.volume;
        if state.through || !state.bypassing.is_empty() {
            state.stage = Stage::ForcedOrigin;
            self.store.await_origin(now, volume, OriginWaiter::Job(job));
        } else {
            state.stage = Stage::Ended;
            self.jobs.runnable.push_back(Turn::Job(job));
        }
    }

    pub(crate) fn write_origin_durable(
        &mut self,
        _now: Nanos,
        job: JobId,
        result: Result<(), Failure>,
    ) {
        let state = self.write_job(job);
        if let Err(failure) = result {
            state.failure.get_or_insert(failure);
        }
        state.stage = Stage::Ended;
        self.jobs.runnable.push_back(Turn::Job(job));
    }
}
