//! Flush: answered when everything acknowledged before it is durable (I7).

use crate::ids::RequestIndex;
use crate::interface::{DeviceError, Failure, Memory, Nanos, Request, VolumeSlot};
use crate::parts::Engine;
use crate::planted::{self, Bug};
use crate::store::durability::Waiter;
use crate::store::volumes::OriginWaiter;

impl Engine {
    /// Takes the end of a flush of an origin, and tells its waiters.
    pub(crate) fn origin_flush_done(
        &mut self,
        now: Nanos,
        slot: VolumeSlot,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.origin_flush_ended(slot);
        if result.is_err() && !planted::is(Bug::FailedFlushBelieved) {
            self.store.stats.origin_write_errors += 1;
            return self.origin_flush_failed(now, slot, memory);
        }
        self.origin.writeback.flushed(slot);
        let waiting = self.store.origin_flushed(now, slot, memory);
        self.tell_origin_waiters(now, slot, waiting, Ok(()), memory);
    }

    /// A flush of this volume's origin failed, here or in another shard: every shard is told before
    /// it is given the end of a later flush (I21). Writes before it that were not flushed are
    /// uncertain for ever (I10).
    pub fn origin_flush_failed(&mut self, now: Nanos, slot: VolumeSlot, memory: &mut dyn Memory) {
        let Some((waiting, written)) = self.store.origin_flush_failed(now, slot) else {
            return;
        };
        if written > 0 {
            self.origin.writeback.flush_failed(now, slot);
        }
        self.doubt_reads(slot);
        self.tell_origin_waiters(now, slot, waiting, Err(Failure::Io), memory);
    }

    fn tell_origin_waiters(
        &mut self,
        now: Nanos,
        slot: VolumeSlot,
        waiting: Vec<OriginWaiter>,
        answer: Result<(), Failure>,
        memory: &mut dyn Memory,
    ) {
        for waiter in waiting {
            match waiter {
                OriginWaiter::Request(request) => {
                    if answer.is_err() {
                        self.unheard.push(slot);
                    }
                    self.finish_part(now, request, answer);
                }
                OriginWaiter::Unheard(request) => self.finish_part(now, request, answer),
                OriginWaiter::Job(job) => self.job_origin_durable(now, job, answer, memory),
            }
        }
    }

    /// Flushes all published entries. `since` is when the client asked.
    pub(crate) fn flush(&mut self, now: Nanos, since: Nanos, request: Request) {
        self.store.stats.flush_requests += 1;
        self.store.sync_writer.flushed();
        let volume = request.volume;
        let is_unheard = request.id.is_unheard();
        let index = self.begin_request(since, request);
        if self.store.failed_cache() {
            self.flush_of_failed(now, index, volume);
        } else if !self.store.all_durable() {
            self.add_part(index);
            self.store
                .await_durable(self.store.last_number(), Waiter::Request(index));
        }
        let state = self.store.volume(volume);
        if state.flush_error {
            state.flush_error = is_unheard;
            if !is_unheard {
                self.unheard.push(volume);
            }
            self.add_part(index);
            self.finish_part(now, index, Err(Failure::Io));
        }
        let has_cache = !self.store.failed_cache();
        let needs_flush = (self.store.attached(volume)).has_unflushed_of_clients(has_cache);
        if needs_flush && !planted::is(Bug::OriginNotFlushed) {
            self.add_part(index);
            let waiter = if is_unheard {
                OriginWaiter::Unheard(index)
            } else {
                OriginWaiter::Request(index)
            };
            self.store.await_origin(now, volume, waiter);
        }
        self.finish_part(now, index, Ok(()));
    }

    /// A flush of a volume whose cache failed: the origin alone makes anything durable now.
    /// Blocks on record as newer in the cache must not come back over it (I15).
    fn flush_of_failed(&mut self, now: Nanos, index: RequestIndex, volume: VolumeSlot) {
        let dirty = self
            .volume_blocks(volume)
            .is_some_and(|(dirty, _)| dirty > 0);
        self.add_part(index);
        if dirty {
            self.finish_part(now, index, Err(Failure::Io));
        } else if let Some(failed) = &mut self.store.failed {
            failed.flushes.push((index, volume));
            self.finish_flushes_of_failed(now);
        }
    }

    /// Goes on with flushes that waited for the record of blocks that are newer in the cache.
    pub(crate) fn finish_flushes_of_failed(&mut self, now: Nanos) {
        let waiting = self
            .store
            .failed
            .as_mut()
            .map(|failed| std::mem::take(&mut failed.flushes));
        for (index, volume) in waiting.unwrap_or_default() {
            let (first, end) = self.store.volume(volume).keys();
            let must_wait = self.store.wants_record().is_some() || self.store.is_listed(first, end);
            match &mut self.store.failed {
                Some(failed) if must_wait => failed.flushes.push((index, volume)),
                _ => self.finish_part(now, index, Ok(())),
            }
        }
    }
}
