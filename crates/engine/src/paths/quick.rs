//! A short way of a write: whole blocks that nobody owns, into the log, in write-back mode.
//! Everything else goes through `write`.

use crate::bypass::Direction;
use crate::engine::Engine;
use crate::format::{BlockKey, Stream};
use crate::interface::{Buf, Failure, Memory, Nanos, Request, RequestKind};
use crate::jobs::Job;
use crate::jobs::quick::QuickWrite;
use crate::map::locks::Owner;
use crate::store::append::{Keys, Piece};

/// What such a write appends.
pub(crate) fn quick_piece(key: BlockKey, count: u16, buf: Buf, owner: Owner) -> Piece {
    Piece {
        stream: Stream::Write,
        keys: Keys::Run(key, count),
        buf,
        dirty: true,
        zero: false,
        owner,
        reclaim: false,
        copies: None,
        places: 0,
    }
}

impl Engine {
    /// Whether a write that is to be logged can take the short way.
    pub(crate) fn is_quick(&self, request: &Request, key: BlockKey) -> bool {
        let block_bytes = self.store.block_bytes() as u64;
        let blocks = u64::from(request.len_bytes) / block_bytes;
        request.kind == (RequestKind::Write { fua: false })
            && request.offset_bytes.is_multiple_of(block_bytes)
            && u64::from(request.len_bytes).is_multiple_of(block_bytes)
            && (0..blocks).all(|i| self.store.locks.owner(key.plus(i)).is_none())
    }

    /// Logs a write for which [`Engine::is_quick`] holds.
    pub(crate) fn quick_write(
        &mut self,
        now: Nanos,
        name: u32,
        request: &Request,
        key: BlockKey,
        memory: &mut dyn Memory,
    ) {
        let count = (request.len_bytes as usize / self.store.block_bytes()) as u16;
        let owner = self.begin_quick(now, name, key, count);
        let mut hits = 0;
        for i in 0..u64::from(count) {
            let locked = self.store.locks.try_lock(key.plus(i), owner);
            assert!(locked, "I11: the caller saw that nobody owns the block");
            hits += u64::from(self.store.index.find(key.plus(i)).is_some());
            self.policy.note_use(key.plus(i));
        }
        self.store.stats.write_blocks_hit += hits;
        self.store.stats.write_blocks_missed += u64::from(count) - hits;
        self.append(now, quick_piece(key, count, request.buf, owner), memory);
    }

    /// Makes the job of a write of whole blocks.
    pub(crate) fn begin_quick(
        &mut self,
        now: Nanos,
        name: u32,
        key: BlockKey,
        count: u16,
    ) -> Owner {
        Owner(self.jobs.insert(Job::Quick(QuickWrite {
            name,
            key,
            count,
            outstanding: count,
            failure: None,
            started: now,
        })))
    }

    fn quick_job(&mut self, name: u32) -> &mut QuickWrite {
        match self.jobs.at(name) {
            Job::Quick(job) => job,
            _ => panic!("job {name} is a quick write"),
        }
    }

    /// Blocks were logged, or cannot be.
    pub(crate) fn quick_logged(
        &mut self,
        now: Nanos,
        name: u32,
        blocks: u16,
        result: Result<(), Failure>,
    ) {
        let job = self.quick_job(name);
        job.outstanding -= blocks;
        if let Err(failure) = result {
            job.failure = Some(failure);
        }
        if job.outstanding == 0 {
            self.end_quick(now, name);
        }
    }

    /// Answers, once what failed is void (I10, I15).
    pub(crate) fn end_quick(&mut self, now: Nanos, name: u32) {
        let failed = self.quick_job(name).failure.is_some();
        let job = self.quick_job(name);
        let (request, first, end) = (job.name, job.key, job.key.plus(u64::from(job.count)));
        if failed
            && (self.store.wants_abandonment().is_some() || self.may_come_back(request, first, end))
        {
            self.stalled_jobs.push(name);
            return;
        }
        let Some(Job::Quick(job)) = self.jobs.remove(name) else {
            return;
        };
        for i in 0..u64::from(job.count) {
            let next = self.store.locks.unlock(job.key.plus(i), Owner(name));
            self.runnable.extend(next.map(|owner| owner.0));
        }
        if self.policy.gate.watches {
            self.policy
                .gate
                .answered(Direction::Write, now, now.since(job.started));
        }
        self.finish_part(now, job.name, job.failure.map_or(Ok(()), Err));
    }
}
