//! The memory buffer (`commit = memory`): a write is answered as soon as it is in memory that
//! outlives the daemon, and logged by a request of the buffer's own at once.
//!
//! At most one write of a block is in the buffer and nowhere else. Whatever else touches such a
//! block waits until it is logged, except reads of blocks that the buffer has whole: so the log,
//! and recovery from it, see the writes of a block in their order. A flush waits for the buffered
//! writes before it (I7). Scheme: gflash's write-back buffer, mirrored between RAM and SSD.

use crate::buffer::{Buffered, MemoryBuffer, Parked, ParkedFlush, Part, Progress};
use crate::format::BlockKey;
use crate::ids::PartId;
use crate::interface::{Ack, Failure, Memory, Nanos, Request, RequestKind, VolumeSlot};
use crate::jobs::{Job, Turn};
use crate::parts::Engine;
use crate::planted::{self, Bug};
use crate::settings::Commit;
use crate::settings::mode::Writes;

/// The buffer's own requests in progress, at most: more than any SSD does at a time.
const IN_FLIGHT: usize = 64;
/// Time until writes that could not be stored are tried again.
const RETRY: Nanos = Nanos::SECOND;

impl Engine {
    /// Serves a request from the buffer, or has it wait for it. False if the buffer has nothing
    /// to do with it.
    pub(crate) fn submit_to_buffer(
        &mut self,
        now: Nanos,
        request: &Request,
        memory: &mut dyn Memory,
    ) -> bool {
        if request.kind == RequestKind::Flush {
            return self.park_flush(now, request);
        }
        let (first, end) = self.store.keys_of(request);
        if request.kind == RequestKind::Read && self.read_buffered(now, request, first, memory) {
            return true;
        }
        if self.buffer.holds_unfinished(first, end) || self.buffer.is_awaited(first, end) {
            self.buffer.parked.push(Parked {
                request: *request,
                first,
                end,
                wants_room: false,
            });
            return true;
        }
        self.buffer_or_wait(now, request, first, end, memory)
    }

    /// Answers a write from memory, or has it wait for room there. False if the buffer does not take
    /// it. A write that went past a full buffer would be before those in it: a stream would come to
    /// the origin in two places in turn, and be none.
    fn buffer_or_wait(
        &mut self,
        now: Nanos,
        request: &Request,
        first: BlockKey,
        end: BlockKey,
        memory: &mut dyn Memory,
    ) -> bool {
        if !self.may_buffer(request) || !self.buffer.can_hold(end.0 - first.0) {
            return false;
        }
        if !self.buffer.is_room_wanted() && self.write_buffered(now, request, first, memory) {
            return true;
        }
        let comes_free = !self.buffer.parts.is_empty();
        if comes_free {
            self.buffer.parked.push(Parked {
                request: *request,
                first,
                end,
                wants_room: true,
            });
        }
        comes_free
    }

    /// Whether a write may be answered from memory.
    fn may_buffer(&mut self, request: &Request) -> bool {
        let block_bytes = self.store.block_bytes() as u64;
        request.kind == (RequestKind::Write { fua: false })
            && self.store.settings.commit == Commit::Memory
            && request.offset_bytes.is_multiple_of(block_bytes)
            && u64::from(request.len_bytes).is_multiple_of(block_bytes)
            && !self.store.failed_cache()
            && self.store.volume(request.volume).config.mode.writes() == Writes::Log
    }

    fn write_buffered(
        &mut self,
        now: Nanos,
        request: &Request,
        first: BlockKey,
        memory: &mut dyn Memory,
    ) -> bool {
        let count = (request.len_bytes as usize / self.store.block_bytes()) as u16;
        if !self.buffer.store(first, count, request.buf, memory) {
            return false;
        }
        self.store.stir();
        self.store.stats.buffered_writes += 1;
        self.answer_buffered(request);
        self.store.stats.write_latency.record(Nanos(0));
        self.drain_buffer(now, memory);
        true
    }

    fn answer_buffered(&mut self, request: &Request) {
        self.acks.push_back(Ack {
            id: request.id,
            result: Ok(()),
            // The buffer may write it to the origin alone before its client hears of this answer (I10).
            bypassed: request.kind != RequestKind::Read,
        });
    }

    /// Serves a read if the buffer has the newest contents of all of it.
    fn read_buffered(
        &mut self,
        now: Nanos,
        request: &Request,
        first: BlockKey,
        memory: &mut dyn Memory,
    ) -> bool {
        let block_bytes = self.store.block_bytes();
        let skip_bytes = request.offset_bytes as usize % block_bytes;
        let len = request.len_bytes as usize;
        let blocks = (skip_bytes + len).div_ceil(block_bytes) as u64;
        let keys = first.0..first.0 + blocks;
        if !keys
            .clone()
            .all(|key| self.is_newest(BlockKey(key), memory))
        {
            return false;
        }
        let mut at_bytes = 0;
        for key in keys.map(BlockKey) {
            let skip = if key == first { skip_bytes } else { 0 };
            let part = (block_bytes - skip).min(len - at_bytes);
            let to = request.buf.slice(at_bytes, part);
            self.buffer.copy_out(key, skip, to, memory);
            at_bytes += part;
            if let Some(slot) = self.store.index.find(key) {
                self.store.index.hit(slot);
            }
            self.policy.note_use(key);
        }
        self.count_hits_elsewhere(now, blocks as u16);
        self.store.stats.read_requests += 1;
        self.store.stats.buffer_blocks_read += blocks;
        self.answer_buffered(request);
        self.store.stats.read_latency.record(Nanos(0));
        true
    }

    /// True if the buffer has the version that a read of the block must return: a write that is
    /// nowhere else yet, or a copy of the version that the index names.
    pub(crate) fn is_newest(&self, key: BlockKey, memory: &mut dyn Memory) -> bool {
        match self.buffer.newest(key).map(|has| has.logged) {
            None => false,
            Some(None) => true,
            Some(Some(_)) if planted::is(Bug::StaleCopyServed) => true,
            Some(Some(logged)) => {
                self.store.index.find(key) == Some(logged)
                    && self.buffer.is_copy_of(&self.store, key, logged, memory)
            }
        }
    }

    /// Has a flush wait for the writes of its volume that are in the buffer alone.
    fn park_flush(&mut self, now: Nanos, request: &Request) -> bool {
        let (first, end) = self.store.volume(request.volume).keys();
        let upto = self.buffer.next_order();
        if !self.buffer.holds_before(upto, first, end) || planted::is(Bug::BufferNotFlushed) {
            return false;
        }
        self.buffer.retry();
        self.store.stir();
        self.buffer.flushes.push(ParkedFlush {
            request: *request,
            since: now,
            upto,
        });
        true
    }

    /// Logs waiting writes, as far as there is memory and the volumes are there.
    pub(crate) fn drain_buffer(&mut self, now: Nanos, memory: &mut dyn Memory) {
        for _ in 0..self.buffer.waiting.len() {
            let Some(order) = self.buffer.waiting.pop_front() else {
                return;
            };
            let key = self.buffer.write(order).stored.key;
            let Some(volume) = self.store.volume_of(key) else {
                self.buffer.waiting.push_back(order);
                continue;
            };
            if !self.issue_buffered(now, order, volume, memory) {
                self.buffer.waiting.push_front(order);
                return;
            }
        }
    }

    /// Makes the requests of a buffered write, smaller ones where memory is short. False if some
    /// of it is still to be issued.
    fn issue_buffered(
        &mut self,
        now: Nanos,
        order: u64,
        volume: VolumeSlot,
        memory: &mut dyn Memory,
    ) -> bool {
        let block_bytes = self.store.block_bytes();
        let base = self.store.volume(volume).config.base;
        loop {
            let Buffered { stored, issued, .. } = *self.buffer.write(order);
            if issued == stored.count {
                return true;
            }
            if self.buffer.parts.len() >= IN_FLIGHT {
                return false;
            }
            let first = stored.key.plus(u64::from(issued));
            let free = self.blocks_without_owner(first, stored.count - issued);
            if free == 0 {
                return false;
            }
            let spare = &mut self.spare_buffered;
            let Some(buf) = spare.alloc_most(usize::from(free), block_bytes, memory) else {
                return false;
            };
            self.buffer.copy_part(stored, issued, buf, memory);
            let part = self.buffer.parts.insert(Part { order, buf });
            let write = self.buffer.write_mut(order);
            write.issued += (buf.len_bytes as usize / block_bytes) as u16;
            write.outstanding += 1;
            let request = Request {
                id: MemoryBuffer::request_id(part),
                volume,
                kind: RequestKind::Write { fua: false },
                offset_bytes: (first.0 - base.0) * block_bytes as u64,
                len_bytes: buf.len_bytes,
                buf,
            };
            self.write(now, request, memory);
        }
    }

    /// The number of blocks from `first` on, at most `count`, that nobody owns or is going to own
    /// before a request made now. Such a request would hold memory while it waits for the others,
    /// and their owners may be waiting for just that memory. An older write that still waits for
    /// its first block would also come after it in the rest, where this write is the newest for
    /// readers of the buffer.
    fn blocks_without_owner(&self, first: BlockKey, count: u16) -> u16 {
        let end = self.first_wanted(first, first.plus(u64::from(count)));
        let keys = (first.0..end.0).map(BlockKey);
        let free =
            keys.take_while(|key| self.store.locks.owner(*key).is_none() && !self.is_held(*key));
        free.count() as u16
    }

    /// The first of these blocks that a write in progress is going to own, or their end.
    fn first_wanted(&self, first: BlockKey, end: BlockKey) -> BlockKey {
        let jobs = self.jobs.table.iter();
        let wanted = jobs.filter_map(|job| match job {
            Job::Write(job) => job.yet_to_own(),
            _ => None,
        });
        let overlapping = wanted.filter(|(from, to)| *from < end && first < *to);
        overlapping
            .map(|(from, _)| from.max(first))
            .min()
            .unwrap_or(end)
    }

    /// Notes that a request of the buffer's own was answered. The next run acts on it.
    #[cold]
    pub(crate) fn buffer_request_ended(&mut self, part: PartId, result: Result<(), Failure>) {
        self.buffer.ended.push((part, result));
        self.jobs.runnable.push_back(Turn::Buffer);
    }

    /// Goes on after requests of the buffer's own have ended.
    pub(crate) fn resume_buffer(&mut self, now: Nanos, memory: &mut dyn Memory) {
        for (part, result) in std::mem::take(&mut self.buffer.ended) {
            let Part { order, buf } = self.buffer.parts.remove(part).expect("in progress");
            self.spare_buffered.free(buf, memory);
            let write = self.buffer.write_mut(order);
            write.outstanding -= 1;
            write.failed |= result.is_err();
            let Buffered {
                stored,
                issued,
                outstanding,
                failed,
                ..
            } = *write;
            if outstanding > 0 || issued < stored.count {
                continue;
            }
            if failed {
                self.buffered_write_failed(now, order);
                continue;
            }
            self.buffer.finish(order, memory);
            for i in 0..u64::from(stored.count) {
                let key = stored.key.plus(i);
                self.buffer
                    .is_logged(key, order, self.store.index.find(key));
            }
        }
        self.unpark(now, memory);
        self.drain_buffer(now, memory);
    }

    /// A write that was answered could not be stored. It stays in memory and is tried again;
    /// flushes that wait for it fail, so that clients that ask hear of it (I10).
    fn buffered_write_failed(&mut self, now: Nanos, order: u64) {
        let write = self.buffer.write_mut(order);
        (write.progress, write.stuck) = (Progress::Failed, true);
        let (key, end) = write.keys();
        self.buffer.retry_at = Some(now.after(RETRY));
        self.store.stats.buffered_write_errors += 1;
        for parked in std::mem::take(&mut self.buffer.flushes) {
            let (first, volume_end) = self.store.volume(parked.request.volume).keys();
            if order < parked.upto && (first..volume_end).contains(&key) {
                self.fail_parked(now, parked.since, parked.request);
            } else {
                self.buffer.flushes.push(parked);
            }
        }
        // Nor are other requests of its blocks kept waiting for what may never be.
        for parked in std::mem::take(&mut self.buffer.parked) {
            if parked.meets(key, end) {
                self.fail_parked(now, now, parked.request);
            } else {
                self.buffer.parked.push(parked);
            }
        }
    }

    /// Answers a request that waited for the buffer, as one that was submitted at `since`.
    fn fail_parked(&mut self, now: Nanos, since: Nanos, request: Request) {
        let name = self.begin_request(since, request);
        self.finish_part(now, name, Err(Failure::Io));
    }

    /// Lets requests and flushes go on that no longer wait for the buffer.
    fn unpark(&mut self, now: Nanos, memory: &mut dyn Memory) {
        for flush in std::mem::take(&mut self.buffer.flushes) {
            let (first, end) = self.store.volume(flush.request.volume).keys();
            if self.buffer.holds_before(flush.upto, first, end) {
                self.buffer.flushes.push(flush);
            } else {
                self.flush(now, flush.since, flush.request);
            }
        }
        for parked in std::mem::take(&mut self.buffer.parked) {
            let Parked {
                request,
                first,
                end,
                ..
            } = parked;
            // In order of arrival: one that waits for another of its blocks is not overtaken in these.
            if self.buffer.holds_unfinished(first, end) || self.buffer.is_awaited(first, end) {
                self.buffer.parked.push(parked);
            } else if !self.buffer_or_wait(now, &request, first, end, memory) {
                self.serve(now, request, memory);
            }
        }
    }

    /// Tries writes again that could not be stored, or for which there was no memory.
    pub(crate) fn advance_buffer(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if self.buffer.retry_at.is_some_and(|at| now >= at) {
            self.buffer.retry();
        }
        self.drain_buffer(now, memory);
    }

    /// True if the buffer has nothing in progress. Writes that could not be stored, and writes of a
    /// volume that is not there, do not count: they stay, for the next life if need be.
    pub(crate) fn buffer_is_at_rest(&self) -> bool {
        let writes = &self.buffer;
        let mut waiting = writes.waiting.iter();
        writes.requests() == 0
            && waiting.all(|order| {
                self.store
                    .volume_of(writes.write(*order).stored.key)
                    .is_none()
            })
    }

    /// The size of the memory buffer in blocks, and how many of them hold acknowledged writes
    /// that are not in the log yet.
    #[must_use]
    pub fn buffer_occupancy(&self) -> (u64, u64) {
        self.buffer.occupancy()
    }

    /// The number of acknowledged blocks that are in memory alone because storing them failed.
    #[must_use]
    pub fn buffer_stuck_blocks(&self) -> u64 {
        self.buffer.blocks_stuck()
    }
}
