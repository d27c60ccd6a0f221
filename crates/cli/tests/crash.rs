//! Daemons killed at any moment: nothing acknowledged is lost.

mod support;

use forebay_random::SplitMix64;
use support::model::{BLOCK, Model, ORIGIN_BYTES, contents, write_some};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, until};

fn kill_again_and_again(mode: &str, more: &[&str], rounds: u64) {
    kill_again_with_blocks(("4K", "32M"), mode, more, rounds);
}

/// The same with a cache of such blocks and that size.
fn kill_again_with_blocks(
    (block_size, size): (&str, &str),
    mode: &str,
    more: &[&str],
    rounds: u64,
) {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.cache_in_blocks(block_size, size);
    let (mut random, mut model, mut version) = (SplitMix64::new(7), Model::default(), 0);
    for _ in 0..rounds {
        let daemon = Daemon::cached(&scratch, mode, more);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        model.check_and_settle(&mut client);
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        daemon.kill();
    }
    let daemon = Daemon::cached(&scratch, mode, more);
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
    kill_again_and_again("writeback", &[], 40);
}

#[test]
fn write_back_in_larger_blocks_survives_kills() {
    for shape in [("16K", "36M"), ("64K", "136M")] {
        kill_again_with_blocks(shape, "writeback", &[], 12);
    }
}

#[test]
fn write_back_with_commit_write_survives_kills() {
    kill_again_and_again("writeback", &["--commit", "write"], 25);
}

#[test]
fn write_back_from_memory_survives_kills() {
    let small = ["--commit", "memory", "--memory-buffer", "1M"];
    kill_again_and_again("writeback", &small, 25);
}

#[test]
fn write_through_survives_kills() {
    kill_again_and_again("writethrough", &[], 15);
}

#[test]
fn write_around_and_readonly_survive_kills() {
    kill_again_and_again("writearound", &[], 10);
    kill_again_and_again("readonly", &[], 10);
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
