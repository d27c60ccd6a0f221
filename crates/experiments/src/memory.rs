//! `commit = memory` beside `commit = flush` and the bare SSD: the gain of acknowledging from a
//! buffer in memory, above all for a writer that asks one thing at a time.

use forebay_engine::{Commit, Settings};
use forebay_model::DeviceModel;

use crate::devices;
use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::Bare;
use forebay_virtual::CpuCost;
use forebay_virtual::{Cached, System};

const GIB: u64 = 1 << 30;
const CACHE_BYTES: u64 = 8 * GIB;
const ORIGIN_BYTES: u64 = 64 * GIB;
/// Well within what may be dirty before writes slow down.
const MOVED_BYTES: u64 = GIB;

/// Results of a load on the three systems.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryResult {
    /// The load, in words.
    pub load: &'static str,
    /// Requests in flight.
    pub depth: u32,
    /// The bare SSD.
    pub ssd: Outcome,
    /// Forebay as it is by default.
    pub flush: Outcome,
    /// Forebay with `commit = memory`.
    pub memory: Outcome,
}

/// Runs each load on a new cache.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(cpu: CpuCost) -> Result<Vec<MemoryResult>, String> {
    let random = Order::Shuffled { seed: 1 };
    let loads = [
        ("4 KiB random writes", 4096, 1, 0, random, MOVED_BYTES / 4),
        ("4 KiB random writes", 4096, 32, 0, random, MOVED_BYTES),
        (
            "8 KiB mix, 67 % reads of what was written",
            8192,
            32,
            67,
            random,
            MOVED_BYTES,
        ),
        (
            "128 KiB writes in sequence",
            128 << 10,
            1,
            0,
            Order::Sequential,
            MOVED_BYTES,
        ),
    ];
    let results = loads.map(|(name, request_bytes, depth, read_percent, order, bytes)| {
        let load = Load {
            offset_bytes: 0,
            span_bytes: MOVED_BYTES,
            request_bytes,
            depth,
            read_percent,
            order,
            limit: Limit::Bytes(bytes),
        };
        Ok(MemoryResult {
            load: name,
            depth,
            ssd: filled(&load, &mut Bare::new(ssd())),
            flush: filled(&load, &mut cached(Commit::Flush, cpu)?),
            memory: filled(&load, &mut cached(Commit::Memory, cpu)?),
        })
    });
    results.into_iter().collect()
}

/// Runs a load; a load that reads finds its span written, and cached: with more requests in flight
/// parts of a long write go to the origin, where they end sooner.
fn filled(load: &Load, system: &mut dyn System) -> Outcome {
    let mut began_ns = 0;
    if load.read_percent > 0 {
        let fill = Load {
            request_bytes: 128 << 10,
            depth: 1,
            read_percent: 0,
            order: Order::Sequential,
            ..load.clone()
        };
        began_ns = fill.run(system, 0).end_ns;
    }
    load.run(system, began_ns)
}

fn ssd() -> Box<dyn DeviceModel> {
    devices::ssd(CACHE_BYTES)
}

fn cached(commit: Commit, cpu: CpuCost) -> Result<Cached, String> {
    let settings = Settings {
        commit,
        ..Settings::default()
    };
    devices::cached(CACHE_BYTES, ORIGIN_BYTES, settings, cpu)
}
