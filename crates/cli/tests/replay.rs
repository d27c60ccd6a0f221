//! Replaying traces against volumes, files and simulated caches.

mod support;

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay, forebay_ok, forebay_says, send_signal, text, until};

const SECOND: u64 = 1_000_000_000;

/// `(time in ns, kind, offset, length)`: reads are 0, writes 1, write-zeroes 2, discards 3,
/// flushes 4.
type Request = (u64, u8, u64, u32);

/// A recording as `forebay trace record` makes them.
fn recording(scratch: &Scratch, name: &str, requests: &[Request]) -> String {
    let mut bytes = b"FOREBAYT\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend((64 * MIB).to_le_bytes());
    for &(time, kind, offset, len) in requests.iter().chain(&[(9 * SECOND, 255, 0, 0)]) {
        bytes.extend(time.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend([kind, 0, 0, 0]);
    }
    std::fs::write(scratch.path(name), bytes).unwrap();
    scratch.text(name)
}

fn replay(scratch: &Scratch, trace: &str, more: &[&str]) -> Value {
    let arguments = [
        &["trace", "replay", trace, "--format", "forebay", "--json"],
        more,
    ]
    .concat();
    serde_json::from_str(&forebay_ok(scratch, &arguments)).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

const EVERYTHING: [Request; 6] = [
    (0, 1, 8192, 4096),
    (1_000_000, 0, 8192, 8192),
    (2_000_000, 4, 0, 0),
    (3_000_000, 2, MIB, 65536),
    (4_000_000, 3, 2 * MIB, 1 << 20),
    (5_000_000, 1, 3 * MIB + 512, 3 << 20),
];

#[test]
fn a_volume_gets_exactly_what_the_trace_has() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &["--memory", "64M"]);
    let trace = recording(&scratch, "trace", &EVERYTHING);
    let recorder = daemon.begin(&scratch, &["trace", "record", "origin", "again", "--json"]);
    until("the recording to begin", || {
        daemon.log().contains("is being recorded")
    });
    let one = ["--target", daemon.uri(), "--force", "--depth", "1"];
    let said = replay(&scratch, &trace, &one);
    send_signal(recorder.id(), "-INT");
    assert!(recorder.wait_with_output().unwrap().status.success());
    assert_eq!(
        (&said["requests"], &said["left_out"]),
        (&6.into(), &0.into())
    );
    assert_eq!(said["write"]["bytes"], 4096 + (3 << 20));
    assert_eq!(said["read"]["requests"], 1);
    assert_eq!(said["other"]["requests"], 3);
    let sent = std::fs::read(scratch.path("again")).unwrap();
    let given = std::fs::read(&trace).unwrap();
    let without_times = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let records = bytes[24..].chunks(24);
        records.map(|record| record[8..].to_vec()).collect()
    };
    assert_eq!(without_times(&sent), without_times(&given));
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    let written = client.read(8192, 8192);
    assert!(written[..4096].iter().any(|byte| *byte != 0));
    assert!(written[4096..].iter().all(|byte| *byte == 0));

    // Reads alone change nothing, and need no leave to.
    let before = client.read(0, 4 << 20);
    let said = replay(
        &scratch,
        &trace,
        &["--target", daemon.uri(), "--reads-only", "--speed", "max"],
    );
    assert_eq!(
        (&said["requests"], &said["left_out"]),
        (&1.into(), &5.into())
    );
    assert_eq!(said["behind"], Value::Null);
    assert!(client.read(0, 4 << 20) == before);
    daemon.stop();
}

#[test]
fn what_would_be_lost_or_does_not_fit_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.pattern("disk", MIB);
    let before = std::fs::read(&path).unwrap();
    let trace = recording(&scratch, "trace", &EVERYTHING);
    let blocks = scratch.text("blocks");
    std::fs::write(&blocks, "1\n2\n").unwrap();
    let command = |more: &[&str]| -> Vec<String> {
        let all = [&["trace", "replay", &trace, "--format", "forebay"], more].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let says = |arguments: &[String], code, words: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        forebay_says(&scratch, &arguments, code, words);
    };
    says(
        &command(&["--target", "disk"]),
        3,
        &["--reads-only", "--force"],
    );
    says(
        &command(&["--target", "disk", "--force"]),
        2,
        &["6.0 MiB", "--wrap"],
    );
    says(
        &command(&["--target", "nowhere", "--force"]),
        1,
        &["nowhere"],
    );
    says(
        &command(&["--target", "nbd+unix:///x?socket=nowhere", "--force"]),
        1,
        &["cannot reach nowhere"],
    );
    says(
        &command(&["--target", "nbd:///x", "--force"]),
        2,
        &["is no export such as"],
    );
    says(&command(&["--simulate"]), 2, &["--cache-size"]);
    says(&command(&[]), 2, &["--target"]);
    says(
        &command(&["--target", "disk", "--mode", "writeback"]),
        2,
        &["--simulate"],
    );
    says(
        &command(&["--simulate", "--cache-size", "1K"]),
        2,
        &["cannot be simulated"],
    );
    let untimed = [
        "trace", "replay", &blocks, "--format", "blocks", "--target", "disk",
    ];
    forebay_says(&scratch, &untimed, 2, &["--speed max"]);
    let input = [
        "trace", "replay", "-", "--format", "blocks", "--target", "disk",
    ];
    forebay_says(&scratch, &input, 2, &["--wrap"]);
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn a_file_can_be_driven_and_what_is_beyond_its_end_wraps() {
    let scratch = Scratch::new();
    let path = scratch.pattern("disk", MIB);
    let trace = recording(&scratch, "trace", &EVERYTHING);
    let said = replay(
        &scratch,
        &trace,
        &["--target", "disk", "--force", "--wrap", "--depth", "1"],
    );
    // A file takes no discards here.
    assert_eq!(
        (&said["requests"], &said["left_out"]),
        (&5.into(), &1.into())
    );
    assert_eq!(said["write"]["bytes"], 4096 + MIB);
    // The last write is as long as the file.
    let after = std::fs::read(&path).unwrap();
    assert_eq!(after.len() as u64, MIB);
    let differs = |block: usize| {
        after[block * 4096..(block + 1) * 4096]
            .iter()
            .any(|b| *b != 0)
    };
    assert!((0..256).all(differs));
}

#[test]
fn requests_are_sent_at_their_time_and_no_earlier() {
    let scratch = Scratch::new();
    scratch.file("disk", MIB);
    let requests: Vec<Request> = (0..20)
        .map(|at| (at * SECOND / 40, 0, at * 4096, 4096))
        .collect();
    let trace = recording(&scratch, "trace", &requests);
    let seconds = |speed: &str| {
        let said = replay(&scratch, &trace, &["--target", "disk", "--speed", speed]);
        assert_eq!(said["requests"], 20);
        assert_eq!(said["behind"]["mean_ns"].is_u64(), speed != "max");
        number(&said["seconds"])
    };
    assert!(seconds("1") >= 0.475);
    assert!(seconds("5") >= 0.095);
    assert!(seconds("max") < seconds("1"));
}

#[test]
fn ctrl_c_ends_with_the_report_so_far() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    let trace = recording(
        &scratch,
        "trace",
        &[
            (0, 0, 0, 4096),
            (1, 0, 4096, 4096),
            (9999 * SECOND, 0, 0, 4096),
        ],
    );
    let command = [
        "trace", "replay", &trace, "--format", "forebay", "--json", "--target",
    ];
    // The daemon's own client adds `--control`, which this command has not.
    let arguments = [&command[..], &[daemon.uri()]].concat();
    let child = support::start(&scratch, &arguments);
    until("the first requests", || {
        daemon.status(&scratch)["traffic"]["read_requests"] == 2
    });
    send_signal(child.id(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["interrupted"], &said["requests"]),
        (&true.into(), &2.into())
    );
    daemon.stop();
}

#[test]
fn a_simulation_gives_the_same_each_time() {
    let scratch = Scratch::new();
    // A hundred blocks, ten rounds, one write in ten.
    let requests: Vec<Request> = (0..1000u64)
        .map(|at| {
            (
                at * SECOND / 50,
                u8::from(at % 10 == 9),
                at % 100 * 65536,
                4096,
            )
        })
        .collect();
    let trace = recording(&scratch, "trace", &requests);
    let simulate = ["--simulate", "--cache-size", "64M", "--mode", "writeback"];
    let said = replay(&scratch, &trace, &simulate);
    assert_eq!(said, replay(&scratch, &trace, &simulate));
    let simulated = &said["simulated"];
    assert_eq!(simulated["read_hit_ratio"], 0.9, "{said}");
    assert_eq!(simulated["write_hit_ratio"], 0.9, "{said}");
    assert_eq!(simulated["origin_read_bytes"], 90 * 4096);
    assert_eq!(simulated["mode"], "writeback");
    assert!(number(&simulated["cache_written_bytes"]) >= 190.0 * 4096.0);
    assert_eq!(
        (&said["requests"], &said["failed"]),
        (&1000.into(), &0.into())
    );
    // Where writes go to the origin at once nothing is dirty in the sense of write-back.
    let words = |mode: &str| {
        let replay = [
            "trace",
            "replay",
            &trace,
            "--format",
            "forebay",
            "--simulate",
        ];
        let more = ["--cache-size", "64M", "--mode", mode];
        forebay_ok(&scratch, &[&replay[..], &more].concat())
    };
    let (back, through) = (words("writeback"), words("writethrough"));
    assert!(back.contains(" dirty at the end"), "{back}");
    assert!(
        through.contains("written to the origin and not yet flushed there at the end"),
        "{through}"
    );
    // Twenty seconds of the trace pass in virtual time.
    assert!((number(&said["seconds"]) - 19.98).abs() < 0.1);
    // Misses wait for the disk and hits do not.
    assert!(number(&said["read"]["longest_ns"]) > 10.0 * number(&said["read"]["p50_ns"]));

    assert_eq!(said["saturated"], false, "{said}");
    assert!(!back.contains("SATURATED"), "{back}");
    // A disk does not read 50 blocks a second a hundred times as fast.
    let overload = ["--speed", "100", "--mode", "passthrough"];
    let overload = [&["--simulate", "--cache-size", "64M"][..], &overload].concat();
    let overloaded = replay(&scratch, &trace, &overload);
    assert_eq!(overloaded["saturated"], true, "{overloaded}");
    let arguments = ["trace", "replay", &trace, "--format", "forebay"];
    let told = forebay_ok(&scratch, &[&arguments[..], &overload].concat());
    let expected = "The simulated devices are SATURATED";
    assert!(told.contains(expected), "{told}");

    let bypassing = replay(
        &scratch,
        &trace,
        &[
            "--simulate",
            "--cache-size",
            "64M",
            "--mode",
            "passthrough",
            "--speed",
            "max",
        ],
    );
    assert_eq!(bypassing["simulated"]["cache_read_bytes"], 0);
    assert!(number(&bypassing["seconds"]) < number(&said["seconds"]));

    // All kinds of requests, several volumes, formats without bytes.
    let trace = recording(&scratch, "kinds", &EVERYTHING);
    let said = replay(&scratch, &trace, &simulate);
    assert_eq!(
        (&said["requests"], &said["left_out"]),
        (&6.into(), &0.into())
    );
    let csv = scratch.text("csv");
    std::fs::write(&csv, "7,R,0,4096,0\n8,W,0,4096,10\n7,R,0,4096,1000000\n").unwrap();
    let arguments = [
        &["trace", "replay", &csv, "--format", "alibaba"][..],
        &simulate,
    ]
    .concat();
    let words = forebay_ok(&scratch, &arguments);
    for word in [
        "3 requests",
        "64 MiB of cache, writeback",
        "50.0 % of those read",
    ] {
        assert!(words.contains(word), "{words}");
    }
    let blocks = scratch.text("blocks");
    std::fs::write(&blocks, "5\n5\n6\n").unwrap();
    let arguments = [
        &[
            "trace", "replay", &blocks, "--format", "blocks", "--speed", "max", "--json",
        ][..],
        &simulate,
    ]
    .concat();
    let said: Value = serde_json::from_str(&forebay_ok(&scratch, &arguments)).unwrap();
    assert_eq!(said["read"]["bytes"], 3 * 4096);
    let output = forebay(
        &scratch,
        &[
            "trace",
            "replay",
            &blocks,
            "--format",
            "msr",
            "--simulate",
            "--cache-size",
            "64M",
        ],
    );
    assert!(text(&output).contains("line 1"), "{}", text(&output));
}
