//! `forebay explain`: why requests bypassed the cache, as an administrator reads it.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok};

fn explain(daemon: &Daemon, scratch: &Scratch) -> serde_json::Value {
    let said = daemon.command(scratch, &["explain", "--json"]);
    serde_json::from_str(&said).unwrap()
}

fn reason<'a>(explained: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let reasons = explained["bypassed"].as_array().unwrap();
    reasons
        .iter()
        .find(|reason| reason["reason"] == name)
        .unwrap_or(&serde_json::Value::Null)
}

#[test]
fn each_reason_is_counted_and_explained() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(
        &scratch,
        "writeback",
        &[
            "--admission",
            "second-touch",
            "--write-admission",
            "touch-3",
        ],
    );
    assert_eq!(
        explain(&daemon, &scratch)["bypassed"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.read(MIB, 8192);
    client.write(2 * MIB, &[1; 4096]);
    let explained = explain(&daemon, &scratch);
    let admission = reason(&explained, "admission");
    assert_eq!(admission["read_blocks"], 2, "{explained}");
    assert_eq!(admission["written_blocks"], 1, "{explained}");
    assert_eq!(admission["last"]["offset_bytes"], 2 * MIB);
    assert_eq!(admission["last"]["write"], true);
    client.read(MIB, 8192);
    assert_eq!(explain(&daemon, &scratch)["promoted_blocks"], 2);

    daemon.command(&scratch, &["set", "admission", "always"]);
    daemon.command(&scratch, &["set", "sequential-cutoff", "64K"]);
    for part in 0..4 {
        client.read(8 * MIB + part * 65536, 65536);
    }
    let explained = explain(&daemon, &scratch);
    assert_eq!(
        reason(&explained, "sequential")["read_blocks"],
        48,
        "{explained}"
    );
    let page = daemon.command(&scratch, &["explain"]);
    assert!(page.contains("forebay set sequential-cutoff"), "{page}");
    assert!(page.contains("Last: a read of 64 KiB"), "{page}");
    for (key, value) in [
        ("admission", "touch-99"),
        ("congestion-read", "5 parsecs"),
        ("write-budget", "lots"),
    ] {
        let mut refused = daemon.begin(&scratch, &["set", key, value]);
        assert_eq!(refused.wait().unwrap().code(), Some(2), "{key}");
    }
    daemon.stop();
    forebay_ok(&scratch, &["check", &scratch.text("cache")]);
}

/// A reason, the commands that bring it about, and the command that `explain` advises.
struct Advised {
    reason: &'static str,
    before: &'static [&'static [&'static str]],
    /// As the remedy has it.
    named: &'static str,
    follow: &'static [&'static str],
}

const SETTINGS: [Advised; 6] = [
    Advised {
        reason: "sequential",
        before: &[&["set", "sequential-cutoff", "64K"]],
        named: "forebay set sequential-cutoff off",
        follow: &["set", "sequential-cutoff", "off"],
    },
    Advised {
        reason: "admission",
        before: &[&["set", "write-admission", "touch-15"]],
        named: "forebay set write-admission always",
        follow: &["set", "write-admission", "always"],
    },
    Advised {
        reason: "write-budget",
        before: &[&["set", "write-budget", "1M"]],
        named: "forebay set write-budget SIZE, or off",
        follow: &["set", "write-budget", "off"],
    },
    Advised {
        reason: "congested",
        before: &[&["set", "congestion-write", "1us"]],
        named: "forebay set congestion-write off",
        follow: &["set", "congestion-write", "off"],
    },
    Advised {
        reason: "mode",
        before: &[&["mode", "origin", "writearound"]],
        named: "forebay mode VOLUME writethrough, or writeback",
        follow: &["mode", "origin", "writeback"],
    },
    Advised {
        reason: "dirty-limit",
        before: &[&["set", "dirty-low", "1"], &["set", "dirty-high", "2"]],
        named: "forebay set dirty-high PERCENT",
        follow: &["set", "dirty-high", "60"],
    },
];

/// The places for a long write in a region of 64 MiB.
const LONG_WRITES: u64 = 16;

/// Writes 16 MiB in pieces of 128 KiB that do not follow each other, then 1 MiB at once in one of
/// the places for long writes.
fn write_much(client: &mut Client, region: u64, long: u64) {
    for piece in 0..128 {
        client.write(((region * 64) << 20) + (piece << 18), &[1; 128 << 10]);
    }
    client.write((region * 64 + 48 + long) << 20, &[2; 1 << 20]);
}

#[test]
fn advice_that_is_followed_changes_the_thing() {
    for advised in SETTINGS {
        let scratch = Scratch::new();
        scratch.file("origin", 256 * MIB);
        scratch.file("cache", 256 * MIB);
        // Its write-back is slow enough for dirty data to stay.
        let daemon = Daemon::cached(
            &scratch,
            "writeback",
            &["--origin-emulate", "hdd", "--cache-emulate", "ssd"],
        );
        for command in advised.before {
            daemon.command(&scratch, command);
        }
        let name = advised.reason;
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        // Short writes wait for write-back at the mark of dirty data, so that a long one may come
        // just when there is less. Its blocks are then dirty, and the next one's must not be.
        let explained = (0..LONG_WRITES)
            .map(|long| {
                write_much(&mut client, 0, long);
                explain(&daemon, &scratch)
            })
            .find(|explained| !reason(explained, name).is_null())
            .unwrap_or_else(|| panic!("{name} is no reason in {LONG_WRITES} rounds"));
        let found = reason(&explained, name);
        let before = found["written_blocks"].as_u64().unwrap();
        assert!(before > 0, "{name}: {explained}");
        let remedy = found["remedy"].as_str().unwrap();
        assert!(remedy.contains(advised.named), "{name}: {remedy}");

        daemon.command(&scratch, advised.follow);
        write_much(&mut client, 1, 0);
        let explained = explain(&daemon, &scratch);
        assert_eq!(
            reason(&explained, name)["written_blocks"],
            before,
            "{name}: {explained}"
        );
    }
}

#[test]
fn a_cache_that_is_full_of_clean_data_is_not_at_its_dirty_limit() {
    let scratch = Scratch::new();
    scratch.file("origin", 512 * MIB);
    let cache = scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(&scratch, "writethrough", &[]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    let mut burst = || {
        for piece in 0..96 {
            client.begin_write(piece << 20, &[1; 256 << 10]).unwrap();
        }
        while client.waiting() > 0 {
            client.reply().unwrap();
        }
    };
    let past = |name: &str| {
        let explained = explain(&daemon, &scratch);
        reason(&explained, name)["written_blocks"]
            .as_u64()
            .unwrap_or(0)
    };
    support::until("reclaim is behind", || {
        burst();
        past("no-room") > 0
    });
    assert_eq!(past("dirty-limit"), 0);
    let page = daemon.command(&scratch, &["explain"]);
    assert!(page.contains("forebay cache resize SIZE"), "{page}");
    assert!(!page.contains("dirty-high"), "{page}");

    std::fs::File::options()
        .write(true)
        .open(&cache)
        .unwrap()
        .set_len(256 * MIB)
        .unwrap();
    daemon.command(&scratch, &["cache", "resize", "max"]);
    let before = past("no-room");
    burst();
    assert_eq!(past("no-room"), before);
}

#[test]
fn long_zeroes_bypass_the_cache_by_their_size() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.begin_zeroes(0, 2 << 20).unwrap();
    client.begin_zeroes(8 << 20, 64 << 10).unwrap();
    while client.waiting() > 0 {
        client.reply().unwrap();
    }
    let explained = explain(&daemon, &scratch);
    assert_eq!(
        reason(&explained, "size")["written_blocks"],
        512,
        "{explained}"
    );
}

/// The second read comes while the first brings the block.
#[test]
fn a_block_that_is_just_being_promoted_is_busy() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &["--origin-emulate", "hdd"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for round in 0..4 {
        for _ in 0..2 {
            client.begin_read(round * 16 * MIB, 4096).unwrap();
        }
        while client.waiting() > 0 {
            assert_eq!(client.reply().unwrap().error, 0);
        }
    }
    let explained = explain(&daemon, &scratch);
    let busy = reason(&explained, "busy");
    assert_eq!(busy["read_blocks"], 4, "{explained}");
    assert_eq!(explained["promoted_blocks"], 4, "{explained}");
    let remedy = busy["remedy"].as_str().unwrap();
    assert!(remedy.contains("the next miss"), "{remedy}");
    // As the remedy says.
    client.read(0, 4096);
    let explained = explain(&daemon, &scratch);
    assert_eq!(reason(&explained, "busy")["read_blocks"], 4, "{explained}");
    assert_eq!(explained["read_blocks_hit"], 1, "{explained}");
    daemon.stop();
}

/// Each thread has 16 MiB. What one of them promotes for the client of the other is not held to what
/// it has, and each read of 4 KiB wants a block of 64 KiB from a slow disk.
#[test]
fn promotions_without_memory_go_past_the_cache() {
    let reads_without = |memory: &str| {
        let scratch = Scratch::new();
        scratch.file("origin", 256 * MIB);
        let create = ["create", "cache", "--size", "320M", "--block-size", "64K"];
        forebay_ok(&scratch, &[&create[..], &["--shards", "2"]].concat());
        let slow = ["--origin-emulate", "hdd", "--threads", "2"];
        let more = [&slow[..], &["--memory", memory]].concat();
        let daemon = Daemon::cached(&scratch, "writeback", &more);
        let mut clients: Vec<Client> = (0..2)
            .map(|_| Client::connect(&scratch.path("nbd")).unwrap())
            .collect();
        // Of one shard's regions of 8 MiB the second client has none that the first has.
        for (at, client) in (0..).zip(&mut clients) {
            for block in 0..512 {
                let region = at * 8 + block / 128 * 2;
                let offset = region * 8 * MIB + block % 128 * (64 << 10);
                client.begin_read(offset, 4096).unwrap();
            }
        }
        for client in &mut clients {
            while client.waiting() > 0 {
                assert_eq!(client.reply().unwrap().error, 0);
            }
        }
        let explained = explain(&daemon, &scratch);
        let without = reason(&explained, "no-memory").clone();
        daemon.stop();
        without
    };
    let without = reads_without("32M");
    assert!(without["read_blocks"].as_u64() > Some(0), "{without}");
    let remedy = without["remedy"].as_str().unwrap();
    assert!(remedy.contains("--memory"), "{remedy}");
    // As the remedy says.
    assert!(reads_without("256M").is_null());
}
