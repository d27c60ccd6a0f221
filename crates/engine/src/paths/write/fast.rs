//! The short way of a write: whole blocks in a row that nobody owns, into an open record that has
//! room for all of them, in write-back mode. It makes no job and no request state. A write that is
//! not as simple as that, then or later, becomes a job (`write`).

use smallvec::SmallVec;

use super::WriteJob;
use super::sums_later::{CHECKSUMMED_LATER_BYTES, checksums_of};
use crate::buffer::MemoryBuffer;
use crate::bypass::Direction;
use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot, Stream, entry::MAX_COUNT};
use crate::ids::JobId;
use crate::interface::{
    Device, DeviceError, Memory, Nanos, Operation, Request, RequestKind, one_buf,
};
use crate::jobs::write::Run;
use crate::jobs::{Job, Turn};
use crate::map::locks::Owner;
use crate::parts::Engine;
use crate::store::append::{AppendRun, Keys, PlacedAppend, run_cost_bytes};
use crate::store::contents::BlockKind;
use crate::store::op::{FastWrite, Op, PlacedRun};

impl Engine {
    /// Logs a write that is to be logged in write-back mode, if it is as simple as can be.
    /// Returns whether it was.
    pub(super) fn write_fast(
        &mut self,
        now: Nanos,
        request: &Request,
        memory: &mut dyn Memory,
    ) -> bool {
        let Some(count) = self.whole_blocks(request) else {
            return false;
        };
        if self.store.combines() || !self.origin.throttle.is_empty() || self.store.dirty_is_high() {
            return false;
        }
        // Most writes are of one block: compiled by itself, that takes fewer instructions.
        match count {
            1 => self.start_fast_write(now, request, 1, memory),
            _ => self.start_fast_write(now, request, count, memory),
        }
    }

    /// Takes the blocks and their slots, and writes them. Returns false, and changes nothing, if
    /// one of them has an owner or the open record has too little room.
    #[inline(always)]
    fn start_fast_write(
        &mut self,
        now: Nanos,
        request: &Request,
        count: u16,
        memory: &mut dyn Memory,
    ) -> bool {
        let key = self.store.key_at(request.volume, request.offset_bytes);
        if !self.own(key, count) {
            return false;
        }
        let Some((record, slot)) = self.store.reserve_run(Stream::Write, count) else {
            self.disown(key, count);
            return false;
        };
        self.store.stats.cache_data_written_bytes += u64::from(request.len_bytes);
        let data = memory.bytes(request.buf);
        let (checksum, checksums) = match count {
            1 => (crc32c(data), None),
            _ if request.len_bytes >= CHECKSUMMED_LATER_BYTES => (0, Some(Box::default())),
            _ => (0, Some(checksums_of(data, self.store.block_bytes()))),
        };
        let write = FastWrite {
            id: request.id,
            volume: request.volume,
            started: now,
            buf: request.buf,
            key,
            count,
            record,
            slot,
            checksum,
            checksums,
        };
        let places = self.store.log.block_written_at(slot);
        let operation = Operation::write_at(places, one_buf(request.buf));
        let len_bytes = request.len_bytes;
        self.store
            .issue_quietly(Op::FastWrite(write), Device::Cache(0), operation, len_bytes);
        true
    }

    /// The number of blocks of a plain write, if it begins and ends with a block and an entry can
    /// say them.
    fn whole_blocks(&self, request: &Request) -> Option<u16> {
        let block_bytes = self.store.block_bytes() as u32;
        let in_block = u64::from(block_bytes) - 1;
        // Block sizes are powers of two.
        let count = request.len_bytes >> block_bytes.trailing_zeros();
        let whole = request.kind == (RequestKind::Write { fua: false })
            && (request.offset_bytes | u64::from(request.len_bytes)) & in_block == 0
            && count <= u32::from(MAX_COUNT);
        whole.then_some(count as u16)
    }

    /// Takes these blocks, or none of them if somebody owns one.
    #[inline(always)]
    pub(super) fn own(&mut self, key: BlockKey, count: u16) -> bool {
        match count {
            1 => self.store.locks.lock_free(key, Owner::FastWrite),
            _ => self.store.locks.lock_run(key, count),
        }
    }

    /// Gives these blocks back. Jobs that wait for them go on.
    #[inline(always)]
    pub(super) fn disown(&mut self, key: BlockKey, count: u16) {
        if count == 1 {
            if let Some(next) = self.store.locks.unlock_here(key, Owner::FastWrite) {
                self.store.stir();
                self.jobs.runnable.push_back(Turn::Job(next));
            }
            return;
        }
        let runnable = &mut self.jobs.runnable;
        let before = runnable.len();
        let mut wake = |next| runnable.push_back(Turn::Job(next));
        self.store.locks.unlock_run(key, count, &mut wake);
        self.store.stir_if(self.jobs.runnable.len() > before);
    }

    // By itself: within `complete` its registers are saved for every read too.
    #[inline(never)]
    pub(crate) fn fast_write_done(
        &mut self,
        now: Nanos,
        write: FastWrite,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.stir_if(!self.looks.steady);
        if result.is_err() || self.store.locks.was_one_copied(write.key, write.count) {
            return self.fast_write_goes_on(now, write, result, memory);
        }
        match &write.checksums {
            // Compiled by itself, as in `publish_run`.
            None => self.log_fast_write(&write.run(), &[write.checksum], memory),
            Some(checksums) if checksums.is_empty() => {
                let checksums = checksums_of(memory.bytes(write.buf), self.store.block_bytes());
                self.log_fast_write(&write.run(), &checksums, memory);
            }
            Some(checksums) => self.log_fast_write(&write.run(), checksums, memory),
        }
        if let Some(part) = MemoryBuffer::part_of(write.id) {
            self.store.stir();
            return self.buffer_request_ended(part, Ok(()));
        }
        let took = self.answer_write(now, write.id, write.started, false);
        if self.policy.gate.watches {
            self.policy.gate.answered(Direction::Write, now, took);
        }
    }

    /// Publishes and indexes blocks that are on the device, and gives them back.
    #[inline(always)]
    fn log_fast_write(&mut self, run: &PlacedRun, checksums: &[u32], memory: &mut dyn Memory) {
        let ends = self.store.publish_run(run, true, checksums, memory);
        let kind = BlockKind {
            dirty: true,
            zero: false,
            retained: false,
        };
        for (i, checksum) in (0..).zip(checksums) {
            let (key, slot) = (run.key.plus(u64::from(i)), Slot(run.slot.0 + i));
            let was_cached = self.store.index_here(key, slot, *checksum, kind);
            self.count_write(key, was_cached);
        }
        if ends {
            self.store.stir();
            self.store.write_header(run.record, memory);
        }
        self.disown(run.key, checksums.len() as u16);
    }

    /// Goes on as a job with a write whose transfer failed, or whose segment may be full and below
    /// a copy of the version it replaces (I2).
    #[cold]
    fn fast_write_goes_on(
        &mut self,
        now: Nanos,
        mut write: FastWrite,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        write.make_checksums(self.store.block_bytes(), memory);
        self.store.stir();
        self.store.stats.fast_writes_requeued += 1;
        let placed = self.fast_write_as_job(write);
        self.store.append_data_done(now, placed, result, memory);
        self.tell_appended(now, memory);
    }

    /// Makes a job of a write that had none, and that owns its blocks.
    pub(super) fn become_job(&mut self, job: WriteJob) -> JobId {
        let (key, count) = (job.first, (job.end.0 - job.first.0) as u16);
        let job = self.jobs.table.insert(Job::Write(Box::new(job)));
        match count {
            1 => self.store.locks.steal(key, Owner::Job(job)),
            _ => self.store.locks.steal_run(key, count, Owner::Job(job)),
        }
        job
    }

    fn fast_write_as_job(&mut self, write: FastWrite) -> PlacedAppend {
        let PlacedRun {
            key,
            count,
            record,
            slot,
        } = write.run();
        let end = key.plus(u64::from(count));
        let blocks_before = key.0 - self.store.volume(write.volume).config.base.0;
        let request = Request {
            id: write.id,
            volume: write.volume,
            kind: RequestKind::Write { fua: false },
            offset_bytes: blocks_before * self.store.block_bytes() as u64,
            len_bytes: write.buf.len_bytes,
            buf: write.buf,
        };
        let index = self.begin_request(write.started, request);
        let mut job = WriteJob::new(index, request, (key, end), None, write.started);
        job.is_logging(Run { key, count });
        let owner = Owner::Job(self.become_job(job));
        for key in (key.0..end.0).map(BlockKey) {
            let was_cached = self.store.index.find(key).is_some();
            self.count_write(key, was_cached);
        }
        PlacedAppend {
            run: AppendRun {
                stream: Stream::Write,
                keys: Keys::Run(key, count),
                buf: write.buf,
                dirty: true,
                zero: false,
                owner,
                reclaim: false,
                copies: None,
                places: 0,
            },
            record,
            slot,
            checksums: SmallVec::from_slice(write.checksums()),
            cost_bytes: run_cost_bytes(usize::from(count)),
            attempts: 0,
        }
    }
}
