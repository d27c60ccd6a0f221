//! The program behind `make lab`: runs experiments, in guests, and reports on them.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use forebay_lab::cost::Costs;
use forebay_lab::count::{CountArgs, count};
use forebay_lab::experiments::{self, EXPERIMENTS, Models};
use forebay_lab::guest::Accelerator;
use forebay_lab::lab::{Lab, Series};
use forebay_lab::name::{Named, choose};
use forebay_lab::run::{self, Conditions};
use forebay_lab::systems::{self, SYSTEMS};
use forebay_lab::{kvm, leftovers, prepare, report, result, synced};

/// Forebay beside the kernel's caches: a virtual machine, devices with the timing of real ones.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install and build what guests need; does nothing the second time.
    Prepare(LabArgs),
    /// Run an experiment on some systems; prepares first.
    Run(RunArgs),
    /// Write an experiment's report again from the results that are there.
    Report(ReportArgs),
    /// Say which experiments and systems there are.
    List,
    /// In the guest: say what its processor takes for what.
    #[command(hide = true)]
    Cost,
    /// In the guest: count the instructions of requests.
    #[command(hide = true)]
    Count(CountArgs),
    /// In the guest: write and sync, or check what was synced.
    #[command(hide = true, subcommand)]
    Synced(SyncedCommand),
}

#[derive(Debug, clap::Args)]
struct LabArgs {
    /// Where downloads, images and results are kept [default: target/lab].
    #[arg(long, env = "FOREBAY_LAB_DIR", value_name = "DIR")]
    lab: Option<PathBuf>,
    /// The series of the guest's kernel; what belongs to 7.3 is kept in linux-7.3 below that directory.
    #[arg(long, value_name = "SERIES", default_value = "6.12")]
    kernel: Series,
}

impl LabArgs {
    fn open(&self) -> anyhow::Result<Lab> {
        Lab::open(self.lab.as_deref(), self.kernel)
    }
}

#[derive(Debug, clap::Args)]
struct ReportArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// The experiment.
    experiment: String,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// Which experiment; several with commas, `all`, or `recipes` for those of the manual.
    #[arg(default_value = "smoke")]
    experiment: String,
    /// Which systems, with commas [default: those the experiment is about].
    #[arg(long, value_name = "SYSTEM,…")]
    systems: Option<String>,
    /// Runs of each; medians and spreads are over these.
    #[arg(long, value_name = "N", default_value = "1")]
    repetitions: u32,
    /// Factor by which the guest's clock is slower than the host's (D), when emulated.
    #[arg(long, value_name = "D", default_value = "8")]
    dilate: f64,
    /// Emulate the processor even where KVM works.
    #[arg(long)]
    emulate: bool,
    /// Wait through idle time instead of skipping it.
    #[arg(long)]
    no_skip: bool,
    /// Power cuts, in experiments that cut the power.
    #[arg(long, value_name = "N")]
    cuts: Option<u32>,
    /// Duration of timed jobs, in seconds of the guest's.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// The disk's timing model.
    #[arg(long, value_name = "MODEL", default_value = "hdd")]
    disk: String,
    /// The SSD's timing model.
    #[arg(long, value_name = "MODEL", default_value = "ssd")]
    ssd: String,
    /// The forebay binary.
    #[arg(
        long,
        env = "FOREBAY",
        value_name = "FILE",
        default_value = "target/release/forebay"
    )]
    forebay: PathBuf,
    /// Where the devices' contents are kept: memory, or the disk would be in the way.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    images: PathBuf,
}

#[derive(Debug, Subcommand)]
enum SyncedCommand {
    /// Write and sync until the power goes.
    Write {
        /// The device.
        device: PathBuf,
        /// Progress of each writer in earlier lives.
        already: Vec<u64>,
    },
    /// Check that nothing that was synced is missing.
    Check {
        /// The device.
        device: PathBuf,
        /// Progress of each writer.
        synced: Vec<u64>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Command::Prepare(args) => prepare_only(args),
        Command::Run(args) => run_all(args),
        Command::Report(args) => report_only(args),
        Command::List => {
            list("experiments", EXPERIMENTS);
            list("systems", SYSTEMS);
            Ok(true)
        }
        Command::Cost => say_costs(),
        Command::Count(args) => say_count(args),
        Command::Synced(SyncedCommand::Write { device, already }) => {
            synced::write(device, already).map(|()| true)
        }
        Command::Synced(SyncedCommand::Check { device, synced }) => {
            synced::check(device, synced).map(|()| true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As the lab's events, for what the guest says.
fn say_costs() -> anyhow::Result<bool> {
    for (name, nanos) in Costs::measure()?.named() {
        println!("@lab value guest_{name}_ns {nanos:.0}");
    }
    Ok(true)
}

fn say_count(args: &CountArgs) -> anyhow::Result<bool> {
    println!("@lab value {} {:.0}", args.name(), count(args)?);
    Ok(true)
}

fn list<T: Named>(what: &str, all: &[T]) {
    println!("{what}:");
    for one in all {
        println!("  {:16} {}", one.name(), one.summary());
    }
}

fn prepare_only(args: &LabArgs) -> anyhow::Result<bool> {
    let lab = args.open()?;
    let versions = prepare::prepare(&lab)?;
    println!("lab: ready, with kernel {}", versions["kernel"]);
    Ok(true)
}

fn report_only(args: &ReportArgs) -> anyhow::Result<bool> {
    let lab = args.lab.open()?;
    for experiment in choose("experiment", &args.experiment, EXPERIMENTS)? {
        let page = report::write(experiment, &lab.results(experiment.name()))?;
        println!("lab: the report is {}", page.display());
    }
    Ok(true)
}

/// Parts that all experiments of a run share.
struct Prepared {
    lab: Lab,
    versions: BTreeMap<String, String>,
    accelerator: Accelerator,
    costs: Costs,
    interrupted: Arc<AtomicBool>,
}

/// Runs the experiments in turn. Returns whether everything went well.
fn run_all(args: &RunArgs) -> anyhow::Result<bool> {
    let chosen = choose_all(args)?;
    let prepared = prepare_run(args)?;
    let mut all_well = true;
    for (experiment, systems) in chosen {
        all_well &= run_one(args, &prepared, experiment, &systems)?;
    }
    Ok(all_well)
}

/// The experiments, each with its systems: a wrong name is said before hours are spent.
fn choose_all(
    args: &RunArgs,
) -> anyhow::Result<
    Vec<(
        &'static experiments::Experiment,
        Vec<&'static systems::System>,
    )>,
> {
    let experiments = match args.experiment.as_str() {
        "all" => EXPERIMENTS.iter().collect(),
        experiments::RECIPES => EXPERIMENTS
            .iter()
            .filter(|experiment| experiment.follows_manual())
            .collect(),
        names => choose("experiment", names, EXPERIMENTS)?,
    };
    let wanted = args
        .systems
        .as_deref()
        .filter(|systems| !systems.is_empty());
    experiments
        .into_iter()
        .map(|experiment| {
            let systems = choose("system", wanted.unwrap_or(experiment.systems), SYSTEMS)?;
            Ok((experiment, systems))
        })
        .collect()
}

fn prepare_run(args: &RunArgs) -> anyhow::Result<Prepared> {
    for model in [&args.disk, &args.ssd] {
        forebay_model::ModelOptions::parse(model)?;
    }
    anyhow::ensure!(
        args.dilate.is_finite() && args.dilate >= 1.0,
        "--dilate {} would make the guest's clock faster than the host's; use 1 or more",
        args.dilate
    );
    let lab = args.lab.open()?;
    leftovers::remove(&args.images)?;
    let mut versions = prepare::prepare(&lab)?;
    versions.insert(
        "forebay".to_owned(),
        prepare::forebay_version(&args.forebay),
    );
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot watch for Ctrl-C")?;
    }
    let accelerator = if !args.emulate && kvm::works(&lab, &interrupted)? {
        Accelerator::Kvm
    } else {
        Accelerator::Emulated {
            dilation: args.dilate,
            skip_idle: !args.no_skip,
        }
    };
    Ok(Prepared {
        lab,
        versions,
        accelerator,
        costs: Costs::measure()?,
        interrupted,
    })
}

fn run_one(
    args: &RunArgs,
    prepared: &Prepared,
    experiment: &experiments::Experiment,
    systems: &[&systems::System],
) -> anyhow::Result<bool> {
    let lab = &prepared.lab;
    let mut tools = Vec::new();
    if experiment.exercises_files() {
        tools.push(prepare::install_fsx(lab)?);
    }
    let database = if experiment.runs_database() {
        Some(prepare::make_database(lab)?)
    } else {
        None
    };
    let debian = if experiment.follows_manual() {
        Some(prepare::make_debian(lab)?)
    } else {
        prepare::add_binaries(lab, &args.forebay, &tools, experiment)?;
        None
    };
    let conditions = Conditions {
        lab,
        forebay: &args.forebay,
        accelerator: if experiment.counts_instructions {
            Accelerator::Counted
        } else {
            prepared.accelerator
        },
        models: Models {
            disk: args.disk.clone(),
            ssd: args.ssd.clone(),
        },
        versions: prepared.versions.clone(),
        images: args.images.join(leftovers::own_name()),
        database,
        debian,
        cuts: args.cuts,
        seconds_per_job: args.seconds,
        costs: prepared.costs,
        interrupted: &prepared.interrupted,
    };
    let outcome = run_each(&conditions, experiment, systems, args.repetitions);
    if conditions.images.exists() {
        std::fs::remove_dir_all(&conditions.images)
            .with_context(|| format!("cannot remove {}", conditions.images.display()))?;
    }
    outcome
}

fn run_each(
    conditions: &Conditions<'_>,
    experiment: &experiments::Experiment,
    systems: &[&systems::System],
    repetitions: u32,
) -> anyhow::Result<bool> {
    let total = systems.len() as u32 * repetitions;
    let mut number = 0;
    let mut all_well = true;
    for repetition in 1..=repetitions {
        for system in systems {
            number += 1;
            println!(
                "lab: {number} of {total}: {} on {}",
                experiment.name(),
                system.name()
            );
            let result = run::run(conditions, experiment, system, repetition)?;
            all_well &= result.outcome != result::Outcome::Failed;
            println!("lab: {:>4.0} s   {:?}", result.wall_seconds, result.outcome);
        }
    }
    let page = report::write(experiment, &conditions.lab.results(experiment.name()))?;
    println!("lab: the report is {}", page.display());
    Ok(all_well)
}
