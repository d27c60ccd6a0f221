//! A reload that fails half way says what is in force, truly, and the next one goes on from there.

mod support;

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, text};

/// More than a cache has block numbers for: found only when the volume is entered.
const TOO_LARGE: u64 = 3 << 50;

fn configure(scratch: &Scratch, more: &str) {
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n{more}",
        scratch.text("nbd")
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
}

fn volumes(names: &[&str]) -> String {
    let volume = |name: &&str| format!("[[volume]]\norigin = \"{name}\"\nmode = \"writeback\"\n");
    names.iter().map(volume).collect()
}

fn served(status: &Value) -> Vec<(&str, &str)> {
    let volumes = status["volumes"].as_array().unwrap().iter();
    volumes
        .map(|volume| {
            let word = |key: &str| volume[key].as_str().unwrap();
            (word("name"), word("mode"))
        })
        .collect()
}

fn reload(scratch: &Scratch, daemon: &Daemon) -> (Option<i32>, String) {
    let output = daemon
        .begin(scratch, &["reload"])
        .wait_with_output()
        .unwrap();
    (output.status.code(), text(&output))
}

#[test]
fn what_is_in_force_half_way_is_said_and_the_next_reload_goes_on() {
    let scratch = Scratch::new();
    for name in ["one", "two", "four"] {
        scratch.file(name, 16 * MIB);
    }
    scratch.file("three", TOO_LARGE);
    scratch.file("cache", 64 * MIB);
    configure(&scratch, "[[volume]]\norigin = \"one\"\n");
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);

    let all = format!(
        "[settings]\nage = 9\n{}",
        volumes(&["one", "two", "three", "four"])
    );
    configure(&scratch, &all);
    let (code, said) = reload(&scratch, &daemon);
    assert_eq!(code, Some(1), "{said}");
    let told = "in force now: settings, volume one is in mode writeback, volume two is attached; \
                the rest of the file is not";
    assert!(
        said.contains(told) && said.contains("block numbers"),
        "{said}"
    );
    let status = daemon.status(&scratch);
    assert_eq!(status["settings"]["age_limit_seconds"], 9);
    let in_force = [("one", "writeback"), ("two", "writeback")];
    assert_eq!(served(&status), in_force);
    let mut client = Client::open(&scratch.path("nbd"), "two").unwrap().unwrap();
    client.write(0, &[2; 4096]);

    // Settings in force are neither told nor done again.
    let (code, said) = reload(&scratch, &daemon);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nothing was changed"), "{said}");
    assert!(!said.contains("volume two is attached"), "{said}");
    assert_eq!(served(&daemon.status(&scratch)), in_force);

    // And is known to be there.
    configure(
        &scratch,
        &format!("[settings]\nage = 9\n{}", volumes(&["one"])),
    );
    let said = daemon.command(&scratch, &["reload"]);
    assert!(
        said.contains("volume two, which is gone from the file"),
        "{said}"
    );

    configure(&scratch, &all);
    scratch.file("three", 16 * MIB);
    let said = daemon.command(&scratch, &["reload", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let changed = ["volume three is attached", "volume four is attached"];
    assert_eq!(said["changed"], serde_json::json!(changed));
    assert_eq!(said["needs_restart"], serde_json::json!([]));
    assert_eq!(client.read(0, 4096), [2; 4096]);
    drop(client);
    daemon.stop();
    Daemon::start(&scratch, &["--config", "f.toml"]).stop();
}

/// The file counts again, though nobody changed it.
#[test]
fn a_mode_and_what_is_of_two_devices_become_those_of_the_file_again() {
    let scratch = Scratch::new();
    scratch.file("one", 16 * MIB);
    let file = format!(
        "[cache]\ndevice = [\"a\", \"b\"]\ncreate = true\ncopies = 2\non-degraded = \"writethrough\"\n{}",
        volumes(&["one"])
    );
    for name in ["a", "b"] {
        scratch.file(name, 64 * MIB);
    }
    std::fs::write(scratch.path("f.toml"), file).unwrap();
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("nothing has changed"), "{said}");
    for changed in [
        ["mode", "one", "writethrough"],
        ["set", "copies", "1"],
        ["set", "on-degraded", "continue"],
    ] {
        daemon.command(&scratch, &changed);
    }
    let said = daemon.command(&scratch, &["reload", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        said["changed"],
        serde_json::json!(["copies", "on-degraded", "volume one is in mode writeback"])
    );
    assert_eq!(served(&daemon.status(&scratch)), [("one", "writeback")]);
    for (key, value) in [("copies", "2"), ("on-degraded", "writethrough")] {
        let found = daemon.command(&scratch, &["get", key]);
        assert!(found.contains(value), "{key}: {found}");
    }
    daemon.stop();
}

/// A shard of two has no place for its memory buffer: neither may go on with the new setting.
#[test]
fn settings_are_in_force_everywhere_or_nowhere() {
    let scratch = Scratch::new();
    scratch.file("one", 16 * MIB);
    support::forebay_ok(
        &scratch,
        &["create", "cache", "--size", "96M", "--shards", "2"],
    );
    configure(
        &scratch,
        &format!("[daemon]\nthreads = 2\n{}", volumes(&["one"])),
    );
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let id = daemon.status(&scratch)["cache"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let journal = support::shared_memory(&id)[0].clone();
    let in_the_way = journal.with_file_name(format!("{id}-1-buffer"));
    let in_the_way = in_the_way.to_str().unwrap().to_owned();
    std::fs::write(&in_the_way, "").unwrap();
    configure(
        &scratch,
        &format!(
            "[daemon]\nthreads = 2\n[settings]\ncommit = \"memory\"\n{}",
            volumes(&["one"])
        ),
    );
    let (code, said) = reload(&scratch, &daemon);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("nothing was changed")
            && said.contains(&in_the_way)
            && said.contains("File exists"),
        "{said}"
    );
    assert_eq!(daemon.status(&scratch)["settings"]["commit"], "flush");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    // Regions of both shards.
    for at in 0..4 {
        client.write(at * 4 * MIB, &[1; 4096]);
    }
    assert_eq!(daemon.status(&scratch)["traffic"]["buffered_writes"], 0);
    std::fs::remove_file(&in_the_way).unwrap();
    assert_eq!(
        daemon.command(&scratch, &["reload"]),
        "settings: in force\n"
    );
    for at in 0..4 {
        client.write(at * 4 * MIB, &[2; 4096]);
    }
    assert_eq!(daemon.status(&scratch)["traffic"]["buffered_writes"], 4);
    drop(client);
    daemon.stop();
}
