//! The cache's space changed while clients write, and daemons killed in the middle of it.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_random::SplitMix64;
use serde_json::Value;
use support::model::{BLOCK, Model, ORIGIN_BYTES, contents, write_some};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, send_signal, text, until};

fn set_size(scratch: &Scratch, size_bytes: u64) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(scratch.path("cache"))
        .unwrap();
    file.set_len(size_bytes).unwrap();
}

fn capacity(daemon: &Daemon, scratch: &Scratch) -> u64 {
    daemon.status(scratch)["cache"]["capacity_bytes"]
        .as_u64()
        .unwrap()
}

fn resize(daemon: &Daemon, scratch: &Scratch, size: &str) -> Value {
    let said = daemon.command(scratch, &["cache", "resize", size, "--json"]);
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// Resizes at random under load; half of the daemons are killed meanwhile.
fn resize_again_and_again(shards: &str, rounds: u64) {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("cache", 32 * MIB);
    forebay_ok(&scratch, &["create", "cache", "--shards", shards]);
    set_size(&scratch, 96 * MIB);
    let (mut random, mut model, mut version) = (SplitMix64::new(11), Model::default(), 0);
    for _ in 0..rounds {
        let daemon = Daemon::cached(&scratch, "writeback", &[]);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        model.check_and_settle(&mut client);
        let size = format!("{}M", 20 + random.below(77));
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        let resizing = daemon.begin(&scratch, &["cache", "resize", &size]);
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        if random.below(2) == 0 {
            daemon.kill();
            resizing.wait_with_output().unwrap();
            continue;
        }
        let output = resizing.wait_with_output().unwrap();
        assert!(output.status.success(), "{size}: {}", text(&output));
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        drop(client);
        daemon.kill();
    }
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    model.check(&mut client);
    drop(client);
    daemon.command(&scratch, &["drain"]);
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    model.check(&mut Client::connect(&scratch.path("nbd")).unwrap());
    daemon.stop();
}

#[test]
fn nothing_is_lost_while_the_cache_is_resized() {
    resize_again_and_again("1", 16);
}

#[test]
fn nothing_is_lost_while_several_shards_are_resized() {
    resize_again_and_again("2", 16);
}

#[test]
fn a_grown_cache_holds_more_and_a_shrunk_one_keeps_what_is_dirty() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    scratch.file("cache", 16 * MIB);
    let slow = ["--age", "3600", "--dirty-low", "60"];
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    let before = capacity(&daemon, &scratch);
    let nothing = resize(&daemon, &scratch, "max");
    assert_eq!(nothing["before_bytes"], nothing["after_bytes"]);

    set_size(&scratch, 64 * MIB);
    let grown = resize(&daemon, &scratch, "max");
    assert_eq!(grown["after_bytes"], 63 * MIB);
    assert!(capacity(&daemon, &scratch) > before * 3);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..5000 {
        client.write(block * BLOCK, &contents(block + 1));
    }
    let dirty = |daemon: &Daemon| {
        let status = daemon.status(&scratch);
        status["cache"]["dirty_bytes"].as_u64().unwrap()
    };
    assert_eq!(dirty(&daemon), 5000 * BLOCK, "more than it held before");

    let shrunk = resize(&daemon, &scratch, "40M");
    let end = shrunk["device_end_bytes"].as_u64().unwrap();
    assert!((39 * MIB..=40 * MIB).contains(&end), "{shrunk}");
    daemon.kill();
    // The space that it gave back can be used for something else.
    set_size(&scratch, end);
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    assert!(capacity(&daemon, &scratch) < 40 * MIB);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..5000 {
        assert_eq!(
            client.read(block * BLOCK, BLOCK as u32),
            contents(block + 1)
        );
    }
    drop(client);
    daemon.stop();
    forebay_ok(&scratch, &["check", "cache"]);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let before = capacity(&daemon, &scratch);
    let control = scratch.text("control");
    let says = |size: &str, code: i32, words: &[&str]| {
        let arguments = ["cache", "resize", size, "--control", &control];
        forebay_says(&scratch, &arguments, code, words);
    };
    says("64M", 3, &["has 32 MiB", "make it larger first", "`max`"]);
    says("4M", 3, &["4 MiB is too small", "it needs 9 MiB"]);
    says("much", 2, &["much", "`max`"]);
    assert_eq!(capacity(&daemon, &scratch), before);
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    says("max", 2, &["serves no cache", "--cache"]);
    daemon.stop();
    let timed = ["--cache-emulate", "ssd"];
    let daemon = Daemon::cached(&scratch, "writeback", &timed);
    says("16M", 3, &["the timing of another device"]);
    daemon.stop();
}

/// Whether a process has a handler for SIGINT.
fn watches_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << 1 != 0)
}

#[test]
fn an_interrupted_resize_leaves_the_cache_as_it_was() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    scratch.file("cache", 48 * MIB);
    let slow = ["--age", "3600", "--dirty-low", "60"];
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..4000 {
        client.write(block * BLOCK, &contents(block + 1));
    }
    // Much of it is used: to give that back takes time.
    for block in 4000..12_000 {
        client.read(block * BLOCK, BLOCK as u32);
    }
    until("the cache to fill", || {
        let cached = daemon.status(&scratch)["cache"]["cached_bytes"].as_u64();
        cached.unwrap() > 38 * MIB
    });
    let before = capacity(&daemon, &scratch);
    // It is gone before the daemon, which stands still, has heard of it.
    daemon.signal("-STOP");
    let mut resizing = daemon.begin(&scratch, &["cache", "resize", "24M"]);
    until("Ctrl-C to be watched for", || {
        watches_interrupts(resizing.id())
    });
    send_signal(resizing.id(), "-INT");
    assert_eq!(resizing.wait().unwrap().code(), Some(4));
    daemon.signal("-CONT");
    until("the daemon to notice", || {
        let settled = capacity(&daemon, &scratch) == before;
        settled && !daemon.log().contains("instead of")
    });
    for block in 0..4000 {
        assert_eq!(
            client.read(block * BLOCK, BLOCK as u32),
            contents(block + 1)
        );
    }
    // Nothing is in the way of another.
    until("another to be possible", || {
        let said = daemon.begin(&scratch, &["cache", "resize", "24M"]);
        said.wait_with_output().unwrap().status.success()
    });
    assert!(capacity(&daemon, &scratch) < before);
    assert_eq!(daemon.log().matches("instead of").count(), 1);
    daemon.stop();
}

/// Two devices by turns in and out under load; half of the daemons are killed meanwhile.
#[test]
fn nothing_is_lost_while_devices_come_and_go() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("cache", 32 * MIB);
    forebay_ok(&scratch, &["create", "cache", "--shards", "2"]);
    scratch.file("second", 40 * MIB);
    let (mut random, mut model, mut version) = (SplitMix64::new(5), Model::default(), 0);
    let mut commands = ["add second", "remove cache", "add cache", "remove second"]
        .into_iter()
        .cycle();
    for _ in 0..16 {
        let daemon = start_with_all(&scratch);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        model.check_and_settle(&mut client);
        let command: Vec<&str> = commands.next().unwrap().split(' ').collect();
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        // A command that came into effect before the kill is refused, and has nothing to do.
        let force: &[&str] = if command[0] == "add" {
            &["--force"]
        } else {
            &[]
        };
        let arguments = [&["cache"], command.as_slice(), force].concat();
        let changing = daemon.begin(&scratch, &arguments);
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        if random.below(2) == 0 {
            daemon.kill();
            changing.wait_with_output().unwrap();
            continue;
        }
        let output = changing.wait_with_output().unwrap();
        let said = text(&output);
        let idle = [
            "already",
            "is no device of the cache",
            "only device",
            "a cache device of",
        ];
        let nothing_to_do = idle.iter().any(|words| said.contains(words));
        assert!(
            output.status.success() || nothing_to_do,
            "{command:?}: {said}"
        );
        let replies = 50 + random.below(1500);
        write_some(&mut client, &mut model, &mut random, &mut version, replies);
        daemon.kill();
    }
    let daemon = start_with_all(&scratch);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    model.check(&mut client);
    drop(client);
    daemon.command(&scratch, &["drain"]);
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    model.check(&mut Client::connect(&scratch.path("nbd")).unwrap());
    daemon.stop();
}

/// Starts with the devices that the cache has, whichever a kill left it: all others are refused.
fn start_with_all(scratch: &Scratch) -> Daemon {
    let both = ["--cache", "cache", "--cache", "second"];
    let choices: [&[&str]; 3] = [&both, &both[..2], &both[2..]];
    let mut refused = Vec::new();
    for cache in choices {
        let arguments = [&["--origin", "origin", "--mode", "writeback"], cache].concat();
        match Daemon::try_start(scratch, &arguments) {
            Ok(daemon) => return daemon,
            Err(said) => {
                assert!(said.contains("exit code Some(3)"), "{said}");
                refused.push(said);
            }
        }
    }
    panic!("no choice of devices is the cache: {refused:#?}");
}

#[test]
fn a_second_device_is_used_shown_and_needed() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    scratch.file("cache", 24 * MIB);
    scratch.file("second", 24 * MIB);
    let slow = ["--age", "3600", "--dirty-low", "60"];
    let daemon = Daemon::cached(&scratch, "writeback", &slow);
    let before = capacity(&daemon, &scratch);
    let said = daemon.command(&scratch, &["cache", "add", "second"]);
    assert!(said.contains("--cache once for each"), "{said}");
    assert!(capacity(&daemon, &scratch) > before * 19 / 10);
    let page = daemon.command(&scratch, &["status"]);
    assert!(page.contains("second: 23 MiB of 24 MiB used"), "{page}");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..6000 {
        client.write(block * BLOCK, &contents(block + 1));
    }
    client.flush();
    drop(client);
    daemon.stop();

    let with = |cache: &[&str]| {
        let arguments = [&["--origin", "origin"], cache, &slow].concat();
        Daemon::try_start(&scratch, &arguments)
    };
    let said = with(&["--cache", "cache"]).err().unwrap();
    assert!(said.contains("has 2 devices, and number 1"), "{said}");
    scratch.file("foreign", 24 * MIB);
    forebay_ok(&scratch, &["create", "foreign"]);
    let said = with(&["--cache", "cache", "--cache", "foreign"])
        .err()
        .unwrap();
    assert!(said.contains("foreign: it belongs to cache"), "{said}");
    forebay_says(&scratch, &["check", "cache"], 3, &["has 2 devices"]);
    forebay_ok(&scratch, &["check", "second", "cache"]);
    forebay_says(
        &scratch,
        &["create", "second"],
        3,
        &["one of the 2 devices"],
    );

    // In any order; and the first can go.
    let daemon = with(&["--cache", "second", "--cache", "cache"]).unwrap();
    daemon.command(&scratch, &["cache", "remove", "cache"]);
    daemon.kill();
    let said = with(&["--cache", "cache"]).err().unwrap();
    assert!(said.contains("holds no cache yet"), "{said}");
    let daemon = with(&["--cache", "second"]).unwrap();
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..6000 {
        assert_eq!(
            client.read(block * BLOCK, BLOCK as u32),
            contents(block + 1)
        );
    }
    drop(client);
    daemon.stop();
}

/// From `cache add` to the old file deleted, with a client that writes all the while.
#[test]
fn the_ssd_in_use_is_replaced_and_pulled() {
    let scratch = Scratch::new();
    scratch.file("origin", ORIGIN_BYTES);
    scratch.file("old", 32 * MIB);
    scratch.file("new", 48 * MIB);
    let write = |device: &str| {
        let text = format!(
            "[cache]\ndevice = \"{device}\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n\
             [settings]\nage = \"1h\"\n[[volume]]\norigin = \"origin\"\nmode = \"writeback\"\n",
            scratch.text("nbd")
        );
        std::fs::write(scratch.path("f.toml"), text).unwrap();
    };
    write("old");
    let file = ["--config", "f.toml"];
    let daemon = Daemon::start(&scratch, &file);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let model = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (mut random, mut model, mut version) = (SplitMix64::new(7), Model::default(), 0);
            let mut client = Client::connect(&scratch.path("nbd")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                write_some(&mut client, &mut model, &mut random, &mut version, 500);
                // Of two writes of a block at a time nobody knows which comes last.
                while client.waiting() > 0 {
                    client.reply().unwrap();
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            model
        });
        let go_on = || {
            let before = rounds.load(Ordering::Relaxed);
            until("the load to go on", || {
                rounds.load(Ordering::Relaxed) > before + 1
            });
        };
        go_on();
        let before = daemon.status(&scratch)["cache"]["dirty_bytes"].as_u64();
        assert!(before.unwrap() > 0, "some of it is dirty on the old one");
        daemon.command(&scratch, &["cache", "add", "new"]);
        go_on();
        daemon.command(&scratch, &["cache", "remove", "old"]);
        write("new");
        let said = daemon.command(&scratch, &["reload"]);
        assert!(said.contains("nothing has changed"), "{said}");
        assert!(!opens(&daemon, &scratch.path("old")), "it is let go");
        std::fs::remove_file(scratch.path("old")).unwrap();
        go_on();
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    let dirty = daemon.status(&scratch)["cache"]["dirty_bytes"].as_u64();
    assert!(dirty.unwrap() > 0, "some of it is dirty on the new one");
    daemon.kill();

    let daemon = Daemon::start(&scratch, &file);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    model.check(&mut client);
    drop(client);
    daemon.command(&scratch, &["drain"]);
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    model.check(&mut Client::connect(&scratch.path("nbd")).unwrap());
    daemon.stop();
}

#[test]
fn a_device_that_holds_something_is_added_by_force_alone() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 32 * MIB);
    scratch.pattern("other", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let control = scratch.text("control");
    let says = |arguments: &[&str], code: i32, words: &[&str]| {
        let arguments = [&["cache"], arguments, &["--control", &control]].concat();
        forebay_says(&scratch, &arguments, code, words);
    };
    says(
        &["add", "other"],
        3,
        &["data of an unknown kind", "--force"],
    );
    says(&["add", "origin"], 2, &["served by this daemon already"]);
    says(&["add", "cache"], 2, &["a cache device of this daemon"]);
    says(&["remove", "cache"], 3, &["the only device"]);
    says(&["remove", "other"], 2, &["no device of the cache"]);
    daemon.command(&scratch, &["cache", "add", "other", "--force"]);
    says(&["resize", "max"], 2, &["several devices", "--device"]);
    daemon.command(&scratch, &["cache", "resize", "12M", "--device", "other"]);
    says(&["remove", "cache"], 0, &["no longer in the cache"]);
    assert!(
        !opens(&daemon, &scratch.path("cache")),
        "a removed device is let go"
    );
    daemon.stop();
}

#[test]
fn a_configuration_file_names_all_devices() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 32 * MIB);
    scratch.file("second", 32 * MIB);
    forebay_ok(&scratch, &["create", "cache"]);
    let write = |devices: &str| {
        let text = format!("[cache]\ndevice = {devices}\n\n[[volume]]\norigin = \"origin\"\n");
        std::fs::write(scratch.path("forebay.toml"), text).unwrap();
    };
    write("\"cache\"");
    let file = ["--config", "forebay.toml"];
    let daemon = Daemon::start(&scratch, &file);
    let said = daemon.command(&scratch, &["cache", "add", "second"]);
    assert!(said.contains("[cache] in forebay.toml"), "{said}");
    daemon.stop();
    let said = Daemon::try_start(&scratch, &file).err().unwrap();
    assert!(said.contains("has 2 devices"), "{said}");
    write("[\"cache\", \"second\"]");
    Daemon::start(&scratch, &file).stop();
    write("[]");
    let said = Daemon::try_start(&scratch, &file).err().unwrap();
    assert!(said.contains("a device at least"), "{said}");
}

/// Whether a process has a file open.
fn opens(daemon: &Daemon, path: &std::path::Path) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap();
    let mut open = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    open.any(|file| file == path)
}
