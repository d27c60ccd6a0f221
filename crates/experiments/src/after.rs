//! A long write after random ones, as in the demo: the disk has their dirty blocks to take too.

use forebay_engine::Settings;

use crate::devices;
use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::Bare;
use forebay_virtual::CpuCost;

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 512 * MIB;
const ORIGIN_BYTES: u64 = 2048 * MIB;
/// The space of random requests, which fits into the cache.
const HOT_BYTES: u64 = 256 * MIB;
const RANDOM_NS: u64 = 8 * 1_000_000_000;
const LONG_BYTES: u64 = 1536 * MIB;
const PARTS: u64 = 12;

/// Result of the long write.
#[derive(Clone, Debug, PartialEq)]
pub struct AfterResult {
    /// Dirty data when it began, in bytes.
    pub dirty_bytes: u64,
    /// Parts of equal length of it, behind Forebay and on the bare disk.
    pub parts: Vec<(Outcome, Outcome)>,
}

impl AfterResult {
    /// Time that the bare disk took, as a ratio to Forebay's: above 1 where Forebay is faster.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let took = |side: fn(&(Outcome, Outcome)) -> Outcome| -> u64 {
            self.parts.iter().map(|part| side(part).took_ns).sum()
        };
        took(|part| part.1) as f64 / took(|part| part.0) as f64
    }

    /// The least of these ratios over the time from the beginning to the end of a part. A disk takes
    /// the first part into its cache, and is the slower in the next.
    #[must_use]
    pub fn least(&self) -> f64 {
        let mut took_ns = (0, 0);
        let ratios = self.parts.iter().map(|(cached, disk)| {
            took_ns = (took_ns.0 + cached.took_ns, took_ns.1 + disk.took_ns);
            took_ns.1 as f64 / took_ns.0 as f64
        });
        ratios.fold(f64::MAX, f64::min)
    }
}

/// Runs the demo's loads: reads, random writes, a mix, then a write of three times the cache.
///
/// # Errors
/// If the cache cannot be made.
pub fn run(cpu: CpuCost) -> Result<AfterResult, String> {
    let mut cached = devices::cached(CACHE_BYTES, ORIGIN_BYTES, Settings::default(), cpu)?;
    let warm = Load::filling(HOT_BYTES, 128 << 10);
    let mut now_ns = warm.run(&mut cached, 0).end_ns;
    for (seed, read_percent, request_bytes) in [(1, 100, 4096), (2, 0, 4096), (3, 70, 8192)] {
        let random = Load {
            request_bytes,
            depth: 32,
            read_percent,
            order: Order::Uniform { seed },
            limit: Limit::Time(RANDOM_NS),
            ..warm
        };
        now_ns = random.run(&mut cached, now_ns).end_ns;
    }
    let dirty_bytes = cached.dirty_bytes();
    let mut bare = Bare::new(devices::disk(ORIGIN_BYTES));
    let mut bare_ns = 0;
    let mut parts = Vec::new();
    for part in 0..PARTS {
        let long = Load {
            offset_bytes: ORIGIN_BYTES - LONG_BYTES + part * (LONG_BYTES / PARTS),
            span_bytes: LONG_BYTES / PARTS,
            read_percent: 0,
            limit: Limit::Bytes(LONG_BYTES / PARTS),
            ..warm
        };
        let ours = long.run(&mut cached, now_ns);
        let theirs = long.run(&mut bare, bare_ns);
        (now_ns, bare_ns) = (ours.end_ns, theirs.end_ns);
        parts.push((ours, theirs));
    }
    Ok(AfterResult { dirty_bytes, parts })
}
