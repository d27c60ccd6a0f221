//! Commands that go on until they are interrupted.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::Child;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, send_signal, until};

const BLOCK: u64 = 4096;
const INTERRUPTED: i32 = 4;

/// The exit code of a process, and what it said on standard error.
fn end(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

fn dirty_bytes(daemon: &Daemon, scratch: &Scratch) -> u64 {
    let status = daemon.status(scratch);
    status["cache"]["dirty_bytes"].as_u64().unwrap()
}

fn written_back_bytes(daemon: &Daemon, scratch: &Scratch) -> u64 {
    let status = daemon.status(scratch);
    status["traffic"]["origin_written_bytes"].as_u64().unwrap()
}

#[test]
fn ctrl_c_ends_a_drain_and_nothing_else() {
    // More than one sweep of write-back, which is finished once it has begun.
    const DIRTY: u64 = 8000;
    let scratch = Scratch::new();
    scratch.file("origin", 2048 * MIB);
    scratch.file("cache", 64 * MIB);
    // A disk that seeks for every write makes the drain last; nothing is written back but by it.
    let slow = ["--age", "3600", "--dirty-low", "55"];
    let arguments = [
        &slow[..],
        &[
            "--origin-emulate",
            "hdd:write-cache-mib=0,rpm=60000,seek-ms=0.5,seek-min-ms=0.1,seek-max-ms=1",
        ],
    ]
    .concat();
    let daemon = Daemon::cached(&scratch, "writeback", &arguments);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    let place = |number: u64| number * 57 % (2048 * MIB / BLOCK) * BLOCK;
    let contents = |number: u64| (number + 1).to_le_bytes().repeat(BLOCK as usize / 8);
    for number in 0..DIRTY {
        client.write(place(number), &contents(number));
    }
    client.flush();
    assert_eq!(dirty_bytes(&daemon, &scratch), DIRTY * BLOCK);

    let mut drain = daemon.begin(&scratch, &["drain", "--json"]);
    let mut progress = BufReader::new(drain.stdout.take().unwrap()).lines();
    let first = progress.next().expect("progress").unwrap();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["dirty_bytes"], DIRTY * BLOCK);
    until("write-back to begin", || {
        written_back_bytes(&daemon, &scratch) > 0
    });
    send_signal(drain.id(), "-INT");
    let (code, said) = end(drain);
    assert_eq!(code, Some(INTERRUPTED), "{said}");
    assert!(
        said.contains("interrupted: the volume goes on as it was"),
        "{said}"
    );

    let mut before = u64::MAX;
    until("the daemon to stop writing back", || {
        let now = written_back_bytes(&daemon, &scratch);
        std::mem::replace(&mut before, now) == now
    });
    let written = written_back_bytes(&daemon, &scratch);
    assert!(
        written < DIRTY * BLOCK && dirty_bytes(&daemon, &scratch) > 0,
        "{written} bytes were written back"
    );
    client.write(place(DIRTY), &contents(DIRTY));
    drop(client);
    daemon.kill();
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for number in 0..=DIRTY {
        assert_eq!(client.read(place(number), BLOCK as u32), contents(number));
    }
    drop(client);
    daemon.stop();
}

#[test]
fn status_is_watched_until_ctrl_c() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);

    let mut watch = daemon.begin(&scratch, &["status", "--watch"]);
    let pages = BufReader::new(watch.stdout.take().unwrap()).split(0x1b);
    // Each page begins with two escape sequences, and the second is followed by the page.
    let pages = pages
        .map(|page| String::from_utf8(page.unwrap()).unwrap())
        .filter(|page| page.starts_with("[J"));
    // The last of three is not complete before a fourth begins.
    let pages: Vec<String> = pages.take(2).collect();
    assert!(
        pages.iter().all(|page| page.contains("origin")),
        "{pages:?}"
    );
    send_signal(watch.id(), "-INT");
    assert_eq!(end(watch), (Some(0), String::new()));

    let mut watch = daemon.begin(&scratch, &["status", "--watch", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().expect("another line").unwrap();
        let status: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(status["volumes"][0]["name"], "origin");
    }
    daemon.stop();
    let (code, said) = end(watch);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the daemon closed the connection"), "{said}");
}
