//! Counters of a replay.

use forebay_engine::{Histogram, Nanos};
use forebay_trace::Kind;

use super::operations::Operation;

/// Requests of one sort.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) failed: u64,
    /// From the request to its answer.
    pub(super) latency: Histogram,
    pub(super) longest_ns: u64,
}

impl Side {
    fn add(&mut self, other: &Side) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.latency.add(&other.latency);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// Delays of requests behind their time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behind {
    requests: u64,
    sum_ns: u64,
    pub(super) most_ns: u64,
    pub(super) last_ns: u64,
}

impl Behind {
    pub(super) fn note(&mut self, late_ns: u64) {
        self.requests += 1;
        self.sum_ns = self.sum_ns.saturating_add(late_ns);
        self.most_ns = self.most_ns.max(late_ns);
        self.last_ns = late_ns;
    }

    pub(super) fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.requests).unwrap_or(0)
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) read: Side,
    pub(super) write: Side,
    /// Requests without data: write-zeroes, discards, flushes.
    pub(super) other: Side,
    /// Of no meaning at the highest speed.
    pub(super) behind: Behind,
    /// From the first request to the last answer.
    pub(super) took_ns: u64,
    pub(super) interrupted: bool,
    pub(super) first_error: Option<String>,
    /// Why the target could not be driven to the end.
    pub(super) lost: Option<String>,
}

impl Tally {
    pub(super) fn side(&mut self, kind: Kind) -> &mut Side {
        match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::WriteZeroes | Kind::Discard | Kind::Flush => &mut self.other,
        }
    }

    /// An operation was answered.
    pub(super) fn answered(&mut self, operation: &Operation, took_ns: u64) {
        let side = self.side(operation.kind);
        side.requests += 1;
        side.bytes += u64::from(operation.len_bytes);
        side.latency.record(Nanos(took_ns));
        side.longest_ns = side.longest_ns.max(took_ns);
    }

    /// An operation failed.
    pub(super) fn failed_with(&mut self, operation: &Operation, why: String) {
        self.side(operation.kind).failed += 1;
        self.first_error.get_or_insert(why);
    }

    pub(super) fn failed(&self) -> u64 {
        self.read.failed + self.write.failed + self.other.failed
    }

    pub(super) fn add(&mut self, other: Tally) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.other.add(&other.other);
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
        if self.lost.is_none() {
            self.lost = other.lost;
        }
    }
}
