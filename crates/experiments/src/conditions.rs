//! Conditions that the runs must meet, whatever the published systems did.

use crate::after::AfterResult;
use crate::burst::BurstResult;
use crate::day::{Both, DayResult, Minute};
use crate::invisible::InvisibleResult;
use crate::jobs::JobResult;
use crate::limit::LimitResult;
use crate::memory::MemoryResult;
use crate::pauses::PausesResult;
use crate::reads::ReadsResult;
use crate::through::ThroughResult;

/// Cached reads while dirty data is written back, as a share of the same reads before.
const UNHARMED: f64 = 0.93;
/// A long sequential write, as a share of the disk's own speed.
const DISK_SPEED: f64 = 0.97;
/// Headers and summaries, as a share of all data written to the cache.
const METADATA: f64 = 0.01;
/// Random writes while there is room, as a share of the SSD's speed.
const ABSORBED: f64 = 0.8;
/// Random writes at the limit, as a multiple of what the bare disk takes.
const SORTED: f64 = 2.0;

/// A burst into a cache full of clean blocks, as a share of the SSD's own speed.
const BURST: f64 = 0.9;

/// Long reads from both devices, as a share of those from the cache device alone.
const BOTH: f64 = 0.98;

/// Bursts with pauses, of requests of 512 KiB to a RAID0, as a share of its own speed.
const IN_BURSTS: f64 = 0.7;

/// A phase of a day, as a share of what the disk alone moves.
const DAY_PHASE: f64 = 0.97;
/// Minutes of a day that may move less than they should, as a share of all.
const DAY_BELOW: f64 = 0.001;
/// The longest that a request of a day may wait, in milliseconds.
const DAY_LONGEST_MS: f64 = 10_000.0;

/// Which conditions a day does not meet, in words.
#[must_use]
pub fn missed_by_day(result: &DayResult) -> Vec<String> {
    let mut missed = Vec::new();
    for (number, phase) in result.phases.iter().enumerate() {
        let ratio = Minute::sum(result.minutes_of(number)).ratio();
        if ratio < DAY_PHASE {
            let name = phase.name;
            missed.push(format!(
                "a day: {name} at {ratio:.3} of the disk, not {DAY_PHASE}"
            ));
        }
    }
    let (below, all) = (result.below().len(), result.minutes.len());
    if below as f64 > DAY_BELOW * all as f64 {
        missed.push(format!(
            "a day: {below} of {all} minutes below the disk, not {DAY_BELOW} of them"
        ));
    }
    let (longest_ms, stream) = result.longest(|both: &Both<_>| both.cached);
    if longest_ms > DAY_LONGEST_MS {
        missed.push(format!(
            "a day: {stream} waited {longest_ms:.0} ms, not {DAY_LONGEST_MS}"
        ));
    }
    missed
}

/// The condition that a burst does not meet, in words.
#[must_use]
pub fn missed_by_burst(result: &BurstResult) -> Option<String> {
    let (load, mib, ratio) = (result.load, result.cache_bytes >> 20, result.ratio());
    (ratio < BURST).then(|| {
        format!(
            "a burst into {mib} MiB of clean blocks, {load}, at {ratio:.3} of the SSD, not {BURST}"
        )
    })
}

/// The condition that long reads from both devices do not meet, in words.
#[must_use]
pub fn missed_by_reads(result: &ReadsResult) -> Option<String> {
    let ratio = result.ratio();
    (ratio < BOTH).then(|| {
        let (name, kib, depth) = (result.origin_name, result.request_kib, result.depth);
        format!(
            "cached reads of {kib} KiB at depth {depth} over a {name} at {ratio:.3} of the cache device alone, not {BOTH}"
        )
    })
}

/// The condition that a long write after random ones does not meet, in words.
#[must_use]
pub fn missed_by_after(result: &AfterResult) -> Option<String> {
    let ratio = result.ratio();
    (ratio < DISK_SPEED).then(|| {
        format!("a long write after random ones at {ratio:.3} of the disk, not {DISK_SPEED}")
    })
}

/// The condition that bursts with pauses do not meet, in words. It is of a RAID0 and requests of 512 KiB,
/// for which the lab found the fault.
#[must_use]
pub fn missed_by_pauses(result: &PausesResult) -> Option<String> {
    let ratio = result.ratio();
    let counts = result.level == "RAID0" && result.request_kib == 512;
    (counts && ratio < IN_BURSTS).then(|| {
        format!("bursts with pauses to a RAID0 at {ratio:.3} of the array, not {IN_BURSTS}")
    })
}

/// Which conditions a load beside write-back does not meet, in words.
#[must_use]
pub fn missed_by_invisible(result: &InvisibleResult) -> Vec<String> {
    let (name, most) = (result.client.name, result.client.most);
    let kinds = [
        ("write-back", result.ratio(result.writeback), most.writeback),
        ("a drain", result.ratio(result.drain), most.drain),
    ];
    let missed = kinds.into_iter().filter(|(_, ratio, most)| ratio > most);
    missed
        .map(|(beside, ratio, most)| {
            format!("{name} beside {beside}: p99 at {ratio:.2} of without it, not {most}")
        })
        .collect()
}

/// The condition that a load of write-through does not meet, in words.
#[must_use]
pub fn missed_by_through(result: &ThroughResult) -> Option<String> {
    let (ratio, least) = (result.ratio(), result.writes.least);
    (ratio < least).then(|| {
        let name = result.writes.name;
        format!("write-through, {name}: {ratio:.3} of the disk, not {least}")
    })
}

/// Which conditions the 22 jobs do not meet, in words.
#[must_use]
pub fn missed_by_jobs(results: &[JobResult]) -> Vec<String> {
    let mut missed = Vec::new();
    let kibps = |job: u32| {
        let found = results.iter().find(|result| result.spec.job == job);
        found.map_or(0.0, |result| result.outcome.read.kibps)
    };
    for (job, before) in [(15, 3), (16, 3), (17, 3), (18, 4), (19, 5)] {
        let share = kibps(job) / kibps(before);
        // Written so that a job that is not there is missed too.
        if !matches!(share.partial_cmp(&UNHARMED), Some(order) if order.is_ge()) {
            missed.push(format!(
                "job {job}: cached reads during write-back at {share:.3} of job {before}, not {UNHARMED}"
            ));
        }
    }
    for result in results
        .iter()
        .filter(|result| (7..=14).contains(&result.spec.job))
    {
        if result.ratio() < DISK_SPEED {
            missed.push(format!(
                "job {}: a long write at {:.3} of the disk, not {DISK_SPEED}",
                result.spec.job,
                result.ratio()
            ));
        }
    }
    let metadata: u64 = results
        .iter()
        .map(|result| result.traffic.metadata_bytes)
        .sum();
    let written: u64 = results
        .iter()
        .map(|result| result.traffic.cache_write_bytes)
        .sum();
    let share = metadata as f64 / (written - metadata).max(1) as f64;
    if share > METADATA {
        missed.push(format!(
            "metadata at {share:.4} of the data, not {METADATA}"
        ));
    }
    missed
}

/// Which conditions writes acknowledged from memory do not meet, in words: at depth 1 they are
/// faster than the SSD.
#[must_use]
pub fn missed_by_memory(result: &MemoryResult) -> Option<String> {
    let ratio = result.memory.write.kibps / result.ssd.write.kibps;
    let missed =
        result.depth == 1 && !matches!(ratio.partial_cmp(&1.0), Some(order) if order.is_gt());
    missed.then(|| {
        format!(
            "{} at depth 1 from memory at {ratio:.3} of the SSD, not above it",
            result.load
        )
    })
}

/// Which conditions random writes past the dirty limit do not meet, in words.
#[must_use]
pub fn missed_by_limit(result: &LimitResult) -> Vec<String> {
    let mut missed = Vec::new();
    let before = result.before.write.kibps / result.ssd.write.kibps;
    if before < ABSORBED {
        missed.push(format!(
            "random writes with room at {before:.3} of the SSD, not {ABSORBED}"
        ));
    }
    let after = result.after.write.kibps / result.disk.write.kibps;
    if after < SORTED {
        missed.push(format!(
            "random writes at the dirty limit at {after:.2} times the disk, not {SORTED}"
        ));
    }
    missed
}
