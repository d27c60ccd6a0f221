//! Settings of a volume for itself: an age, a share of the cache, a rate.

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, until};

const BLOCK: u64 = 4096;

/// Two volumes on one cache, with keys of each.
fn serve(scratch: &Scratch, mode: &str, one: &str, two: &str) -> Daemon {
    for name in ["one", "two"] {
        scratch.file(name, 128 * MIB);
    }
    scratch.file("cache", 64 * MIB);
    let volume = |name: &str, keys: &str| {
        format!("[[volume]]\norigin = \"{name}\"\nmode = \"{mode}\"\n{keys}\n")
    };
    let head =
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = []\n[settings]\nage = 3600\n";
    let file = format!("{head}{}{}", volume("one", one), volume("two", two));
    std::fs::write(scratch.path("f.toml"), file).unwrap();
    Daemon::start(scratch, &["--config", "f.toml"])
}

fn client(scratch: &Scratch, name: &str) -> Client {
    Client::open(&scratch.path("nbd"), name).unwrap().unwrap()
}

fn of_volume(daemon: &Daemon, scratch: &Scratch, at: usize, key: &str) -> u64 {
    daemon.status(scratch)["volumes"][at][key].as_u64().unwrap()
}

fn bypassed(daemon: &Daemon, scratch: &Scratch, reason: &str) -> u64 {
    let status = daemon.status(scratch);
    let reasons: &Vec<Value> = status["traffic"]["bypassed"].as_array().unwrap();
    let found = reasons.iter().find(|found| found["reason"] == reason);
    found.map_or(0, |found| found["blocks"].as_u64().unwrap())
}

#[test]
fn a_volume_has_its_own_age() {
    let scratch = Scratch::new();
    let daemon = serve(&scratch, "writeback", "age = \"1s\"", "");
    let (mut one, mut two) = (client(&scratch, "one"), client(&scratch, "two"));
    for block in 0..64 {
        one.write(block * 2 * BLOCK, &[1; BLOCK as usize]);
        two.write(block * 2 * BLOCK, &[2; BLOCK as usize]);
    }
    one.flush();
    until("what is dirty of one to be written back", || {
        of_volume(&daemon, &scratch, 0, "dirty_bytes") == 0
    });
    assert_eq!(of_volume(&daemon, &scratch, 1, "dirty_bytes"), 64 * BLOCK);
    daemon.stop();
}

#[test]
fn a_volume_has_no_more_of_the_cache_than_its_share() {
    let scratch = Scratch::new();
    let daemon = serve(&scratch, "writethrough", "share-max = 10", "");
    let mut one = client(&scratch, "one");
    for run in 0..64u64 {
        one.read(run * MIB, 256 << 10);
    }
    let cached = of_volume(&daemon, &scratch, 0, "cached_bytes");
    let size = daemon.status(&scratch)["cache"]["capacity_bytes"]
        .as_u64()
        .unwrap();
    assert!(cached > 0 && cached <= size / 10, "{cached} of {size}");
    assert!(bypassed(&daemon, &scratch, "share") > 0);
    let said = daemon.command(&scratch, &["explain"]);
    assert!(
        said.contains("forebay set --volume VOLUME share-max"),
        "{said}"
    );
    // The advice changes it.
    daemon.command(&scratch, &["set", "--volume", "one", "share-max", "off"]);
    let before = bypassed(&daemon, &scratch, "share");
    for run in 0..64u64 {
        one.read(run * MIB, 256 << 10);
    }
    assert_eq!(bypassed(&daemon, &scratch, "share"), before);
    assert!(of_volume(&daemon, &scratch, 0, "cached_bytes") > cached);
    daemon.stop();
}

/// Reads of one volume through the cache, over and over; says how much of the other is left.
fn left_after_a_scan(keys: &str) -> u64 {
    let scratch = Scratch::new();
    let daemon = serve(&scratch, "writethrough", keys, "");
    let (mut one, mut two) = (client(&scratch, "one"), client(&scratch, "two"));
    for run in 0..32u64 {
        one.read(run * MIB, 256 << 10);
    }
    let began_with = of_volume(&daemon, &scratch, 0, "cached_bytes");
    assert_eq!(began_with, 8 * MIB);
    for run in 0..512u64 {
        two.read(run % 256 * MIB / 2, 256 << 10);
    }
    let left = of_volume(&daemon, &scratch, 0, "cached_bytes");
    daemon.stop();
    left
}

#[test]
fn a_share_that_is_kept_outlives_the_scan_of_another_volume() {
    let without = left_after_a_scan("");
    let with = left_after_a_scan("share-min = 20");
    assert!(without < 2 * MIB, "{without}");
    // Those go that leave while no segment is free for their copies.
    assert!(with > 5 * MIB, "{with}");
}

/// Writes for a while; says how many bytes a second.
fn speed(client: &mut Client, len: usize) -> f64 {
    let began = Instant::now();
    let mut written = 0;
    while began.elapsed() < Duration::from_millis(1500) {
        client.write(written as u64 % (64 * MIB), &vec![7; len]);
        written += len;
    }
    written as f64 / began.elapsed().as_secs_f64()
}

#[test]
fn a_volume_is_served_at_its_rate_and_others_at_theirs() {
    let scratch = Scratch::new();
    let daemon = serve(&scratch, "writeback", "bytes-per-second = \"2M\"", "");
    let (mut one, mut two) = (client(&scratch, "one"), client(&scratch, "two"));
    let (slow, free) = (speed(&mut one, 64 << 10), speed(&mut two, 64 << 10));
    let rate = 2.0 * MIB as f64;
    // The burst of a tenth of a second, and one request beyond.
    assert!(slow < rate * 1.25, "{slow}");
    assert!(free > slow * 2.0, "{free} beside {slow}");
    daemon.command(
        &scratch,
        &["set", "--volume", "one", "bytes-per-second", "off"],
    );
    daemon.command(
        &scratch,
        &["set", "--volume", "one", "operations-per-second", "100"],
    );
    let operations = speed(&mut one, 4096) / 4096.0;
    assert!(operations < 125.0, "{operations} a second");
    let said = daemon.command(&scratch, &["get", "--volume", "one"]);
    assert!(
        said.contains("operations-per-second") && said.contains("100"),
        "{said}"
    );
    // A stop waits for nobody's rate.
    daemon.command(
        &scratch,
        &["set", "--volume", "one", "operations-per-second", "1"],
    );
    daemon.stop();
}

#[test]
fn shares_and_rates_that_cannot_be_are_refused_with_their_lines() {
    let scratch = Scratch::new();
    let volume = |name: &str, key: &str| format!("[[volume]]\norigin = \"{name}\"\n{key}\n");
    let file = |one: &str, two: &str| {
        let head = "[cache]\ndevice = \"c\"\n[nbd]\nlisten = [\"unix:x\"]\n";
        let text = format!("{head}{}{}", volume("one", one), volume("two", two));
        std::fs::write(scratch.path("f.toml"), text).unwrap();
    };
    let check = ["check-config", "f.toml"];
    file("share-min = 30", "share-min = 30");
    forebay_says(
        &scratch,
        &check,
        2,
        &["would be 60 % of the cache, and may be 50 %"],
    );
    file("share-min = 30\nshare-max = 20", "");
    forebay_says(
        &scratch,
        &check,
        2,
        &["line 8: share-min 30 % is more than share-max 20 %"],
    );
    file("bytes-per-second = 100", "");
    forebay_says(
        &scratch,
        &check,
        2,
        &["line 7: bytes-per-second 100: `100` has no unit"],
    );
    file("", "");
    for name in ["one", "two"] {
        scratch.file(name, 8 * MIB);
    }
    scratch.file("c", 16 * MIB);
    forebay_ok(&scratch, &["create", "c"]);
    forebay_ok(&scratch, &check);
}
