//! `commit = memory` in the daemon: switched on live, seen, and nothing left behind.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, shared_memory};

fn buffers(id: &str) -> usize {
    let files = shared_memory(id);
    let names = files.iter().map(|path| path.to_string_lossy());
    names.filter(|name| name.ends_with("-buffer")).count()
}

#[test]
fn it_is_switched_on_live_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &["--memory-buffer", "2M"]);
    let id = daemon.status(&scratch)["cache"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(buffers(&id), 0);
    daemon.command(&scratch, &["set", "commit", "memory"]);
    assert!(buffers(&id) > 0);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..100 {
        client.write(block * 4096, &[block as u8; 4096]);
    }
    assert_eq!(client.read(99 * 4096, 4096), [99; 4096]);
    let traffic = &daemon.status(&scratch)["traffic"];
    assert_eq!(traffic["buffered_writes"], 100);
    daemon.command(&scratch, &["set", "commit", "flush"]);
    client.write(0, &[7; 4096]);
    assert_eq!(client.read(0, 4096), [7; 4096]);
    drop(client);
    daemon.stop();
    assert_eq!(buffers(&id), 0);
}

#[test]
fn what_it_holds_after_a_kill_is_seen_and_logged_by_the_next_daemon() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let memory = ["--commit", "memory", "--memory-buffer", "4M"];
    let daemon = Daemon::cached(&scratch, "writeback", &memory);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..200 {
        client.write(block * 4096, &[block as u8; 4096]);
    }
    daemon.kill();
    let checked = forebay_ok(&scratch, &["check", "cache", "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    assert!(checked["recovery"]["buffered_blocks"].is_u64());
    // The next one knows nothing of the setting.
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..200 {
        assert_eq!(client.read(block * 4096, 4096), [block as u8; 4096]);
    }
    drop(client);
    daemon.stop();
}
