//! Waits of clients while dirty data goes to the origin, beside the waits of equal clients while none
//! does.

use forebay_engine::{Nanos, Settings};
use forebay_virtual::{Cached, CpuCost};

use crate::devices;
use crate::load::{Limit, Load, Order};
use crate::quantile::quantile_ns;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND_NS: u64 = 1_000_000_000;
/// No load writes as much, so that room in the log is nobody's trouble.
const CACHE_BYTES: u64 = 8 * GIB;
const ORIGIN_BYTES: u64 = 64 * GIB;
/// Cached blocks, which clients read or write.
const HOT_BYTES: u64 = 256 * MIB;
/// Dirty blocks in no order, each a place of its own on the disk.
const DIRTY_BYTES: u64 = 512 * MIB;
const DIRTY_OFFSET_BYTES: u64 = GIB;
const DIRTY_SPAN_BYTES: u64 = 31 * GIB;
/// Blocks that are not cached.
const MISSED_OFFSET_BYTES: u64 = ORIGIN_BYTES / 2;
const MISSED_SPAN_BYTES: u64 = ORIGIN_BYTES / 2;
/// Write-back has found its pace by then.
const SETTLE_NS: u64 = SECOND_NS;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Client {
    /// In words.
    pub name: &'static str,
    /// Requests in flight.
    pub depth: u32,
    /// It reads, or writes.
    pub reads: bool,
    /// Its blocks are cached.
    pub cached: bool,
    /// Its pause after each answer, in nanoseconds.
    pub think_ns: u64,
    /// Its duration, in nanoseconds.
    pub time_ns: u64,
    /// The dirty data beside it was written in sequence: a disk takes it as fast as it is read from the
    /// SSD.
    pub dirty_in_sequence: bool,
    /// The bounds that hold.
    pub most: Most,
}

/// The most that a client's p99 may be, as a ratio to that without write-back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Most {
    /// Beside write-back that nobody waits for.
    pub writeback: f64,
    /// Beside a drain.
    pub drain: f64,
}

/// The clients.
pub const CLIENTS: [Client; 7] = [
    cached("cached reads, depth 1", 1, true),
    cached("cached reads, depth 32", 32, true),
    cached("cached writes, depth 1", 1, false),
    cached("cached writes, depth 32", 32, false),
    beside_sequence(cached("cached reads, depth 1, dirty in sequence", 1, true)),
    beside_sequence(cached(
        "cached writes, depth 1, dirty in sequence",
        1,
        false,
    )),
    Client {
        name: "missed reads, depth 1, 20 ms apart",
        depth: 1,
        reads: true,
        cached: false,
        think_ns: 20_000_000,
        time_ns: 60 * SECOND_NS,
        dirty_in_sequence: false,
        // The goal of 1.2 is out of reach: decisions/0035-waits-beside-write-back.md.
        most: Most {
            writeback: 4.0,
            drain: 30.0,
        },
    },
];

const fn cached(name: &'static str, depth: u32, reads: bool) -> Client {
    Client {
        name,
        depth,
        reads,
        cached: true,
        think_ns: 0,
        time_ns: 5 * SECOND_NS,
        dirty_in_sequence: false,
        most: Most {
            writeback: 1.2,
            drain: 1.2,
        },
    }
}

/// The client beside data that the disk takes fast. A drain reads longer pieces then, as somebody
/// waits for it.
const fn beside_sequence(client: Client) -> Client {
    Client {
        dirty_in_sequence: true,
        time_ns: 2 * SECOND_NS,
        most: Most {
            writeback: 1.2,
            drain: 4.0,
        },
        ..client
    }
}

/// Waits of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// Requests answered.
    pub requests: u64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The slowest of a hundred, in microseconds.
    pub p99_us: f64,
    /// The slowest of a thousand, in microseconds.
    pub p999_us: f64,
    /// Written back meanwhile, in MiB a second.
    pub written_mib_s: f64,
}

/// A client, and its waits in three runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvisibleResult {
    /// The client.
    pub client: Client,
    /// While nothing goes to the origin.
    pub without: Waits,
    /// Beside write-back that nobody waits for.
    pub writeback: Waits,
    /// Beside a drain.
    pub drain: Waits,
}

impl InvisibleResult {
    /// The p99 of such waits, as a ratio to that without write-back.
    #[must_use]
    pub fn ratio(&self, waits: Waits) -> f64 {
        waits.p99_us / self.without.p99_us
    }
}

/// Writer of dirty data meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Writeback,
    Drain,
}

/// Runs each client three times, for so many times less long; `progress` hears of each.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    cpu: CpuCost,
    scale: u64,
    mut progress: impl FnMut(&InvisibleResult),
) -> Result<Vec<InvisibleResult>, String> {
    let mut results = Vec::new();
    for client in CLIENTS {
        let waits = |beside| waits(&client, beside, scale, cpu);
        let result = InvisibleResult {
            client,
            without: waits(Beside::Nothing)?,
            writeback: waits(Beside::Writeback)?,
            drain: waits(Beside::Drain)?,
        };
        progress(&result);
        results.push(result);
    }
    Ok(results)
}

/// A cache with the hot blocks in it and dirty data, and the time by which it has them.
fn prepared(client: &Client, beside: Beside, cpu: CpuCost) -> Result<(Cached, u64), String> {
    let dirty_low_percent = match beside {
        Beside::Writeback => 1,
        // Nothing in these runs makes as much dirty.
        Beside::Nothing | Beside::Drain => 50,
    };
    let settings = Settings {
        dirty_low_percent,
        age_limit: Nanos(24 * 3600 * SECOND_NS),
        ..Settings::default()
    };
    let mut cached = devices::cached(CACHE_BYTES, ORIGIN_BYTES, settings, cpu)?;
    let fill = Load::filling(HOT_BYTES, 128 << 10);
    let filled = fill.run(&mut cached, 0);
    let (request_bytes, order) = match client.dirty_in_sequence {
        true => (128 << 10, Order::Sequential),
        false => (4096, Order::Shuffled { seed: 1 }),
    };
    let soil = Load {
        offset_bytes: DIRTY_OFFSET_BYTES,
        span_bytes: DIRTY_SPAN_BYTES,
        request_bytes,
        depth: 32,
        read_percent: 0,
        order,
        limit: Limit::Bytes(DIRTY_BYTES),
    };
    let soiled = soil.run(&mut cached, filled.end_ns);
    Ok((cached, soiled.end_ns))
}

fn waits(client: &Client, beside: Beside, scale: u64, cpu: CpuCost) -> Result<Waits, String> {
    let (mut cached, now_ns) = prepared(client, beside, cpu)?;
    cached.set_draining(beside == Beside::Drain);
    let (offset_bytes, span_bytes) = match client.cached {
        true => (0, HOT_BYTES),
        false => (MISSED_OFFSET_BYTES, MISSED_SPAN_BYTES),
    };
    let load = |seed, time_ns| Load {
        offset_bytes,
        span_bytes,
        request_bytes: 4096,
        depth: client.depth,
        read_percent: if client.reads { 100 } else { 0 },
        order: Order::Shuffled { seed },
        limit: Limit::Time(time_ns),
    };
    let settled = load(2, SETTLE_NS).run_each(&mut cached, now_ns, client.think_ns, |_, _| ());
    let before = cached.stats().written_back_blocks;
    let mut times_ns = Vec::new();
    let outcome = load(3, client.time_ns / scale).run_each(
        &mut cached,
        settled.end_ns,
        client.think_ns,
        |_, time_ns| times_ns.push(time_ns),
    );
    let written_blocks = cached.stats().written_back_blocks - before;
    times_ns.sort_unstable();
    let slowest_us = |of_thousand| quantile_ns(&times_ns, of_thousand) as f64 / 1e3;
    Ok(Waits {
        requests: times_ns.len() as u64,
        p50_us: slowest_us(500),
        p99_us: slowest_us(990),
        p999_us: slowest_us(999),
        written_mib_s: written_blocks as f64 / 256.0 / (outcome.took_ns as f64 / 1e9),
    })
}
