//! Outcome of a run.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of events, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Counts `more` of something.
    pub fn add(&mut self, name: &'static str, more: u64) {
        if more > 0 {
            *self.0.entry(name).or_default() += more;
        }
    }

    /// The count of an event.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Counts) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.0 {
            writeln!(out, "  {name:<34} {count:>12}")?;
        }
        Ok(())
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which step of the plan was running.
    pub step: u32,
    /// The fault, in words.
    pub what: String,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first violation, if there was one.
    pub violation: Option<Violation>,
    /// A hash over all events: two runs of a plan agree in it.
    pub hash: u64,
    /// Requests and device operations.
    pub operations: u64,
    /// Counts of events, rare states of the engine included.
    pub counts: Counts,
    /// The events, if they were to be told.
    pub trace: Vec<String>,
}
