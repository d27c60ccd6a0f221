//! The RAID table's rows of one SSD and one disk: random reads and writes of 64 KiB, 512 KiB and
//! 4 MiB, one at a time, twice as much as the cache holds.

use forebay_engine::{Mode, Settings};
use forebay_model::{DeviceModel, Disk, DiskParameters, Ssd, SsdParameters};

use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::CpuCost;
use forebay_virtual::{Bare, System};
use forebay_virtual::{Cached, Setup};

const CACHE_BYTES: u64 = 30_000_000_000;
const ORIGIN_BYTES: u64 = 150_000_000_000;
/// Lengths of requests, in KiB.
pub const REQUEST_KIB: [u32; 3] = [64, 512, 4096];
const BARE_NS: u64 = 60 * 1_000_000_000;
/// Enough for a disk to fill its write cache.
const LEAST_BARE_NS: u64 = 4 * 1_000_000_000;

/// Results of a request size in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct RaidResult {
    /// Length of a request, in KiB.
    pub request_kib: u32,
    /// Whether it writes.
    pub write: bool,
    /// The bare disk.
    pub disk: Outcome,
    /// The bare SSD.
    pub ssd: Outcome,
    /// Forebay, after as much again to warm up.
    pub cached: Outcome,
    /// The share of the second pass's blocks that were cached, in percent; of reads only.
    pub hit_percent: f64,
}

fn disk(scale: u64) -> Box<dyn DeviceModel> {
    Box::new(Disk::new(DiskParameters::sata_7200rpm(
        (ORIGIN_BYTES / scale).next_multiple_of(4096),
    )))
}

fn ssd(scale: u64) -> Box<dyn DeviceModel> {
    Box::new(Ssd::new(SsdParameters {
        size_bytes: CACHE_BYTES / scale,
        ..SsdParameters::sata_850pro()
    }))
}

/// Any place at any time. (Each place once in each pass would give a cache of half the size that
/// replaces the oldest 15 % of hits, in the same order none; bcache's published figures are those
/// of one that hits nearly half the time.)
fn load(scale: u64, request_kib: u32, write: bool, pass: u64) -> Load {
    let request_bytes = request_kib << 10;
    let span_bytes = 2 * CACHE_BYTES / scale / u64::from(request_bytes) * u64::from(request_bytes);
    Load {
        offset_bytes: 0,
        span_bytes,
        request_bytes,
        depth: 1,
        read_percent: if write { 0 } else { 100 },
        order: Order::Uniform { seed: pass },
        limit: Limit::Bytes(span_bytes),
    }
}

/// Runs every size in both directions, with everything `scale` times smaller; `progress` hears of
/// each.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    scale: u64,
    cpu: CpuCost,
    mut progress: impl FnMut(&RaidResult),
) -> Result<Vec<RaidResult>, String> {
    let scale = scale.max(1);
    let mut results = Vec::new();
    for write in [false, true] {
        for request_kib in REQUEST_KIB {
            let result = one(scale, request_kib, write, cpu)?;
            progress(&result);
            results.push(result);
        }
    }
    Ok(results)
}

fn one(scale: u64, request_kib: u32, write: bool, cpu: CpuCost) -> Result<RaidResult, String> {
    let load = |pass| load(scale, request_kib, write, pass);
    let bare = |device: Box<dyn DeviceModel>| {
        let part = |pass| Load {
            limit: Limit::Time((BARE_NS / scale).max(LEAST_BARE_NS)),
            ..load(pass)
        };
        let mut bare = Bare::new(device);
        // Its write cache is full afterwards, as it is for the rest of any longer load.
        let first = part(1).run(&mut bare, 0);
        part(2).run(&mut bare, first.end_ns)
    };
    let mut cached = Cached::new(Setup {
        ssd: ssd(scale),
        cache_bytes: CACHE_BYTES / scale,
        disk: disk(scale),
        origin_bytes: (ORIGIN_BYTES / scale).next_multiple_of(4096),
        stripe: None,
        mode: Mode::Writeback,
        settings: Settings::default(),
        cpu,
    })?;
    let first = load(1).run(&mut cached as &mut dyn System, 0);
    let before = cached.stats().clone();
    let second = load(2).run(&mut cached, first.end_ns);
    let hits = cached.stats().read_blocks_hit - before.read_blocks_hit;
    let misses = cached.stats().read_blocks_missed - before.read_blocks_missed;
    Ok(RaidResult {
        request_kib,
        write,
        disk: bare(disk(scale)),
        ssd: bare(ssd(scale)),
        cached: second,
        hit_percent: hits as f64 * 100.0 / (hits + misses).max(1) as f64,
    })
}
