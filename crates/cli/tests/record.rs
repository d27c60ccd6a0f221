//! Recording a running volume's requests, and advice on it.

mod support;

use std::process::{Child, Output};

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay, forebay_ok, send_signal, text, until};

const RECORD: usize = 24;

/// `(kind, offset, length)` as the file has them: reads are 0, the end is 255.
type Short = (u8, u64, u32);

fn records(scratch: &Scratch, name: &str) -> Vec<Short> {
    let bytes = std::fs::read(scratch.path(name)).unwrap();
    assert_eq!(&bytes[..8], b"FOREBAYT");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(16), 32 * MIB, "the volume's size");
    let mut last = 0;
    (RECORD..bytes.len())
        .step_by(RECORD)
        .map(|at| {
            assert!(word(at) >= last, "times go backwards");
            last = word(at);
            let len = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap());
            (bytes[at + 20], word(at + 8), len)
        })
        .collect()
}

fn start(scratch: &Scratch) -> Daemon {
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    Daemon::cached(scratch, "writeback", &["--memory", "64M"])
}

fn begin(daemon: &Daemon, scratch: &Scratch, more: &[&str]) -> Child {
    let before = daemon.log().matches("is being recorded").count();
    let arguments = [&["trace", "record", "origin", "trace", "--json"], more].concat();
    let child = daemon.begin(scratch, &arguments);
    until("the recording to begin", || {
        daemon.log().matches("is being recorded").count() > before
    });
    child
}

fn end(child: Child, code: i32) -> Value {
    let output: Output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

#[test]
fn every_request_is_recorded_in_order_until_ctrl_c() {
    let scratch = Scratch::new();
    let daemon = start(&scratch);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[1; 512]);
    let child = begin(&daemon, &scratch, &[]);
    client.write(3 * 4096, &[7; 8192]);
    client.read(512, 1536);
    client.begin_zeroes(MIB, 65536).unwrap();
    client.reply().unwrap();
    client.begin_trim(2 * MIB, MIB as u32).unwrap();
    client.reply().unwrap();
    client.flush();
    send_signal(child.id(), "-INT");
    let said = end(child, 0);
    assert_eq!(
        (&said["requests"], &said["dropped"]),
        (&5.into(), &0.into())
    );
    let expected = [
        (1, 3 * 4096, 8192),
        (0, 512, 1536),
        (2, MIB, 65536),
        (3, 2 * MIB, MIB as u32),
        (4, 0, 0),
        (255, 0, 0),
    ];
    assert_eq!(records(&scratch, "trace"), expected);

    // The other commands read it.
    let simulate = ["trace", "simulate", "trace", "--json"];
    let said: Value = serde_json::from_str(&forebay_ok(&scratch, &simulate)).unwrap();
    assert_eq!(
        (&said["requests"], &said["accesses"]),
        (&2.into(), &3.into())
    );

    // An existing file is not given up unasked.
    let again = forebay(&scratch, &["trace", "record", "origin", "trace"]);
    assert_eq!(again.status.code(), Some(3), "{}", text(&again));
    assert!(text(&again).contains("--force"), "{}", text(&again));
    assert_eq!(records(&scratch, "trace"), expected);
    end(
        begin(&daemon, &scratch, &["--force", "--seconds", "0.1"]),
        0,
    );
    assert_eq!(records(&scratch, "trace"), [(255, 0, 0)]);
    daemon.stop();
}

#[test]
fn a_recording_ends_with_its_volume_or_its_daemon() {
    let scratch = Scratch::new();
    let daemon = start(&scratch);
    let child = begin(&daemon, &scratch, &[]);
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(0, &[1; 512]);
    daemon.command(&scratch, &["detach", "origin"]);
    assert_eq!(end(child, 0)["requests"], 1);
    assert_eq!(records(&scratch, "trace").len(), 2);

    daemon.command(&scratch, &["attach", "origin"]);
    let child = begin(&daemon, &scratch, &["--force"]);
    daemon.stop();
    end(child, 0);
    assert_eq!(records(&scratch, "trace"), [(255, 0, 0)]);
}

#[test]
fn what_a_killed_daemon_leaves_can_be_read() {
    let scratch = Scratch::new();
    let daemon = start(&scratch);
    let child = begin(&daemon, &scratch, &[]);
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(0, &[1; 512]);
    let whole = 2 * RECORD as u64;
    until("the request to be in the file", || {
        std::fs::metadata(scratch.path("trace")).is_ok_and(|file| file.len() == whole)
    });
    daemon.kill();
    end(child, 1);
    let simulate = ["trace", "simulate", "trace"];
    let output = forebay(&scratch, &simulate);
    assert!(text(&output).contains("cut off"), "{}", text(&output));
    let skipping = [&simulate[..], &["--skip-bad"]].concat();
    assert!(forebay_ok(&scratch, &skipping).contains("1 block accesses"));
}

#[test]
fn nothing_waits_for_a_recorder_that_stands_still() {
    let scratch = Scratch::new();
    let daemon = start(&scratch);
    let child = begin(&daemon, &scratch, &[]);
    send_signal(child.id(), "-STOP");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    // More than fits in the daemon's queue and in the socket.
    let sent = 100_000u64;
    for _ in 0..sent {
        if client.waiting() == 16 {
            assert_eq!(client.reply().unwrap().error, 0);
        }
        client.begin_read(0, 512).unwrap();
    }
    while client.waiting() > 0 {
        assert_eq!(client.reply().unwrap().error, 0);
    }
    send_signal(child.id(), "-CONT");
    send_signal(child.id(), "-INT");
    let said = end(child, 0);
    let count = |what: &str| said[what].as_u64().unwrap();
    assert!(count("dropped") > 0, "{said}");
    assert_eq!(count("requests") + count("dropped"), sent, "{said}");
    assert_eq!(
        records(&scratch, "trace").last(),
        Some(&(255, count("dropped"), 0))
    );
    daemon.stop();
}

#[test]
fn a_recording_that_cannot_be_made_leaves_no_file() {
    let scratch = Scratch::new();
    let daemon = start(&scratch);
    for (arguments, code, word) in [
        (
            &["trace", "record", "nothing", "trace"][..],
            2,
            "there are: origin",
        ),
        (
            &["trace", "record", "origin", "trace", "--seconds", "0"],
            2,
            "--seconds",
        ),
        (
            &["trace", "record", "origin", "no/where"],
            1,
            "cannot make no/where",
        ),
    ] {
        let output = daemon
            .begin(&scratch, arguments)
            .wait_with_output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(text(&output).contains(word), "{}", text(&output));
        assert!(!scratch.path("trace").exists());
    }
    until("the daemon to notice", || {
        daemon.log().contains("no longer being recorded")
    });
    daemon.stop();
}

#[test]
fn a_running_volume_is_advised_on() {
    let scratch = Scratch::new();
    let daemon = start(&scratch);
    let advise = ["advise", "origin", "--json"];
    let output = daemon.begin(&scratch, &advise).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("nothing to advise on"),
        "{}",
        text(&output)
    );

    // A sixteenth of the volume read over and over, the rest once; some of it written.
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    let blocks = 32 * MIB / 4096;
    for round in 0..8 {
        for block in 0..blocks / 16 {
            client.read(block * 16 * 4096, 4096);
        }
        client.write(round * 4096, &[3; 4096]);
    }
    for block in 0..blocks / 2 {
        client.read(block * 2 * 4096 + 4096, 4096);
    }
    let said: Value = serde_json::from_str(&daemon.command(&scratch, &advise)).unwrap();
    let (hot, cold) = (blocks / 16, blocks / 2);
    assert_eq!(said["volume"], "origin");
    assert_eq!(said["missed_requests"], 0);
    assert_eq!(said["requests"], 8 * hot + cold + 8);
    assert_eq!(said["read_blocks"], 8 * hot + cold);
    assert_eq!(said["write_blocks"], 8);
    assert!(said["sampling_rate"].as_f64().unwrap() <= 0.125);
    assert!(said["duration_seconds"].as_f64().unwrap() > 0.0);
    // A few seconds are no load to recommend a cache for; a size can be asked about.
    assert!(said["recommendation"].is_null(), "{said}");
    let early = daemon.command(&scratch, &["advise", "origin"]);
    assert!(early.contains("Too little was seen"), "{early}");
    let size = format!("{}K", 4 * hot * 5 / 4);
    let of_size = ["advise", "origin", "--json", "--size", &size];
    let said: Value = serde_json::from_str(&daemon.command(&scratch, &of_size)).unwrap();
    let ratio = said["recommendation"]["expected"]["hit_ratio"]
        .as_f64()
        .unwrap();
    let expected = (7 * hot) as f64 / (8 * hot + cold) as f64;
    assert!((ratio - expected).abs() < 0.1, "{ratio} not {expected}");
    let page = scratch.text("advice.html");
    let words = daemon.command(
        &scratch,
        &["advise", "origin", "--size", "1M", "--html", &page],
    );
    for said in [
        "To volume origin",
        "1 MiB",
        "a day is not told from less than an hour",
    ] {
        assert!(words.contains(said), "{words}");
    }
    assert!(said["recommendation"]["years_of_life"].is_null(), "{said}");
    assert_eq!(said["recommendation"]["worthwhile"], true);
    assert!(std::fs::read_to_string(&page).unwrap().contains("polyline"));

    // A file's name without its format, and options that are for traces.
    let output = daemon
        .begin(&scratch, &["advise", "cache"])
        .wait_with_output()
        .unwrap();
    assert!(text(&output).contains("--format"), "{}", text(&output));
    for option in ["--samples", "--age", "--duration", "--block-size"] {
        let output = forebay(&scratch, &["advise", "origin", option, "4096"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    }
    daemon.stop();
}
