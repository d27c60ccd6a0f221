//! Result of a run, as it is kept in JSON. `lab/README.md` describes the files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::device::{DeviceSpec, Traffic};
use crate::fio::{self, Side};
use crate::snapshot::{DeviceCounters, Snapshot};

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All that was to be done was done.
    Complete,
    /// Something went wrong; `failures` says what.
    Failed,
    /// The system is not to be had here; `failures` says why.
    Unsupported,
}

/// A run of a system in an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The experiment's name.
    pub experiment: String,
    /// The system's name.
    pub system: String,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Its end.
    pub outcome: Outcome,
    /// The failures, in words.
    pub failures: Vec<String>,
    /// Factor by which the guest's clock was slower than the host's (D).
    pub dilation: f64,
    /// `emulated`, `counted` or `kvm`.
    pub accelerator: String,
    /// The devices.
    pub devices: Vec<DeviceSpec>,
    /// Versions of the programs.
    pub versions: BTreeMap<String, String>,
    /// Host time, in seconds.
    pub wall_seconds: f64,
    /// Idle guest time that was skipped, in seconds.
    pub skipped_seconds: f64,
    /// The jobs, in order.
    pub jobs: Vec<Job>,
    /// Other figures by name: recovery time, blocks checked.
    pub values: BTreeMap<String, Vec<f64>>,
    /// Dirty data over time: seconds since boot and KiB.
    pub dirty: Vec<(f64, f64)>,
    /// Throughput over time, where it was sampled: seconds and KiB a second.
    pub throughput: Vec<(f64, f64)>,
    /// Transactions a second over time, of a database.
    #[serde(default)]
    pub transactions: Vec<(f64, f64)>,
    /// Each device's own count, over all lives.
    pub traffic: BTreeMap<String, Traffic>,
}

/// A fio job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, from 1.
    pub number: u32,
    /// Its name.
    pub label: String,
    /// Its reads.
    pub read: Option<Side>,
    /// Its writes.
    pub write: Option<Side>,
    /// Its duration, in seconds of the guest's.
    pub seconds: f64,
    /// When it began, in seconds since the guest's boot.
    pub began_seconds: f64,
    /// Load of the processors, from 0 to 1.
    pub cpu: f64,
    /// Traffic of each device for it.
    pub devices: BTreeMap<String, DeviceCounters>,
    /// Dirty data when it began, in KiB.
    pub dirty_before_kib: u64,
    /// Dirty data when it ended, in KiB.
    pub dirty_after_kib: u64,
    /// Metadata written, in KiB, by systems that count it.
    pub metadata_kib: Option<f64>,
    /// The system's own counters at its end.
    pub counters: BTreeMap<String, String>,
}

/// Reads all jobs that the guest left in a folder.
///
/// # Errors
/// If a file is missing or not as expected.
pub fn read_jobs(out: &Path) -> anyhow::Result<Vec<Job>> {
    let mut names: Vec<String> = std::fs::read_dir(out)
        .with_context(|| format!("the guest left no results in {}", out.display()))?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(".fio").map(str::to_owned)
        })
        .collect();
    names.sort();
    names.iter().map(|name| read_job(out, name)).collect()
}

fn read_job(out: &Path, name: &str) -> anyhow::Result<Job> {
    let read = |end: &str| {
        let path = out.join(format!("{name}.{end}"));
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let report = fio::parse(&read("fio")?).with_context(|| format!("job {name}"))?;
    let before = Snapshot::parse(&read("before")?);
    let after = Snapshot::parse(&read("after")?);
    let (number, label) = name.split_once('-').unwrap_or(("0", name));
    let devices = after.devices.iter().map(|(device, counters)| {
        let earlier = before.devices.get(device).copied().unwrap_or_default();
        (device.clone(), counters.since(earlier))
    });
    let busy = (after.cpu.0.saturating_sub(before.cpu.0)) as f64;
    let all = (after.cpu.1.saturating_sub(before.cpu.1)) as f64;
    let metadata = before.metadata_kib().zip(after.metadata_kib());
    Ok(Job {
        number: number.parse().unwrap_or(0),
        label: label.to_owned(),
        read: report.read,
        write: report.write,
        seconds: report.seconds,
        began_seconds: before.uptime,
        cpu: if all > 0.0 { busy / all } else { 0.0 },
        devices: devices.collect(),
        dirty_before_kib: before.dirty_kib,
        dirty_after_kib: after.dirty_kib,
        metadata_kib: metadata.map(|(before, after)| after - before),
        counters: after.counters,
    })
}

/// Reads figures over time, if the guest sampled them: seconds and a number on each line.
#[must_use]
pub fn read_series(out: &Path, name: &str) -> Vec<(f64, f64)> {
    let text = std::fs::read_to_string(out.join(name)).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (at, value) = line.split_once(' ')?;
            Some((at.parse().ok()?, value.trim().parse().ok()?))
        })
        .collect()
}

impl RunResult {
    /// Where it is kept.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.{}.json", self.system, self.repetition)
    }

    /// Keeps it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, directory: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(self.file_name());
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// All that were kept in a directory.
    ///
    /// # Errors
    /// If a file is not a result.
    pub fn load_all(directory: &Path) -> anyhow::Result<Vec<RunResult>> {
        let mut paths: Vec<_> = std::fs::read_dir(directory)
            .with_context(|| format!("there are no results in {}", directory.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| is_result(path))
            .collect();
        paths.sort();
        paths
            .iter()
            .map(|path| {
                let text = std::fs::read_to_string(path)?;
                serde_json::from_str(&text).with_context(|| {
                    format!(
                        "{} is not a result of this version of the lab; remove it",
                        path.display()
                    )
                })
            })
            .collect()
    }
}

fn is_result(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(stem) = name.strip_suffix(".json") else {
        return false;
    };
    stem.rsplit_once('.')
        .is_some_and(|(_, repetition)| repetition.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_files_are_results() {
        assert!(is_result(Path::new("/x/bcache-all.1.json")));
        assert!(!is_result(Path::new("/x/report.json")));
        assert!(!is_result(Path::new("/x/bcache.1.txt")));
    }
}
