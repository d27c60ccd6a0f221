//! Random runs: at least 2,000 seeds, or as many as fit in five minutes. Each runs twice and must
//! do the same; every rare state must have been reached.

use std::time::Duration;

use forebay_sim::{Report, generate, search, shrink};

const SEEDS: u64 = 2_000;
const LIMIT: Duration = Duration::from_secs(300);

/// States that a run of this many seeds reaches; if one is not, the search has become blind.
const STATES: [&str; 49] = [
    "abandoned",
    "became clean",
    "engine lives",
    "blocks evicted",
    "blocks hit",
    "blocks missed",
    "blocks promoted",
    "blocks retained",
    "blocks written back",
    "busy",
    "cache device gone",
    "cache flushes",
    "cache-failed",
    "cache read errors",
    "cache write errors",
    "checksum errors",
    "congested",
    "creation cut short",
    "daemon kills",
    "damage accepted",
    "damage reported",
    "detach cut short",
    "detached",
    "dirty-limit",
    "failed requests",
    "fast writes requeued",
    "leftover of another cache",
    "memory refused",
    "no-memory",
    "mode",
    "admission",
    "no-room",
    "origin flushes",
    "origin read errors",
    "origin write errors",
    "power cuts",
    "promotions overtaken",
    "recovery cut short",
    "recovery cut short 3 times or more",
    "recovery cut short twice",
    "rot in data",
    "rot in metadata",
    "segments reclaimed",
    "segments renewed",
    "sequential",
    "throttled requests",
    "unflushed",
    "unreadable dirty blocks carried on",
    "write-budget",
];

#[test]
fn random_runs_keep_every_promise() {
    let first = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let report = keeps_every_promise(first);
    assert_reached(&report, &STATES);
}

/// From here on half of the seeds have several shards on several threads.
#[test]
fn random_runs_of_several_threads_keep_every_promise() {
    let report = keeps_every_promise(1_000_001);
    let states = [
        "abandoned",
        "abandonment revised",
        "grown",
        "messages between threads",
        "rescues",
    ];
    assert_reached(&report, &states);
}

/// Volumes are frozen, thawed and handed over from here on, and origins forget.
#[test]
fn random_runs_with_frozen_volumes_keep_every_promise() {
    let report = keeps_every_promise(19_000_001);
    let states = [
        "frozen",
        "thawed",
        "handed over",
        "origins that reconnected",
    ];
    assert_reached(&report, &states);
}

fn assert_reached(report: &Report, states: &[&str]) {
    if report.seeds == SEEDS {
        for state in states {
            assert!(
                report.counts.get(state) > 0,
                "no run reached the state `{state}`"
            );
        }
    }
}

fn keeps_every_promise(first: u64) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = search(first, first + SEEDS - 1, LIMIT, 1, true, threads);
    println!(
        "{} seeds, {} operations in {:.1} s",
        report.seeds,
        report.operations,
        report.elapsed.as_secs_f64()
    );
    print!("{}", report.counts);
    if let Some((seed, violation)) = report.failures.first() {
        let small = shrink(&generate::plan(*seed), 2_000);
        let kept: Vec<String> = small
            .steps
            .iter()
            .map(|(name, _)| name.to_string())
            .collect();
        for (name, step) in &small.steps {
            println!("{name:>4} {step:?}");
        }
        panic!(
            "seed {seed}: step {}: {}\ncargo run --release -p forebay-sim -- replay {seed} --trace --keep {}",
            violation.step,
            violation.what,
            kept.join(",")
        );
    }
    report
}
