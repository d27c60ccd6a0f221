//! A day of a server on a write-back cache, and on its disk alone, minute by minute.
//!
//! Clients with one seed use both. Each phase of the day has its hours, whatever was done before, so
//! the minutes of both can be compared.

mod client;
mod schedule;

use forebay_engine::{BypassReason, Settings};
use forebay_virtual::{Bare, Cached, CpuCost, Traffic};

use crate::devices;
use client::{Clients, Moved, Tally};
use schedule::{CACHE_BYTES, ORIGIN_BYTES, Phase};

const MINUTE_NS: u64 = 60 * 1_000_000_000;
/// The seed of all that clients draw.
const SEED: u64 = 26;
/// The scale of the smallest cache that is large beside its segments.
const SMALLEST: u64 = 64;
/// The least of the disk's bytes that a minute should have.
pub const LEAST_RATIO: f64 = 0.97;

/// Times of requests, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// Requests answered.
    pub requests: u64,
    /// Half of them took less, to an eighth.
    pub p50_ms: f64,
    /// All but one in a hundred took less, to an eighth.
    pub p99_ms: f64,
    /// All but one in ten thousand took less, to an eighth.
    pub p9999_ms: f64,
    /// The longest of them.
    pub longest_ms: f64,
}

/// A pair of results: Forebay's, and that of the disk alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Both<T> {
    /// Forebay's.
    pub cached: T,
    /// Of the disk alone.
    pub disk: T,
}

impl Both<u64> {
    /// Forebay's bytes as a ratio to the disk's; 1 where the disk moved nothing.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.disk == 0 {
            return 1.0;
        }
        self.cached as f64 / self.disk as f64
    }
}

/// Activity of the cache in a minute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inside {
    /// Dirty data at its end, in bytes.
    pub dirty_bytes: u64,
    /// Bytes moved on the devices.
    pub traffic: Traffic,
    /// Of what was written to the origin, dirty data.
    pub written_back_bytes: u64,
    /// Data put in the cache after a miss, in bytes.
    pub promoted_bytes: u64,
    /// Data copied to keep it when its segment was reclaimed, in bytes.
    pub retained_bytes: u64,
    /// Flushes of the origin.
    pub origin_flushes: u64,
    /// Requests that waited for dirty data to shrink.
    pub throttled_requests: u64,
    /// Bytes read that bypassed the cache, by reason.
    pub read_past_bytes: Vec<(&'static str, u64)>,
    /// Bytes written that bypassed the cache, by reason.
    pub written_past_bytes: Vec<(&'static str, u64)>,
}

/// A minute of the day.
#[derive(Clone, Debug, PartialEq)]
pub struct Minute {
    /// Its number from midnight; at another scale than 1 a day has fewer.
    pub number: u64,
    /// The number of its phase.
    pub phase: usize,
    /// Bytes that clients of the phase read and wrote.
    pub bytes: Both<u64>,
    /// Bytes of each stream of the phase.
    pub streams: Vec<Both<u64>>,
    /// The longest wait that ended in it, in milliseconds.
    pub longest_ms: Both<f64>,
    /// Activity of the cache.
    pub inside: Inside,
}

impl Minute {
    /// Bytes of several minutes.
    #[must_use]
    pub fn sum<'a>(minutes: impl IntoIterator<Item = &'a Minute>) -> Both<u64> {
        let add = |sum: Both<u64>, minute: &Minute| Both {
            cached: sum.cached + minute.bytes.cached,
            disk: sum.disk + minute.bytes.disk,
        };
        minutes.into_iter().fold(Both::default(), add)
    }

    /// Whether Forebay moved less than it should.
    #[must_use]
    pub fn is_below(&self) -> bool {
        self.bytes.ratio() < LEAST_RATIO
    }
}

/// Results of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamResult {
    /// Its name.
    pub name: &'static str,
    /// Its reads or writes.
    pub transfers: Both<Waits>,
    /// Its flushes.
    pub flushes: Both<Waits>,
}

/// Results of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseResult {
    /// Its name.
    pub name: &'static str,
    /// Its streams.
    pub streams: Vec<StreamResult>,
}

/// Results of the day.
#[derive(Clone, Debug, PartialEq)]
pub struct DayResult {
    /// The size of the cache, in bytes.
    pub cache_bytes: u64,
    /// Its phases.
    pub phases: Vec<PhaseResult>,
    /// Its minutes.
    pub minutes: Vec<Minute>,
}

impl DayResult {
    /// The minutes of a phase.
    #[must_use]
    pub fn minutes_of(&self, phase: usize) -> Vec<&Minute> {
        let minutes = self.minutes.iter();
        minutes.filter(|minute| minute.phase == phase).collect()
    }

    /// The minutes in which Forebay moved less than it should, the worst first.
    #[must_use]
    pub fn below(&self) -> Vec<&Minute> {
        let minutes = self.minutes.iter();
        let mut below: Vec<&Minute> = minutes.filter(|minute| minute.is_below()).collect();
        below.sort_by(|a, b| a.bytes.ratio().total_cmp(&b.bytes.ratio()));
        below
    }

    /// The longest wait of the day, in milliseconds, with the name of its stream.
    #[must_use]
    pub fn longest(&self, side: fn(&Both<Waits>) -> Waits) -> (f64, &'static str) {
        let streams = self.phases.iter().flat_map(|phase| &phase.streams);
        let waits = streams.flat_map(|stream| {
            [&stream.transfers, &stream.flushes].map(|both| (side(both).longest_ms, stream.name))
        });
        waits.fold((0.0, ""), |a, b| if b.0 > a.0 { b } else { a })
    }
}

/// Counters of the cache since it was made.
#[derive(Clone, Debug, Default)]
struct Counted {
    traffic: Traffic,
    written_back: u64,
    promoted: u64,
    retained: u64,
    origin_flushes: u64,
    throttled: u64,
    /// Blocks by reason, read and written.
    past: Vec<[u64; 2]>,
}

impl Counted {
    fn of(cached: &Cached) -> Counted {
        let stats = cached.stats();
        let reasons = BypassReason::NAMES.iter().map(|&(reason, _)| {
            let bypasses = &stats.bypasses;
            [
                bypasses.read_blocks(reason),
                bypasses.written_blocks(reason),
            ]
        });
        Counted {
            traffic: cached.traffic(),
            written_back: stats.written_back_blocks,
            promoted: stats.promoted_blocks,
            retained: stats.retained_blocks,
            origin_flushes: stats.origin_flushes,
            throttled: stats.throttled_requests,
            past: reasons.collect(),
        }
    }

    fn inside(&self, before: &Counted, dirty_bytes: u64) -> Inside {
        let bytes = |blocks: u64, earlier: u64| (blocks - earlier) * 4096;
        let past = |side: usize| {
            let names = BypassReason::NAMES.iter().map(|&(_, name)| name);
            let blocks = self.past.iter().zip(&before.past);
            let blocks = blocks.map(|(now, then)| bytes(now[side], then[side]));
            names.zip(blocks).filter(|(_, bytes)| *bytes > 0).collect()
        };
        Inside {
            dirty_bytes,
            traffic: self.traffic.since(&before.traffic),
            written_back_bytes: bytes(self.written_back, before.written_back),
            promoted_bytes: bytes(self.promoted, before.promoted),
            retained_bytes: bytes(self.retained, before.retained),
            origin_flushes: self.origin_flushes - before.origin_flushes,
            throttled_requests: self.throttled - before.throttled,
            read_past_bytes: past(0),
            written_past_bytes: past(1),
        }
    }
}

/// Runs the day with a cache, spans and phases that many times smaller, but 64 times at most;
/// `progress` hears of each phase by its name and its minutes.
///
/// # Errors
/// If the cache cannot be made.
pub fn run(
    scale: u64,
    cpu: CpuCost,
    progress: impl Fn(&str, &[Minute]),
) -> Result<DayResult, String> {
    let scale = scale.min(SMALLEST);
    let cache_bytes = CACHE_BYTES / scale;
    let cached = devices::cached(cache_bytes, ORIGIN_BYTES, Settings::default(), cpu)?;
    let mut cached = Clients::new(cached, SEED);
    let mut disk = Clients::new(Bare::new(devices::disk(ORIGIN_BYTES)), SEED);
    let phases = schedule::day();
    let mut minutes: Vec<Minute> = Vec::new();
    let mut counted = Counted::of(&cached.system);
    for (number, phase) in phases.iter().enumerate() {
        let first = minutes.len();
        let streams: Vec<_> = phase
            .streams
            .iter()
            .map(|stream| stream.scaled(scale))
            .collect();
        cached.begin(&streams, first as u64 * MINUTE_NS);
        disk.begin(&streams, first as u64 * MINUTE_NS);
        for _ in 0..(phase.minutes / scale).max(1) {
            let minute = minutes.len() as u64;
            let end_ns = (minute + 1) * MINUTE_NS;
            let moved = Both {
                cached: cached.minute(minute, end_ns),
                disk: disk.minute(minute, end_ns),
            };
            let now = Counted::of(&cached.system);
            let inside = now.inside(&counted, cached.system.dirty_bytes());
            counted = now;
            minutes.push(minute_of(minute, number, &moved, inside));
        }
        progress(phase.name, &minutes[first..]);
    }
    let tallies = Both {
        cached: cached.finish(),
        disk: disk.finish(),
    };
    Ok(DayResult {
        cache_bytes,
        phases: phase_results(&phases, &tallies),
        minutes,
    })
}

fn minute_of(number: u64, phase: usize, moved: &Both<Moved>, inside: Inside) -> Minute {
    let (cached, disk) = (&moved.cached, &moved.disk);
    let streams = cached.streams.iter().zip(&disk.streams);
    Minute {
        number,
        phase,
        bytes: Both {
            cached: cached.streams.iter().sum(),
            disk: disk.streams.iter().sum(),
        },
        streams: streams
            .map(|(&cached, &disk)| Both { cached, disk })
            .collect(),
        longest_ms: Both {
            cached: cached.longest_ns as f64 / 1e6,
            disk: disk.longest_ns as f64 / 1e6,
        },
        inside,
    }
}

fn phase_results(phases: &[Phase], tallies: &Both<Vec<Tally>>) -> Vec<PhaseResult> {
    let mut pairs = tallies.cached.iter().zip(&tallies.disk);
    let results = phases.iter().map(|phase| PhaseResult {
        name: phase.name,
        streams: phase
            .streams
            .iter()
            .zip(pairs.by_ref())
            .map(|(stream, (cached, disk))| StreamResult {
                name: stream.name,
                transfers: Both {
                    cached: cached.transfers.waits(),
                    disk: disk.transfers.waits(),
                },
                flushes: Both {
                    cached: cached.flushes.waits(),
                    disk: disk.flushes.waits(),
                },
            })
            .collect(),
    });
    results.collect()
}
