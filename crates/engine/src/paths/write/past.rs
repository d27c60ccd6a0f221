//! The short way of a write past the cache: of blocks that nobody owns, that are not in the cache, and
//! of which no entry can come back after a crash. There is nothing to drop (I4) and nothing to order
//! (I11). It makes no job and no request state. A write that the origin fails becomes a job.

use super::WriteJob;
use crate::buffer::MemoryBuffer;
use crate::bypass::BypassReason;
use crate::format::BlockKey;
use crate::interface::{
    Device, DeviceError, Memory, Nanos, Operation, Request, RequestKind, one_buf,
};
use crate::jobs::write::{Run, Stage};
use crate::parts::Engine;
use crate::store::op::{Op, PastWrite};
use crate::store::volumes::GOES_ON;

impl Engine {
    /// Writes to the origin what is to bypass the cache, if it is as simple as can be. Returns whether it
    /// was; nothing has changed if not.
    // By itself: within `write` its registers are saved for every write that is logged too.
    #[inline(never)]
    pub(super) fn write_past(
        &mut self,
        now: Nanos,
        request: &Request,
        reason: BypassReason,
    ) -> bool {
        // FUA and zeroes have more steps, a cache that failed has its record, and the memory buffer
        // hears of its own.
        let is_plain = request.kind == (RequestKind::Write { fua: false })
            && !self.store.failed_cache()
            && MemoryBuffer::part_of(request.id).is_none();
        if !is_plain {
            return false;
        }
        let (key, end) = self.store.keys_of(request);
        let count = u16::try_from(end.0 - key.0).expect("a request is cut to length");
        if !self.has_nothing_of(key, end) || !self.own(key, count) {
            return false;
        }
        for key in (key.0..end.0).map(BlockKey) {
            self.count_write(key, false);
        }
        self.count_bypassed_write(now, request, reason, u64::from(count));
        let stats = &mut self.store.stats;
        stats.origin_written_bytes += u64::from(request.len_bytes);
        stats.past_writes += 1;
        let volume = self.store.volume(request.volume);
        volume.client_writes(now);
        let write = PastWrite {
            id: request.id,
            volume: request.volume,
            started: now,
            offset_bytes: request.offset_bytes,
            buf: request.buf,
            key,
            count,
            reason,
        };
        let operation = Operation::Write {
            offset_bytes: request.offset_bytes,
            bufs: one_buf(request.buf),
        };
        let device = Device::Origin(request.volume);
        self.store
            .issue_quietly(Op::PastWrite(write), device, operation, request.len_bytes);
        true
    }

    /// Whether none of the blocks from `key` to before `end` is in the cache, or was and may survive, or is
    /// on its way to the origin.
    fn has_nothing_of(&self, key: BlockKey, end: BlockKey) -> bool {
        let mut keys = (key.0..end.0).map(BlockKey);
        keys.all(|key| self.store.is_new(key, self.store.index.named(key)))
            && !self.store.origin_locks.holds_any(key, end)
    }

    pub(crate) fn past_write_done(
        &mut self,
        now: Nanos,
        write: PastWrite,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let volume = self.store.volume(write.volume);
        volume.client_has_written(now);
        // After an error the origin has some of it, perhaps.
        volume.owes_flush = true;
        if volume.foreground_writes == 0 {
            // The flush of the origin may be due sooner than with a write on its way.
            self.looks.quiet_until = self.looks.quiet_until.min(now.after(GOES_ON));
        }
        let blocks = u64::from(write.count);
        self.store
            .origin_written(now, write.volume, write.key, blocks);
        // Beside dirty data it makes a difference: write-back goes by what clients ask of the origin.
        let nobody_looks = self.store.present_dirty() == 0 && self.nobody_waits();
        self.store.stir_if(!nobody_looks);
        if let Err(error) = result {
            return self.past_write_failed(now, &write, error, memory);
        }
        self.disown(write.key, write.count);
        self.store.stats.straight_requests += u64::from(write.buf.is_of_client());
        self.answer_write(now, write.id, write.started, true);
    }

    /// Goes on as a job, at its end on the origin.
    #[cold]
    fn past_write_failed(
        &mut self,
        now: Nanos,
        write: &PastWrite,
        error: DeviceError,
        memory: &mut dyn Memory,
    ) {
        self.store.stir();
        let end = write.key.plus(u64::from(write.count));
        let request = Request {
            id: write.id,
            volume: write.volume,
            kind: RequestKind::Write { fua: false },
            offset_bytes: write.offset_bytes,
            len_bytes: write.buf.len_bytes,
            buf: write.buf,
        };
        let index = self.begin_request(write.started, request);
        let range = (write.key, end);
        let mut job = WriteJob::new(index, request, range, Some(write.reason), write.started);
        job.next_lock = end;
        job.next_drop = end;
        job.stage = Stage::Origin;
        job.bypassing.push(Run {
            key: write.key,
            count: write.count,
        });
        job.failure = Some(self.failure_of_origin(error));
        let job = self.become_job(job);
        self.resume_write(now, job, memory);
    }
}
