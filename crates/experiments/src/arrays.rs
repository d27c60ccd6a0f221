//! Writes to arrays of four disks, behind a cache on one SSD and without: in no order and in
//! sequence, one request at a time, twice as much as the cache holds.

use forebay_engine::{Mode, Settings, Stripe};
use forebay_model::{Array, DeviceModel, Disk, DiskParameters, Level, Ssd, SsdParameters};

use crate::load::{Limit, Load, Order, Outcome};
use crate::raid::REQUEST_KIB;
use forebay_virtual::{Bare, Cached, CpuCost, Setup, System};

pub(crate) const CACHE_BYTES: u64 = 30_000_000_000;
const MEMBER_BYTES: u64 = 150_000_000_000;
const MEMBERS: usize = 4;
/// As mdadm makes them unless told otherwise.
const CHUNK_BYTES: u64 = 512 << 10;
/// The arrays, with their names.
pub(crate) const LEVELS: [(Level, &str); 4] = [
    (Level::Striped, "RAID0"),
    (Level::Mirrored, "RAID1"),
    (Level::Parity, "RAID5"),
    (Level::StripedMirrors, "RAID10"),
];

/// Result of a load on an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayResult {
    /// By how much everything was smaller.
    pub scale: u64,
    /// The array's name.
    pub level: &'static str,
    /// SSDs of the cache: one, or a RAID0 of four.
    pub ssds: usize,
    /// Length of a request, in KiB.
    pub request_kib: u32,
    /// Whether it writes in sequence.
    pub in_sequence: bool,
    /// The bare array.
    pub bare: Outcome,
    /// Forebay, after as much again to warm up.
    pub cached: Outcome,
    /// Of stripes of a RAID5 those of which something was read before they were written, in percent:
    /// bare, and behind Forebay.
    pub partial_percent: (f64, f64),
}

impl ArrayResult {
    /// Forebay's rate as a ratio to the bare array's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.cached.write.kibps / self.bare.write.kibps
    }
}

pub(crate) fn array(level: Level, scale: u64) -> Array {
    let member = || -> Box<dyn DeviceModel> {
        let size_bytes = (MEMBER_BYTES / scale).next_multiple_of(CHUNK_BYTES);
        Box::new(Disk::new(DiskParameters::sata_7200rpm(size_bytes)))
    };
    Array::new(level, CHUNK_BYTES, (0..MEMBERS).map(|_| member()).collect())
}

fn ssd(ssds: usize, scale: u64) -> Box<dyn DeviceModel> {
    let one = |size_bytes| -> Box<dyn DeviceModel> {
        Box::new(Ssd::new(SsdParameters {
            size_bytes,
            ..SsdParameters::sata_850pro()
        }))
    };
    match ssds {
        1 => one(CACHE_BYTES / scale),
        _ => {
            let member_bytes = (CACHE_BYTES / scale / ssds as u64).next_multiple_of(CHUNK_BYTES);
            let members = (0..ssds).map(|_| one(member_bytes)).collect();
            Box::new(Array::new(Level::Striped, CHUNK_BYTES, members))
        }
    }
}

fn load(scale: u64, request_kib: u32, in_sequence: bool, pass: u64) -> Load {
    let request_bytes = request_kib << 10;
    let span_bytes = 2 * CACHE_BYTES / scale / u64::from(request_bytes) * u64::from(request_bytes);
    Load {
        offset_bytes: 0,
        span_bytes,
        request_bytes,
        depth: 1,
        read_percent: 0,
        order: match in_sequence {
            true => Order::Sequential,
            false => Order::Uniform { seed: pass },
        },
        limit: Limit::Bytes(span_bytes),
    }
}

/// Runs every array with everything `scale` times smaller; `progress` hears of each result.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    scale: u64,
    cpu: CpuCost,
    mut progress: impl FnMut(&ArrayResult),
) -> Result<Vec<ArrayResult>, String> {
    let mut results = Vec::new();
    for (_, name) in LEVELS {
        results.extend(run_level(name, scale, cpu, &mut progress)?);
    }
    Ok(results)
}

/// As [`run`], of the array of this name: RAID0, RAID1, RAID5 or RAID10.
///
/// # Errors
/// If a cache cannot be made, or no array is called so.
pub fn run_level(
    name: &str,
    scale: u64,
    cpu: CpuCost,
    mut progress: impl FnMut(&ArrayResult),
) -> Result<Vec<ArrayResult>, String> {
    let scale = scale.max(1);
    let mut levels = LEVELS.into_iter();
    let (level, name) = levels
        .find(|(_, known)| *known == name)
        .ok_or_else(|| format!("no array is called {name}"))?;
    let mut results = Vec::new();
    for in_sequence in [false, true] {
        for request_kib in REQUEST_KIB {
            let load = |pass| load(scale, request_kib, in_sequence, pass);
            let (bare, bare_partial) = bare(level, scale, &load);
            for ssds in [1, 4] {
                let (cached, partial) = behind(level, scale, ssds, cpu, &load)?;
                let result = ArrayResult {
                    scale,
                    level: name,
                    ssds,
                    request_kib,
                    in_sequence,
                    bare,
                    cached,
                    partial_percent: (bare_partial, partial),
                };
                progress(&result);
                results.push(result);
            }
        }
    }
    Ok(results)
}

/// A cache in write-back on so many SSDs before an array.
pub(crate) fn cached(
    level: Level,
    array: Array,
    scale: u64,
    ssds: usize,
    cpu: CpuCost,
) -> Result<Cached, String> {
    let stripe = match level {
        Level::Parity => Stripe::new(array.stripe_bytes(), 0),
        _ => None,
    };
    Cached::new(Setup {
        ssd: ssd(ssds, scale),
        cache_bytes: CACHE_BYTES / scale,
        disk: Box::new(array),
        origin_bytes: (MEMBER_BYTES / scale).next_multiple_of(4096),
        stripe,
        mode: Mode::Writeback,
        settings: Settings::default(),
        cpu,
    })
}

/// Partial stripes in percent of all, as `(whole, partial)` counts them.
fn percent((whole, partial): (u64, u64)) -> f64 {
    partial as f64 * 100.0 / (whole + partial).max(1) as f64
}

/// The array without a cache: its disks' write caches are full when the clock starts.
fn bare(level: Level, scale: u64, load: &dyn Fn(u64) -> Load) -> (Outcome, f64) {
    let array = array(level, scale);
    let counters = array.counters();
    let mut bare = Bare::new(Box::new(array));
    let first = load(1).run(&mut bare, 0);
    let second = load(2).run(&mut bare, first.end_ns);
    let counts = (counters.whole_stripes(), counters.partial_stripes());
    (second, percent(counts))
}

fn behind(
    level: Level,
    scale: u64,
    ssds: usize,
    cpu: CpuCost,
    load: &dyn Fn(u64) -> Load,
) -> Result<(Outcome, f64), String> {
    let array = array(level, scale);
    let counters = array.counters();
    let mut cached = cached(level, array, scale, ssds, cpu)?;
    let first = load(1).run(&mut cached as &mut dyn System, 0);
    let second = load(2).run(&mut cached, first.end_ns);
    let counts = (counters.whole_stripes(), counters.partial_stripes());
    Ok((second, percent(counts)))
}
