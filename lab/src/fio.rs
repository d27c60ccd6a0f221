//! fio's report, as far as the lab uses it.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// Reads or writes of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The number of requests.
    pub requests: u64,
    /// KiB a second.
    pub kib_s: f64,
    /// Requests a second.
    pub iops: f64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 95th percentile, in microseconds.
    pub p95_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, in microseconds.
    pub p99_9_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
}

/// Report of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// If it read.
    pub read: Option<Side>,
    /// If it wrote.
    pub write: Option<Side>,
    /// Its duration, in seconds.
    pub seconds: f64,
    /// fio's error number.
    pub error: i64,
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    job_runtime: f64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    bw: f64,
    iops: f64,
    runtime: f64,
    lat_ns: Latency,
    clat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
    max: f64,
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, f64>,
}

/// Reads fio's JSON, whatever warnings stand before it.
///
/// # Errors
/// If it is not what fio 3 writes.
pub fn parse(text: &str) -> anyhow::Result<Report> {
    let start = text.find('{').context("fio wrote no JSON")?;
    let output: Output =
        serde_json::from_str(&text[start..]).context("fio's JSON is not as expected")?;
    let seconds = |job: &Job| {
        let ran_ms = job.read.runtime.max(job.write.runtime).max(0.0);
        if ran_ms > 0.0 {
            ran_ms
        } else {
            job.job_runtime
        }
    };
    Ok(Report {
        read: side(output.jobs.iter().map(|job| &job.read)),
        write: side(output.jobs.iter().map(|job| &job.write)),
        seconds: output.jobs.iter().map(seconds).fold(0.0, f64::max) / 1e3,
        error: output.jobs.iter().map(|job| job.error).max().unwrap_or(0),
    })
}

/// The sum over processes that ran at once; percentiles are means weighted by requests.
fn side<'a>(directions: impl Iterator<Item = &'a Direction>) -> Option<Side> {
    let busy: Vec<_> = directions.filter(|one| one.total_ios > 0).collect();
    let requests: u64 = busy.iter().map(|one| one.total_ios).sum();
    if requests == 0 {
        return None;
    }
    let weighted = |get: &dyn Fn(&Direction) -> f64| {
        let sum: f64 = busy.iter().map(|one| get(one) * one.total_ios as f64).sum();
        sum / requests as f64 / 1e3
    };
    let percentile =
        |name: &str| weighted(&|one| one.clat_ns.percentile.get(name).copied().unwrap_or(0.0));
    Some(Side {
        requests,
        kib_s: busy.iter().map(|one| one.bw).sum(),
        iops: busy.iter().map(|one| one.iops).sum(),
        mean_us: weighted(&|one| one.lat_ns.mean),
        p50_us: percentile("50.000000"),
        p95_us: percentile("95.000000"),
        p99_us: percentile("99.000000"),
        p99_9_us: percentile("99.900000"),
        max_us: busy.iter().map(|one| one.lat_ns.max).fold(0.0, f64::max) / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(ios: u64, bw: u64, p99: u64) -> String {
        format!(
            "{{\"total_ios\":{ios},\"bw\":{bw},\"iops\":{}.5,\"runtime\":2500,\
             \"lat_ns\":{{\"mean\":2000.0,\"max\":9000}},\
             \"clat_ns\":{{\"mean\":1900.0,\"max\":8000,\"percentile\":{{\"50.000000\":1000,\"99.000000\":{p99}}}}}}}",
            bw / 4
        )
    }

    fn job(read: &str, write: &str) -> String {
        format!("{{\"error\":0,\"job_runtime\":2501,\"read\":{read},\"write\":{write}}}")
    }

    #[test]
    fn processes_of_one_job_are_added_up() {
        let idle = direction(0, 0, 0);
        let text = format!(
            "fio: a warning\n{{\"fio version\":\"fio-3.33\",\"jobs\":[{},{}]}}",
            job(&direction(30, 400, 4000), &idle),
            job(&direction(10, 100, 8000), &idle)
        );
        let report = parse(&text).unwrap();
        let read = report.read.unwrap();
        assert_eq!(report.write, None);
        assert_eq!((read.requests, read.kib_s, read.iops), (40, 500.0, 126.0));
        assert_eq!((read.p50_us, read.p99_us, read.max_us), (1.0, 5.0, 9.0));
        assert_eq!((report.seconds, report.error), (2.5, 0));
    }

    #[test]
    fn what_is_not_fios_is_refused() {
        assert!(parse("fio: failed").is_err());
        assert!(parse("{\"jobs\": 3}").is_err());
    }
}
