//! Where each event sends the job that waits for it.

use crate::ids::JobId;
use crate::interface::{DeviceError, Failure, Memory, Nanos};
use crate::jobs::Job;
use crate::jobs::promote::PromoteJob;
use crate::jobs::write::WriteJob;
use crate::map::locks::Owner;
use crate::parts::Engine;
use crate::store::append::{AppendRun, Appended};
use crate::store::durability::Waiter;

impl Engine {
    /// Appends for a job, and tells it of appends that ended at once.
    pub(crate) fn append(&mut self, now: Nanos, run: AppendRun, memory: &mut dyn Memory) {
        self.store.append(now, run, memory);
        self.tell_appended(now, memory);
    }

    /// Tells jobs of their appends that ended.
    #[inline]
    pub(crate) fn tell_appended(&mut self, now: Nanos, memory: &mut dyn Memory) {
        while let Some(ended) = self.store.next_appended() {
            self.job_appended(now, ended, memory);
        }
    }

    fn job_appended(&mut self, now: Nanos, ended: Appended, memory: &mut dyn Memory) {
        let blocks = ended.blocks;
        let job = match ended.owner {
            Owner::Retain(job) => return self.space.retained(job, blocks, memory),
            Owner::Job(job) => job,
            owner => unreachable!("{owner:?} appends no run"),
        };
        match self.jobs.table.get(job).expect("a job in progress") {
            Job::Write(_) => self.write_logged(now, job, blocks, ended.result),
            Job::Promote(_) => self.promote_appended(now, job, blocks),
        }
    }

    /// A flush of the cache device has ended: tells its waiters.
    pub(crate) fn cache_flushed(
        &mut self,
        now: Nanos,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let Some(waiters) = self.store.cache_flush_done(now, result) else {
            return;
        };
        for waiter in waiters {
            self.wake(now, waiter, Ok(()));
        }
        self.store.renewals_flushed(now, memory);
    }

    /// Nothing more becomes durable on a failed cache.
    pub(crate) fn fail_durable_waiters(&mut self, now: Nanos) {
        for waiter in self.store.take_durable_waiters() {
            self.wake(now, waiter, Err(Failure::Io));
        }
        self.finish_flushes_of_failed(now);
    }

    fn wake(&mut self, now: Nanos, waiter: Waiter, result: Result<(), Failure>) {
        match waiter {
            Waiter::Request(request) => self.finish_part(now, request, result),
            Waiter::Job(job) => self.job_durable(now, job, result),
        }
    }

    /// A job's turn came: a block it waited for is free, or there is room again.
    pub(crate) fn resume_job(&mut self, now: Nanos, job: JobId, memory: &mut dyn Memory) {
        match self.jobs.table.get(job) {
            Some(Job::Write(_)) => self.resume_write(now, job, memory),
            // A turn can be one that an earlier job of this job was given and did not need.
            Some(Job::Promote(_)) | None => {}
        }
    }

    /// Tells a job that the entry it waited for is durable in the cache, or never will be.
    pub(crate) fn job_durable(&mut self, now: Nanos, job: JobId, result: Result<(), Failure>) {
        if let Some(Job::Write(_)) = self.jobs.table.get(job) {
            self.write_durable(now, job, result);
        }
    }

    /// Tells a job that its write to the origin is durable there, or will not be.
    pub(crate) fn job_origin_durable(
        &mut self,
        now: Nanos,
        job: JobId,
        result: Result<(), Failure>,
        _memory: &mut dyn Memory,
    ) {
        if let Some(Job::Write(_)) = self.jobs.table.get(job) {
            self.write_origin_durable(now, job, result);
        }
    }

    pub(crate) fn write_job(&mut self, job: JobId) -> &mut WriteJob {
        match self.jobs.table.at(job) {
            Job::Write(job) => job,
            _ => panic!("{job:?} is a write"),
        }
    }

    pub(crate) fn promote_job(&mut self, job: JobId) -> &mut PromoteJob {
        match self.jobs.table.at(job) {
            Job::Promote(job) => job,
            _ => panic!("{job:?} is a promotion"),
        }
    }
}
