//! The write-back policies under a long mixed run: a constant load, a burst, a pause, the constant
//! load again. Does any of them starve, or burst where it should not?

use std::collections::HashMap;

use forebay_engine::{Mode, RequestKind, Settings, WritebackPolicy};
use forebay_model::{Disk, DiskParameters, Ssd, SsdParameters};
use forebay_random::SplitMix64;
use forebay_virtual::{Access, Answer, Cached, CpuCost, Setup, System as _};

use crate::quantile::quantile_ns;

const GIB: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 * GIB;
const ORIGIN_BYTES: u64 = 64 * GIB;
/// Written at random; twice the cache, so that most of it is written once before it goes back.
const WRITTEN_BYTES: u64 = 4 * GIB;
/// Read at random, from the cache.
const READ_BYTES: u64 = GIB / 4;
const BLOCK_BYTES: u32 = 4096;
const SECOND_NS: u64 = 1_000_000_000;
/// Span of time that is looked at together, in seconds: the disk's own scatter is within it.
pub const BUCKET_SECONDS: u64 = 10;

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Its duration.
    pub seconds: u64,
    /// Random writes of 4 KiB a second.
    pub writes: u64,
    /// Random reads of 4 KiB a second, all of cached data.
    pub reads: u64,
}

/// The run, after the data that is read has been cached.
pub const PHASES: [Phase; 4] = [
    Phase {
        name: "constant",
        seconds: 400,
        writes: 400,
        reads: 400,
    },
    Phase {
        name: "burst",
        seconds: 100,
        writes: 2_000,
        reads: 400,
    },
    Phase {
        name: "pause",
        seconds: 100,
        writes: 0,
        reads: 0,
    },
    Phase {
        name: "constant again",
        seconds: 400,
        writes: 400,
        reads: 400,
    },
];

/// A span of `BUCKET_SECONDS`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Dirty data at its end, as a share of the cache in percent.
    pub dirty_percent: f64,
    /// Written back, in MiB a second.
    pub written_mib_s: f64,
    /// The slowest read of a hundred, in milliseconds.
    pub read_p99_ms: f64,
    /// The slowest write of a hundred, in milliseconds.
    pub write_p99_ms: f64,
}

/// A policy and what it did.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyResult {
    /// Its name.
    pub policy: &'static str,
    /// The run in order.
    pub buckets: Vec<Bucket>,
}

impl PolicyResult {
    /// The buckets of a phase; of the first the second half, when a start has been forgotten.
    #[must_use]
    pub fn phase(&self, number: usize) -> &[Bucket] {
        let before: u64 = PHASES[..number].iter().map(|phase| phase.seconds).sum();
        let first = before / BUCKET_SECONDS;
        let count = PHASES[number].seconds / BUCKET_SECONDS;
        let skipped = if number == 0 { count / 2 } else { 0 };
        &self.buckets[(first + skipped) as usize..(first + count) as usize]
    }
}

/// Mean, and standard deviation as a share of it.
#[must_use]
pub fn variation(buckets: &[Bucket], get: fn(&Bucket) -> f64) -> (f64, f64) {
    let count = buckets.len().max(1) as f64;
    let mean = buckets.iter().map(get).sum::<f64>() / count;
    let square = buckets.iter().map(|bucket| (get(bucket) - mean).powi(2));
    let deviation = (square.sum::<f64>() / count).sqrt();
    (mean, if mean > 0.0 { deviation / mean } else { 0.0 })
}

/// Runs all policies.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(cpu: CpuCost, done: impl Fn(&PolicyResult)) -> Result<Vec<PolicyResult>, String> {
    WritebackPolicy::NAMES
        .iter()
        .map(|&(policy, name)| {
            let result = PolicyResult {
                policy: name,
                buckets: run_one(policy, cpu)?,
            };
            done(&result);
            Ok(result)
        })
        .collect()
}

/// An open loop: requests come when they come, however slow the answers are.
struct Run {
    system: Cached,
    waiting: HashMap<u64, (u64, bool)>,
    answers: Vec<Answer>,
    next_id: u64,
    /// Times of this bucket's reads and writes, in nanoseconds.
    times: [Vec<u64>; 2],
}

impl Run {
    /// Lets everything happen that happens up to a time.
    fn until(&mut self, time_ns: u64) {
        loop {
            let next_ns = self.system.next_ns().filter(|next_ns| *next_ns <= time_ns);
            let now_ns = next_ns.unwrap_or(time_ns);
            self.system.run(now_ns, &mut self.answers);
            for answer in self.answers.drain(..) {
                if let Some((sent_ns, write)) = self.waiting.remove(&answer.id) {
                    self.times[usize::from(write)].push(answer.at_ns.saturating_sub(sent_ns));
                }
            }
            if next_ns.is_none() {
                break;
            }
        }
    }

    fn send(&mut self, at_ns: u64, kind: RequestKind, offset_bytes: u64, len_bytes: u32) {
        self.next_id += 1;
        let access = Access {
            kind,
            offset_bytes,
            len_bytes,
        };
        self.waiting.insert(self.next_id, (at_ns, access.writes()));
        self.system.send(at_ns, self.next_id, access);
    }

    /// The times' 99th percentile in milliseconds; they are forgotten.
    fn p99_ms(&mut self, write: bool) -> f64 {
        let times = &mut self.times[usize::from(write)];
        times.sort_unstable();
        let time_ns = quantile_ns(times, 990);
        times.clear();
        time_ns as f64 / 1e6
    }
}

fn run_one(policy: WritebackPolicy, cpu: CpuCost) -> Result<Vec<Bucket>, String> {
    let ssd = SsdParameters {
        size_bytes: CACHE_BYTES,
        ..SsdParameters::sata_850pro()
    };
    let system = Cached::new(Setup {
        ssd: Box::new(Ssd::new(ssd)),
        cache_bytes: CACHE_BYTES,
        disk: Box::new(Disk::new(DiskParameters::sata_7200rpm(ORIGIN_BYTES))),
        origin_bytes: ORIGIN_BYTES,
        stripe: None,
        mode: Mode::Writeback,
        settings: Settings {
            writeback_policy: policy,
            ..Settings::default()
        },
        cpu,
    })?;
    let mut run = Run {
        system,
        waiting: HashMap::new(),
        answers: Vec::new(),
        next_id: 0,
        times: [Vec::new(), Vec::new()],
    };
    let mut now_ns = 0;
    for offset_bytes in (0..READ_BYTES).step_by(1 << 17) {
        run.send(now_ns, RequestKind::Read, offset_bytes, 1 << 17);
        now_ns += 5_000_000;
        run.until(now_ns);
    }
    let mut random = SplitMix64::new(7);
    let mut buckets = Vec::new();
    for phase in PHASES {
        for _ in 0..phase.seconds / BUCKET_SECONDS {
            let before = run.system.stats().written_back_blocks;
            for _ in 0..BUCKET_SECONDS {
                one_second(&mut run, phase, now_ns, &mut random);
                now_ns += SECOND_NS;
            }
            let blocks = run.system.stats().written_back_blocks - before;
            buckets.push(Bucket {
                dirty_percent: run.system.dirty_bytes() as f64 * 100.0 / CACHE_BYTES as f64,
                written_mib_s: blocks as f64 / 256.0 / BUCKET_SECONDS as f64,
                read_p99_ms: run.p99_ms(false),
                write_p99_ms: run.p99_ms(true),
            });
        }
    }
    Ok(buckets)
}

/// Reads and writes of a second, evenly spread and mixed.
fn one_second(run: &mut Run, phase: Phase, start_ns: u64, random: &mut SplitMix64) {
    let all = phase.reads + phase.writes;
    let mut place = |span_bytes: u64| {
        random.bits() % (span_bytes / u64::from(BLOCK_BYTES)) * u64::from(BLOCK_BYTES)
    };
    let mut written = 0;
    for number in 0..all {
        let at_ns = start_ns + number * SECOND_NS / all;
        run.until(at_ns);
        // As many of the requests so far are writes as their share says.
        if (number + 1) * phase.writes / all > written {
            written += 1;
            let offset_bytes = GIB + place(WRITTEN_BYTES);
            run.send(
                at_ns,
                RequestKind::Write { fua: false },
                offset_bytes,
                BLOCK_BYTES,
            );
        } else {
            run.send(at_ns, RequestKind::Read, place(READ_BYTES), BLOCK_BYTES);
        }
    }
    run.until(start_ns + SECOND_NS);
}
