//! Clients that want more memory than there is: they wait for what comes back, and see no error.

mod support;

use std::time::Duration;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok};

/// Twelve writes of 16 MiB at a time want most of the 256 MiB that a daemon has, of which a part is
/// kept for what it does itself.
#[test]
fn clients_wait_for_memory_and_see_no_error() {
    let scratch = Scratch::new();
    scratch.file("origin", 256 * MIB);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writethrough", &[]);
    let socket = scratch.path("nbd");
    let writers = (0..12u64).map(|writer| {
        let socket = socket.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(&socket).unwrap();
            let data = vec![writer as u8 + 1; 16 << 20];
            for round in 0..4 {
                let at = (writer + round) % 12;
                client.write(at * 16 * MIB, &data);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.join().unwrap();
    }
    daemon.stop();
}

/// Clients that announce writes and send nothing hold memory only as long as nobody needs it.
#[test]
fn payloads_that_do_not_come_starve_nobody() {
    let scratch = Scratch::new();
    scratch.file("origin", 256 * MIB);
    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--memory", "64M"]);
    let socket = scratch.path("nbd");
    let mut stalled: Vec<Client> = (0..14).map(|_| Client::connect(&socket).unwrap()).collect();
    for (at, client) in stalled.iter_mut().enumerate() {
        client.announce_write(at as u64 * 4 * MIB, 4 << 20).unwrap();
    }
    let mut healthy = Client::connect(&socket).unwrap();
    healthy.write(0, &vec![7; 4 << 20]);
    assert!(healthy.read(0, 4 << 20).iter().all(|byte| *byte == 7));
    assert!(
        daemon.log().contains("does not send the data of its write"),
        "{}",
        daemon.log()
    );
    daemon.stop();
}

/// Its threads then find all reads of the disk at an end, before they have looked at one of them,
/// and the other client's requests wait. Each block of 64 KiB that is promoted for the first client
/// takes memory of the thread that has the shard, and is for no client there.
#[test]
fn a_daemon_that_was_stopped_for_a_while_refuses_nobody() {
    let scratch = Scratch::new();
    scratch.file("origin", 1024 * MIB);
    let create = ["create", "cache", "--size", "640M", "--block-size", "64K"];
    forebay_ok(&scratch, &[&create[..], &["--shards", "2"]].concat());
    let slow = ["--origin-emulate", "hdd", "--threads", "2"];
    let more = [&slow[..], &["--memory", "32M"]].concat();
    let daemon = Daemon::cached(&scratch, "writeback", &more);
    // Regions of 8 MiB, of which every other is of one shard.
    let block_of = |shard: u64, at: u64| {
        let region = at / 128 * 2 + shard;
        region * 8 * MIB + at % 128 * (64 << 10)
    };
    let mut reader = Client::connect(&scratch.path("nbd")).unwrap();
    let mut other = Client::connect(&scratch.path("nbd")).unwrap();
    for shard in 0..2 {
        let (mut blocks, mut others) = (0..1024, 3072..);
        loop {
            for at in blocks.by_ref().take(400 - reader.waiting()) {
                reader.begin_read(block_of(shard, at), 4096).unwrap();
            }
            if reader.waiting() == 0 {
                break;
            }
            for at in others.by_ref().take(8) {
                other.begin_read(block_of(shard, at), 4096).unwrap();
            }
            daemon.signal("-STOP");
            std::thread::sleep(Duration::from_millis(300));
            daemon.signal("-CONT");
            for _ in 0..reader.waiting().min(64) {
                assert_eq!(reader.reply().unwrap().error, 0);
            }
            while other.waiting() > 0 {
                assert_eq!(other.reply().unwrap().error, 0);
            }
        }
    }
    daemon.stop();
}
