//! Stepping aside: the whole cache is given up, not one shard of it (I15, I22).
//!
//! ```text
//! a shard here fails ─> all shards here step aside ─> StepAside to all other hosts
//!     ─> every host reports what is dirty ─> the driver puts that on record
//!     ─> recorded() on every host ─> what was promised is answered, origins may be written
//! ```
//!
//! From the first failure until the record is made, no host promises a client anything.

use std::collections::VecDeque;

use forebay_engine::planted::{self, Bug};
use forebay_engine::{Promise, Unsaved};

use crate::host::Host;
use crate::join::Promised;
use crate::message::Message;

/// The progress of a host in giving the cache up.
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
pub(crate) struct Aside<T> {
    stage: Stage,
    /// It has been on record before: later reports are revisions.
    was_recorded: bool,
    reason: &'static str,
    /// Of the last report.
    serial: u64,
    /// Answers that promise that something is kept.
    pub(crate) promises: VecDeque<Promised<T>>,
}

impl<T> Default for Aside<T> {
    fn default() -> Aside<T> {
        Aside {
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
    /// The epoch in which the cache is given up.
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
            && !self.aside.was_recorded
            && (self.aside.stage != Stage::Sound || self.shared.is_given_up())
    }

    /// Has all shards step aside if one here has.
    pub(crate) fn look_for_failure(&mut self) {
        if self.aside.stage != Stage::Sound {
            return;
        }
        let failed = self.shards.iter().flatten();
        let Some(reason) = failed.filter_map(|shard| shard.failure()).next() else {
            return;
        };
        self.shared.give_up();
        self.step_aside(reason);
        for host in self.other_hosts() {
            self.send(host, Message::StepAside(reason));
        }
    }

    /// The cache is given up: no shard here relies on it any more.
    pub(crate) fn step_aside(&mut self, reason: &'static str) {
        if self.aside.stage != Stage::Sound {
            return;
        }
        self.aside.stage = Stage::ToReport;
        self.aside.reason = reason;
        if planted::is(Bug::ShardGoesOn) {
            return;
        }
        for engine in self.engines() {
            engine.step_aside(reason);
        }
    }

    /// Returns the report that is to be put on record, durably and wherever the next start will
    /// look. The driver answers with [`Host::recorded`] once that is done for all hosts. Returns
    /// another when the list of dirty blocks has become shorter and somebody waits for that.
    pub fn next_report(&mut self) -> Option<Report> {
        if self.aside.stage == Stage::Recorded
            && self.engines().any(|engine| engine.wants_revision())
        {
            self.aside.stage = Stage::ToReport;
        }
        if self.aside.stage != Stage::ToReport || self.engines().any(|engine| engine.is_appending())
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
        self.aside.stage = Stage::Reported;
        self.aside.serial += 1;
        Some(Report {
            serial: self.aside.serial,
            epoch,
            reason: self.aside.reason,
            unsaved,
            promises,
        })
    }

    /// The report of this host of that serial, and one of every other, are on record.
    pub fn recorded(&mut self, serial: u64) {
        if self.aside.stage != Stage::Reported || self.aside.serial != serial {
            return;
        }
        self.aside.stage = Stage::Recorded;
        self.aside.was_recorded = true;
        for engine in self.engines() {
            engine.abandonment_recorded();
        }
    }
}
