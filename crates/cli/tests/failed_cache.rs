//! A cache device that takes no more writes while it is in use: a sparse file on a file system
//! that is full. Two shards on two threads; the shard that fails takes the other with it (I22),
//! nothing that was acknowledged is lost, and what is newer in the cache is written out by a
//! command.

mod support;

use std::path::Path;
use std::process::Command;

use forebay_random::SplitMix64;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay, forebay_ok, forebay_says, text, until};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64 * MIB / BLOCK;

/// A file system of its own, which is taken away at the end of the test.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(directory: &Path, options: &str) -> bool {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(directory)
            .output();
        mount.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Stored values as clients were told: for each block the last, none if its last write failed.
struct Written(Vec<Option<u8>>);

impl Written {
    fn is_on(&self, origin: &Path) -> usize {
        let held = std::fs::read(origin).unwrap();
        let blocks = held.chunks(BLOCK as usize).zip(&self.0);
        blocks
            .filter(|(held, value)| {
                value.is_some_and(|value| held.iter().any(|byte| *byte != value))
            })
            .count()
    }
}

/// Writes random blocks, every third with FUA, until the cache fails.
fn write_until_failed(scratch: &Scratch, daemon: &Daemon) -> Written {
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    let mut random = SplitMix64::new(7);
    let mut written = Written(vec![None; BLOCKS as usize]);
    let mut failures = 0;
    for round in 0..40_000u32 {
        let block = random.below(BLOCKS);
        let value = (round % 250) as u8 + 1;
        let data = [value; BLOCK as usize];
        let begun = if round % 3 == 0 {
            client.begin_durable_write(block * BLOCK, &data)
        } else {
            client.begin_write(block * BLOCK, &data)
        };
        begun.unwrap();
        let failed = client.reply().unwrap().error != 0;
        written.0[block as usize] = (!failed).then_some(value);
        failures += u32::from(failed);
        if failures > 0 && daemon.log().contains("the cache failed") {
            break;
        }
    }
    assert!(failures > 0, "the file system never filled up");
    written
}

#[test]
fn what_is_newer_in_an_abandoned_cache_is_written_out() {
    let scratch = Scratch::new();
    let directory = scratch.path("small");
    std::fs::create_dir_all(&directory).unwrap();
    if !Small::mount(&directory, "size=24M") {
        println!("skipped: a file system of its own needs root, and mount");
        return;
    }
    let _small = Small(&directory);
    scratch.file("origin", 64 * MIB);
    std::fs::File::create(directory.join("cache"))
        .unwrap()
        .set_len(48 * MIB)
        .unwrap();
    forebay_ok(&scratch, &["create", "small/cache", "--shards", "2"]);
    let serve = [
        "--origin",
        "origin",
        "--cache",
        "small/cache",
        "--mode",
        "writeback",
        "--threads",
        "2",
        "--dirty-low",
        "70",
        "--dirty-high",
        "80",
        "--dirty-limit",
        "90",
    ];
    let daemon = Daemon::start(&scratch, &serve);
    let written = write_until_failed(&scratch, &daemon);
    until("the record", || {
        std::fs::read_dir(scratch.path("state")).is_ok_and(|entries| {
            entries.flatten().any(|entry| {
                entry
                    .path()
                    .extension()
                    .is_some_and(|kind| kind == "abandoned")
            })
        })
    });
    daemon.kill();

    let offline = |state: &str| {
        let arguments = [
            "drain",
            "--offline",
            "--origin",
            "origin",
            "--cache",
            "small/cache",
            "--state-dir",
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain([state]).collect();
        forebay(&scratch, &arguments)
    };
    // A host that does not know what is newer in it must not believe the cache.
    let elsewhere = offline("elsewhere");
    assert_eq!(elsewhere.status.code(), Some(3), "{}", text(&elsewhere));
    assert!(text(&elsewhere).contains("another state directory"));
    let refused = Daemon::try_start(&scratch, &serve)
        .err()
        .unwrap_or_default();
    assert!(refused.contains("was abandoned"), "{refused}");

    // With room for what recovery has to write, everything is saved.
    assert!(Small::mount(&directory, "remount,size=64M"));
    if refused.contains("are newer in it") {
        let drained = offline("state");
        assert!(drained.status.success(), "{}", text(&drained));
    }
    assert_eq!(written.is_on(&scratch.path("origin")), 0, "blocks are lost");
    let again = offline("state");
    assert_eq!(again.status.code(), Some(3), "{}", text(&again));
    assert!(text(&again).contains("nothing is lost"), "{}", text(&again));
    forebay_says(&scratch, &["check", "small/cache"], 0, &["abandoned"]);
}
