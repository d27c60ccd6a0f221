//! Runs written by hand: the steps that show a bug, in about a dozen lines.
//!
//! A script counts in blocks of 4 KiB on a cache of 12 segments of 8 slots (one is the header's),
//! all devices take 50 µs, and nothing happens between two steps unless time passes. It runs under
//! several schedules, since what is drawn (how a power cut tears, when a daemon's last writes
//! land) should not decide whether a test tests something.

use forebay_engine::{Mode, Nanos, Settings};

use crate::disk::Survival;
use crate::outcome::Counts;
use crate::plan::{
    Config, Crash, FaultRates, Harm, Latency, Plan, Step, Target, Trap, eager_settings,
};
use crate::world::{Options, run};

/// Sectors of a block.
const BLOCK: u64 = 8;
/// Schedules under which a script runs.
const SCHEDULES: u64 = 24;

/// See the module.
#[derive(Clone, Debug)]
pub struct Script {
    config: Config,
    steps: Vec<Step>,
}

impl Script {
    /// A cache in write-back for one volume of so many blocks.
    #[must_use]
    pub fn new(blocks: u64) -> Script {
        let latency = Latency {
            least_ns: 50_000,
            spread_ns: 0,
            spikes: 0,
        };
        let mut config = Config {
            volume_sectors: vec![blocks * BLOCK],
            depth: 64,
            pace: 0,
            cache_latency: latency,
            origin_latency: latency,
            forgive_rot: false,
            ..Config::default()
        };
        config.geometry.segments_per_shard = 12;
        Script {
            config,
            steps: Vec::new(),
        }
    }

    /// Changes the configuration.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Script {
        change(&mut self.config);
        self
    }

    /// Changes the settings the engine starts with.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Script {
        change(&mut self.config.settings);
        self
    }

    /// Settings with which everything is done early.
    #[must_use]
    pub fn eager(self) -> Script {
        self.settings(|settings| *settings = eager_settings())
    }

    /// Nothing is written back unless it is asked for.
    #[must_use]
    pub fn stays_dirty(self) -> Script {
        self.settings(|settings| {
            settings.dirty_low_percent = 90;
            settings.dirty_high_percent = 90;
            settings.dirty_limit_percent = 90;
            settings.age_limit = Nanos(3_600 * Nanos::SECOND.0);
        })
    }

    /// A flush of the origin that fails loses what was volatile there.
    #[must_use]
    pub fn failed_flush_loses(self) -> Script {
        self.config(|config| {
            config.origin_faults = FaultRates {
                flush_loss_percent: 100,
                ..FaultRates::NONE
            };
        })
    }

    /// Another step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Script {
        self.steps.push(step);
        self
    }

    /// Applies `each` again and again; it is told how often that was done before.
    #[must_use]
    pub fn repeat(self, times: u64, each: impl Fn(Script, u64) -> Script) -> Script {
        (0..times).fold(self, each)
    }

    /// Writes blocks.
    #[must_use]
    pub fn write(self, block: u64, count: u64) -> Script {
        self.write_sectors(block * BLOCK, count * BLOCK)
    }

    /// Writes sectors.
    #[must_use]
    pub fn write_sectors(self, sector: u64, count: u64) -> Script {
        self.step(Step::Write {
            volume: 0,
            sector,
            count,
            fua: false,
        })
    }

    /// Writes one block that must be durable when it is answered, and waits for it.
    #[must_use]
    pub fn write_durably(self, block: u64) -> Script {
        self.step(Step::Write {
            volume: 0,
            sector: block * BLOCK,
            count: BLOCK,
            fua: true,
        })
        .settle()
    }

    /// Discards blocks.
    #[must_use]
    pub fn discard(self, block: u64, count: u64) -> Script {
        self.step(Step::Discard {
            volume: 0,
            sector: block * BLOCK,
            count: count * BLOCK,
        })
    }

    /// Reads blocks.
    #[must_use]
    pub fn read(self, block: u64, count: u64) -> Script {
        self.step(Step::Read {
            volume: 0,
            sector: block * BLOCK,
            count: count * BLOCK,
        })
    }

    /// Waits for everything before it, flushes, and waits for that: a flush covers only what was
    /// answered before.
    #[must_use]
    pub fn flush(self) -> Script {
        self.settle().begin_flush().settle()
    }

    /// Flushes, and goes on.
    #[must_use]
    pub fn begin_flush(self) -> Script {
        self.step(Step::Flush { volume: 0 })
    }

    /// Waits for every request.
    #[must_use]
    pub fn settle(self) -> Script {
        self.step(Step::Settle)
    }

    /// Lets time pass.
    #[must_use]
    pub fn pass(self, ms: u64) -> Script {
        self.step(Step::Pass { ms })
    }

    /// Changes the mode.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Script {
        let change = Step::SetMode {
            volume: 0,
            mode,
            cut: None,
        };
        self.step(change).step(Step::Await)
    }

    /// Begins to write everything back.
    #[must_use]
    pub fn drain(self) -> Script {
        self.step(Step::Drain {
            volume: 0,
            on: true,
        })
    }

    /// Ends that.
    #[must_use]
    pub fn drain_no_more(self) -> Script {
        self.step(Step::Drain {
            volume: 0,
            on: false,
        })
    }

    /// The next so many operations of this kind fail.
    #[must_use]
    pub fn fail(self, target: Target, times: u32) -> Script {
        self.step(Step::Trap(Trap {
            target,
            times,
            fails: true,
            slow_ms: 0,
        }))
    }

    /// The next operation of this kind takes long.
    #[must_use]
    pub fn slow(self, target: Target, slow_ms: u64) -> Script {
        self.step(Step::Trap(Trap {
            target,
            times: 1,
            fails: false,
            slow_ms,
        }))
    }

    /// The next operation of this kind takes long and fails.
    #[must_use]
    pub fn slow_and_failing(self, target: Target, slow_ms: u64) -> Script {
        self.step(Step::Trap(Trap {
            target,
            times: 1,
            fails: true,
            slow_ms,
        }))
    }

    /// Something happens to the newest copy of a block in the cache.
    #[must_use]
    pub fn harm(self, block: u64, harm: Harm) -> Script {
        self.step(Step::Harm {
            volume: 0,
            block,
            harm,
        })
    }

    /// The daemon is killed and starts again.
    #[must_use]
    pub fn kill(self) -> Script {
        self.crash(false, Survival::Any, &[])
    }

    /// Power is cut; nothing of what was volatile is left.
    #[must_use]
    pub fn power_cut(self) -> Script {
        self.crash(true, Survival::Nothing, &[])
    }

    /// A crash whose recoveries are cut short: after how many operations, and whether by power.
    #[must_use]
    pub fn crash(self, power: bool, survival: Survival, recoveries: &[(u32, bool)]) -> Script {
        self.step(Step::Crash(Crash {
            power,
            survival,
            recoveries: recoveries.to_vec(),
        }))
    }

    /// Its plan under one schedule.
    #[must_use]
    pub fn plan(&self, schedule: u64) -> Plan {
        Plan::script(self.config.clone(), self.steps.clone(), schedule)
    }

    /// Runs it.
    ///
    /// # Panics
    /// If a promise is broken. The message has the trace.
    pub fn holds(&self) -> Counts {
        let mut counts = Counts::default();
        for schedule in 1..=SCHEDULES {
            let plan = self.plan(schedule);
            let outcome = run(&plan, Options::default());
            let Some(violation) = outcome.violation else {
                counts.merge(&outcome.counts);
                continue;
            };
            let options = Options {
                trace: true,
                ..Options::default()
            };
            let trace = run(&plan, options).trace.join("\n");
            panic!(
                "{trace}\nschedule {schedule}, step {}: {}",
                violation.step, violation.what
            );
        }
        counts
    }

    /// Whether a promise is broken in it, under any schedule.
    #[must_use]
    pub fn fails(&self) -> bool {
        (1..=SCHEDULES).any(|schedule| {
            let plan = self.plan(schedule);
            run(&plan, Options::default()).violation.is_some()
        })
    }
}
