//! Results of the runs.

mod arrays;
mod day;
mod invisible;
mod markdown;
mod pauses;
mod reads;
mod writeback;

pub use day::{day_line, day_minutes};
pub use invisible::invisible_line;
pub use markdown::{between_marks, markdown};
pub use pauses::pauses_line;
pub use reads::reads_line;

use crate::after::AfterResult;
use crate::arrays::ArrayResult;
use crate::burst::BurstResult;
use crate::conditions::{
    missed_by_after, missed_by_burst, missed_by_day, missed_by_invisible, missed_by_jobs,
    missed_by_limit, missed_by_memory, missed_by_pauses, missed_by_reads, missed_by_through,
};
use crate::day::DayResult;
use crate::invisible::InvisibleResult;
use crate::jobs::JobResult;
use crate::limit::LimitResult;
use crate::mail::MailResult;
use crate::memory::MemoryResult;
use crate::pauses::PausesResult;
use crate::raid::RaidResult;
use crate::reads::ReadsResult;
use crate::through::ThroughResult;
use crate::writeback::PolicyResult;
use forebay_virtual::CpuCost;

/// All results of a run; runs that were left out are empty.
#[derive(Clone, Debug, Default)]
pub struct Everything {
    /// The 22 jobs, once for each cost of processor time.
    pub jobs: Vec<(CpuCost, Vec<JobResult>)>,
    /// Random writes past the dirty limit.
    pub limit: Option<LimitResult>,
    /// Bursts into a cache full of clean blocks.
    pub burst: Vec<BurstResult>,
    /// Long reads from both devices.
    pub reads: Vec<ReadsResult>,
    /// A long write after random ones.
    pub after: Option<AfterResult>,
    /// Write-through beside the disk.
    pub through: Vec<ThroughResult>,
    /// Waits of clients beside write-back.
    pub invisible: Vec<InvisibleResult>,
    /// A day of a server.
    pub day: Option<DayResult>,
    /// Writes acknowledged from memory.
    pub memory: Vec<MemoryResult>,
    /// The EnhanceIO mail's test.
    pub mail: Vec<MailResult>,
    /// The RAID table's rows.
    pub raid: Vec<RaidResult>,
    /// Writes to arrays.
    pub arrays: Vec<ArrayResult>,
    /// Bursts of long writes to arrays.
    pub pauses: Vec<PausesResult>,
    /// The write-back policies.
    pub writeback: Vec<PolicyResult>,
}

/// Which conditions do not hold, in words. The daemon's transport is not the engine's affair, so
/// they are held against the run that charges the engine alone.
#[must_use]
pub fn missed(all: &Everything) -> Vec<String> {
    let jobs = all.jobs.iter().filter(|(cpu, _)| *cpu == CpuCost::ENGINE);
    let mut missed: Vec<String> = jobs
        .flat_map(|(_, results)| missed_by_jobs(results))
        .collect();
    missed.extend(all.limit.iter().flat_map(missed_by_limit));
    missed.extend(all.burst.iter().filter_map(missed_by_burst));
    missed.extend(all.reads.iter().filter_map(missed_by_reads));
    missed.extend(all.after.iter().filter_map(missed_by_after));
    missed.extend(all.through.iter().filter_map(missed_by_through));
    missed.extend(all.invisible.iter().flat_map(missed_by_invisible));
    missed.extend(all.day.iter().flat_map(missed_by_day));
    missed.extend(all.memory.iter().filter_map(missed_by_memory));
    missed.extend(all.pauses.iter().filter_map(missed_by_pauses));
    missed
}

/// A job in one line, for progress.
#[must_use]
pub fn job_line(cpu: &str, result: &JobResult) -> String {
    let spec = &result.spec;
    format!(
        "{cpu}: job {:2} {:>14} {:3}k depth {:2}: {:8.0} KiB/s, {:.3} of the raw device, {} MiB dirty, {:.0} s virtual",
        spec.job,
        spec.rw,
        spec.request_kib,
        spec.depth,
        result.outcome.read.kibps + result.outcome.write.kibps,
        result.ratio(),
        result.dirty_bytes >> 20,
        result.outcome.end_ns as f64 / 1e9,
    )
}

/// A burst in one line.
#[must_use]
pub fn burst_line(result: &BurstResult) -> String {
    format!(
        "burst: {} into {} MiB: disk {:.0}, SSD {:.0}, Forebay {:.0} KiB/s, {:.3} of the SSD, {:.1} % bypassed the cache",
        result.load,
        result.cache_bytes >> 20,
        result.disk.write.kibps,
        result.ssd.write.kibps,
        result.cached.write.kibps,
        result.ratio(),
        result.past_percent,
    )
}

/// A long write after random ones in one line.
#[must_use]
pub fn after_line(result: &AfterResult) -> String {
    format!(
        "a long write after random ones, {} MiB dirty: {:.3} of the disk, {:.3} where the disk came nearest",
        result.dirty_bytes >> 20,
        result.ratio(),
        result.least(),
    )
}

/// A load of write-through in one line.
#[must_use]
pub fn through_line(result: &ThroughResult) -> String {
    format!(
        "write-through: {}: disk {:.0}, Forebay {:.0} KiB/s, {:.3} of the disk",
        result.writes.name,
        result.disk_kibps,
        result.cached_kibps,
        result.ratio(),
    )
}

/// An arrangement of the mail's test in one line.
#[must_use]
pub fn mail_line(result: &MailResult) -> String {
    let outcome = &result.outcome;
    format!(
        "mail: {} {}: {:.2} MB/s and {:.2} MB/s, {:.2} ms and {:.2} ms",
        result.mode,
        result.system,
        outcome.read.kibps * 1024.0 / 1e6,
        outcome.write.kibps * 1024.0 / 1e6,
        outcome.read.mean_ms,
        outcome.write.mean_ms,
    )
}

/// A row of the RAID table in one line.
#[must_use]
pub fn raid_line(result: &RaidResult) -> String {
    let kibps = |outcome: &crate::Outcome| outcome.read.kibps + outcome.write.kibps;
    format!(
        "raid: {} {} KiB: disk {:.0}, SSD {:.0}, Forebay {:.0} KiB/s, {:.1} % hits",
        if result.write { "write" } else { "read" },
        result.request_kib,
        kibps(&result.disk),
        kibps(&result.ssd),
        kibps(&result.cached),
        result.hit_percent,
    )
}

/// A load on an array in one line.
#[must_use]
pub fn array_line(result: &ArrayResult) -> String {
    format!(
        "arrays: {}, {} SSD, {} {} KiB: bare {:.0}, Forebay {:.0} KiB/s, {:.3} of the array, {:.0} and {:.0} % of stripes in part",
        result.level,
        result.ssds,
        if result.in_sequence {
            "sequential"
        } else {
            "random"
        },
        result.request_kib,
        result.bare.write.kibps,
        result.cached.write.kibps,
        result.ratio(),
        result.partial_percent.0,
        result.partial_percent.1,
    )
}
