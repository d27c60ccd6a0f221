//! Jobs of a network origin: cut into requests that the server takes, and one after the other where
//! a change overlaps another (I11, and the order in which changes are sent again).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use forebay_cache::Change;
use forebay_engine::Slots;
use forebay_frontend::nbd::client::{Answers, OpenExport};
use forebay_frontend::nbd::wire::{command, transmission_flag};
use forebay_io::{RemoteJob, RemoteKind};

use super::waits::{Limits, Waits};

/// The longest range of a request without data, in bytes.
const LONGEST_RANGE_BYTES: u32 = 128 << 20;
/// Bytes on their way to the server beyond which no request is made.
const OUTPUT_BYTES: usize = 4 << 20;
/// Jobs that the server has at a time.
const DEPTH: usize = 128;
/// The longest piece of zeroes for a server that cannot make them, in bytes.
const ZEROES_BYTES: u32 = 1 << 20;

struct Job {
    remote: RemoteJob,
    waits: Waits,
    /// When a server was asked last.
    asked: Instant,
    /// Bytes of which requests are made.
    asked_bytes: u64,
    is_asked: bool,
    /// The connection that its requests go to.
    via: usize,
    requests: u32,
    error: u32,
}

/// Jobs that are not answered yet.
#[derive(Default)]
pub(super) struct Jobs {
    slots: Slots<Job>,
    /// Jobs of which not all is asked, in order.
    waiting: VecDeque<u32>,
    /// Jobs of which the server has requests.
    flying: Vec<u32>,
    /// By connection and cookie: the job of each request, and the request's place in it.
    requests: HashMap<(usize, u64), (u32, u64)>,
}

/// A job that the server has answered.
pub(super) struct Answered {
    pub(super) job: RemoteJob,
    pub(super) error: u32,
}

impl Jobs {
    pub(super) fn add(&mut self, remote: RemoteJob) {
        let slot = self.slots.insert(Job {
            remote,
            waits: Waits::new(),
            asked: Instant::now(),
            asked_bytes: 0,
            is_asked: false,
            via: 0,
            requests: 0,
            error: 0,
        });
        self.waiting.push_back(slot);
    }

    /// The job that is asked for next, if the order allows it.
    pub(super) fn next(&self) -> Option<&RemoteJob> {
        let slot = *self.waiting.front()?;
        let job = &self.slots.get(slot)?.remote;
        let mut others = self.flying.iter().filter(|other| **other != slot);
        let mut is_kept_back = self.flying.len() >= DEPTH;
        is_kept_back |= others.any(|other| {
            let other = self.slots.get(*other);
            other.is_some_and(|other| must_wait(job, &other.remote))
        });
        (!is_kept_back).then_some(job)
    }

    /// Takes the next job off, to be answered without the server.
    pub(super) fn take_next(&mut self) -> Option<RemoteJob> {
        let slot = self.waiting.pop_front()?;
        self.flying.retain(|flying| *flying != slot);
        self.slots.remove(slot).map(|job| job.remote)
    }

    /// The connection that has a part of the next job.
    pub(super) fn begun_via(&self) -> Option<usize> {
        let slot = self.waiting.front()?;
        let is_begun = self.flying.contains(slot);
        is_begun.then_some(self.slots.get(*slot)?.via)
    }

    /// Makes requests of the next job on a connection, as far as there is room for them.
    pub(super) fn ask(
        &mut self,
        via: usize,
        export: &OpenExport,
        answers: &mut Answers,
        output: &mut Vec<u8>,
    ) {
        let Some(slot) = self.waiting.front().copied() else {
            return;
        };
        let Some(job) = self.slots.get_mut(slot) else {
            return;
        };
        if !self.flying.contains(&slot) {
            self.flying.push(slot);
            job.asked = Instant::now();
        }
        job.via = via;
        while !job.is_asked && output.len() < OUTPUT_BYTES {
            let (command, longest, has_data) = way_of(job.remote.kind(), export);
            let left = job.remote.len_bytes() - job.asked_bytes;
            let len_bytes = left.min(u64::from(longest)) as u32;
            let at = job.asked_bytes;
            let offset_bytes = job.remote.offset_bytes() + at;
            let (cookie, header) = answers.ask(command, offset_bytes, len_bytes);
            output.extend(header);
            if has_data && job.remote.kind() == RemoteKind::Write {
                job.remote.copy_to(at, u64::from(len_bytes), output);
            } else if has_data {
                output.resize(output.len() + len_bytes as usize, 0);
            }
            self.requests.insert((via, cookie), (slot, at));
            job.requests += 1;
            job.asked_bytes += u64::from(len_bytes);
            job.is_asked = job.asked_bytes >= job.remote.len_bytes();
        }
        if job.is_asked {
            self.waiting.pop_front();
        }
    }

    /// Whether there is room for requests.
    pub(super) fn has_room(output: &[u8]) -> bool {
        output.len() < OUTPUT_BYTES
    }

    /// Puts data of an answer into its job.
    pub(super) fn fill(&mut self, request: (usize, u64), at_bytes: u32, bytes: &[u8]) {
        if let Some((slot, start)) = self.requests.get(&request)
            && let Some(job) = self.slots.get_mut(*slot)
        {
            job.remote.fill(start + u64::from(at_bytes), bytes);
        }
    }

    /// Notes the end of a request; returns its job if that was the last of it.
    pub(super) fn done(&mut self, request: (usize, u64), error: u32) -> Option<Answered> {
        let (slot, _) = self.requests.remove(&request)?;
        let job = self.slots.get_mut(slot)?;
        job.requests -= 1;
        if job.error == 0 {
            job.error = error;
        }
        if job.requests > 0 || !job.is_asked {
            return None;
        }
        self.flying.retain(|flying| *flying != slot);
        let job = self.slots.remove(slot)?;
        let (job, error) = (job.remote, job.error);
        Some(Answered { job, error })
    }

    /// The server is gone: jobs it had wait again, in their order.
    pub(super) fn lost(&mut self, limits: Limits) {
        let unasked = self
            .waiting
            .iter()
            .filter(|slot| !self.flying.contains(slot));
        for slot in unasked {
            if let Some(job) = self.slots.get_mut(*slot) {
                job.waits.server_left(Duration::ZERO, limits);
            }
        }
        self.lost_from(0, limits);
    }

    /// The connections from this one on are gone: jobs they had wait again, in their order, before the
    /// others that wait.
    pub(super) fn lost_from(&mut self, first: usize, limits: Limits) {
        self.requests.retain(|(via, _), _| *via < first);
        let slots = &self.slots;
        let is_lost = |slot: &u32| slots.get(*slot).is_none_or(|job| job.via >= first);
        let lost: Vec<u32> = self.flying.extract_if(.., |slot| is_lost(slot)).collect();
        for slot in lost.into_iter().rev() {
            if let Some(job) = self.slots.get_mut(slot) {
                job.waits.server_left(job.asked.elapsed(), limits);
                (job.asked_bytes, job.is_asked, job.requests, job.error) = (0, false, 0, 0);
            }
            if !self.waiting.contains(&slot) {
                self.waiting.push_front(slot);
            }
        }
    }

    /// Takes the jobs off that have waited for so long; none of them is with a server.
    pub(super) fn take_expired(&mut self, limit: Duration) -> Vec<RemoteJob> {
        let slots = &mut self.slots;
        let mut expired = Vec::new();
        self.waiting.retain(|slot| {
            let waits = slots.get(*slot).map(|job| !job.waits.is_over(limit));
            if waits == Some(false) {
                expired.extend(slots.remove(*slot).map(|job| job.remote));
            }
            waits == Some(true)
        });
        expired
    }

    /// Whether the server has a flush.
    pub(super) fn is_flushing(&self) -> bool {
        let mut flying = self.flying.iter();
        flying.any(|slot| {
            let job = self.slots.get(*slot);
            job.is_some_and(|job| job.remote.kind() == RemoteKind::Flush)
        })
    }
}

/// Whether a job waits for one that the server has: changes that overlap, and flushes.
fn must_wait(job: &RemoteJob, other: &RemoteJob) -> bool {
    let range = |job: &RemoteJob| (job.offset_bytes(), job.offset_bytes() + job.len_bytes());
    let ((start, end), (from, to)) = (range(job), range(other));
    let overlaps = job.is_change() && other.is_change() && from < end && start < to;
    overlaps || (job.kind() == RemoteKind::Flush && other.kind() == RemoteKind::Flush)
}

/// The command of a job, the longest request of it in bytes, and whether data follow.
pub(super) fn way_of(kind: RemoteKind, export: &OpenExport) -> (u16, u32, bool) {
    match kind {
        RemoteKind::Read => (command::READ, export.longest_bytes, false),
        RemoteKind::Write => (command::WRITE, export.longest_bytes, true),
        RemoteKind::Flush => (command::FLUSH, 0, false),
        RemoteKind::Discard => (command::TRIM, LONGEST_RANGE_BYTES, false),
        RemoteKind::WriteZeroes if export.can(transmission_flag::SEND_WRITE_ZEROES) => {
            (command::WRITE_ZEROES, LONGEST_RANGE_BYTES, false)
        }
        RemoteKind::WriteZeroes => {
            let longest = export.longest_bytes.min(ZEROES_BYTES);
            (command::WRITE, longest, true)
        }
    }
}

/// The change that a job made.
pub(super) fn change_of(job: &RemoteJob) -> Option<Change> {
    let (offset_bytes, len_bytes) = (job.offset_bytes(), job.len_bytes());
    match job.kind() {
        RemoteKind::Write => {
            let mut data = Vec::with_capacity(len_bytes as usize);
            job.copy_to(0, len_bytes, &mut data);
            Some(Change::Write { offset_bytes, data })
        }
        RemoteKind::WriteZeroes => Some(Change::Zeroes {
            offset_bytes,
            len_bytes,
        }),
        RemoteKind::Discard => Some(Change::Discard {
            offset_bytes,
            len_bytes,
        }),
        RemoteKind::Read | RemoteKind::Flush => None,
    }
}
