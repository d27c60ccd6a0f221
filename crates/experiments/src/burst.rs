//! A burst of writes into a cache that is full of clean blocks: how much of the SSD's own speed it
//! gets.

use forebay_engine::{BypassReason, Settings};

use crate::devices;
use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::Bare;
use forebay_virtual::Cached;
use forebay_virtual::CpuCost;

const ORIGIN_BYTES: u64 = 64 << 30;
/// Sizes of the cache, in bytes.
pub const CACHE_BYTES: [u64; 2] = [1 << 30, 8 << 30];
/// The share of the cache that a burst writes, in percent.
const BURST_PERCENT: u64 = 40;

/// Result of a burst.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstResult {
    /// The load, in words.
    pub load: &'static str,
    /// The size of the cache, in bytes.
    pub cache_bytes: u64,
    /// The bare SSD under the load.
    pub ssd: Outcome,
    /// The bare disk under the load.
    pub disk: Outcome,
    /// Forebay.
    pub cached: Outcome,
    /// The part of the burst that bypassed the cache, in percent.
    pub past_percent: f64,
}

impl BurstResult {
    /// Forebay's speed as a ratio to the SSD's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.cached.write.kibps / self.ssd.write.kibps
    }
}

/// Runs each burst on caches of these sizes, each filled by reading as much as it holds; `progress`
/// hears of each.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    cpu: CpuCost,
    cache_sizes: &[u64],
    mut progress: impl FnMut(&BurstResult),
) -> Result<Vec<BurstResult>, String> {
    let loads = [
        (
            "128 KiB in sequence, depth 4",
            128 << 10,
            4,
            Order::Sequential,
        ),
        (
            "128 KiB in sequence, depth 1",
            128 << 10,
            1,
            Order::Sequential,
        ),
        (
            "1 MiB in no order, depth 4",
            1 << 20,
            4,
            Order::Shuffled { seed: 1 },
        ),
        (
            "4 KiB in no order, depth 32",
            4096,
            32,
            Order::Shuffled { seed: 1 },
        ),
    ];
    let mut results = Vec::new();
    for &cache_bytes in cache_sizes {
        for (name, request_bytes, depth, order) in loads {
            let result = one(name, cache_bytes, request_bytes, depth, order, cpu)?;
            progress(&result);
            results.push(result);
        }
    }
    Ok(results)
}

fn one(
    name: &'static str,
    cache_bytes: u64,
    request_bytes: u32,
    depth: u32,
    order: Order,
    cpu: CpuCost,
) -> Result<BurstResult, String> {
    let burst_bytes = cache_bytes * BURST_PERCENT / 100 / (1 << 20) * (1 << 20);
    let burst = Load {
        offset_bytes: ORIGIN_BYTES / 2,
        span_bytes: burst_bytes,
        request_bytes,
        depth,
        read_percent: 0,
        order,
        limit: Limit::Bytes(burst_bytes),
    };
    let mut cached = devices::cached(cache_bytes, ORIGIN_BYTES, Settings::default(), cpu)?;
    let fill = Load::filling(cache_bytes, 1 << 20);
    let filled = fill.run(&mut cached, 0);
    let before = past(&cached);
    let outcome = burst.run(&mut cached, filled.end_ns);
    let past_bytes = past(&cached) - before;
    Ok(BurstResult {
        load: name,
        cache_bytes,
        ssd: burst.run(&mut Bare::new(devices::ssd(cache_bytes)), 0),
        disk: burst.run(&mut Bare::new(devices::disk(ORIGIN_BYTES)), 0),
        cached: outcome,
        past_percent: past_bytes as f64 * 100.0 / burst_bytes as f64,
    })
}

/// Bytes that bypassed the cache.
fn past(cached: &Cached) -> u64 {
    let bypasses = &cached.stats().bypasses;
    let reasons = BypassReason::NAMES.into_iter();
    reasons
        .map(|(reason, _)| bypasses.written_blocks(reason) * 4096)
        .sum()
}
