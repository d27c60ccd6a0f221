//! `forebay explain`: why requests went past the cache, as an administrator reads it.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok};

fn explain(daemon: &Daemon, scratch: &Scratch) -> serde_json::Value {
    let said = daemon.command(scratch, &["explain", "--json"]);
    serde_json::from_str(&said).unwrap()
}

fn reason<'a>(explained: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let reasons = explained["bypassed"].as_array().unwrap();
    reasons
        .iter()
        .find(|reason| reason["reason"] == name)
        .unwrap_or(&serde_json::Value::Null)
}

#[test]
fn each_reason_is_counted_and_explained() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(
        &scratch,
        "writeback",
        &[
            "--admission",
            "second-touch",
            "--write-admission",
            "touch-3",
        ],
    );
    assert_eq!(
        explain(&daemon, &scratch)["bypassed"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.read(MIB, 8192);
    client.write(2 * MIB, &[1; 4096]);
    let explained = explain(&daemon, &scratch);
    let admission = reason(&explained, "admission");
    assert_eq!(admission["read_blocks"], 2, "{explained}");
    assert_eq!(admission["written_blocks"], 1, "{explained}");
    assert_eq!(admission["last"]["offset_bytes"], 2 * MIB);
    assert_eq!(admission["last"]["write"], true);
    client.read(MIB, 8192);
    assert_eq!(explain(&daemon, &scratch)["promoted_blocks"], 2);

    daemon.command(&scratch, &["set", "admission", "always"]);
    daemon.command(&scratch, &["set", "sequential-cutoff", "64K"]);
    for part in 0..4 {
        client.read(8 * MIB + part * 65536, 65536);
    }
    let explained = explain(&daemon, &scratch);
    assert_eq!(
        reason(&explained, "sequential")["read_blocks"],
        48,
        "{explained}"
    );
    let page = daemon.command(&scratch, &["explain"]);
    assert!(page.contains("forebay set sequential-cutoff"), "{page}");
    assert!(page.contains("Last: a read of 64 KiB"), "{page}");
    for (key, value) in [
        ("admission", "touch-99"),
        ("congestion-read", "5 parsecs"),
        ("write-budget", "lots"),
    ] {
        let mut refused = daemon.begin(&scratch, &["set", key, value]);
        assert_eq!(refused.wait().unwrap().code(), Some(2), "{key}");
    }
    daemon.stop();
    forebay_ok(&scratch, &["check", &scratch.text("cache")]);
}
