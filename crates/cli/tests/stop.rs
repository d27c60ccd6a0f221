//! A stop waits for no write-back, and a closed terminal ends nothing.

mod support;

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, until};

const BLOCKS: u64 = 4096;

/// Blocks far apart: a disk takes half a minute for them.
fn write_scattered(scratch: &Scratch) {
    let mut client = Client::open(&scratch.path("nbd"), "disk").unwrap().unwrap();
    for block in 0..BLOCKS {
        let place = block * 2_654_435_761 % 16_384;
        client.write(place * 4096, &[block as u8; 4096]);
    }
    client.flush();
}

fn dirty_bytes(scratch: &Scratch) -> u64 {
    let dump: Value =
        serde_json::from_str(&forebay_ok(scratch, &["dump", "cache", "--json"])).unwrap();
    assert_eq!(dump["volumes"][0]["stopped_in_order"], true);
    dump["volumes"][0]["dirty_bytes"].as_u64().unwrap()
}

#[test]
fn a_stop_leaves_dirty_data_in_the_cache() {
    let scratch = Scratch::new();
    scratch.file("disk", 64 * MIB);
    scratch.file("cache", 64 * MIB);
    let serve = [
        "--origin",
        "disk",
        "--cache",
        "cache",
        "--create",
        "--mode",
        "writeback",
        "--origin-emulate",
        "hdd",
        "--dirty-low",
        "0%",
    ];
    let daemon = Daemon::start(&scratch, &serve);
    write_scattered(&scratch);
    until("write-back to work", || {
        let status = daemon.status(&scratch);
        status["traffic"]["written_back_blocks"].as_u64().unwrap() > 0
    });
    let before = daemon.status(&scratch)["cache"]["dirty_bytes"]
        .as_u64()
        .unwrap();
    assert!(before > 4 * MIB, "{before}");
    daemon.stop();
    let after = dirty_bytes(&scratch);
    assert!(
        after > before / 2,
        "{after} of {before} are left: the stop waited for write-back"
    );
}

#[test]
fn sighup_reads_the_configuration_again_and_ends_nothing() {
    let scratch = Scratch::new();
    scratch.file("disk", 16 * MIB);
    let daemon = Daemon::start(&scratch, &["--origin", "disk"]);
    daemon.signal("-HUP");
    until("the signal to be noticed", || {
        daemon.log().contains("the daemon goes on")
    });
    let mut client = Client::open(&scratch.path("nbd"), "disk").unwrap().unwrap();
    client.write(0, &[1; 4096]);
    drop(client);
    daemon.stop();

    scratch.file("cache", 64 * MIB);
    let file = |age: &str| {
        format!(
            "[cache]\ndevice = \"cache\"\ncreate = true\n[settings]\nage = \"{age}\"\n\
             [[volume]]\norigin = \"disk\"\n"
        )
    };
    std::fs::write(scratch.path("f.toml"), file("9s")).unwrap();
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    std::fs::write(scratch.path("f.toml"), file("7s")).unwrap();
    daemon.signal("-HUP");
    until("the new setting", || {
        daemon.status(&scratch)["settings"]["age_limit_seconds"] == 7
    });
    daemon.stop();
}
