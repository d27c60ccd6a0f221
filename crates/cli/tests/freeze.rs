//! Freezing a volume for a snapshot (I27), and handing it over to another daemon.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use support::nbd::Client;
use support::versions::{BLOCK, BLOCKS, ORIGIN_BYTES, Written, assert_whole, contents, version_of};
use support::{Daemon, MIB, Scratch, until};

const MODES: [&str; 5] = [
    "writeback",
    "writethrough",
    "writearound",
    "readonly",
    "passthrough",
];
/// A client that writes one block after the other, in an order of its own, until it is told to end or
/// its connection does.
struct Writer {
    written: Arc<std::sync::Mutex<Written>>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(socket: &Path) -> Writer {
        let mut client = Client::connect(socket).unwrap();
        let written = Arc::new(std::sync::Mutex::new(Written::default()));
        let ends = Arc::new(AtomicBool::new(false));
        let (shared, end) = (Arc::clone(&written), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            for version in 1.. {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let block = version * 929 % BLOCKS;
                shared.lock().unwrap().begun.insert(block, version);
                let sent = client.begin_write(block * BLOCK, &contents(block, version));
                match sent.and_then(|_| client.reply()) {
                    Ok(reply) if reply.error == 0 => {
                        shared.lock().unwrap().acknowledged.insert(block, version);
                    }
                    _ => return,
                }
            }
        });
        Writer {
            written,
            ends,
            thread,
        }
    }

    fn written(&self) -> Written {
        self.written.lock().unwrap().clone()
    }

    fn latest(&self) -> u64 {
        self.written().acknowledged.into_values().max().unwrap_or(0)
    }

    /// Ends when its write in flight is answered.
    fn end(self) -> Written {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.written.lock().unwrap().clone()
    }
}

#[test]
fn a_frozen_volume_is_whole_on_its_origin_in_every_mode() {
    for mode in MODES {
        let scratch = Scratch::new();
        scratch.file("origin", ORIGIN_BYTES);
        scratch.file("cache", 64 * MIB);
        let daemon = Daemon::cached(&scratch, mode, &["--threads", "2"]);
        let writer = Writer::start(&scratch.path("nbd"));
        until("there are writes", || writer.latest() > 3_000);
        let before = writer.written();
        let said = daemon.command(&scratch, &["freeze"]);
        assert!(said.contains("is frozen: all of it is on"), "{said}");
        let snapshot = std::fs::read(scratch.path("origin")).unwrap();
        let at_freeze = writer.written();
        assert!(at_freeze.acknowledged.values().sum::<u64>() >= before.acknowledged.values().sum());
        assert_whole(&snapshot, &at_freeze, mode);
        let mut reader = Client::connect(&scratch.path("nbd")).unwrap();
        let (block, version) = before.acknowledged.iter().next().unwrap();
        assert!(version_of(&reader.read(block * BLOCK, 4096), *block) >= *version);
        reader.flush();
        let status = daemon.status(&scratch);
        assert!(
            status["volumes"][0]["frozen_seconds"].is_number(),
            "{status}"
        );
        daemon.says(&scratch, &["freeze"], 3, &["frozen", "thaw it first"]);
        daemon.says(&scratch, &["detach", "origin"], 3, &["thaw it first"]);
        assert_eq!(
            writer.latest(),
            at_freeze.acknowledged.values().copied().max().unwrap()
        );
        let still = std::fs::read(scratch.path("origin")).unwrap();
        assert!(
            still == snapshot,
            "{mode}: the origin of a frozen volume changed"
        );
        daemon.command(&scratch, &["thaw"]);
        let then = at_freeze.acknowledged.values().copied().max().unwrap();
        until("writes go on", || writer.latest() > then + 100);
        daemon.says(&scratch, &["thaw"], 3, &["is not frozen"]);
        let written = writer.end();
        for (block, version) in &written.acknowledged {
            assert_eq!(
                version_of(&reader.read(block * BLOCK, 4096), *block),
                *version
            );
        }
        daemon.stop();
    }
}

/// More than the daemon has memory for: changes of a frozen volume wait without it, neither fail nor
/// keep it from others, and all are answered after the thaw.
#[test]
fn a_frozen_volume_leaves_memory_to_others() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("other", ORIGIN_BYTES);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(
        &scratch,
        "writeback",
        &["--threads", "1", "--memory", "32M"],
    );
    daemon.command(&scratch, &["attach", "other"]);
    daemon.command(&scratch, &["freeze", "origin", "--for", "never"]);
    let begun = Arc::new(AtomicU64::new(0));
    let writers: Vec<JoinHandle<()>> = (0..8)
        .map(|_| {
            let mut client = Client::open(&scratch.path("nbd"), "origin")
                .unwrap()
                .unwrap();
            let begun = Arc::clone(&begun);
            std::thread::spawn(move || {
                for _ in 0..8 {
                    client.begin_write(0, &vec![7; MIB as usize]).unwrap();
                    begun.fetch_add(1, Ordering::SeqCst);
                }
                for _ in 0..8 {
                    assert_eq!(client.reply().unwrap().error, 0);
                }
            })
        })
        .collect();
    let mut other = Client::open(&scratch.path("nbd"), "other")
        .unwrap()
        .unwrap();
    let (mut seen, mut since) = (0, 0);
    while since < 100 {
        other.write(0, &vec![3; MIB as usize]);
        assert_eq!(other.read(0, 4096), [3; 4096]);
        let now = begun.load(Ordering::SeqCst);
        since = if now > seen { 0 } else { since + 1 };
        seen = now;
    }
    assert!(seen < 64, "all of 64 MiB went into 32 MiB of memory");
    daemon.command(&scratch, &["thaw", "origin"]);
    for writer in writers {
        writer.join().unwrap();
    }
    let mut client = Client::open(&scratch.path("nbd"), "origin")
        .unwrap()
        .unwrap();
    assert_eq!(client.read(0, 4096), [7; 4096]);
    drop((client, other));
    daemon.stop();
}

#[test]
fn a_volume_thaws_by_itself_and_says_so() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    daemon.command(&scratch, &["freeze", "--for", "1"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    // It is answered by nothing but a thaw.
    client.write(0, &contents(0, 1));
    let words = ["thawed by itself", "may not be whole", "--for"];
    daemon.says(&scratch, &["thaw"], 3, &words);
    daemon.says(&scratch, &["thaw"], 3, &["volume origin is not frozen"]);
    daemon.says(
        &scratch,
        &["freeze", "--for", "soon"],
        2,
        &["is not a time"],
    );
    daemon.says(&scratch, &["freeze", "orign"], 2, &["origin"]);
    daemon.stop();
}

#[test]
fn a_frozen_volume_is_served_again_after_a_kill() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let writer = Writer::start(&scratch.path("nbd"));
    until("there are writes", || writer.latest() > 500);
    daemon.command(&scratch, &["freeze", "--for", "never"]);
    daemon.kill();
    let written = writer.end();
    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--cache", "cache"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for (block, version) in &written.acknowledged {
        let found = version_of(&client.read(block * BLOCK, 4096), *block);
        assert!(found == *version || found == written.begun[block]);
    }
    client.write(0, &contents(0, 1));
    daemon.stop();
}

/// Its clients have their answers, and no client's limit of time is waited for.
#[test]
fn a_stop_thaws() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    daemon.command(&scratch, &["freeze"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.begin_write(0, &contents(0, 7)).unwrap();
    until("the write waits", || {
        daemon.status(&scratch)["clients"] == 1
    });
    let stop = daemon.begin(&scratch, &["stop"]);
    assert_eq!(client.reply().unwrap().error, 0);
    support::finish(stop);
    assert!(
        daemon.log().contains("may not be whole"),
        "{}",
        daemon.log()
    );
}

#[test]
fn a_volume_is_handed_over_to_another_daemon() {
    for mode in ["writeback", "writethrough"] {
        let scratch = Scratch::new();
        scratch.file("origin", ORIGIN_BYTES);
        scratch.file("cache", 64 * MIB);
        scratch.file("other", 64 * MIB);
        let daemon = Daemon::cached(&scratch, mode, &[]);
        let writer = Writer::start(&scratch.path("nbd"));
        until("there are writes", || writer.latest() > 3_000);
        daemon.says(&scratch, &["hand-over", "orign"], 2, &["origin"]);
        let said = daemon.command(&scratch, &["hand-over", "origin"]);
        assert!(said.contains("another host may serve it"), "{said}");
        let written = writer.end();
        let whole = std::fs::read(scratch.path("origin")).unwrap();
        assert_whole(&whole, &written, mode);
        daemon.stop();
        let there = Daemon::start(
            &scratch,
            &["--origin", "origin", "--cache", "other", "--create"],
        );
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        for (block, version) in &written.acknowledged {
            let found = version_of(&client.read(block * BLOCK, 4096), *block);
            assert!(found == *version || found == written.begun[block]);
        }
        there.stop();
    }
}

#[test]
fn a_volume_without_a_cache_is_not_frozen() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    daemon.says(&scratch, &["freeze"], 2, &["has no cache", "fsfreeze"]);
    daemon.says(&scratch, &["hand-over", "origin"], 2, &["has no cache"]);
    daemon.stop();
}
