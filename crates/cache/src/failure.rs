//! The failure of a cache: all of it fails, and not one shard (I15, I22).
//!
//! ```text
//! a shard here fails ─> all shards here fail ─> CacheFailed to all other hosts
//!     ─> every host reports what is dirty ─> the driver puts that on record
//!     ─> recorded() on every host ─> what was promised is answered, origins may be written
//! ```
//!
//! From the first failure until the record is made, no host promises a client anything.

use std::collections::VecDeque;

use forebay_engine::planted::{self, Bug};
use forebay_engine::{Promise, Unsaved};

use crate::host::Host;
use crate::join::Joined;
use crate::message::Message;

/// The progress of a host from the failure to its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Sound,
    /// A report is owed, once what was being written to the cache has ended.
    ToReport,
    /// The report is on its way to the record.
    Reported,
    /// On record.
    Recorded,
}

#[derive(Debug)]
pub(crate) struct Failure<T> {
    stage: Stage,
    /// It has been on record before: later reports are revisions.
    was_recorded: bool,
    reason: &'static str,
    /// Of the last report.
    serial: u64,
    /// Answers that promise that something is kept.
    pub(crate) promises: VecDeque<Joined<T>>,
}

impl<T> Default for Failure<T> {
    fn default() -> Failure<T> {
        Failure {
            stage: Stage::Sound,
            was_recorded: false,
            reason: "",
            serial: 0,
            promises: VecDeque::new(),
        }
    }
}

/// A host's report, to be put on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which report of its host it is, from 1 on.
    pub serial: u64,
    /// The epoch in which the cache failed.
    pub epoch: u32,
    /// The reason.
    pub reason: &'static str,
    /// Dirty blocks in the shards of the host, which are newer in the cache than on their origin.
    pub unsaved: Vec<Unsaved>,
    /// The sequence numbers up to which the shards are durable.
    pub promises: Vec<Promise>,
}

impl<T> Host<T> {
    /// Whether an answer that says that something is kept must wait.
    pub(crate) fn may_not_promise(&self) -> bool {
        !planted::is(Bug::AbandonedSilently)
            && !self.failure.was_recorded
            && (self.failure.stage != Stage::Sound || self.shared.has_failed())
    }

    /// Fails all shards here if one has failed.
    pub(crate) fn look_for_failure(&mut self) {
        if let Some(reason) = self.failure_of_awake() {
            self.spread_failure(reason);
        }
    }

    /// A shard here failed: all fail, of all hosts.
    pub(crate) fn spread_failure(&mut self, reason: &'static str) {
        if self.failure.stage != Stage::Sound {
            return;
        }
        self.shared.fail();
        self.fail_cache(reason);
        for host in self.other_hosts() {
            self.send(host, Message::CacheFailed(reason));
        }
    }

    /// The cache failed: no shard here relies on it any more.
    pub(crate) fn fail_cache(&mut self, reason: &'static str) {
        if self.failure.stage != Stage::Sound {
            return;
        }
        self.failure.stage = Stage::ToReport;
        self.failure.reason = reason;
        if planted::is(Bug::ShardGoesOn) {
            return;
        }
        for engine in self.engines() {
            engine.fail_cache(reason);
        }
    }

    /// Returns the report that is to be put on record, durably and wherever the next start will
    /// look. The driver answers with [`Host::recorded`] once that is done for all hosts. Returns
    /// another when the list of dirty blocks has become shorter and somebody waits for that.
    pub fn next_report(&mut self) -> Option<Report> {
        if self.failure.stage == Stage::Recorded
            && self.engines().any(|engine| engine.wants_revision())
        {
            self.failure.stage = Stage::ToReport;
        }
        if self.failure.stage != Stage::ToReport
            || self.engines().any(|engine| engine.is_appending())
        {
            return None;
        }
        let mut epoch = 0;
        let mut unsaved = Vec::new();
        let mut promises = Vec::new();
        for engine in self.engines() {
            epoch = engine.epoch();
            promises.push(engine.promise());
            unsaved.append(&mut engine.list_unsaved()?);
        }
        self.failure.stage = Stage::Reported;
        self.failure.serial += 1;
        Some(Report {
            serial: self.failure.serial,
            epoch,
            reason: self.failure.reason,
            unsaved,
            promises,
        })
    }

    /// The report of this host of that serial, and one of every other, are on record.
    pub fn recorded(&mut self, serial: u64) {
        if self.failure.stage != Stage::Reported || self.failure.serial != serial {
            return;
        }
        self.failure.stage = Stage::Recorded;
        self.failure.was_recorded = true;
        for engine in self.engines() {
            engine.failure_recorded();
        }
    }
}
