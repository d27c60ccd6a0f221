//! Published figures, as data: results of other caches on other people's machines. Quoted as ratios
//! to the raw devices of the same table, never as absolute promises.
//!
//! The tables are in the crate's `data` folder; docs/experiments.md says where they are from.

const JOBS: &str = include_str!("../data/jobs-2015.csv");
const MAIL: &str = include_str!("../data/enhanceio-2012.csv");
const RAID: &str = include_str!("../data/raid-2014.csv");

/// A table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// Which line, from 1.
    pub line: usize,
    /// The fault, in words.
    pub what: String,
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TableError {}

/// A job of the table of 22.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Its number, from 1.
    pub job: u32,
    /// fio's name for it, with the share of reads and writes of a mix.
    pub rw: String,
    /// Length of a request, in KiB.
    pub request_kib: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Data that it moves, in GiB.
    pub size_gib: u64,
    /// Where its span starts, in GiB.
    pub offset_gib: u64,
    /// Where its span ends, in GiB.
    pub end_gib: u64,
}

/// Results of a system in a job. `None` where the table says nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// The job.
    pub spec: JobSpec,
    /// Which cache, or which raw device.
    pub system: String,
    /// KiB read a second.
    pub read_kibps: Option<f64>,
    /// Reads a second.
    pub read_iops: Option<f64>,
    /// KiB written a second.
    pub write_kibps: Option<f64>,
    /// Writes a second.
    pub write_iops: Option<f64>,
    /// KiB read from the cache device.
    pub cache_read_kib: Option<f64>,
    /// KiB written to the cache device.
    pub cache_write_kib: Option<f64>,
    /// KiB read from the origin device.
    pub origin_read_kib: Option<f64>,
    /// KiB written to the origin device.
    pub origin_write_kib: Option<f64>,
    /// Dirty data at the end, in MiB.
    pub dirty_mib: Option<f64>,
}

impl JobRow {
    /// Reads and writes together, in KiB a second.
    #[must_use]
    pub fn kibps(&self) -> f64 {
        self.read_kibps.unwrap_or(0.0) + self.write_kibps.unwrap_or(0.0)
    }
}

/// A row of the EnhanceIO mail's test.
#[derive(Clone, Debug, PartialEq)]
pub struct MailRow {
    /// `writethrough`, `writeback` or `baseline`.
    pub mode: String,
    /// Which cache, or which raw device.
    pub system: String,
    /// Mean time of a read, in milliseconds.
    pub read_ms: f64,
    /// Mean time of a write, in milliseconds.
    pub write_ms: f64,
    /// MB read a second.
    pub read_mb_s: f64,
    /// MB written a second.
    pub write_mb_s: f64,
}

/// Figures of a request size of the RAID table: random reads, an SSD and a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct RaidRow {
    /// Length of a request, in KiB.
    pub request_kib: u32,
    /// The bare SSD, as a ratio to the bare disk.
    pub ssd_over_hdd: f64,
    /// dm-cache over one SSD and one disk, as a ratio to four disks in RAID0.
    pub dm_cache_over_hdd_raid0: Option<f64>,
    /// dm-cache as a ratio to bcache.
    pub dm_cache_over_bcache: f64,
}

/// The table of 22 jobs.
///
/// # Errors
/// If a line of it makes no sense.
pub fn jobs() -> Result<Vec<JobRow>, TableError> {
    parse_jobs(JOBS)
}

/// The EnhanceIO mail's table.
///
/// # Errors
/// If a line of it makes no sense.
pub fn mail() -> Result<Vec<MailRow>, TableError> {
    rows(MAIL, 6, |fields| {
        Ok(MailRow {
            mode: fields[0].to_owned(),
            system: fields[1].to_owned(),
            read_ms: number(fields[2])?,
            write_ms: number(fields[3])?,
            read_mb_s: number(fields[4])?,
            write_mb_s: number(fields[5])?,
        })
    })
}

/// The RAID table's random reads.
///
/// # Errors
/// If a line of it makes no sense.
pub fn raid() -> Result<Vec<RaidRow>, TableError> {
    rows(RAID, 4, |fields| {
        Ok(RaidRow {
            request_kib: whole(fields[0])?,
            ssd_over_hdd: number(fields[1])?,
            dm_cache_over_hdd_raid0: optional(fields[2])?,
            dm_cache_over_bcache: number(fields[3])?,
        })
    })
}

fn parse_jobs(text: &str) -> Result<Vec<JobRow>, TableError> {
    rows(text, 17, |fields| {
        let (size_gib, offset_gib) = (whole(fields[4])?, whole(fields[5])?);
        let end_gib = match fields[6] {
            "" => offset_gib + size_gib,
            end => whole(end)?,
        };
        if end_gib < offset_gib + size_gib {
            return Err(format!("a span to {end_gib} GiB is too short"));
        }
        Ok(JobRow {
            spec: JobSpec {
                job: whole(fields[0])?,
                rw: fields[1].to_owned(),
                request_kib: whole(fields[2])?,
                depth: whole(fields[3])?,
                size_gib,
                offset_gib,
                end_gib,
            },
            system: fields[7].to_owned(),
            read_kibps: optional(fields[8])?,
            read_iops: optional(fields[9])?,
            write_kibps: optional(fields[10])?,
            write_iops: optional(fields[11])?,
            cache_read_kib: optional(fields[12])?,
            cache_write_kib: optional(fields[13])?,
            origin_read_kib: optional(fields[14])?,
            origin_write_kib: optional(fields[15])?,
            dirty_mib: optional(fields[16])?,
        })
    })
}

/// Every line after the first, cut into fields.
fn rows<T>(
    text: &str,
    width: usize,
    parse: impl Fn(&[&str]) -> Result<T, String>,
) -> Result<Vec<T>, TableError> {
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.trim_end().split(',').collect();
        let row = if fields.len() == width {
            parse(&fields)
        } else {
            Err(format!("{} fields instead of {width}", fields.len()))
        };
        rows.push(row.map_err(|what| TableError { line: at + 1, what })?);
    }
    Ok(rows)
}

fn number(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a whole number"))
}

fn optional(text: &str) -> Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    number(text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_whole() {
        let jobs = jobs().expect("readable");
        for job in 1..=22 {
            for system in ["bcache", "dm-cache", "flashcache", "gflash"] {
                let found = jobs
                    .iter()
                    .filter(|row| row.spec.job == job && row.system == system);
                assert_eq!(found.count(), 1, "job {job}, {system}");
            }
        }
        let first = &jobs[0];
        assert_eq!(
            (first.system.as_str(), first.read_kibps),
            ("hdd", Some(173_630.0))
        );
        assert_eq!(first.dirty_mib, None);
        assert_eq!(mail().expect("readable").len(), 8);
        assert_eq!(raid().expect("readable").len(), 3);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let header = JOBS.lines().next().expect("a header");
        let error = |line: &str| parse_jobs(&format!("{header}\n{line}")).expect_err("nonsense");
        assert_eq!(error("1,read").what, "2 fields instead of 17");
        let broken = error("1,read,128,1,8,1,,hdd,fast,,,,,,,,");
        assert_eq!(
            (broken.line, broken.what.as_str()),
            (2, "`fast` is not a number")
        );
        assert!(
            error("1,read,128,1,8,1,2,hdd,,,,,,,,,")
                .what
                .contains("too short")
        );
    }
}
