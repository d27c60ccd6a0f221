//! Short scripts with a crash, or a failing device, at every single device operation, and with
//! recovery cut short at every operation, three deep (I12).

use forebay_engine::{Mode, Settings};
use forebay_sim::disk::Survival;
use forebay_sim::plan::eager_settings;
use forebay_sim::{Config, Crash, Options, Plan, Step, run};

fn write(sector: u64, count: u64) -> Step {
    Step::Write {
        volume: 0,
        sector,
        count,
        fua: false,
    }
}

fn forced(sector: u64, count: u64) -> Step {
    Step::Write {
        volume: 0,
        sector,
        count,
        fua: true,
    }
}

fn read(sector: u64, count: u64) -> Step {
    Step::Read {
        volume: 0,
        sector,
        count,
    }
}

const FLUSH: Step = Step::Flush { volume: 0 };

/// A bit of everything: overwrites, partial blocks, zeroes, discards, promotions, a drain.
fn everyday() -> Vec<Step> {
    vec![
        write(0, 16),
        read(24, 8),
        FLUSH,
        write(3, 7),
        Step::Zeroes {
            volume: 0,
            sector: 8,
            count: 16,
            fua: false,
        },
        forced(16, 8),
        Step::Discard {
            volume: 0,
            sector: 0,
            count: 16,
        },
        read(0, 32),
        FLUSH,
        Step::Drain {
            volume: 0,
            on: true,
        },
        Step::Settle,
        Step::Pass { ms: 1_500 },
        write(0, 8),
        FLUSH,
    ]
}

/// Few blocks written so often that segments are reclaimed all the time.
fn overwrites() -> Vec<Step> {
    let round = |i: u64| {
        [
            write(i % 3 * 8, 8),
            write((i + 1) % 3 * 8, 8),
            read(24 + i % 2 * 8, 8),
            FLUSH,
            Step::Pass { ms: 30 },
        ]
    };
    (0..8).flat_map(round).collect()
}

/// Every mode, switched under load.
fn modes() -> Vec<Step> {
    Mode::NAMES
        .iter()
        .flat_map(|(mode, _)| {
            [
                Step::SetMode {
                    volume: 0,
                    mode: *mode,
                    cut: None,
                },
                Step::Await,
                write(0, 24),
                read(8, 24),
                forced(12, 8),
                FLUSH,
            ]
        })
        .collect()
}

fn scripts() -> Vec<(&'static str, Config, Vec<Step>)> {
    let eager = Config {
        settings: eager_settings(),
        volume_sectors: vec![40],
        ..Config::default()
    };
    let usual = Config {
        settings: Settings::default(),
        volume_sectors: vec![40],
        ..Config::default()
    };
    vec![
        ("everyday", usual.clone(), everyday()),
        ("everyday, eager", eager.clone(), everyday()),
        (
            "overwrites",
            Config {
                volume_sectors: vec![48],
                ..eager.clone()
            },
            overwrites(),
        ),
        ("modes", eager, modes()),
        ("modes, usual", usual, modes()),
    ]
}

fn check(name: &str, how: &str, plan: &Plan, options: Options) -> forebay_sim::Outcome {
    let outcome = run(plan, options);
    if let Some(violation) = &outcome.violation {
        panic!("{name}, {how}: step {}: {}", violation.step, violation.what);
    }
    outcome
}

#[test]
fn a_crash_at_every_operation() {
    for (name, config, steps) in scripts() {
        for power in [false, true] {
            let plan = Plan::script(config.clone(), steps.clone(), 7);
            let mut at = 1;
            loop {
                let how = format!("crash at operation {at}, power {power}");
                let outcome = check(
                    name,
                    &how,
                    &plan,
                    Options {
                        crash_at: Some((at, power)),
                        ..Options::default()
                    },
                );
                if outcome.counts.get("crash point reached") == 0 {
                    break;
                }
                at += 1;
            }
            println!("{name}: {} crash points, power {power}", at - 1);
            assert!(at > 10, "{name} does something");
        }
    }
}

#[test]
fn a_failure_of_every_operation() {
    for (name, config, steps) in scripts() {
        for schedule in 0..3 {
            let plan = Plan::script(config.clone(), steps.clone(), schedule);
            let mut at = 1;
            loop {
                let how = format!("failure of operation {at}, schedule {schedule}");
                let outcome = check(
                    name,
                    &how,
                    &plan,
                    Options {
                        fail_at: Some(at),
                        ..Options::default()
                    },
                );
                if outcome.counts.get("failure point reached") == 0 {
                    break;
                }
                at += 1;
            }
            println!("{name}: {} operations failed", at - 1);
        }
    }
}

#[test]
fn recovery_cut_short_at_every_operation_three_deep() {
    for (name, config, steps) in scripts() {
        for power in [false, true] {
            for cut in 0..60 {
                for survival in [Survival::Any, Survival::Nothing] {
                    let recoveries = vec![(cut, power), (cut / 2 + 3, true), (cut, !power)];
                    let crash = Step::Crash(Crash {
                        power,
                        survival,
                        recoveries,
                    });
                    let mut steps = steps.clone();
                    let middle = steps.len() / 2;
                    steps.insert(middle, crash.clone());
                    steps.push(crash);
                    let plan = Plan::script(config.clone(), steps, u64::from(cut));
                    check(
                        name,
                        &format!("recovery cut at {cut}, power {power}"),
                        &plan,
                        Options::default(),
                    );
                }
            }
        }
    }
}
