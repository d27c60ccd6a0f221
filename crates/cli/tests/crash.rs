//! Daemons killed at any moment: nothing acknowledged is lost.

mod support;

use std::collections::HashMap;

use forebay_random::SplitMix64;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, until};

const BLOCK: u64 = 4096;
const ORIGIN: u64 = 96 * MIB;
const CACHE: u64 = 32 * MIB;

/// What each block may hold: what was acknowledged last, and what was asked for since.
#[derive(Default)]
struct Model {
    acknowledged: HashMap<u64, u64>,
    possible: HashMap<u64, Vec<u64>>,
}

impl Model {
    fn check(&self, client: &mut Client) {
        let blocks: Vec<u64> = self
            .acknowledged
            .keys()
            .chain(self.possible.keys())
            .copied()
            .collect();
        for block in blocks {
            let data = client.read(block * BLOCK, BLOCK as u32);
            let found = u64::from_le_bytes(data[..8].try_into().unwrap());
            assert_eq!(data, contents(found), "block {block} is torn");
            let known = self.acknowledged.get(&block).copied().unwrap_or(0);
            let since = self.possible.get(&block);
            let allowed = found == known || since.is_some_and(|since| since.contains(&found));
            assert!(
                allowed,
                "block {block} holds {found}, acknowledged was {known}, asked for {since:?}"
            );
        }
    }
}

fn contents(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// Writes at random until `replies` are answered, and leaves the rest unanswered.
fn write_some(
    client: &mut Client,
    model: &mut Model,
    random: &mut SplitMix64,
    version: &mut u64,
    replies: u64,
) {
    let mut in_flight: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    let mut busy: Vec<u64> = Vec::new();
    for _ in 0..replies {
        while client.waiting() < 16 {
            if random.below(40) == 0 {
                client.begin_flush().unwrap();
                continue;
            }
            let count = 1 + random.below(8) * random.below(2);
            let first = random.below(ORIGIN / BLOCK - count);
            // Two writes of a block at a time may end in any order.
            if (first..first + count).any(|block| busy.contains(&block)) {
                continue;
            }
            let mut data = Vec::new();
            let mut blocks = Vec::new();
            for block in first..first + count {
                *version += 1;
                data.extend(contents(*version));
                model.possible.entry(block).or_default().push(*version);
                blocks.push((block, *version));
                busy.push(block);
            }
            let cookie = client.begin_write(first * BLOCK, &data).unwrap();
            in_flight.insert(cookie, blocks);
        }
        let reply = client.reply().unwrap();
        assert_eq!(reply.error, 0);
        for (block, version) in in_flight.remove(&reply.cookie).unwrap_or_default() {
            model.acknowledged.insert(block, version);
            model.possible.remove(&block);
            busy.retain(|other| *other != block);
        }
    }
}

fn kill_again_and_again(mode: &str, more: &[&str], rounds: u64) {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN);
    scratch.file("cache", CACHE);
    let (mut random, mut model, mut version) = (SplitMix64::new(7), Model::default(), 0);
    for _ in 0..rounds {
        let daemon = Daemon::cached(&scratch, mode, more);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        model.check(&mut client);
        // What was found stays: the versions that were not found can never come back.
        for (block, _) in std::mem::take(&mut model.possible) {
            let data = client.read(block * BLOCK, 8 * 64);
            model
                .acknowledged
                .insert(block, u64::from_le_bytes(data[..8].try_into().unwrap()));
        }
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
