//! A21: origins that grow while they are served.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, until};

const SINGLE: [&str; 4] = ["--origin", "origin", "--cache", "cache"];

fn configure(scratch: &Scratch) {
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n\
         [settings]\nage = \"1h\"\n[[volume]]\norigin = \"origin\"\nmode = \"writeback\"\n",
        scratch.text("nbd")
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
}

fn set_len(scratch: &Scratch, len_bytes: u64) {
    let file = std::fs::File::options()
        .write(true)
        .open(scratch.path("origin"));
    file.unwrap().set_len(len_bytes).unwrap();
}

fn connect(scratch: &Scratch) -> Client {
    Client::connect(&scratch.path("nbd")).unwrap()
}

fn size(scratch: &Scratch, daemon: &Daemon) -> u64 {
    daemon.status(scratch)["volumes"][0]["size_bytes"]
        .as_u64()
        .unwrap()
}

fn block(number: u64, version: u64) -> Vec<u8> {
    [number, version].map(u64::to_le_bytes).concat().repeat(256)
}

#[test]
fn a_volume_grows_with_its_origin_under_load() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 32 * MIB);
    configure(&scratch);
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let last = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = connect(&scratch);
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                for number in 0..256 {
                    client.write(number * 4096, &block(number, round));
                }
                for number in 0..256 {
                    assert_eq!(client.read(number * 4096, 4096), block(number, round));
                }
                rounds.store(round, Ordering::Relaxed);
            }
            // The protocol cannot tell it: this connection ends where it ended.
            client.begin_read(9 * MIB, 4096).unwrap();
            assert_ne!(client.reply().unwrap().error, 0);
            round
        });
        let wait_for_load = || {
            let before = rounds.load(Ordering::Relaxed);
            until("the load to go on", || {
                rounds.load(Ordering::Relaxed) > before
            });
        };
        wait_for_load();
        set_len(&scratch, 16 * MIB);
        daemon.command(&scratch, &["reload"]);
        assert_eq!(size(&scratch, &daemon), 16 * MIB);
        wait_for_load();
        let mut client = connect(&scratch);
        assert_eq!(client.size_bytes, 16 * MIB);
        for number in [2048, 3000, 4095] {
            assert_eq!(client.read(number * 4096, 4096), [0; 4096]);
            client.write(number * 4096, &block(number, 1));
            assert_eq!(client.read(number * 4096, 4096), block(number, 1));
        }
        client.flush();
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    let log = daemon.log();
    assert!(
        log.contains("volume origin grew from 8 MiB to 16 MiB"),
        "{log}"
    );
    daemon.kill();

    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let mut client = connect(&scratch);
    let check = |client: &mut Client| {
        assert_eq!(client.size_bytes, 16 * MIB);
        for (number, version) in [(0, last), (255, last), (2048, 1), (3000, 1), (4095, 1)] {
            assert_eq!(client.read(number * 4096, 4096), block(number, version));
        }
    };
    check(&mut client);
    daemon.command(&scratch, &["drain"]);
    let disk = std::fs::read(scratch.path("origin")).unwrap();
    assert_eq!(disk[4095 * 4096..], block(4095, 1));
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    check(&mut connect(&scratch));
    daemon.stop();
}

#[test]
fn it_grows_by_itself_with_a_cache_and_without_and_shrinks_never() {
    for cached in [true, false] {
        let scratch = Scratch::new();
        scratch.file("origin", 8 * MIB);
        scratch.file("cache", 32 * MIB);
        let daemon = match cached {
            true => Daemon::cached(&scratch, "writeback", &[]),
            false => Daemon::start(&scratch, &["--origin", "origin"]),
        };
        set_len(&scratch, 16 * MIB);
        until("the volume to grow", || size(&scratch, &daemon) == 16 * MIB);
        let mut client = connect(&scratch);
        client.write(15 * MIB, &block(1, 1));
        client.flush();
        assert_eq!(client.read(15 * MIB, 4096), block(1, 1));

        set_len(&scratch, 4 * MIB);
        let status = daemon.status(&scratch);
        assert_eq!(status["trouble"][0]["kind"], "file-cut-short");
        assert_eq!(status["volumes"][0]["size_bytes"], 16 * MIB);
        assert_eq!(client.read(0, 4096), [0; 4096]);
        client.begin_read(6 * MIB, 4096).unwrap();
        assert_ne!(
            client.reply().unwrap().error,
            0,
            "beyond the end of the origin"
        );
        daemon.kill();
    }
}

/// The reload is sent, and the daemon killed at another moment of it each time.
#[test]
fn an_interrupted_growth_leaves_the_old_size_or_the_new_one() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 32 * MIB);
    configure(&scratch);
    let mut sizes = Vec::new();
    for round in 1..=12 {
        let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
        let (before, after) = ((7 + round) * MIB, (8 + round) * MIB);
        let mut client = connect(&scratch);
        assert_eq!(client.size_bytes, before);
        client.write(before - 4096, &block(round, round));
        client.flush();
        set_len(&scratch, after);
        let mut reload = daemon.begin(&scratch, &["reload"]);
        std::thread::sleep(std::time::Duration::from_micros(round * 700));
        daemon.kill();
        reload.wait().unwrap();
        let check = forebay_ok(&scratch, &["check", "cache", "--json"]);
        let check: serde_json::Value = serde_json::from_str(&check).unwrap();
        let on_record = check["volumes"][0]["size_bytes"].as_u64().unwrap();
        assert!([before, after].contains(&on_record), "{check}");
        sizes.push(on_record == after);
    }
    println!("on record in the new size: {sizes:?}");
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let mut client = connect(&scratch);
    for round in 1..=12 {
        assert_eq!(
            client.read((7 + round) * MIB - 4096, 4096),
            block(round, round)
        );
    }
    daemon.stop();
}

/// The cache has such a block with zeroes up to its end, and the origin has what was appended.
#[test]
fn a_volume_that_ends_within_a_block_keeps_its_size() {
    const END: u64 = 8 * MIB + 512;
    let scratch = Scratch::new();
    scratch.file("origin", END);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    assert_eq!(size(&scratch, &daemon), END);
    connect(&scratch).write(8 * MIB, &[7; 512]);
    set_len(&scratch, 9 * MIB);
    let stays = |daemon: &Daemon| {
        until("a word on it", || {
            let status = daemon.status(&scratch);
            status["trouble"][0]["kind"] == "not-grown"
        });
        let said = daemon.command(&scratch, &["status"]);
        assert!(said.contains("within a block of 4 KiB"), "{said}");
        assert_eq!(size(&scratch, daemon), END);
        let mut client = connect(&scratch);
        assert_eq!(client.read(8 * MIB, 512), [7; 512]);
    };
    stays(&daemon);
    daemon.kill();
    let daemon = Daemon::start(&scratch, &SINGLE);
    stays(&daemon);
    daemon.command(&scratch, &["detach", "origin"]);
    let disk = std::fs::read(scratch.path("origin")).unwrap();
    assert_eq!(disk[8 * MIB as usize..][..512], [7; 512]);
    daemon.command(&scratch, &["attach", "origin"]);
    assert_eq!(size(&scratch, &daemon), 9 * MIB);
    daemon.stop();
}

/// Beyond what is set aside: half as much again as it had, and 1 GiB at least.
#[test]
fn growth_beyond_the_room_is_refused_in_words() {
    const GIB: u64 = 1 << 30;
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    set_len(&scratch, 2 * GIB);
    let words = |daemon: &Daemon| daemon.command(&scratch, &["status"]);
    until("a word on it", || {
        words(&daemon).contains("detach it and attach it anew")
    });
    assert_eq!(size(&scratch, &daemon), 8 * MIB);
    set_len(&scratch, GIB);
    until("the volume to grow", || size(&scratch, &daemon) == GIB);
    assert!(!words(&daemon).contains("attach it anew"));
    connect(&scratch).write(GIB - 4096, &block(1, 1));
    daemon.stop();
}
