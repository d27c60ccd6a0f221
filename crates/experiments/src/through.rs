//! Write-through beside the bare disk: writes of blocks that are cached, each followed by a flush or
//! one behind the other, and of blocks that are not.

use forebay_engine::{Mode, RequestKind, Settings};
use forebay_random::SplitMix64;
use forebay_virtual::{Access, Bare, Cached, CpuCost, Setup, System};

use crate::devices;
use crate::load::{Limit, Load, Order};

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 1024 * MIB;
const ORIGIN_BYTES: u64 = 16 << 30;
/// The file of the synced writes, as in the lab's experiment `ext2-sync`.
const FILE_BYTES: u64 = 64 * MIB;
const SYNCED_NS: u64 = 20_000_000_000;
/// Bytes of a load whose writes are not synced.
const PLAIN_BYTES: u64 = 512 * MIB;

/// A load of writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Writes {
    /// The load, in words.
    pub name: &'static str,
    request_bytes: u32,
    /// Requests in flight; `None` for one that is flushed each time.
    depth: Option<u32>,
    is_sequential: bool,
    is_cached: bool,
    /// The least share of the disk's speed that it must have. A write of a cached block waits for a
    /// flush of the SSD first (I9): that is what a synced one lacks, and a few in flight now and then.
    pub least: f64,
}

/// All loads.
pub const LOADS: [Writes; 8] = [
    synced("4 KiB, synced, cached", 4 << 10),
    synced("32 KiB, synced, cached", 32 << 10),
    synced("128 KiB, synced, cached", 128 << 10),
    synced("512 KiB, synced, cached", 512 << 10),
    plain("512 KiB in sequence, depth 1", 512 << 10, 1, true, false),
    plain(
        "512 KiB in sequence, depth 1, cached",
        512 << 10,
        1,
        true,
        true,
    ),
    plain(
        "1 MiB in no order, depth 4, cached",
        1 << 20,
        4,
        false,
        true,
    ),
    plain("64 KiB in no order, depth 8", 64 << 10, 8, false, false),
];

const fn synced(name: &'static str, request_bytes: u32) -> Writes {
    Writes {
        name,
        request_bytes,
        depth: None,
        is_sequential: false,
        is_cached: true,
        least: 0.92,
    }
}

const fn plain(
    name: &'static str,
    request_bytes: u32,
    depth: u32,
    is_sequential: bool,
    is_cached: bool,
) -> Writes {
    Writes {
        name,
        request_bytes,
        depth: Some(depth),
        is_sequential,
        is_cached,
        least: if is_sequential { 0.99 } else { 0.95 },
    }
}

/// Result of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct ThroughResult {
    /// The load.
    pub writes: Writes,
    /// The bare disk, in KiB a second.
    pub disk_kibps: f64,
    /// Forebay in write-through, in KiB a second.
    pub cached_kibps: f64,
}

impl ThroughResult {
    /// Forebay's speed as a ratio to the disk's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.cached_kibps / self.disk_kibps
    }
}

/// Runs each load on a cache of its own and on the bare disk; `progress` hears of each.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    cpu: CpuCost,
    mut progress: impl FnMut(&ThroughResult),
) -> Result<Vec<ThroughResult>, String> {
    let mut results = Vec::new();
    for writes in LOADS {
        let result = one(writes, cpu)?;
        progress(&result);
        results.push(result);
    }
    Ok(results)
}

fn one(writes: Writes, cpu: CpuCost) -> Result<ThroughResult, String> {
    let mut cached = Cached::new(Setup {
        ssd: devices::ssd(CACHE_BYTES),
        cache_bytes: CACHE_BYTES,
        disk: devices::disk(ORIGIN_BYTES),
        origin_bytes: ORIGIN_BYTES,
        stripe: None,
        mode: Mode::Writethrough,
        settings: Settings::default(),
        cpu,
    })?;
    let mut bare = Bare::new(devices::disk(ORIGIN_BYTES));
    let fill = Load::filling(writes.span_bytes(), 1 << 20);
    let (mut cached_ns, mut bare_ns) = (0, 0);
    if writes.is_cached {
        cached_ns = fill.run(&mut cached, 0).end_ns;
        bare_ns = fill.run(&mut bare, 0).end_ns;
    }
    Ok(ThroughResult {
        writes,
        disk_kibps: writes.run(&mut bare, bare_ns),
        cached_kibps: writes.run(&mut cached, cached_ns),
    })
}

impl Writes {
    fn span_bytes(&self) -> u64 {
        match self.depth {
            Some(_) => PLAIN_BYTES,
            None => FILE_BYTES,
        }
    }

    /// KiB a second of the load on a system, from a time on.
    fn run(&self, system: &mut dyn System, start_ns: u64) -> f64 {
        let Some(depth) = self.depth else {
            return self.run_synced(system, start_ns);
        };
        let load = Load {
            offset_bytes: 0,
            span_bytes: PLAIN_BYTES,
            request_bytes: self.request_bytes,
            depth,
            read_percent: 0,
            order: match self.is_sequential {
                true => Order::Sequential,
                false => Order::Shuffled { seed: 1 },
            },
            limit: Limit::Bytes(PLAIN_BYTES),
        };
        load.run(system, start_ns).write.kibps
    }

    /// Writes and flushes in turn, at places in no order.
    fn run_synced(&self, system: &mut dyn System, start_ns: u64) -> f64 {
        let mut random = SplitMix64::new(1);
        let places = FILE_BYTES / u64::from(self.request_bytes);
        let (mut now_ns, mut id, mut bytes) = (start_ns, 0, 0);
        while now_ns < start_ns + SYNCED_NS {
            let write = Access {
                kind: RequestKind::Write { fua: false },
                offset_bytes: random.below(places) * u64::from(self.request_bytes),
                len_bytes: self.request_bytes,
            };
            let flush = Access {
                kind: RequestKind::Flush,
                offset_bytes: 0,
                len_bytes: 0,
            };
            for access in [write, flush] {
                system.send(now_ns, id, access);
                now_ns = answered(system);
                id += 1;
            }
            bytes += u64::from(self.request_bytes);
        }
        bytes as f64 / 1024.0 / ((now_ns - start_ns) as f64 / 1e9)
    }
}

/// Lets time pass until the request in flight is answered; when that was.
fn answered(system: &mut dyn System) -> u64 {
    let mut answers = Vec::new();
    loop {
        let now_ns = system.next_ns().expect("a request is in flight");
        system.run(now_ns, &mut answers);
        if let Some(answer) = answers.first() {
            return answer.at_ns;
        }
    }
}
