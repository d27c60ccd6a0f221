//! Dirty data on two devices (I28), with a crash at every single operation: of the loss of a device,
//! its record, a replacement, and recoveries. Nothing explains a failed request or a lost write here.

use forebay_sim::disk::Survival;
use forebay_sim::plan::eager_settings;
use forebay_sim::{Config, Crash, Options, Plan, Step, run, search};

const DYING: u8 = 1;
const FLUSH: Step = Step::Flush { volume: 0 };
/// More crash points than any script here has.
const MOST_POINTS: u64 = 20_000;

fn write(sector: u64, count: u64, fua: bool) -> Step {
    Step::Write {
        volume: 0,
        sector,
        count,
        fua,
    }
}

fn read(sector: u64, count: u64) -> Step {
    Step::Read {
        volume: 0,
        sector,
        count,
    }
}

/// Two devices, of which the second one dies.
fn config(missing_percent: u64) -> Config {
    let mut config = Config {
        settings: eager_settings(),
        volume_sectors: vec![96],
        cache_devices: 2,
        copies: 2,
        first_copies: 2,
        alternates: true,
        failing_device: Some(DYING),
        missing_percent,
        ..Config::default()
    };
    config.geometry.segments_per_shard = 20;
    config
}

/// Writes before and after a device is gone. Clean blocks are written past the cache in between.
fn loses_a_device() -> Vec<Step> {
    vec![
        write(0, 24, false),
        read(48, 24),
        FLUSH,
        Step::Pass { ms: 50 },
        write(8, 8, true),
        Step::DeviceGone { device: DYING },
        write(16, 16, false),
        read(0, 32),
        FLUSH,
        write(48, 8, true),
        Step::Settle,
        write(0, 8, false),
        FLUSH,
        Step::Pass { ms: 50 },
    ]
}

/// Another device takes its place.
fn replaces_it() -> Vec<Step> {
    let mut steps = loses_a_device();
    steps.extend([
        Step::Shrink {
            device: DYING,
            keep: 0,
            cut: None,
        },
        write(24, 8, true),
        Step::Await,
        Step::Grow {
            device: DYING,
            segments: 100,
            cut: None,
        },
        Step::Await,
        write(32, 16, false),
        FLUSH,
        Step::Pass { ms: 200 },
        Step::DeviceGone { device: DYING },
        write(0, 8, true),
        read(0, 96),
        Step::Settle,
    ]);
    steps
}

#[test]
fn a_crash_at_every_operation_of_a_loss_and_a_replacement() {
    for (name, steps) in [("loss", loses_a_device()), ("replacement", replaces_it())] {
        for (power, missing_percent) in [(false, 0), (true, 0), (false, 100), (true, 100)] {
            let plan = Plan::script(config(missing_percent), steps.clone(), 7);
            let mut lost = 0;
            let mut points = 0;
            for at in 1..MOST_POINTS {
                let outcome = run(
                    &plan,
                    Options {
                        crash_at: Some((at, power)),
                        ..Options::default()
                    },
                );
                if let Some(violation) = &outcome.violation {
                    panic!(
                        "{name}, crash at operation {at}, power {power}, missing {missing_percent} %: step {}: {}",
                        violation.step, violation.what
                    );
                }
                lost += outcome.counts.get("cache devices lost");
                lost += outcome.counts.get("starts without a cache device");
                points = at - 1;
                if outcome.counts.get("crash point reached") == 0 {
                    break;
                }
            }
            println!(
                "{name}: {points} crash points, power {power}, missing {missing_percent} %, {lost} losses on record"
            );
            assert!(points > 40 && lost > 0, "{name} loses a device");
        }
    }
}

#[test]
fn recoveries_without_the_device_cut_short_at_every_operation() {
    for power in [false, true] {
        for cut in 0..150 {
            for survival in [Survival::Any, Survival::Nothing] {
                let crash = Step::Crash(Crash {
                    power,
                    survival,
                    recoveries: vec![(cut, power), (cut / 2 + 3, true), (cut, !power)],
                });
                let mut steps = loses_a_device();
                steps.insert(7, crash.clone());
                steps.push(crash);
                let plan = Plan::script(config(50), steps, u64::from(cut));
                let outcome = run(&plan, Options::default());
                if let Some(violation) = &outcome.violation {
                    panic!("recovery cut at {cut}, power {power}: {}", violation.what);
                }
            }
        }
    }
}

/// The first runs from `first` on, as many as fit: they must show each of these states. Each seed runs twice, and must do the same.
fn random_runs(first: u64, states: &[&str]) {
    const SEEDS: u64 = 2_000;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let limit = std::time::Duration::from_secs(300);
    let report = search(first, first + SEEDS - 1, limit, 1, true, threads);
    print!("{}", report.counts);
    if let Some((seed, violation)) = report.failures.first() {
        panic!("seed {seed}: step {}: {}", violation.step, violation.what);
    }
    for state in states {
        assert!(report.counts.get(state) > 0, "no run has: {state}");
    }
}

#[test]
fn random_runs_lose_nothing_with_a_device() {
    random_runs(
        21_000_001,
        &[
            "blocks mended",
            "cache devices lost",
            "devices that are out, and back",
            "loss of a device cut short",
            "starts without a cache device",
        ],
    );
}

#[test]
fn random_runs_lose_nothing_with_a_device_that_lies() {
    random_runs(
        22_000_001,
        &[
            "clean blocks forgotten for damage",
            "dirty data copied to a second device",
            "fault: cache read returned else",
            "rot in data",
            "rot in metadata",
        ],
    );
}

#[test]
fn random_runs_lose_nothing_with_two_devices_in_turn() {
    random_runs(
        23_000_001,
        &["cache devices lost", "two cache devices gone in turn"],
    );
}

#[test]
fn random_runs_lose_nothing_with_devices_that_are_replaced() {
    random_runs(
        25_000_001,
        &["cache devices being replaced", "cache devices lost"],
    );
}

#[test]
fn random_runs_lose_nothing_with_a_device_that_returns() {
    random_runs(
        26_000_001,
        &["starts without a cache device", "cache devices lost"],
    );
}

#[test]
fn random_runs_lose_nothing_with_two_devices_at_a_time() {
    random_runs(
        24_000_001,
        &[
            "abandoned",
            "cache devices given up",
            "losses that may not go on record",
            "rescues",
            "two cache devices back",
            "two cache devices gone at a time",
        ],
    );
}

/// Both devices go while nothing is in flight: the cache fails, and no later request is without an
/// answer. Both are back after the crash, and what was on record is written out.
#[test]
fn two_devices_gone_at_a_time_leave_no_request_without_an_answer() {
    for power in [false, true] {
        let steps = vec![
            write(0, 24, true),
            FLUSH,
            Step::Pass { ms: 50 },
            Step::Settle,
            Step::BothGone { device: 0 },
            write(48, 8, false),
            write(8, 8, true),
            read(0, 24),
            FLUSH,
            Step::Settle,
            Step::Crash(Crash {
                power,
                survival: Survival::Nothing,
                recoveries: Vec::new(),
            }),
            read(0, 96),
            Step::Settle,
        ];
        let outcome = run(&Plan::script(config(0), steps, 7), Options::default());
        if let Some(violation) = &outcome.violation {
            panic!("power {power}: step {}: {}", violation.step, violation.what);
        }
        for state in ["two cache devices gone at a time", "abandoned", "rescues"] {
            assert!(outcome.counts.get(state) > 0, "power {power}: {state}");
        }
    }
}
