//! Runs many seeds on all cores, until one fails or the time is up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::generate;
use crate::outcome::{Counts, Violation};
use crate::world::{Options, run};

/// Work and findings of a search.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Requests and device operations.
    pub operations: u64,
    /// Counts of events, by name.
    pub counts: Counts,
    /// Failing seeds, lowest first.
    pub failures: Vec<(u64, Violation)>,
    /// Its duration.
    pub elapsed: Duration,
}

impl Report {
    /// Adds a search of the seeds after these.
    pub fn merge(&mut self, next: Report) {
        self.seeds += next.seeds;
        self.operations += next.operations;
        self.counts.merge(&next.counts);
        self.failures.extend(next.failures);
        self.elapsed += next.elapsed;
    }
}

/// Runs seeds from `first` up to `last`, or until `limit` is over or `stop_after` seeds failed.
/// With `twice` each seed runs twice and must do the same.
#[must_use]
pub fn search(
    first: u64,
    last: u64,
    limit: Duration,
    stop_after: usize,
    twice: bool,
    threads: usize,
) -> Report {
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && began.elapsed() < limit {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        break;
                    }
                    let plan = generate::plan(seed);
                    let mut outcome = run(&plan, Options::default());
                    if twice && outcome.violation.is_none() {
                        let again = run(&plan, Options::default());
                        let is_same =
                            again.hash == outcome.hash && again.operations == outcome.operations;
                        if !is_same {
                            let what = "two runs of the same seed differ".to_owned();
                            outcome.violation = Some(Violation { step: 0, what });
                        }
                    }
                    let mut report = report.lock().expect("no thread panics with it");
                    report.seeds += 1;
                    report.operations += outcome.operations;
                    report.counts.merge(&outcome.counts);
                    if let Some(violation) = outcome.violation {
                        report.failures.push((seed, violation));
                        if report.failures.len() >= stop_after {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no thread panics with it");
    report.failures.sort_by_key(|(seed, _)| *seed);
    report.elapsed = began.elapsed();
    report
}
