//! Verified load over twice the cache: every block size, at random and in sequence, in every mode
//! and across live switches.

mod support;

use forebay_random::SplitMix64;
use support::{Daemon, MIB, Scratch, finish, fio, forebay_ok, installed, spawn};

const MODES: [&str; 5] = [
    "writeback",
    "writethrough",
    "writearound",
    "readonly",
    "passthrough",
];
/// Each with how much of the volume one run writes: the smallest would take long over all of it.
const BLOCKS: [(&str, Option<&str>); 5] = [
    ("512", Some("2M")),
    ("4k", None),
    ("64k", None),
    ("1m", None),
    ("4m", None),
];
const PATTERNS: [&str; 2] = ["randwrite", "write"];

/// Runs fio over all of `size`, with something else to do until it ends.
fn verify(
    daemon: &Daemon,
    (pattern, size): (&str, &str),
    (block, written): (&str, Option<&str>),
    seed: u64,
    mut meanwhile: impl FnMut(),
) {
    let mut arguments = fio::verified(daemon.uri(), pattern, size, block, seed);
    arguments.extend(written.map(|written| format!("--io_size={written}")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut load = spawn("fio", &arguments);
    while load.try_wait().unwrap().is_none() {
        meanwhile();
    }
    let said = finish(load);
    assert!(
        !said.contains("verify: bad"),
        "{pattern} of {block}, seed {seed}: {said}"
    );
}

#[test]
fn every_block_size_in_every_mode() {
    if !installed("fio") {
        return;
    }
    for mode in MODES {
        let scratch = Scratch::new();
        scratch.file("origin", 24 * MIB);
        scratch.file("cache", 12 * MIB);
        let daemon = Daemon::cached(&scratch, mode, &["--memory", "64M"]);
        for block in BLOCKS {
            for pattern in PATTERNS {
                verify(&daemon, (pattern, "24M"), block, 1, || {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                });
            }
        }
        assert_eq!(daemon.status(&scratch)["volumes"][0]["mode"], mode);
        daemon.stop();
    }
}

/// Requests smaller and larger than the cache's blocks, and not at their boundaries.
#[test]
fn every_block_size_on_caches_of_larger_blocks() {
    if !installed("fio") {
        return;
    }
    for (block_size, size) in [("8K", "20M"), ("16K", "36M")] {
        let scratch = Scratch::new();
        scratch.file("origin", 48 * MIB);
        scratch.cache_in_blocks(block_size, size);
        let daemon = Daemon::cached(&scratch, "writeback", &["--memory", "64M"]);
        for block in BLOCKS {
            for pattern in PATTERNS {
                verify(&daemon, (pattern, "48M"), block, 2, || {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                });
            }
        }
        daemon.stop();
    }
}

#[test]
fn every_block_size_across_mode_switches() {
    if !installed("fio") {
        return;
    }
    for (threads, shards) in [("1", "1"), ("2", "3")] {
        let scratch = Scratch::new();
        scratch.file("origin", 64 * MIB);
        forebay_ok(
            &scratch,
            &["create", "cache", "--size", "32M", "--shards", shards],
        );
        let daemon = Daemon::cached(
            &scratch,
            "writeback",
            &["--threads", threads, "--memory", "64M", "--name", "disk"],
        );
        let mut random = SplitMix64::new(threads.len() as u64);
        for (seed, block) in (0..).zip(BLOCKS.into_iter().chain([("512-4m", None)])) {
            for pattern in PATTERNS {
                verify(&daemon, (pattern, "64M"), block, seed, || {
                    let mode = MODES[random.below(5) as usize];
                    daemon.command(&scratch, &["mode", "disk", mode]);
                    assert_eq!(daemon.status(&scratch)["volumes"][0]["mode"], mode);
                });
            }
        }
        daemon.stop();
    }
}
