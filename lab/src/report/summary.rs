//! All runs of an experiment put together: a cell for each system and job.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::device::DeviceSpec;
use crate::experiments::Experiment;
use crate::fio::Side;
use crate::name::Named as _;
use crate::result::{Job, Outcome, RunResult};
use crate::run::CPUS;
use crate::statistics::Spread;
use crate::systems::SYSTEMS;

/// An experiment's outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Its name.
    pub experiment: String,
    /// Its description.
    pub about: String,
    /// Factors by which the guests' clocks were slower than the host's (D), each that occurs.
    pub dilations: Vec<f64>,
    /// `emulated` or `kvm`, each that occurs.
    pub accelerators: Vec<String>,
    /// Devices as most systems had them.
    pub devices: Vec<DeviceSpec>,
    /// Versions of the programs.
    pub versions: BTreeMap<String, String>,
    /// The systems, in the order of the lab's list.
    pub systems: Vec<SystemSummary>,
    /// The jobs, a row for reads and one for writes; cells are in the order of the systems.
    pub rows: Vec<Row>,
}

/// A system in all its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemSummary {
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// Complete runs.
    pub complete: u32,
    /// Incomplete runs.
    pub failed: u32,
    /// Why it could not be had, if so.
    pub unsupported: Option<String>,
    /// The failures, in words.
    pub failures: Vec<String>,
    /// Other figures by name.
    pub values: BTreeMap<String, Spread>,
    /// Dirty data over time in the first run: seconds and MiB.
    pub dirty: Vec<(f64, f64)>,
    /// Throughput over time in the first run, where it was sampled: seconds and MiB a second.
    pub throughput: Vec<(f64, f64)>,
    /// Transactions a second over time.
    pub transactions: Vec<(f64, f64)>,
    /// Host time of a run, in seconds.
    pub wall_seconds: Option<Spread>,
}

/// A direction of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The job's number.
    pub number: u32,
    /// Its name.
    pub label: String,
    /// Whether these are its writes.
    pub write: bool,
    /// A cell for each system that did it.
    pub cells: Vec<Option<Cell>>,
}

/// Results of a system in one direction of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Over how many runs.
    pub runs: usize,
    /// KiB a second.
    pub kib_s: Spread,
    /// Requests a second.
    pub iops: Spread,
    /// Throughput as a multiple of the bare disk's.
    pub of_disk: Option<f64>,
    /// Throughput as a multiple of the bare SSD's.
    pub of_ssd: Option<f64>,
    /// Medians over runs of latencies, in microseconds: 50th, 95th, 99th, 99.9th percentile.
    pub latency_us: [f64; 4],
    /// MiB read from and written to the SSD during the job, both directions together.
    pub ssd_mib: [f64; 2],
    /// MiB read from and written to all disks during the job, both directions together.
    pub disk_mib: [f64; 2],
    /// Dirty data when it ended, in MiB.
    pub dirty_mib: f64,
    /// Metadata written as a share of what was written to the SSD, if the system counts it.
    pub metadata_share: Option<f64>,
    /// Load of the guest's processors, from 0 to 1.
    pub cpu: f64,
    /// Their time for each request of the job, in microseconds, both directions together.
    pub cpu_us: f64,
}

impl Summary {
    /// Puts runs together.
    #[must_use]
    pub fn of(experiment: &Experiment, results: &[RunResult]) -> Summary {
        let names: Vec<&str> = SYSTEMS
            .iter()
            .map(|system| system.name())
            .filter(|name| results.iter().any(|result| result.system == *name))
            .collect();
        let mut rows = rows(results, &names);
        add_ratios(&mut rows, &names);
        let usual = results
            .iter()
            .find(|result| result.system != "ssd")
            .or(results.first());
        let mut dilations: Vec<f64> = results.iter().map(|result| result.dilation).collect();
        dilations.sort_by(f64::total_cmp);
        dilations.dedup();
        let accelerators: BTreeSet<_> = results.iter().map(|r| r.accelerator.clone()).collect();
        Summary {
            experiment: experiment.name().to_owned(),
            about: experiment.summary().to_owned(),
            dilations,
            accelerators: accelerators.into_iter().collect(),
            devices: usual
                .map(|result| result.devices.clone())
                .unwrap_or_default(),
            versions: results.iter().flat_map(|r| r.versions.clone()).collect(),
            systems: names.iter().map(|name| system(name, results)).collect(),
            rows,
        }
    }

    /// The systems' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.systems.iter().map(|system| system.name.as_str())
    }

    /// Each name of a figure that any system has.
    pub(super) fn value_names(&self) -> BTreeSet<&str> {
        let names = self.systems.iter().flat_map(|system| system.values.keys());
        names.map(String::as_str).collect()
    }
}

fn system(name: &str, results: &[RunResult]) -> SystemSummary {
    let own: Vec<_> = results.iter().filter(|one| one.system == name).collect();
    let about = SYSTEMS.iter().find(|system| system.name() == name);
    let count = |outcome: Outcome| own.iter().filter(|one| one.outcome == outcome).count() as u32;
    let unsupported = own
        .iter()
        .find(|one| one.outcome == Outcome::Unsupported)
        .map(|one| one.failures.join("; "));
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, values) in own.iter().flat_map(|one| &one.values) {
        figures.entry(name).or_default().extend(values);
    }
    let failed = own.iter().filter(|one| one.outcome == Outcome::Failed);
    SystemSummary {
        name: name.to_owned(),
        about: about.map_or(String::new(), |system| system.summary().to_owned()),
        complete: count(Outcome::Complete),
        failed: count(Outcome::Failed),
        unsupported,
        failures: failed.flat_map(|one| one.failures.clone()).collect(),
        values: figures
            .into_iter()
            .filter_map(|(name, values)| Some((name.to_owned(), Spread::of(values)?)))
            .collect(),
        dirty: own.first().map(|one| dirty(one)).unwrap_or_default(),
        throughput: own
            .first()
            .map_or(Vec::new(), |one| in_mib(&one.throughput)),
        transactions: own
            .first()
            .map_or(Vec::new(), |one| one.transactions.clone()),
        wall_seconds: Spread::of(own.iter().map(|one| one.wall_seconds)),
    }
}

/// As sampled over time, or else as it was at the end of each job.
fn dirty(result: &RunResult) -> Vec<(f64, f64)> {
    let points: Vec<_> = if result.dirty.is_empty() {
        let at_end = |job: &Job| (job.began_seconds + job.seconds, job.dirty_after_kib as f64);
        result.jobs.iter().map(at_end).collect()
    } else {
        result.dirty.clone()
    };
    in_mib(&points)
}

fn in_mib(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().map(|(at, kib)| (*at, kib / 1024.0)).collect()
}

fn rows(results: &[RunResult], names: &[&str]) -> Vec<Row> {
    let mut jobs: BTreeMap<(u32, &str, bool), ()> = BTreeMap::new();
    for job in results.iter().flat_map(|result| &result.jobs) {
        for (side, write) in [(&job.read, false), (&job.write, true)] {
            if side.is_some() {
                jobs.insert((job.number, &job.label, write), ());
            }
        }
    }
    jobs.into_keys()
        .map(|(number, label, write)| {
            let cell = |name: &&str| {
                let own = results.iter().filter(|result| result.system == **name);
                let jobs = own
                    .flat_map(|result| &result.jobs)
                    .filter(|job| job.number == number && job.label == label);
                cell(&jobs.collect::<Vec<_>>(), write)
            };
            Row {
                number,
                label: label.to_owned(),
                write,
                cells: names.iter().map(cell).collect(),
            }
        })
        .collect()
}

fn cell(jobs: &[&Job], write: bool) -> Option<Cell> {
    let side = |job: &Job| if write { job.write } else { job.read };
    let sides: Vec<Side> = jobs.iter().filter_map(|job| side(job)).collect();
    let median = |figures: Vec<f64>| Spread::of(figures).map_or(0.0, |spread| spread.median);
    let of_sides = |get: fn(&Side) -> f64| median(sides.iter().map(get).collect());
    let devices = |kind: &str, get: fn(&crate::snapshot::DeviceCounters) -> u64| {
        let sum = |job: &&Job| {
            let own = job
                .devices
                .iter()
                .filter(|(name, _)| name.starts_with(kind));
            own.map(|(_, counters)| get(counters)).sum::<u64>() as f64 / 1024.0
        };
        median(jobs.iter().map(sum).collect())
    };
    let ssd_written = devices("ssd", |counters| counters.written_kib);
    let metadata: Vec<f64> = jobs.iter().filter_map(|job| job.metadata_kib).collect();
    let metadata = Spread::of(metadata).filter(|_| ssd_written > 1.0);
    Some(Cell {
        runs: sides.len(),
        kib_s: Spread::of(sides.iter().map(|side| side.kib_s))?,
        iops: Spread::of(sides.iter().map(|side| side.iops))?,
        of_disk: None,
        of_ssd: None,
        latency_us: [
            of_sides(|side| side.p50_us),
            of_sides(|side| side.p95_us),
            of_sides(|side| side.p99_us),
            of_sides(|side| side.p99_9_us),
        ],
        ssd_mib: [devices("ssd", |counters| counters.read_kib), ssd_written],
        disk_mib: [
            devices("hdd", |counters| counters.read_kib),
            devices("hdd", |counters| counters.written_kib),
        ],
        dirty_mib: median(
            jobs.iter()
                .map(|j| j.dirty_after_kib as f64 / 1024.0)
                .collect(),
        ),
        metadata_share: metadata.map(|kib| kib.median / 1024.0 / ssd_written),
        cpu: median(jobs.iter().map(|job| job.cpu).collect()),
        cpu_us: median(jobs.iter().map(|job| cpu_us(job)).collect()),
    })
}

fn cpu_us(job: &Job) -> f64 {
    let requests: u64 = [job.read, job.write]
        .iter()
        .flatten()
        .map(|s| s.requests)
        .sum();
    job.cpu * CPUS as f64 * job.seconds * 1e6 / requests.max(1) as f64
}

fn add_ratios(rows: &mut [Row], names: &[&str]) {
    let index = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (disk, ssd) = (index("hdd"), index("ssd"));
    for row in rows {
        let bare = |at: Option<usize>| {
            let cell = row.cells[at?].as_ref()?;
            Some(cell.kib_s.median).filter(|median| *median > 0.0)
        };
        let (disk, ssd) = (bare(disk), bare(ssd));
        for cell in row.cells.iter_mut().flatten() {
            cell.of_disk = disk.map(|bare| cell.kib_s.median / bare);
            cell.of_ssd = ssd.map(|bare| cell.kib_s.median / bare);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::snapshot::DeviceCounters;

    fn result(system: &str, repetition: u32, kib_s: f64) -> RunResult {
        let read = Side {
            requests: 10,
            kib_s,
            iops: kib_s / 4.0,
            p99_us: 900.0,
            ..Side::default()
        };
        let ssd = DeviceCounters {
            written_kib: 2048,
            ..DeviceCounters::default()
        };
        let job = Job {
            number: 1,
            label: "read-1".to_owned(),
            read: Some(read),
            seconds: 2.0,
            devices: BTreeMap::from([("ssd".to_owned(), ssd)]),
            dirty_after_kib: 1024,
            metadata_kib: Some(20.48),
            ..Job::default()
        };
        RunResult {
            experiment: "jobs22".to_owned(),
            system: system.to_owned(),
            repetition,
            outcome: Outcome::Complete,
            failures: Vec::new(),
            dilation: 8.0,
            accelerator: "emulated".to_owned(),
            devices: Vec::new(),
            versions: BTreeMap::from([("kernel".to_owned(), "6.12 <&>".to_owned())]),
            wall_seconds: 100.0,
            skipped_seconds: 1.0,
            jobs: vec![job],
            values: BTreeMap::from([("recovery_seconds".to_owned(), vec![1.5])]),
            dirty: Vec::new(),
            throughput: Vec::new(),
            transactions: Vec::new(),
            traffic: BTreeMap::new(),
        }
    }

    pub(in crate::report) fn example() -> Summary {
        let results = [
            result("bcache", 1, 300.0),
            result("bcache", 2, 500.0),
            result("hdd", 1, 100.0),
            result("ssd", 1, 800.0),
        ];
        Summary::of(&EXPERIMENTS[1], &results)
    }

    #[test]
    fn systems_stand_in_the_labs_order_with_ratios_to_the_bare_devices() {
        let summary = example();
        assert_eq!(
            summary.names().collect::<Vec<_>>(),
            ["hdd", "ssd", "bcache"]
        );
        let bcache = summary.rows[0].cells[2].as_ref().unwrap();
        assert_eq!((bcache.runs, bcache.kib_s.median), (2, 400.0));
        assert_eq!((bcache.of_disk, bcache.of_ssd), (Some(4.0), Some(0.5)));
        assert_eq!(bcache.metadata_share, Some(0.01));
        assert_eq!(summary.systems[2].dirty, [(2.0, 1.0)]);
    }
}
