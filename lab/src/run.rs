//! A run of a system through an experiment: as many lives of the guest as there are power cuts, and
//! one more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::command::output;
use crate::cost::Costs;
use crate::event::Event;
use crate::experiments::{Experiment, Models};
use crate::guest::{Accelerator, Boot, Life, PowerCut, USUAL_ARGUMENTS, live};
use crate::lab::Lab;
use crate::name::Named as _;
use crate::page::blocks_for_the_lab;
use crate::prepare::Debian;
use crate::result::{Outcome, RunResult, read_jobs, read_series};
use crate::synced::WRITERS;
use crate::systems::System;

const WORDS: &str = include_str!("../guest/words.sh");
const RECIPES: &str = include_str!("../guest/recipes.sh");
const LIBRARY: &str = include_str!("../guest/library.sh");
const SYSTEMS: &str = include_str!("../guest/systems.sh");
/// For whoever runs it on devices of their own, with the files above.
const NVME: &str = include_str!("../../bench/nvme.sh");

/// The version that the manual's commands name is that of this source.
const MANUAL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Virtual processors of a guest.
pub const CPUS: usize = 2;
const MEMORY_MIB: u64 = 3072;
/// Starts of a guest that does not come up.
const BOOTS: u32 = 3;

/// Conditions of experiments.
#[derive(Debug)]
pub struct Conditions<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The forebay binary.
    pub forebay: &'a Path,
    /// Execution of guests.
    pub accelerator: Accelerator,
    /// The devices' timing.
    pub models: Models,
    /// Versions of the programs.
    pub versions: BTreeMap<String, String>,
    /// Where the devices' contents are kept while a guest runs.
    pub images: PathBuf,
    /// The database's files, where the experiment has one.
    pub database: Option<PathBuf>,
    /// The guest's Debian, where the experiment runs blocks of the manual.
    pub debian: Option<Debian>,
    /// Power cuts, if they are not those of the experiment.
    pub cuts: Option<u32>,
    /// Duration of timed jobs, if it is not that of the experiment.
    pub seconds_per_job: Option<f64>,
    /// Costs of the host's processor.
    pub costs: Costs,
    /// Set by Ctrl-C.
    pub interrupted: &'a AtomicBool,
}

/// The guest's messages.
#[derive(Debug, Default)]
struct Said {
    failures: Vec<String>,
    unsupported: bool,
    /// This life of the guest came as far as its own first process.
    up: bool,
    synced: Vec<u64>,
    values: BTreeMap<String, Vec<f64>>,
}

impl Said {
    fn hear(&mut self, event: Event, began: Instant) {
        let at = began.elapsed().as_secs();
        match event {
            Event::Up(_) => self.up = true,
            Event::Done(_) => {}
            Event::Ready(what) => println!("lab: {at:>4} s   {what}"),
            Event::Job { number, label } => println!("lab: {at:>4} s   job {number} {label}"),
            Event::Failed(what) => {
                println!("lab: {at:>4} s   failed: {what}");
                self.failures.push(what);
            }
            Event::Unsupported(why) => {
                println!("lab: {at:>4} s   not to be had: {why}");
                self.unsupported = true;
                self.failures.push(why);
            }
            Event::Synced { writer, number } => {
                if let Some(last) = self.synced.get_mut(writer) {
                    *last = number.max(*last);
                }
            }
            Event::Verified { checked, missing } => {
                println!("lab: {at:>4} s   {checked} synced blocks checked, {missing} missing");
                self.note("blocks_checked", checked as f64);
                self.note("blocks_missing", missing as f64);
                if missing > 0 {
                    let what = format!("{missing} of {checked} synced blocks are missing");
                    self.failures.push(what);
                }
            }
            Event::Value { name, value } => {
                println!("lab: {at:>4} s   {name} {value}");
                self.note(&name, value);
            }
        }
    }

    fn note(&mut self, name: &str, value: f64) {
        self.values.entry(name.to_owned()).or_default().push(value);
    }
}

/// Runs it, and keeps what it found.
///
/// # Errors
/// If the lab itself fails, or Ctrl-C is pressed. A guest that fails is a result.
pub fn run(
    conditions: &Conditions<'_>,
    experiment: &Experiment,
    system: &System,
    repetition: u32,
) -> anyhow::Result<RunResult> {
    let name = format!("{}-{}-{repetition}", experiment.name(), system.name());
    let share = conditions.lab.run(&name);
    remake(&share)?;
    if experiment.installs_package() {
        build_packages(conditions.forebay, &share)?;
    }
    if let Some(database) = &conditions.database {
        std::fs::hard_link(database, share.join("database.img"))
            .with_context(|| format!("cannot link {}", database.display()))?;
    }
    if experiment.follows_manual() {
        put_blocks(experiment, &share)?;
        let script = if experiment.unpacks_tarball() {
            "packaging/build-dist.sh"
        } else {
            "packaging/build-deb.sh"
        };
        package(
            script,
            conditions.forebay,
            &share.join("package"),
            MANUAL_VERSION,
        )?;
    }
    let images = conditions.images.join(&name);
    remake(&images)?;
    let began = Instant::now();
    let outcome = lives(conditions, experiment, system, &share, &images, repetition);
    std::fs::remove_dir_all(&images)
        .with_context(|| format!("cannot remove {}", images.display()))?;
    let (mut said, lives) = outcome?;
    if said.failures.is_empty() {
        said.failures
            .extend(blocks_not_run(experiment, &said.values));
    }
    for (name, nanos) in conditions.costs.named() {
        said.note(&format!("host_{name}_ns"), nanos);
    }
    let mut result = RunResult {
        experiment: experiment.name().to_owned(),
        system: system.name().to_owned(),
        repetition,
        outcome: match (said.unsupported, said.failures.is_empty()) {
            (true, _) => Outcome::Unsupported,
            (false, true) => Outcome::Complete,
            (false, false) => Outcome::Failed,
        },
        failures: said.failures,
        dilation: conditions.accelerator.dilation(),
        accelerator: match conditions.accelerator {
            Accelerator::Emulated { .. } => "emulated".to_owned(),
            Accelerator::Counted => "counted".to_owned(),
            Accelerator::Kvm => "kvm".to_owned(),
        },
        devices: experiment.devices(system.name(), &conditions.models),
        versions: conditions.versions.clone(),
        wall_seconds: began.elapsed().as_secs_f64(),
        skipped_seconds: lives.iter().map(|life| life.skipped.1 as f64 / 1e9).sum(),
        jobs: Vec::new(),
        values: said.values,
        dirty: read_series(&share.join("out"), "dirty"),
        throughput: read_series(&share.join("out"), "throughput"),
        transactions: read_series(&share.join("out"), "transactions"),
        traffic: BTreeMap::new(),
    };
    for (device, traffic) in lives.iter().flat_map(|life| &life.traffic) {
        let all = result.traffic.entry(device.clone()).or_default();
        all.add(traffic);
        let late = format!("{device}_late_ns");
        result.values.insert(late, vec![all.mean_late_ns()]);
    }
    if result.outcome != Outcome::Unsupported && share.join("out").exists() {
        match read_jobs(&share.join("out")) {
            Ok(jobs) => result.jobs = jobs,
            Err(error) => {
                result.outcome = Outcome::Failed;
                result.failures.push(format!("{error:#}"));
            }
        }
    }
    result.save(&conditions.lab.results(experiment.name()))?;
    Ok(result)
}

fn lives(
    conditions: &Conditions<'_>,
    experiment: &Experiment,
    system: &System,
    share: &Path,
    images: &Path,
    repetition: u32,
) -> anyhow::Result<(Said, Vec<Life>)> {
    let devices = experiment.devices(system.name(), &conditions.models);
    let began = Instant::now();
    let mut said = Said {
        synced: vec![0; WRITERS],
        ..Said::default()
    };
    let mut lives = Vec::new();
    let cuts = match experiment.cuts {
        0 => 0,
        usual => conditions.cuts.unwrap_or(usual),
    };
    let last = (cuts + 1).max(experiment.lives);
    for number in 1..=last {
        if cuts > 0 && number > 1 {
            println!(
                "lab: {:>4} s   power cut {}",
                began.elapsed().as_secs(),
                number - 1
            );
        }
        let seconds = conditions
            .seconds_per_job
            .unwrap_or(experiment.seconds_per_job);
        let milliseconds = (seconds * 1e3) as u64;
        let synced: Vec<String> = said.synced.iter().map(u64::to_string).collect();
        let settings = format!(
            "SYSTEM={}\nLIFE={number}\nLAST_LIFE={}\nMILLISECONDS={milliseconds}\nSYNCED=\"{}\"\n",
            system.name(),
            last,
            synced.join(" ")
        );
        let libraries = if experiment.follows_manual() {
            ". /lab/recipes.sh\n"
        } else {
            ". /lab/library.sh\n. /lab/systems.sh\n"
        };
        let script = format!("{libraries}{}", experiment.script);
        for (file, text) in [
            ("settings.sh", settings.as_str()),
            ("words.sh", WORDS),
            ("recipes.sh", RECIPES),
            ("library.sh", LIBRARY),
            ("systems.sh", SYSTEMS),
            ("nvme.sh", NVME),
            ("run.sh", &script),
        ] {
            let path = share.join(file);
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let (initrd, arguments) = what_to_boot(conditions, share)?;
        let boot = Boot {
            lab: conditions.lab,
            initrd,
            arguments,
            system: conditions
                .debian
                .as_ref()
                .map(|debian| debian.image.as_path()),
            share,
            images,
            devices: &devices,
            accelerator: conditions.accelerator,
            cpus: match conditions.accelerator {
                // With more a thread that waits for another counts, too.
                Accelerator::Counted => 1,
                Accelerator::Emulated { .. } | Accelerator::Kvm => CPUS,
            },
            memory_mib: MEMORY_MIB,
            limit: Duration::from_secs(experiment.limit_seconds),
            interrupted: conditions.interrupted,
        };
        let seed = u64::from(repetition) << 32 | u64::from(number);
        let cut = (number <= cuts).then(|| PowerCut {
            after: Duration::from_millis(3000 + seed.wrapping_mul(0x9E37_79B9) % 3000),
            seed,
        });
        match booted(&boot, cut, &mut said, began) {
            Ok(life) => lives.push(life),
            Err(error) if conditions.interrupted.load(Ordering::Relaxed) => {
                return Err(error);
            }
            Err(error) => {
                let what = format!("{error:#}");
                println!("lab: {:>4} s   failed: {what}", began.elapsed().as_secs());
                said.failures.push(what);
                break;
            }
        }
        if said.unsupported || !said.failures.is_empty() {
            break;
        }
    }
    Ok((said, lives))
}

/// The lab's first file system, with arguments for the kernel, or what the guest left in its
/// `boot` to go on with.
fn what_to_boot(conditions: &Conditions<'_>, share: &Path) -> anyhow::Result<(PathBuf, String)> {
    let own = share.join("boot");
    let initrd = own.join("initrd");
    if initrd.exists() {
        let path = own.join("arguments");
        let arguments = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        return Ok((initrd, arguments.trim().to_owned()));
    }
    Ok(match &conditions.debian {
        Some(debian) => (debian.initrd.clone(), Debian::ARGUMENTS.to_owned()),
        None => (conditions.lab.image(), USUAL_ARGUMENTS.to_owned()),
    })
}

/// The package of the binary, as of two versions: the later is an upgrade of the earlier.
fn build_packages(forebay: &Path, share: &Path) -> anyhow::Result<()> {
    for (version, directory) in [("1.0", "old"), ("1.1", "new")] {
        package(
            "packaging/build-deb.sh",
            forebay,
            &share.join(directory),
            version,
        )?;
    }
    Ok(())
}

fn package(script: &str, forebay: &Path, directory: &Path, version: &str) -> anyhow::Result<()> {
    output(
        Command::new(script)
            .arg(forebay)
            .arg(directory)
            .arg(version)
            .env("COMPRESSION", "gzip"),
    )
    .context("cannot build the package; run this from the top of the source tree")?;
    Ok(())
}

/// Where the guest finds a block's text.
fn block_file(share: &Path, page: &str, number: usize) -> PathBuf {
    share.join("blocks").join(page).join(number.to_string())
}

/// Takes the text of the blocks out of the manual's pages.
fn put_blocks(experiment: &Experiment, share: &Path) -> anyhow::Result<()> {
    for (page, number) in experiment.blocks() {
        let blocks = blocks_for_the_lab(&Path::new("manual/src").join(page))
            .context("run this from the top of the source tree")?;
        let block = blocks.get(number - 1).with_context(|| {
            format!(
                "{page} has {} blocks for the lab, and not {number}",
                blocks.len()
            )
        })?;
        let path = block_file(share, page, number);
        std::fs::create_dir_all(path.parent().unwrap_or(share))?;
        std::fs::write(&path, block.text())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Complaints of blocks that the guest never came to.
fn blocks_not_run(experiment: &Experiment, values: &BTreeMap<String, Vec<f64>>) -> Vec<String> {
    let missing =
        |(page, number): &(&str, usize)| !values.contains_key(&format!("{page}_{number}"));
    experiment
        .blocks()
        .filter(missing)
        .map(|(page, number)| format!("block {number} of {page} was not run"))
        .collect()
}

/// A life. A guest that dies before its first process has started has done nothing yet, and is
/// started again. QEMU now and then runs a breakpoint that the kernel, which patches itself at
/// boot, has already left (multi-threaded emulation; `Oops: int3` on the console).
fn booted(
    boot: &Boot<'_>,
    cut: Option<PowerCut>,
    said: &mut Said,
    began: Instant,
) -> anyhow::Result<Life> {
    for _ in 1..BOOTS {
        said.up = false;
        match live(boot, cut, |event| said.hear(event, began)) {
            Err(error) if !said.up && !boot.interrupted.load(Ordering::Relaxed) => {
                let at = began.elapsed().as_secs();
                println!("lab: {at:>4} s   it did not boot and is started again: {error:#}");
            }
            ended => return ended,
        }
    }
    live(boot, cut, |event| said.hear(event, began))
}

fn remake(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::EXPERIMENTS;

    #[test]
    fn a_block_that_was_not_run_is_named() {
        for experiment in EXPERIMENTS.iter().filter(|one| one.follows_manual()) {
            let all = blocks_not_run(experiment, &BTreeMap::new());
            assert_eq!(all.len(), experiment.blocks().count());
            let run = experiment.blocks();
            let values = run.map(|(page, number)| (format!("{page}_{number}"), vec![1.0]));
            assert!(blocks_not_run(experiment, &values.collect()).is_empty());
        }
    }
}
