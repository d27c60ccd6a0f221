//! Daemons killed at any moment: nothing acknowledged is lost.
//!
//! `CRASH_ROUNDS=1000` has each test of several shards kill that often.

mod support;

use forebay_random::SplitMix64;
use support::model::{BLOCK, Model, ORIGIN_BYTES, contents, write_some};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, until};

/// Devices of a cache, and threads that serve it.
#[derive(Clone, Copy)]
struct Shape {
    shards: &'static str,
    threads: &'static str,
    devices: &'static [&'static str],
    block_size: &'static str,
    size: &'static str,
}

const ONE_SHARD: Shape = Shape {
    shards: "1",
    threads: "1",
    devices: &["cache"],
    block_size: "4K",
    size: "32M",
};
const THREE_SHARDS: Shape = Shape {
    shards: "3",
    threads: "2",
    ..ONE_SHARD
};
const TWO_DEVICES: Shape = Shape {
    devices: &["cache", "second"],
    ..THREE_SHARDS
};

impl Shape {
    fn create(self, scratch: &Scratch, mode: &str) {
        let create = ["create", "cache", "--size", self.size, "--block-size"];
        let more = [self.block_size, "--shards", self.shards];
        forebay_ok(scratch, &[&create[..], &more].concat());
        for device in &self.devices[1..] {
            scratch.file(device, 32 * MIB);
            let daemon = Daemon::cached(scratch, mode, &[]);
            daemon.command(scratch, &["cache", "add", device]);
            daemon.stop();
        }
    }

    fn start(self, scratch: &Scratch, mode: &str, more: &[&str]) -> Daemon {
        let mut arguments = vec!["--threads", self.threads];
        for device in &self.devices[1..] {
            arguments.extend(["--cache", device]);
        }
        arguments.extend(more);
        Daemon::cached(scratch, mode, &arguments)
    }
}

/// Number of kills in the tests of several shards: `CRASH_ROUNDS`, if it is set.
fn rounds_or(usual: u64) -> u64 {
    std::env::var("CRASH_ROUNDS").map_or(usual, |rounds| rounds.parse().unwrap())
}

fn kill_again_and_again(shape: Shape, mode: &str, more: &[&str], rounds: u64) {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    shape.create(&scratch, mode);
    let (mut random, mut model, mut version) = (SplitMix64::new(7), Model::default(), 0);
    for _ in 0..rounds {
        let daemon = shape.start(&scratch, mode, more);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        model.check_and_settle(&mut client);
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        daemon.kill();
    }
    let daemon = shape.start(&scratch, mode, more);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    model.check(&mut client);
    drop(client);
    // The origin by itself, after everything is written back.
    daemon.command(&scratch, &["drain"]);
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    model.check(&mut Client::connect(&scratch.path("nbd")).unwrap());
    daemon.stop();
}

#[test]
fn write_back_survives_kills() {
    kill_again_and_again(ONE_SHARD, "writeback", &[], 40);
}

#[test]
fn write_back_in_larger_blocks_survives_kills() {
    for (block_size, size) in [("16K", "36M"), ("64K", "136M")] {
        let shape = Shape {
            block_size,
            size,
            ..ONE_SHARD
        };
        kill_again_and_again(shape, "writeback", &[], 12);
    }
}

#[test]
fn write_back_with_commit_write_survives_kills() {
    kill_again_and_again(ONE_SHARD, "writeback", &["--commit", "write"], 25);
}

#[test]
fn write_back_from_memory_survives_kills() {
    let small = ["--commit", "memory", "--memory-buffer", "1M"];
    kill_again_and_again(ONE_SHARD, "writeback", &small, 25);
}

#[test]
fn write_through_survives_kills() {
    kill_again_and_again(ONE_SHARD, "writethrough", &[], 15);
}

#[test]
fn write_around_and_readonly_survive_kills() {
    kill_again_and_again(ONE_SHARD, "writearound", &[], 10);
    kill_again_and_again(ONE_SHARD, "readonly", &[], 10);
}

#[test]
fn three_shards_on_two_threads_survive_kills() {
    kill_again_and_again(THREE_SHARDS, "writeback", &[], rounds_or(20));
}

#[test]
fn three_shards_in_memory_survive_kills() {
    let small = ["--commit", "memory", "--memory-buffer", "1M"];
    kill_again_and_again(THREE_SHARDS, "writeback", &small, rounds_or(10));
}

#[test]
fn three_shards_on_two_devices_survive_kills() {
    kill_again_and_again(TWO_DEVICES, "writeback", &[], rounds_or(10));
}

/// After a kill the cache is as warm as before, and as dirty.
#[test]
fn a_warm_cache_stays_warm() {
    let scratch = Scratch::new();
    scratch.file("origin", 24 * MIB);
    scratch.file("cache", 64 * MIB);
    let slow = ["--age", "3600", "--dirty-low", "60"];
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..2000 {
        client.write(block * BLOCK, &contents(block + 1));
    }
    for block in 2000..4000 {
        client.read(block * BLOCK, BLOCK as u32);
    }
    until("promotions to end", || {
        let status = daemon.status(&scratch);
        status["cache"]["cached_bytes"] == 4000 * BLOCK
    });
    let before = daemon.status(&scratch);
    assert_eq!(before["cache"]["dirty_bytes"], 2000 * BLOCK);
    daemon.kill();
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    let after = daemon.status(&scratch);
    assert_eq!(
        after["cache"]["dirty_bytes"],
        before["cache"]["dirty_bytes"]
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..4000 {
        client.read(block * BLOCK, BLOCK as u32);
    }
    let traffic = daemon.status(&scratch)["traffic"].clone();
    let hits = traffic["read_blocks_hit"].as_u64().unwrap();
    assert!(hits >= 3900, "{hits} of 4000 hit after the kill");
}
