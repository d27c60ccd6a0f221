//! Bursts of long writes in no order with pauses between them, to arrays that outrun the SSD of their
//! cache.
//!
//! Disks take a burst into their own memory, and empty that in the pause. A cache device that is the slower
//! one gains nothing for such a burst. The engine has to know so each time from the beginning.

use forebay_model::Level;
use forebay_virtual::{Bare, CpuCost, System};

use crate::arrays;
use crate::load::{Limit, Load, Order};

/// By so much everything is smaller.
const SCALE: u64 = 128;
/// The space of the bursts, in caches.
const SPAN_CACHES: u64 = 5;
const PAUSE_NS: u64 = 1_500_000_000;
/// Bursts of a quarter of the cache. The first half of them fills it.
const BURSTS: u64 = 40;
const REQUEST_KIB: [u32; 2] = [512, 4096];

/// Result of a load on an array.
#[derive(Clone, Debug, PartialEq)]
pub struct PausesResult {
    /// The array's name.
    pub level: &'static str,
    /// Length of a request, in KiB.
    pub request_kib: u32,
    /// The bare array in its bursts, in KiB a second.
    pub bare_kibps: f64,
    /// Forebay, with one SSD.
    pub cached_kibps: f64,
}

impl PausesResult {
    /// Forebay's rate as a ratio to the bare array's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.cached_kibps / self.bare_kibps
    }
}

/// Runs arrays without parity; `progress` hears of each result.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    cpu: CpuCost,
    mut progress: impl FnMut(&PausesResult),
) -> Result<Vec<PausesResult>, String> {
    let mut results = Vec::new();
    let plain = arrays::LEVELS.into_iter();
    for (level, name) in plain.filter(|(level, _)| *level != Level::Parity) {
        for request_kib in REQUEST_KIB {
            let array = || arrays::array(level, SCALE);
            let mut bare = Bare::new(Box::new(array()));
            let mut cached = arrays::cached(level, array(), SCALE, 1, cpu)?;
            let result = PausesResult {
                level: name,
                request_kib,
                bare_kibps: in_bursts(&mut bare, request_kib),
                cached_kibps: in_bursts(&mut cached, request_kib),
            };
            progress(&result);
            results.push(result);
        }
    }
    Ok(results)
}

/// The rate of the second half of the bursts, in KiB a second of theirs.
fn in_bursts(system: &mut dyn System, request_kib: u32) -> f64 {
    let burst_bytes = arrays::CACHE_BYTES / SCALE / 4;
    let (mut now_ns, mut bytes, mut took_ns) = (0, 0, 0);
    for burst in 0..BURSTS {
        let load = Load {
            offset_bytes: 0,
            span_bytes: SPAN_CACHES * arrays::CACHE_BYTES / SCALE,
            request_bytes: request_kib << 10,
            depth: 1,
            read_percent: 0,
            order: Order::Uniform { seed: burst },
            limit: Limit::Bytes(burst_bytes),
        };
        let outcome = load.run(system, now_ns);
        if burst >= BURSTS / 2 {
            bytes += outcome.write.bytes;
            took_ns += outcome.took_ns;
        }
        now_ns = outcome.end_ns + PAUSE_NS;
    }
    bytes as f64 / 1024.0 / (took_ns as f64 / 1e9)
}
