//! Runs the simulation: ranges of seeds, for a time, or one seed with its trace.

use std::process::ExitCode;
use std::time::Duration;

use forebay_sim::{Options, Plan, Report, generate, run, search, shrink};

const USAGE: &str = "usage:
  forebay-sim run --seeds A..B [--all]     run seeds A to B; --all does not stop at the first failure
  forebay-sim soak --seconds N --seed A    run seeds from A on for N seconds
  forebay-sim replay SEED [--trace] [--keep 1,2,9] [--shrink]
                                           run one seed, or only these of its steps
  all with --plant NAME                    with a bug planted (feature `planted`; docs/MODEL.md)";

/// Interval at which a soak reports its progress.
const PROGRESS: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match execute(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn execute(arguments: &[String]) -> Result<bool, String> {
    let option = |name: &str| {
        arguments
            .iter()
            .position(|argument| argument == name)
            .and_then(|at| arguments.get(at + 1))
            .map(String::as_str)
    };
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("`{text}` is not a number"))
    };
    if let Some(name) = option("--plant") {
        plant(name)?;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    match arguments.first().map(String::as_str) {
        Some("run") => {
            let (first, last) = option("--seeds")
                .and_then(|range| range.split_once(".."))
                .ok_or("run needs --seeds A..B")?;
            let stop_after = if has("--all") { usize::MAX } else { 1 };
            let report = search(
                number(first)?,
                number(last)?,
                Duration::MAX,
                stop_after,
                has("--twice"),
                threads,
            );
            Ok(print(&report, has("--all")))
        }
        Some("soak") => {
            let seconds = number(option("--seconds").ok_or("soak needs --seconds N")?)?;
            let first = number(option("--seed").unwrap_or("1"))?;
            let report = soak(first, seconds, has("--all"), has("--twice"), threads);
            Ok(print(&report, has("--all")))
        }
        Some("replay") => {
            let seed = number(arguments.get(1).ok_or("replay needs a seed")?)?;
            replay(seed, option("--keep"), has("--trace"), has("--shrink"))
        }
        _ => Err("what shall be done?".to_owned()),
    }
}

#[cfg(feature = "planted")]
fn plant(name: &str) -> Result<(), String> {
    use forebay_engine::planted::{Bug, plant};
    let found = Bug::ALL.iter().find(|(_, _, known)| *known == name);
    let (bug, ..) = found.ok_or_else(|| format!("no bug is called `{name}`"))?;
    plant(Some(*bug));
    Ok(())
}

#[cfg(not(feature = "planted"))]
fn plant(_name: &str) -> Result<(), String> {
    Err("this program is built without the feature `planted`".to_owned())
}

/// Runs seeds for a time and says every few seconds how far it is, so that one who interrupts it
/// knows where to go on.
fn soak(first: u64, seconds: u64, all: bool, twice: bool, threads: usize) -> Report {
    let stop_after = if all { usize::MAX } else { 1 };
    let limit = Duration::from_secs(seconds);
    let mut total = Report::default();
    while total.elapsed < limit && (all || total.failures.is_empty()) {
        let next = first + total.seeds;
        let turn = PROGRESS.min(limit - total.elapsed);
        total.merge(search(next, u64::MAX, turn, stop_after, twice, threads));
        eprintln!(
            "{:>6.0} s  seeds {first} to {}, {} operations, violations {}",
            total.elapsed.as_secs_f64(),
            first + total.seeds - 1,
            total.operations,
            total.failures.len()
        );
    }
    total
}

fn print(report: &Report, all: bool) -> bool {
    let seconds = report.elapsed.as_secs_f64();
    println!(
        "{} seeds, {} operations, {:.0} operations a second, {seconds:.1} s",
        report.seeds,
        report.operations,
        report.operations as f64 / seconds
    );
    print!("{}", report.counts);
    println!("violations {}", report.failures.len());
    for (seed, violation) in &report.failures {
        println!("seed {seed}: step {}: {}", violation.step, violation.what);
    }
    if let Some((seed, _)) = report.failures.first()
        && !all
    {
        let small = shrink(&generate::plan(*seed), 2_000);
        show(&small, *seed, false);
    }
    report.failures.is_empty()
}

fn replay(seed: u64, keep: Option<&str>, trace: bool, small: bool) -> Result<bool, String> {
    let mut plan = generate::plan(seed);
    if let Some(keep) = keep {
        let kept: Result<Vec<u32>, _> = keep
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::parse)
            .collect();
        let kept = kept.map_err(|_| format!("`{keep}` is not a list of steps"))?;
        plan.steps.retain(|(name, _)| kept.contains(name));
    }
    if small {
        plan = shrink(&plan, 5_000);
    }
    Ok(show(&plan, seed, trace))
}

/// Runs a plan and says what came of it; ends in the command that does the same.
fn show(plan: &Plan, seed: u64, trace: bool) -> bool {
    let outcome = run(
        plan,
        Options {
            trace,
            ..Options::default()
        },
    );
    for line in &outcome.trace {
        println!("{line}");
    }
    let Some(violation) = outcome.violation else {
        println!(
            "seed {seed}: no violation, hash {:016x}, {} operations",
            outcome.hash, outcome.operations
        );
        return true;
    };
    println!("{:#?}", plan.config);
    for (name, step) in &plan.steps {
        println!("{name:>4} {step:?}");
    }
    println!("VIOLATION at step {}: {}", violation.step, violation.what);
    let kept: Vec<String> = plan
        .steps
        .iter()
        .map(|(name, _)| name.to_string())
        .collect();
    println!(
        "cargo run --release -p forebay-sim -- replay {seed} --trace --keep {}",
        kept.join(",")
    );
    false
}
