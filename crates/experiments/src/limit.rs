//! Random writes past the limit of dirty data: at the SSD's speed until then, at what sorted
//! write-back sustains after it.

use forebay_engine::Settings;

use crate::devices;
use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::Bare;
use forebay_virtual::CpuCost;

const GIB: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 * GIB;
/// Sixteen times the cache: few blocks are written twice before they are written back.
const SPAN_BYTES: u64 = 32 * GIB;
const ORIGIN_BYTES: u64 = 64 * GIB;
const AFTER_NS: u64 = 60 * 1_000_000_000;

/// Result of the load at the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitResult {
    /// While there was room: the first quarter of the cache.
    pub before: Outcome,
    /// A minute of it when dirty data was at its limit.
    pub after: Outcome,
    /// The bare SSD under the same load.
    pub ssd: Outcome,
    /// The bare disk under the same load.
    pub disk: Outcome,
    /// Dirty data at the end, as a share of the cache in percent.
    pub dirty_percent: f64,
}

/// Runs 4 KiB random writes at depth 32 over a cache of 2 GiB.
///
/// # Errors
/// If the cache cannot be made.
pub fn run(cpu: CpuCost) -> Result<LimitResult, String> {
    let load = |limit| Load {
        offset_bytes: 0,
        span_bytes: SPAN_BYTES,
        request_bytes: 4096,
        depth: 32,
        read_percent: 0,
        order: Order::Shuffled { seed: 1 },
        limit,
    };
    let mut cached = devices::cached(CACHE_BYTES, ORIGIN_BYTES, Settings::default(), cpu)?;
    let before = load(Limit::Bytes(CACHE_BYTES / 4)).run(&mut cached, 0);
    // Other places, so that what is dirty already is not written again.
    let other = |seed, limit| Load {
        order: Order::Shuffled { seed },
        ..load(limit)
    };
    let filling = other(2, Limit::Bytes(CACHE_BYTES)).run(&mut cached, before.end_ns);
    let after = other(3, Limit::Time(AFTER_NS)).run(&mut cached, filling.end_ns);
    Ok(LimitResult {
        before,
        after,
        ssd: load(Limit::Bytes(CACHE_BYTES / 4)).run(&mut Bare::new(devices::ssd(CACHE_BYTES)), 0),
        disk: load(Limit::Time(AFTER_NS)).run(&mut Bare::new(devices::disk(ORIGIN_BYTES)), 0),
        dirty_percent: cached.dirty_bytes() as f64 * 100.0 / CACHE_BYTES as f64,
    })
}
