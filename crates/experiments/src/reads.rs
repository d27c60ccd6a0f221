//! Long reads of clean cached blocks, which the cache device and the origin hold alike: from the cache
//! device alone, and from both.

use forebay_engine::{Mode, Settings};
use forebay_model::{Array, DeviceModel, Disk, DiskParameters, Level};

use crate::devices;
use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::{Bare, Cached, CpuCost, Setup};

const CACHE_BYTES: u64 = 4 << 30;
const READ_BYTES: u64 = 3 << 30;
const ORIGIN_BYTES: u64 = 64 << 30;
const MEMBERS: u64 = 4;
/// As mdadm makes it unless told otherwise.
const CHUNK_BYTES: u64 = 512 << 10;
/// Reads of everything, after which everything is cached: a fast array is read sooner than the cache
/// device takes what was read.
const PASSES: u32 = 3;

/// A kind of origin, with its name.
type Origin = (&'static str, fn() -> Box<dyn DeviceModel>);

const ORIGINS: [Origin; 2] = [("disk", disk), ("RAID0 of 4 disks", array)];

/// Requests in KiB, how many are in flight, and whether they come in sequence.
const LOADS: [(u32, u32, bool); 7] = [
    (128, 1, true),
    (128, 4, true),
    (128, 16, true),
    (1024, 1, true),
    (1024, 4, true),
    (1024, 16, true),
    (1024, 16, false),
];

/// Result of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadsResult {
    /// The origin's name.
    pub origin_name: &'static str,
    /// Length of a request, in KiB.
    pub request_kib: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Whether they come in sequence.
    pub in_sequence: bool,
    /// The bare SSD.
    pub ssd: Outcome,
    /// The bare origin.
    pub origin: Outcome,
    /// Forebay, where the cache device answers all hits.
    pub alone: Outcome,
    /// Forebay, where the origin answers those that it ends sooner.
    pub both: Outcome,
    /// The part that the origin answered then, in percent.
    pub origin_percent: f64,
}

impl ReadsResult {
    /// Both devices' speed as a ratio to that of the cache device alone.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.both.read.kibps / self.alone.read.kibps
    }
}

fn disk() -> Box<dyn DeviceModel> {
    devices::disk(ORIGIN_BYTES)
}

fn array() -> Box<dyn DeviceModel> {
    let member = |_| -> Box<dyn DeviceModel> {
        let size_bytes = ORIGIN_BYTES / MEMBERS;
        Box::new(Disk::new(DiskParameters::sata_7200rpm(size_bytes)))
    };
    let members = (0..MEMBERS).map(member).collect();
    Box::new(Array::new(Level::Striped, CHUNK_BYTES, members))
}

/// Runs each load over each origin; `progress` hears of each result.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    cpu: CpuCost,
    mut progress: impl FnMut(&ReadsResult),
) -> Result<Vec<ReadsResult>, String> {
    let mut results = Vec::new();
    for origin in ORIGINS {
        for load in LOADS {
            let result = one(origin, load, cpu)?;
            progress(&result);
            results.push(result);
        }
    }
    Ok(results)
}

fn one(
    (origin_name, origin): Origin,
    (request_kib, depth, in_sequence): (u32, u32, bool),
    cpu: CpuCost,
) -> Result<ReadsResult, String> {
    let load = Load {
        offset_bytes: 0,
        span_bytes: READ_BYTES,
        request_bytes: request_kib << 10,
        depth,
        read_percent: 100,
        order: match in_sequence {
            true => Order::Sequential,
            false => Order::Shuffled { seed: 1 },
        },
        limit: Limit::Bytes(READ_BYTES),
    };
    let (alone, _) = cached(&load, origin(), false, cpu)?;
    let (both, origin_bytes) = cached(&load, origin(), true, cpu)?;
    Ok(ReadsResult {
        origin_name,
        request_kib,
        depth,
        in_sequence,
        ssd: load.run(&mut Bare::new(devices::ssd(CACHE_BYTES)), 0),
        origin: load.run(&mut Bare::new(origin()), 0),
        alone,
        both,
        origin_percent: origin_bytes as f64 * 100.0 / READ_BYTES as f64,
    })
}

/// The load behind a cache that holds all it reads, and the bytes of it that the origin answered.
fn cached(
    load: &Load,
    origin: Box<dyn DeviceModel>,
    origin_answers_hits: bool,
    cpu: CpuCost,
) -> Result<(Outcome, u64), String> {
    let mut cached = Cached::new(Setup {
        ssd: devices::ssd(CACHE_BYTES),
        cache_bytes: CACHE_BYTES,
        disk: origin,
        origin_bytes: ORIGIN_BYTES,
        stripe: None,
        mode: Mode::Writeback,
        settings: Settings::default(),
        cpu,
    })?;
    cached.set_origin_answers_hits(origin_answers_hits);
    let fill = Load::filling(READ_BYTES, 1 << 20);
    let filled_ns = (0..PASSES).fold(0, |at_ns, _| fill.run(&mut cached, at_ns).end_ns);
    let before = cached.traffic();
    let outcome = load.run(&mut cached, filled_ns);
    Ok((outcome, cached.traffic().since(&before).origin_read_bytes))
}
