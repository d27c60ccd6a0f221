//! Memory for each cached 4 KiB block: the slope of resident memory between a small and a large
//! cache, both full.

use std::process::Command;

use forebay_engine::{RequestKind, Settings};

use crate::Figure;
use crate::rig::Rig;

const SMALL_BYTES: u64 = 256 << 20;
const LARGE_BYTES: u64 = 4 << 30;

pub(crate) fn measure() -> Result<Vec<Figure>, String> {
    let small = resident(SMALL_BYTES)?;
    let large = resident(LARGE_BYTES)?;
    let (bytes, blocks) = (
        large.0 as f64 - small.0 as f64,
        large.1 as f64 - small.1 as f64,
    );
    Ok(vec![Figure::new(
        "memory: bytes for each cached 4 KiB block",
        bytes / blocks,
        16.0,
    )])
}

/// Resident bytes and cached blocks of a process with a full cache of this size.
fn resident(cache_bytes: u64) -> Result<(u64, u64), String> {
    let program =
        std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let output = Command::new(program)
        .args(["--scenario", &format!("resident-{cache_bytes}")])
        .output()
        .map_err(|error| format!("this program: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .split_whitespace()
        .filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(resident), Some(blocks)) => Ok((resident, blocks)),
        _ => Err(format!(
            "no figures from a cache of {cache_bytes} bytes: {text}"
        )),
    }
}

pub(crate) fn run(scenario: &str) -> bool {
    let Some(cache_bytes) = scenario
        .strip_prefix("resident-")
        .and_then(|bytes| bytes.parse::<u64>().ok())
    else {
        return false;
    };
    let mut rig = Rig::new(cache_bytes, 1 << 40, Settings::default());
    let runs = cache_bytes / (128 << 10);
    // Twice over: full, with a history, every block read once so that all arrays are touched.
    for i in 0..runs * 2 {
        rig.request(RequestKind::Read, i * (128 << 10), 128 << 10);
    }
    let (cached, _) = rig.engine.occupancy();
    println!("{} {cached}", resident_bytes());
    true
}

fn resident_bytes() -> u64 {
    // Counted page by page; `status` gives a figure that lags behind by up to some 100 pages. Not
    // the pages of the program's own file: the kernel decides how many of those are there, and it
    // varies by as much as a quarter of a byte for each block.
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"))
        .unwrap_or("0 kB");
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse::<u64>()
        .unwrap_or(0)
        * 1024
}
