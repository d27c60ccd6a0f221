//! A trace through many policies at many cache sizes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::accesses::Accesses;
use crate::policies::{self, Policy, PolicyKind, Visit, next_uses};

/// A simulation: a policy at a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The policy.
    pub policy: PolicyKind,
    /// The cache's size in blocks.
    pub size_blocks: u64,
}

/// Result of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The simulation.
    pub job: Job,
    /// Accesses that were misses, from an empty cache on.
    pub misses: u64,
    /// All accesses.
    pub accesses: u64,
}

impl Outcome {
    /// Misses for each access; 0 of no accesses.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        if self.accesses == 0 {
            return 0.0;
        }
        self.misses as f64 / self.accesses as f64
    }
}

/// Accesses between two reports.
const STEP: usize = 1 << 18;

/// Runs every job over the trace, on up to `threads` threads, and returns what they found in the
/// order of `jobs`. `seed` is for random replacement. `watch` gets the number of accesses that were
/// simulated since it was last called, from any thread; once it says `false` everything stops and
/// there is no result.
pub fn simulate(
    accesses: &Accesses,
    jobs: &[Job],
    threads: usize,
    seed: u64,
    watch: &(dyn Fn(u64) -> bool + Sync),
) -> Option<Vec<Outcome>> {
    let blocks = accesses.blocks();
    let footprint = accesses.footprint();
    let next = if jobs.iter().any(|job| job.policy == PolicyKind::Opt) {
        next_uses(blocks, footprint)
    } else {
        Vec::new()
    };
    let stop = AtomicBool::new(false);
    let found = Mutex::new(vec![None; jobs.len()]);
    let taken = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = taken.fetch_add(1, Ordering::Relaxed);
            let Some(&job) = jobs.get(at) else { return };
            let run = Run {
                blocks,
                stop: &stop,
                watch,
            };
            let size = usize::try_from(job.size_blocks).unwrap_or(usize::MAX);
            let misses = policies::with(job.policy, size, footprint, &next, seed, run);
            let outcome = misses.map(|misses| Outcome {
                job,
                misses,
                accesses: blocks.len() as u64,
            });
            // A thread that panicked takes the whole call with it: there is nothing to mend.
            found.lock().unwrap_or_else(|held| held.into_inner())[at] = outcome;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_else(|held| held.into_inner());
    found.into_iter().collect()
}

struct Run<'a> {
    blocks: &'a [u32],
    stop: &'a AtomicBool,
    watch: &'a (dyn Fn(u64) -> bool + Sync),
}

impl Visit for Run<'_> {
    type Result = Option<u64>;

    fn run<P: Policy>(self, mut policy: P) -> Option<u64> {
        let mut misses = 0;
        for step in self.blocks.chunks(STEP) {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            for &block in step {
                misses += u64::from(!policy.access(block));
            }
            if !(self.watch)(step.len() as u64) {
                self.stop.store(true, Ordering::Relaxed);
                return None;
            }
        }
        Some(misses)
    }
}

#[cfg(test)]
mod tests;
