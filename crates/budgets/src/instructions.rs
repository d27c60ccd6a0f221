//! Instructions of the engine for one 4 KiB operation, counted by callgrind. The checksum of the
//! block is stated beside the rest and not in it.

use std::path::Path;
use std::process::Command;

use forebay_engine::{Mode, RequestKind, Settings};

use crate::Figure;
use crate::hosted::HostRig;
use crate::rig::Rig;

/// Operations that are counted; enough for every reclaim, seal and flush to take its share.
const OPERATIONS: u64 = 19_200;
const CACHE_BYTES: u64 = 512 << 20;

struct Scenario {
    name: &'static str,
    figure: &'static str,
    limit: f64,
    /// See [`Figure::reached`].
    reached: f64,
}

const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "read-hit",
        figure: "instructions: 4 KiB read hit, depth 32",
        limit: 680.0,
        reached: 679.0,
    },
    Scenario {
        name: "write-hit",
        figure: "instructions: 4 KiB write hit, depth 32",
        limit: 1570.0,
        reached: 1560.0,
    },
    Scenario {
        name: "read-miss",
        figure: "instructions: 4 KiB read miss, promote, evict, depth 32",
        limit: 3800.0,
        reached: 3770.0,
    },
    Scenario {
        name: "read-hit-1",
        figure: "instructions: 4 KiB read hit, depth 1",
        limit: 715.0,
        reached: 710.0,
    },
    Scenario {
        name: "write-hit-1",
        figure: "instructions: 4 KiB write hit, depth 1",
        limit: 1600.0,
        reached: 1585.0,
    },
    Scenario {
        name: "long-write-1",
        figure: "instructions: each 4 KiB of a 128 KiB write, depth 1",
        limit: 630.0,
        reached: 620.0,
    },
    Scenario {
        name: "long-bypass-1",
        figure: "instructions: each 4 KiB of a 128 KiB write that bypasses the cache, depth 1",
        limit: 175.0,
        reached: 167.0,
    },
    Scenario {
        name: "bypass-1",
        figure: "instructions: 4 KiB write that bypasses the cache, depth 1",
        limit: 1400.0,
        reached: 1330.0,
    },
];

/// The instructions that two copies of dirty data, on two devices, add to a request.
const ADDED_BY_TWO: [Scenario; 4] = [
    Scenario {
        name: "read-hit-1",
        figure: "added by copies = 2: 4 KiB read hit, clean, depth 1",
        limit: 185.0,
        reached: 182.0,
    },
    Scenario {
        name: "read-dirty-1",
        figure: "added by copies = 2: 4 KiB read hit, dirty, depth 1",
        limit: 285.0,
        reached: 281.0,
    },
    Scenario {
        name: "write-hit-1",
        figure: "added by copies = 2: 4 KiB write hit, depth 1",
        limit: 935.0,
        reached: 920.0,
    },
    Scenario {
        name: "read-miss-1",
        figure: "added by copies = 2: 4 KiB read miss, promote, evict, depth 1",
        limit: 690.0,
        reached: 688.0,
    },
];

/// The instructions that 15 more shards on the same thread add to a request.
const ADDED_BY_SHARDS: [Scenario; 4] = [
    Scenario {
        name: "read-hit-1",
        figure: "added by 16 shards: 4 KiB read hit, depth 1",
        limit: 170.0,
        reached: 155.0,
    },
    Scenario {
        name: "read-hit",
        figure: "added by 16 shards: 4 KiB read hit, depth 32",
        limit: 260.0,
        reached: 244.0,
    },
    Scenario {
        name: "write-hit-1",
        figure: "added by 16 shards: 4 KiB write hit, depth 1",
        limit: 350.0,
        reached: 345.0,
    },
    Scenario {
        name: "write-hit",
        figure: "added by 16 shards: 4 KiB write hit, depth 32",
        limit: 460.0,
        reached: 450.0,
    },
];

/// The difference between scenarios whose names begin with `more` and those that begin with `less`.
fn measure_added(less: &str, more: &str, scenarios: &[Scenario]) -> Result<Vec<Figure>, String> {
    let figure = |scenario: &Scenario| {
        let count = |of: &str| count_each(&format!("{of}-{}", scenario.name), HOSTED_OPERATIONS);
        Ok(Figure {
            name: scenario.figure,
            value: count(more)?.0 - count(less)?.0,
            limit: scenario.limit,
            reached: scenario.reached,
        })
    };
    scenarios.iter().map(figure).collect()
}

pub(crate) fn measure() -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    let mut block_checksum = 0.0;
    for Scenario {
        name,
        figure,
        limit,
        reached,
    } in SCENARIOS
    {
        let (engine, checksum) = count_each(name, OPERATIONS)?;
        if block_checksum == 0.0 {
            // A read hit checks its block and nothing else.
            block_checksum = checksum;
        }
        // Checksums of entries and headers are the engine's own; only the block's is beside. What goes
        // past the cache has none.
        let beside = if name.contains("bypass") {
            0.0
        } else {
            block_checksum
        };
        let value = engine + checksum - beside;
        figures.push(Figure {
            name: figure,
            value,
            limit,
            reached,
        });
    }
    let name = "instructions: checksum of one 4 KiB block (beside)";
    figures.push(Figure::new(name, block_checksum, f64::INFINITY));
    figures.extend(measure_added("host", "two", &ADDED_BY_TWO)?);
    figures.extend(measure_added("shards-1", "shards-16", &ADDED_BY_SHARDS)?);
    Ok(figures)
}

/// Instructions for each of so many operations of a scenario, its setup aside: the engine's own, and
/// those of checksums.
fn count_each(scenario: &str, operations: u64) -> Result<(f64, f64), String> {
    let setup = format!("{scenario}-setup");
    // One on each of two processors: a count is the same beside whatever else runs.
    let (with, without) = std::thread::scope(|scope| {
        let without = scope.spawn(|| count(&setup));
        (
            count(scenario),
            without.join().expect("a count does not panic"),
        )
    });
    let (with, without) = (with?, without?);
    let each = |with: u64, without: u64| with.saturating_sub(without) as f64 / operations as f64;
    Ok((
        each(with.engine, without.engine),
        each(with.checksum, without.checksum),
    ))
}

struct Count {
    engine: u64,
    checksum: u64,
}

/// Runs a scenario under callgrind and adds up what its functions cost themselves.
fn count(scenario: &str) -> Result<Count, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let out = std::env::temp_dir().join(format!(
        "forebay-budgets-{}-{scenario}.callgrind",
        std::process::id()
    ));
    let status = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--toggle-collect=*engine_call_*",
            "--quiet",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--scenario", scenario])
        .status()
        .map_err(|error| format!("valgrind: {error} (install the package valgrind)"))?;
    if !status.success() {
        return Err(format!(
            "valgrind ended with {status} on scenario {scenario}"
        ));
    }
    let counted = add_up(&out);
    std::fs::remove_file(&out).ok();
    counted
}

/// Reads callgrind's output: lines of `position cost`, under `fn=` names; the line after `calls=`
/// is the callee's cost and not the function's own.
fn add_up(path: &Path) -> Result<Count, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut names: std::collections::HashMap<&str, bool> = std::collections::HashMap::new();
    let mut count = Count {
        engine: 0,
        checksum: 0,
    };
    let mut is_checksum = false;
    let mut skip = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            let (id, rest) = name.split_once(')').unwrap_or((name, ""));
            is_checksum = if rest.trim().is_empty() {
                names.get(id).copied().unwrap_or(false)
            } else {
                let found = rest.contains("crc");
                names.insert(id, found);
                found
            };
        } else if let Some(name) = line.strip_prefix("cfn=") {
            if let Some((id, rest)) = name.split_once(')')
                && !rest.trim().is_empty()
            {
                names.insert(id, rest.contains("crc"));
            }
        } else if line.starts_with("calls=") {
            skip = true;
        } else if line.starts_with(|first: char| {
            first.is_ascii_digit() || first == '+' || first == '-' || first == '*'
        }) {
            if std::mem::take(&mut skip) {
                continue;
            }
            let cost: u64 = line
                .split_whitespace()
                .nth(1)
                .and_then(|cost| cost.parse().ok())
                .unwrap_or(0);
            if is_checksum {
                count.checksum += cost
            } else {
                count.engine += cost
            }
        }
    }
    if count.engine == 0 {
        return Err(format!(
            "{} counts nothing: were the engine's calls inlined?",
            path.display()
        ));
    }
    Ok(count)
}

/// Runs a scenario; the `-setup` variants do the same up to where counting would begin.
pub(crate) fn run(scenario: &str) -> bool {
    let (scenario, operations) = match scenario.strip_suffix("-setup") {
        Some(scenario) => (scenario, 0),
        None => (scenario, OPERATIONS),
    };
    let settings = Settings {
        dirty_low_percent: 60,
        ..Settings::default()
    };
    let resident = CACHE_BYTES / 4096 / 4;
    let (scenario, depth) = match scenario.strip_suffix("-1") {
        Some(scenario) => (scenario, 1),
        None => (scenario, 32),
    };
    let scattered = |i: u64| (i * 7919 % resident) * 4096;
    if let Some(scenario) = scenario.strip_prefix("host-") {
        return run_hosted(1, scenario, depth, operations, settings);
    }
    if let Some(scenario) = scenario.strip_prefix("two-") {
        return run_hosted(2, scenario, depth, operations, settings);
    }
    if let Some((shards, scenario)) =
        (scenario.strip_prefix("shards-")).and_then(|rest| rest.split_once('-'))
    {
        let shards = shards.parse().expect("a number of shards");
        return run_sharded(shards, scenario, depth, operations, settings);
    }
    match scenario {
        "read-hit" | "write-hit" => {
            let kind = if scenario == "read-hit" {
                RequestKind::Read
            } else {
                RequestKind::Write { fua: false }
            };
            let mut rig = Rig::new(CACHE_BYTES, CACHE_BYTES, settings);
            for i in 0..resident / 32 {
                rig.request(RequestKind::Write { fua: false }, i << 17, 128 << 10);
            }
            for batch in 0..operations / depth {
                rig.batch(
                    kind,
                    (batch * depth..(batch + 1) * depth).map(scattered),
                    4096,
                );
            }
        }
        "long-write" => {
            let mut rig = Rig::new(CACHE_BYTES, CACHE_BYTES, settings);
            let requests = resident / 32;
            for i in 0..requests + operations / 32 {
                rig.request(
                    RequestKind::Write { fua: false },
                    (i % requests) << 17,
                    128 << 10,
                );
            }
        }
        "long-bypass" | "bypass" => {
            let len_bytes = if scenario == "bypass" {
                4096
            } else {
                128 << 10
            };
            let mut rig = Rig::new_in(Mode::Passthrough, CACHE_BYTES, CACHE_BYTES, settings);
            let requests = CACHE_BYTES / u64::from(len_bytes);
            // What grows with its first use does so before.
            for i in 0..1000 + operations / u64::from(len_bytes >> 12) {
                let at = i % requests * u64::from(len_bytes);
                rig.request(RequestKind::Write { fua: false }, at, len_bytes);
            }
        }
        "read-miss" => {
            let mut rig = Rig::new(CACHE_BYTES, 1 << 40, settings);
            // The cache is full of clean blocks, so that every promotion evicts.
            for i in 0..(2 * CACHE_BYTES) >> 17 {
                rig.request(RequestKind::Read, i << 17, 128 << 10);
            }
            let far = |i: u64| (1 << 38) + i * 8192;
            for batch in 0..operations / depth {
                rig.batch(
                    RequestKind::Read,
                    (batch * depth..(batch + 1) * depth).map(far),
                    4096,
                );
            }
        }
        _ => return false,
    }
    true
}

/// Of each device of a whole host's cache: it is filled under callgrind, too.
const HOSTED_BYTES: u64 = 64 << 20;
const HOSTED_OPERATIONS: u64 = OPERATIONS / 4;

/// Scenarios of a whole host, with a cache on one device or two.
fn run_hosted(
    devices: u8,
    scenario: &str,
    depth: u64,
    operations: u64,
    settings: Settings,
) -> bool {
    let resident = HOSTED_BYTES / 4096 / 4;
    let mut rig = HostRig::new((devices, 1), HOSTED_BYTES, 1 << 40, settings);
    let mut fill = |kind, count: u64| {
        for i in 0..count {
            rig.batch(kind, std::iter::once(i << 17), 128 << 10);
        }
    };
    let write = RequestKind::Write { fua: false };
    let (kind, place): (_, fn(u64, u64) -> u64) = match scenario {
        // What the cache read itself is clean, and on one device.
        "read-hit" => {
            fill(RequestKind::Read, resident / 32);
            (RequestKind::Read, |i, resident| {
                (i * 7919 % resident) * 4096
            })
        }
        "read-dirty" => {
            fill(write, resident / 32);
            (RequestKind::Read, |i, resident| {
                (i * 7919 % resident) * 4096
            })
        }
        "write-hit" => {
            fill(write, resident / 32);
            (write, |i, resident| (i * 7919 % resident) * 4096)
        }
        "read-miss" => {
            fill(RequestKind::Read, (4 * HOSTED_BYTES) >> 17);
            (RequestKind::Read, |i, _| (1 << 38) + i * 8192)
        }
        _ => return false,
    };
    run_batches(&mut rig, kind, depth, operations, |i| place(i, resident));
    true
}

/// Of a whole cache of several shards, the same for any number of them.
const SHARDED_BYTES: u64 = 256 << 20;
/// Parts of a volume of this size lie in shards in turn.
const REGION_BYTES: u64 = 8 << 20;

/// Scenarios of a whole host with so many shards, whose requests are for all of them.
fn run_sharded(
    shards: u16,
    scenario: &str,
    depth: u64,
    operations: u64,
    settings: Settings,
) -> bool {
    let write = RequestKind::Write { fua: false };
    let kind = match scenario {
        "read-hit" => RequestKind::Read,
        "write-hit" => write,
        _ => return false,
    };
    let mut rig = HostRig::new((1, shards), SHARDED_BYTES, 1 << 40, settings);
    // The first 512 KiB of each of 64 regions.
    let (regions, blocks) = (64, 128);
    for region in 0..regions {
        for at in 0..4 {
            let offset_bytes = region * REGION_BYTES + (at << 17);
            rig.batch(write, std::iter::once(offset_bytes), 128 << 10);
        }
    }
    let scattered = |i: u64| {
        let at = i * 7919 % (regions * blocks);
        at % regions * REGION_BYTES + at / regions * 4096
    };
    run_batches(&mut rig, kind, depth, operations, scattered);
    true
}

/// Requests of 4 KiB at the places of their numbers, so many together.
fn run_batches(
    rig: &mut HostRig,
    kind: RequestKind,
    depth: u64,
    operations: u64,
    place: impl Fn(u64) -> u64,
) {
    for batch in 0..operations.min(HOSTED_OPERATIONS) / depth {
        let places = (batch * depth..(batch + 1) * depth).map(&place);
        rig.batch(kind, places, 4096);
    }
}
