//! The table of 22 jobs, in its order on one cache, whose state carries over.

use forebay_engine::{Mode, Settings};
use forebay_model::{Disk, DiskParameters, Fill, Ssd, SsdParameters};

use crate::load::{Limit, Load, Order, Outcome};
use crate::published::{self, JobRow, JobSpec};
use forebay_virtual::Bare;
use forebay_virtual::CpuCost;
use forebay_virtual::{Cached, Setup, Traffic};

/// The Samsung 850 PRO that was the cache, in bytes.
pub const CACHE_BYTES: u64 = 256_000_000_000;
/// The WD Re 4 TB that held the data, in bytes.
pub const ORIGIN_BYTES: u64 = 4_000_787_030_016;

/// Options of the jobs.
#[derive(Clone, Debug)]
pub struct JobsOptions {
    /// Everything is this many times smaller than in the table: 1 for full size.
    pub scale: u64,
    /// Charges for processor time.
    pub cpu: CpuCost,
    /// Whether the SSD starts trimmed.
    pub fill: Fill,
    /// The cache's settings: the defaults, as in the table.
    pub settings: Settings,
}

impl JobsOptions {
    /// The table's setting at a size this many times smaller.
    #[must_use]
    pub fn new(scale: u64, cpu: CpuCost) -> JobsOptions {
        JobsOptions {
            scale: scale.max(1),
            cpu,
            fill: Fill::Clean,
            settings: Settings::default(),
        }
    }

    fn ssd(&self) -> Ssd {
        Ssd::new(SsdParameters {
            size_bytes: CACHE_BYTES / self.scale,
            fill: self.fill,
            ..SsdParameters::sata_850pro()
        })
    }

    fn disk(&self) -> Disk {
        Disk::new(DiskParameters::sata_7200rpm(self.origin_bytes()))
    }

    fn origin_bytes(&self) -> u64 {
        (ORIGIN_BYTES / self.scale).next_multiple_of(4096)
    }
}

/// Result of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResult {
    /// The job.
    pub spec: JobSpec,
    /// The client's results.
    pub outcome: Outcome,
    /// Traffic of the devices meanwhile.
    pub traffic: Traffic,
    /// Dirty data at the end, in bytes.
    pub dirty_bytes: u64,
    /// The raw device of the table's comparison, as a model under the same load.
    pub raw: Outcome,
}

impl JobResult {
    /// Throughput as a ratio to the raw device.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let sum = |outcome: &Outcome| outcome.read.kibps + outcome.write.kibps;
        sum(&self.outcome) / sum(&self.raw)
    }
}

/// The raw device that a job is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw {
    /// Data that is not cached, or does not fit.
    Disk,
    /// Everything else.
    Ssd,
}

/// The raw device that a job is compared with: the first read and the eight long writes are the
/// disk's.
#[must_use]
pub fn raw_device(job: u32) -> Raw {
    if job == 1 || (7..=14).contains(&job) {
        Raw::Disk
    } else {
        Raw::Ssd
    }
}

/// The jobs of the table, in order.
///
/// # Errors
/// If the table cannot be read.
pub fn specs() -> Result<Vec<JobSpec>, String> {
    let rows = published::jobs().map_err(|error| error.to_string())?;
    let mut specs: Vec<JobSpec> = rows.into_iter().map(|row| row.spec).collect();
    specs.dedup_by_key(|spec| spec.job);
    Ok(specs)
}

/// A job as a load, `scale` times smaller.
fn load(spec: &JobSpec, scale: u64) -> Load {
    let request_bytes = spec.request_kib << 10;
    let scaled =
        |gib: u64| (gib << 30) / scale / u64::from(request_bytes) * u64::from(request_bytes);
    let order = if spec.rw.starts_with("rand") {
        Order::Shuffled {
            seed: u64::from(spec.job),
        }
    } else {
        Order::Sequential
    };
    let read_percent = match spec.rw.as_str() {
        "read" | "randread" => 100,
        "write" | "randwrite" => 0,
        _ => 67,
    };
    Load {
        offset_bytes: scaled(spec.offset_gib),
        span_bytes: scaled(spec.end_gib - spec.offset_gib),
        request_bytes,
        depth: spec.depth,
        read_percent,
        order,
        limit: Limit::Bytes(scaled(spec.size_gib)),
    }
}

/// Runs all jobs; `progress` hears of each as it ends.
///
/// # Errors
/// If the table cannot be read or the cache not made.
pub fn run(
    options: &JobsOptions,
    mut progress: impl FnMut(&JobResult),
) -> Result<Vec<JobResult>, String> {
    let mut cached = Cached::new(Setup {
        ssd: Box::new(options.ssd()),
        cache_bytes: CACHE_BYTES / options.scale,
        disk: Box::new(options.disk()),
        origin_bytes: options.origin_bytes(),
        stripe: None,
        mode: Mode::Writeback,
        settings: options.settings.clone(),
        cpu: options.cpu,
    })?;
    let mut results = Vec::new();
    let mut now_ns = 0;
    for spec in specs()? {
        let load = load(&spec, options.scale);
        let before = cached.traffic();
        let outcome = load.run(&mut cached, now_ns);
        now_ns = outcome.end_ns;
        let raw = match raw_device(spec.job) {
            Raw::Disk => load.run(&mut Bare::new(Box::new(options.disk())), 0),
            Raw::Ssd => load.run(&mut Bare::new(Box::new(options.ssd())), 0),
        };
        let result = JobResult {
            spec,
            outcome,
            traffic: cached.traffic().since(&before),
            dirty_bytes: cached.dirty_bytes(),
            raw,
        };
        progress(&result);
        results.push(result);
    }
    Ok(results)
}

/// The throughput of a published system in a job, as a ratio to the raw device of its own table.
#[must_use]
pub fn published_ratio(table: &[JobRow], job: u32, system: &str) -> Option<f64> {
    let find = |job: u32, system: &str| {
        table
            .iter()
            .find(|row| row.spec.job == job && row.system == system)
            .map(JobRow::kibps)
    };
    // gflash ran under FreeBSD, whose raw SSD is a row of its own.
    let kernel = if system == "gflash" {
        "freebsd"
    } else {
        "linux"
    };
    let ssd = |job| find(job, &format!("ssd_{kernel}"));
    let clean = |job| find(job, &format!("ssd_{kernel}_clean"));
    let raw = match job {
        1 => find(1, "hdd"),
        2 | 3 | 15..=17 => ssd(3),
        4 | 18 => ssd(4),
        5 | 19 => ssd(5),
        6 => ssd(6),
        // The raw disk was measured at both ends; in between its rate falls evenly.
        7..=14 => match (find(7, "hdd"), find(14, "hdd")) {
            (Some(first), Some(last)) => Some(first + (last - first) * f64::from(job - 7) / 7.0),
            _ => None,
        },
        _ => clean(job),
    };
    Some(find(job, system)? / raw?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_raw_device_of_the_same_table() {
        let table = published::jobs().expect("readable");
        let ratio = |job, system| {
            let ratio = published_ratio(&table, job, system).expect("in the table");
            (ratio * 1000.0).round() / 1000.0
        };
        assert_eq!(ratio(1, "flashcache"), 0.765);
        assert_eq!(ratio(3, "bcache"), 0.811, "the SSD under Linux");
        assert_eq!(ratio(3, "gflash"), 0.784, "the SSD under FreeBSD");
        assert_eq!(ratio(14, "flashcache"), 0.294);
        assert_eq!(ratio(20, "gflash"), 1.337, "reads and writes together");
        assert_eq!(published_ratio(&table, 23, "bcache"), None);
        assert_eq!(published_ratio(&table, 1, "nothing"), None);
    }

    #[test]
    fn loads_are_those_of_the_table() {
        let specs = specs().expect("readable");
        assert_eq!(specs.len(), 22);
        let mix = load(&specs[19], 1);
        assert_eq!(
            (mix.read_percent, mix.depth, mix.request_bytes),
            (67, 32, 8192)
        );
        assert_eq!(mix.limit, Limit::Bytes(4 << 30));
        assert_eq!((mix.offset_bytes, mix.span_bytes), (1 << 30, 8 << 30));
        let small = load(&specs[6], 64);
        assert_eq!((small.offset_bytes, small.span_bytes), (29 << 24, 1 << 30));
    }
}
