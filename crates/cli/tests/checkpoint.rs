//! A start after an orderly stop reads what the stop wrote down, and all summaries where it cannot.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;

use support::model::{expect_each, write_each};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch};

const BLOCKS: u64 = 2000;
/// With room for what the superblock takes, more than the 8 GiB from which on a checkpoint is written.
const CACHE_BYTES: u64 = 9 << 30;

fn serve(scratch: &Scratch) -> Daemon {
    Daemon::cached(scratch, "writeback", &["--age", "never"])
}

/// Whether the daemon's start went by a checkpoint. It serves what was written in any case.
fn went_by_checkpoint(daemon: &Daemon, scratch: &Scratch) -> bool {
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    expect_each(&mut client, BLOCKS, 1);
    let recovery = &daemon.status(scratch)["cache"]["recovery"];
    assert!(recovery["cached_blocks"].as_u64().expect("a number") >= BLOCKS);
    recovery["shards_from_checkpoint"].as_u64() == Some(1)
}

#[test]
fn a_start_goes_by_what_the_last_stop_wrote_down() {
    let scratch = Scratch::new();
    scratch.file("origin", 16 * MIB);
    scratch.file("cache", CACHE_BYTES);
    let daemon = serve(&scratch);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    write_each(&mut client, BLOCKS, 1);
    drop(client);
    daemon.stop();

    let daemon = serve(&scratch);
    assert!(went_by_checkpoint(&daemon, &scratch));
    let log = daemon.log();
    assert!(
        log.contains("1 of 1 shards as written down at the last stop"),
        "{log}"
    );
    daemon.kill();

    let daemon = serve(&scratch);
    assert!(!went_by_checkpoint(&daemon, &scratch), "it was killed");
    daemon.stop();

    let cache = File::options().write(true).open(scratch.path("cache"));
    let head = 128 << 10;
    cache.unwrap().write_all_at(&[0xff; 64], head).unwrap();
    let daemon = serve(&scratch);
    assert!(
        !went_by_checkpoint(&daemon, &scratch),
        "its head is damaged"
    );
    daemon.stop();

    let daemon = serve(&scratch);
    assert!(went_by_checkpoint(&daemon, &scratch));
    daemon.stop();
}
