//! Promotion: a miss becomes cached after its reader has been answered (I6, I11).

use smallvec::SmallVec;

use crate::format::{BlockKey, Stream};
use crate::ids::JobId;
use crate::interface::{
    Buf, Device, DeviceError, Memory, Nanos, Operation, Request, VolumeSlot, one_buf,
};
use crate::jobs::promote::PromoteJob;
use crate::jobs::{Job, Turn};
use crate::map::locks::Owner;
use crate::parts::Engine;
use crate::slab::Slab;
use crate::store::append::{AppendRun, Keys};
use crate::store::op::{Op, Reader};

/// A run of blocks to be appended for a promotion.
pub(crate) fn promoted_run(
    stream: Stream,
    key: BlockKey,
    count: u16,
    buf: Buf,
    owner: Owner,
) -> AppendRun {
    AppendRun {
        stream,
        keys: Keys::Run(key, count),
        buf,
        dirty: false,
        zero: false,
        owner,
        reclaim: false,
        copies: None,
        places: 0,
    }
}

/// The origin that a job, which promotes, reads from.
pub(super) fn promotes_from(jobs: &Slab<JobId, Job>, job: JobId) -> VolumeSlot {
    match jobs.get(job) {
        Some(Job::Promote(job)) => job.volume,
        other => unreachable!("a promotion, not {other:?}"),
    }
}

impl Engine {
    /// Brings the missing blocks of a range into the cache.
    pub(crate) fn prefetch(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        let job = self.begin_request(now, request);
        let (mut key, end) = self.store.keys_of(&request);
        while key < end {
            let mut count = 0;
            while key.0 + u64::from(count) < end.0
                && self.store.index.find(key.plus(u64::from(count))).is_none()
            {
                count += 1;
            }
            if count > 0
                && self
                    .read_bypass(now, request.volume, key, count, false)
                    .is_none()
            {
                let reader = Reader {
                    request: job,
                    skip_bytes: 0,
                    dest: Buf::EMPTY,
                };
                self.start_promotion(now, request.volume, key, count, reader, memory);
            }
            key = key.plus(u64::from(count.max(1)));
        }
        self.finish_part(now, job, Ok(()));
    }

    /// Reads blocks that are not cached from the origin into a buffer of their own, to answer
    /// the reader and then append them. False if there is no memory for that.
    pub(crate) fn start_promotion(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        key: BlockKey,
        count: u16,
        reader: Reader,
        memory: &mut dyn Memory,
    ) -> bool {
        let Some(buf) = memory.alloc(usize::from(count) * self.store.block_bytes()) else {
            return false;
        };
        if count == 1 {
            self.start_promotion_of_one(now, volume, key, buf, reader);
            return true;
        }
        let job = self.begin_promotion(volume, key, count, buf, Some(reader));
        for i in 0..u64::from(count) {
            let locked = self.store.locks.try_lock(key.plus(i), Owner::Job(job));
            assert!(locked, "I11: the caller saw that nobody owns the block");
        }
        self.add_part(reader.request);
        self.note_bypass(reader.request);
        self.foreground_read(now, volume);
        let (offset_bytes, len_bytes) = self.store.origin_range(volume, key, u64::from(count));
        let bufs = one_buf(buf.slice(0, len_bytes));
        self.store.issue(
            Op::PromoteRead(job),
            Device::Origin(volume),
            Operation::Read { offset_bytes, bufs },
        );
        true
    }

    /// Makes the job of a promotion.
    pub(crate) fn begin_promotion(
        &mut self,
        volume: VolumeSlot,
        key: BlockKey,
        count: u16,
        buf: Buf,
        reader: Option<Reader>,
    ) -> JobId {
        self.jobs.table.insert(Job::Promote(Box::new(PromoteJob {
            volume,
            key,
            count,
            buf,
            reader,
            outstanding: 0,
        })))
    }

    pub(crate) fn promote_read_done(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if result.is_err() {
            self.store.stats.origin_read_errors += 1;
            let (volume, key, reader) = self.cancel_promotion(job);
            self.origin_was_read(now, volume);
            return self.read_again_for(now, volume, key, reader);
        }
        let PromoteJob {
            volume,
            key,
            count,
            buf,
            reader,
            ..
        } = *self.promote_job(job);
        self.origin_was_read(now, volume);
        let reader = reader.expect("only one that was read already has none");
        self.answer_reader(now, reader, buf, memory);
        let (_, valid_bytes) = self.store.origin_range(volume, key, u64::from(count));
        memory.bytes_mut(buf)[valid_bytes..].fill(0);
        self.promote_job(job).awaits(count);
        self.append_promoted(now, job, key, count, buf, memory);
    }

    pub(crate) fn answer_reader(
        &mut self,
        now: Nanos,
        reader: Reader,
        buf: Buf,
        memory: &mut dyn Memory,
    ) {
        let Reader {
            request,
            skip_bytes,
            dest,
        } = reader;
        if dest != Buf::EMPTY {
            memory.copy(
                buf.slice(skip_bytes as usize, dest.len_bytes as usize),
                dest,
            );
        }
        self.finish_part(now, request, Ok(()));
    }

    /// Appends runs of blocks to the stream each belongs in: main for those the ghost remembers.
    fn append_promoted(
        &mut self,
        now: Nanos,
        job: JobId,
        key: BlockKey,
        count: u16,
        buf: Buf,
        memory: &mut dyn Memory,
    ) {
        let block_bytes = self.store.block_bytes();
        let streams: SmallVec<[Stream; 32]> = (0..u64::from(count))
            .map(|i| self.policy.stream_of_promoted(&mut self.store, key.plus(i)))
            .collect();
        self.store.stats.promoted_blocks += u64::from(count);
        let mut at = 0;
        while at < usize::from(count) {
            let len = streams[at..]
                .iter()
                .take_while(|stream| **stream == streams[at])
                .count();
            let run = promoted_run(
                streams[at],
                key.plus(at as u64),
                len as u16,
                buf.slice(at * block_bytes, len * block_bytes),
                Owner::Job(job),
            );
            self.append(now, run, memory);
            at += len;
        }
    }

    /// Blocks were appended, or will not be.
    pub(crate) fn promote_appended(&mut self, _now: Nanos, job: JobId, blocks: u16) {
        let state = self.promote_job(job);
        state.outstanding -= blocks;
        if state.outstanding == 0 {
            self.jobs.ended_promotions.push(job);
        }
    }

    /// Ends promotions whose last block was appended.
    pub(crate) fn end_promotions(&mut self, memory: &mut dyn Memory) {
        while let Some(job) = self.jobs.ended_promotions.pop() {
            self.end_promotion(job, memory);
        }
    }

    /// Ends a promotion whose blocks are not to be cached; its reader is still to be answered.
    pub(super) fn cancel_promotion(&mut self, job: JobId) -> (VolumeSlot, BlockKey, Reader) {
        let state = self.promote_job(job);
        let reader = state
            .reader
            .expect("only one that was read already has none");
        let cancelled = (state.volume, state.key, reader);
        self.jobs.ended_promotions.push(job);
        cancelled
    }

    fn end_promotion(&mut self, job: JobId, memory: &mut dyn Memory) {
        let PromoteJob {
            key, count, buf, ..
        } = *self.promote_job(job);
        for i in 0..u64::from(count) {
            let next = self.store.locks.unlock(key.plus(i), Owner::Job(job));
            self.jobs.runnable.extend(next.map(Turn::Job));
        }
        memory.free(buf);
        self.jobs.table.remove(job);
    }
}
