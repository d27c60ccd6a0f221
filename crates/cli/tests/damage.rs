//! Cache devices that were truncated, zeroed, overwritten or swapped.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;

use forebay_random::SplitMix64;
use support::model::{contents, write_each};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 2048;

/// A cache with dirty and clean data of an origin, stopped in order.
fn prepare(scratch: &Scratch) {
    scratch.file("origin", BLOCKS * BLOCK);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(
        scratch,
        "writeback",
        &["--age", "3600", "--dirty-low", "50"],
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    write_each(&mut client, BLOCKS, 1);
    drop(client);
    daemon.stop();
    std::fs::copy(scratch.path("cache"), scratch.path("good")).unwrap();
}

/// With this cache device a daemon either refuses, naming the fault, or serves. Served data is
/// right or an error, never old.
fn survives(scratch: &Scratch, what: &str) {
    // An attach changes origin and cache, so each case has its own.
    std::fs::copy(scratch.path("origin"), scratch.path("saved")).unwrap();
    let check = forebay(scratch, &["check", "cache"]);
    assert!(
        matches!(check.status.code(), Some(0 | 3 | 5)),
        "{what}: check {check:?}"
    );
    match Daemon::try_start(scratch, &["--origin", "origin", "--cache", "cache"]) {
        Err(said) => {
            let told = ["cache", "damaged", "device"]
                .iter()
                .any(|word| said.contains(word));
            assert!(told && !said.contains("panicked"), "{what}: {said}");
        }
        Ok(daemon) => {
            let mut client = Client::connect(&scratch.path("nbd")).unwrap();
            for block in 0..BLOCKS {
                client.begin_read(block * BLOCK, BLOCK as u32).unwrap();
                let reply = client.reply().unwrap();
                assert!(
                    reply.error != 0 || reply.data == contents(block + 1),
                    "{what}: block {block} is old"
                );
            }
            drop(client);
            daemon.kill();
        }
    }
    std::fs::copy(scratch.path("saved"), scratch.path("origin")).unwrap();
}

#[test]
fn truncated() {
    let scratch = Scratch::new();
    prepare(&scratch);
    for size in [0, 4096, 65536, MIB, 3 * MIB, 16 * MIB, 32 * MIB - 4096] {
        std::fs::copy(scratch.path("good"), scratch.path("cache")).unwrap();
        File::options()
            .write(true)
            .open(scratch.path("cache"))
            .unwrap()
            .set_len(size)
            .unwrap();
        assert!(
            Daemon::try_start(&scratch, &["--origin", "origin", "--cache", "cache"]).is_err(),
            "a cache of {size} bytes is refused"
        );
    }
}

#[test]
fn zeroed_in_places() {
    let scratch = Scratch::new();
    prepare(&scratch);
    for (offset, len) in [
        (0, 65536),
        (0, MIB),
        (MIB, 4 * MIB),
        (2 * MIB, 128 << 10),
        (16 * MIB, 16 * MIB),
    ] {
        std::fs::copy(scratch.path("good"), scratch.path("cache")).unwrap();
        let cache = File::options()
            .write(true)
            .open(scratch.path("cache"))
            .unwrap();
        cache.write_all_at(&vec![0; len as usize], offset).unwrap();
        survives(&scratch, &format!("{len} zeroes at {offset}"));
    }
}

#[test]
fn flipped_bits() {
    let scratch = Scratch::new();
    prepare(&scratch);
    let mut random = SplitMix64::new(3);
    for round in 0..12 {
        std::fs::copy(scratch.path("good"), scratch.path("cache")).unwrap();
        let cache = File::options()
            .read(true)
            .write(true)
            .open(scratch.path("cache"))
            .unwrap();
        for _ in 0..1 << (round % 8) {
            // Where data is, mostly.
            let offset = random.below(12 * MIB);
            let mut byte = [0];
            cache.read_exact_at(&mut byte, offset).unwrap();
            cache
                .write_all_at(&[byte[0] ^ 1 << random.below(8)], offset)
                .unwrap();
        }
        survives(&scratch, &format!("flipped bits, round {round}"));
    }
}

#[test]
fn swapped() {
    let scratch = Scratch::new();
    prepare(&scratch);
    let other = Scratch::new();
    prepare(&other);
    // The cache of another pair, whose volume has the same name.
    std::fs::copy(other.path("good"), scratch.path("cache")).unwrap();
    let Err(said) = Daemon::try_start(&scratch, &["--origin", "origin", "--cache", "cache"]) else {
        panic!("a cache of another origin was served");
    };
    assert!(said.contains("another origin"), "{said}");
}
