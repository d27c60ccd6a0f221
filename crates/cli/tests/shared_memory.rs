//! The place of shared memory: nobody else's, the same after an upgrade, listed and removed.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, shared_memory};

/// Starts a daemon that acknowledges from memory.
fn start(scratch: &Scratch) -> Daemon {
    Daemon::cached(
        scratch,
        "writeback",
        &["--commit", "memory", "--memory-buffer", "1M"],
    )
}

fn id(scratch: &Scratch, daemon: &Daemon) -> String {
    let id = &daemon.status(scratch)["cache"]["id"];
    id.as_str().unwrap().to_owned()
}

fn devices(scratch: &Scratch) {
    scratch.file("origin", 16 * MIB);
    scratch.file("cache", 24 * MIB);
}

/// Places of a cache's files in versions before 0700 directories.
fn earlier_places(id: &str) -> [PathBuf; 2] {
    let journal = format!("/dev/shm/forebay-{id}-0");
    [journal.clone().into(), format!("{journal}-buffer").into()]
}

/// S4: another user takes every name that can be known.
#[test]
fn nobody_else_can_keep_a_cache_from_being_served() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let scratch = Scratch::new();
    devices(&scratch);
    let daemon = start(&scratch);
    let id = id(&scratch, &daemon);
    for file in shared_memory(&id) {
        let directory = std::fs::metadata(file.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    }
    daemon.stop();
    let ways = [
        "touch $0 $1",
        "ln -s /nowhere $0; ln -s /etc/passwd $1",
        "mkdir $0 $1",
        "mkfifo $0 $1",
    ];
    for way in ways {
        let places = earlier_places(&id);
        let taken = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["sh", "-c", way])
            .args(&places)
            .status()
            .unwrap();
        assert!(taken.success());
        let daemon = start(&scratch);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        client.write(0, &[1; 4096]);
        drop(client);
        daemon.kill();
        start(&scratch).stop();
        for place in places {
            assert!(std::fs::symlink_metadata(&place).is_ok(), "it is not ours");
            let removed = std::fs::remove_file(&place).or_else(|_| std::fs::remove_dir(&place));
            removed.unwrap();
        }
    }
}

/// S4: an upgrade finds the memory that a daemon of an earlier version left, and moves it.
#[test]
fn memory_in_the_place_of_earlier_versions_is_taken_over() {
    let scratch = Scratch::new();
    devices(&scratch);
    let daemon = start(&scratch);
    let id = id(&scratch, &daemon);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..64 {
        client.write(block * 4096, &[block as u8 + 1; 4096]);
    }
    daemon.kill();
    let files = shared_memory(&id);
    assert_eq!(files.len(), 2, "{files:?}");
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        std::fs::rename(file, format!("/dev/shm/forebay-{name}")).unwrap();
    }
    forebay_ok(&scratch, &["check", "cache"]);
    let daemon = start(&scratch);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..64 {
        assert_eq!(client.read(block * 4096, 4096), [block as u8 + 1; 4096]);
    }
    assert!(earlier_places(&id).iter().all(|place| !place.exists()));
    assert_eq!(shared_memory(&id).len(), 2);
    drop(client);
    daemon.stop();
    assert_eq!(shared_memory(&id).len(), 0);
}

/// S23: memory of a cache that does not come back.
#[test]
fn memory_that_was_left_is_listed_and_can_be_removed() {
    let scratch = Scratch::new();
    devices(&scratch);
    let daemon = start(&scratch);
    let id = id(&scratch, &daemon);
    let listed = || {
        let list: Value =
            serde_json::from_str(&forebay_ok(&scratch, &["memory", "--json"])).unwrap();
        let mut list = list["memory"].as_array().unwrap().iter();
        list.find(|memory| memory["cache"] == id.as_str()).cloned()
    };
    let memory = listed().unwrap();
    assert_eq!(memory["in_use"], true);
    assert!(memory["bytes"].as_u64().unwrap() > memory["buffer_bytes"].as_u64().unwrap());
    let remove = ["memory", "--remove", &id, "--force"];
    forebay_says(&scratch, &remove, 3, &["is in use by the daemon"]);
    daemon.kill();
    assert_eq!(listed().unwrap()["in_use"], false);
    assert!(forebay_ok(&scratch, &["memory"]).contains(&id));
    forebay_says(&scratch, &remove[..3], 3, &["acknowledged", "--force"]);
    assert!(listed().is_some());
    forebay_says(&scratch, &remove, 0, &["is removed, "]);
    assert!(listed().is_none());
    forebay_says(&scratch, &remove, 2, &["there is no shared memory"]);
}
