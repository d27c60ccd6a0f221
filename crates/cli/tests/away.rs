//! A dead disk of several: the other volumes are served, and its dirty data stays until the disk is
//! back, is written to a file, or is given up.

mod support;

use serde_json::Value;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, until};

const FILE: [&str; 2] = ["--config", "f.toml"];

/// Two volumes with dirty data on one cache that was killed, and the disk of `two` is gone.
fn one_disk_is_gone() -> Scratch {
    let scratch = Scratch::new();
    for name in ["one", "two"] {
        scratch.file(name, 16 * MIB);
    }
    scratch.file("cache", 64 * MIB);
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n\
         [settings]\nage = \"1h\"\n\
         [[volume]]\norigin = \"one\"\nmode = \"writeback\"\n\
         [[volume]]\norigin = \"two\"\nmode = \"writeback\"\n",
        scratch.text("nbd")
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
    let daemon = Daemon::start(&scratch, &FILE);
    for (name, byte) in [("one", 1), ("two", 2)] {
        let mut client = open(&scratch, name);
        for block in [0, 7, 8] {
            client.write(block * 4096, &[byte; 4096]);
        }
        client.flush();
    }
    daemon.kill();
    std::fs::rename(scratch.path("two"), scratch.path("gone")).unwrap();
    scratch
}

fn open(scratch: &Scratch, name: &str) -> Client {
    Client::open(&scratch.path("nbd"), name).unwrap().unwrap()
}

fn volume<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut volumes = status["volumes"].as_array().unwrap().iter();
    volumes.find(|volume| volume["name"] == name).unwrap()
}

#[test]
fn the_others_are_served_and_drained_and_it_comes_back_by_itself() {
    let scratch = one_disk_is_gone();
    let daemon = Daemon::start(&scratch, &FILE);
    assert_eq!(open(&scratch, "one").read(0, 4096), [1; 4096]);
    daemon.command(&scratch, &["drain", "one"]);
    let status = daemon.status(&scratch);
    let two = volume(&status, "two");
    assert_eq!(two["mode"], "away");
    assert_eq!(two["dirty_bytes"], 3 * 4096);
    assert_eq!(status["trouble"][0]["kind"], "volume-away");
    let said = daemon.command(&scratch, &["status"]);
    assert!(said.contains("volume two is NOT SERVED"), "{said}");
    daemon.says(
        &scratch,
        &["drain", "two"],
        3,
        &["two", "is not served", "cannot find"],
    );
    daemon.says(
        &scratch,
        &["detach", "two"],
        3,
        &["12 KiB", "would be lost", "--force"],
    );
    let said = daemon.command(&scratch, &["reload"]);
    assert!(
        said.contains("volume two") && said.contains("still not served"),
        "{said}"
    );

    let config = daemon.command(&scratch, &["config"]);
    assert!(config.contains("name = \"two\""), "{config}");

    std::fs::rename(scratch.path("gone"), scratch.path("two")).unwrap();
    until("the volume to come back", || {
        Client::open(&scratch.path("nbd"), "two").is_ok_and(|opened| opened.is_ok())
    });
    let mut client = open(&scratch, "two");
    for block in [0, 7, 8] {
        assert_eq!(client.read(block * 4096, 4096), [2; 4096]);
    }
    drop(client);
    daemon.command(&scratch, &["detach", "two"]);
    daemon.stop();
    let disk = std::fs::read(scratch.path("two")).unwrap();
    assert_eq!(disk[7 * 4096..9 * 4096], [2; 8192]);
}

/// A device that is not connected yet is there, and empty.
#[test]
fn one_that_is_empty_at_the_start_comes_back_by_itself() {
    let scratch = one_disk_is_gone();
    scratch.file("two", 0);
    let daemon = Daemon::start(&scratch, &FILE);
    assert_eq!(volume(&daemon.status(&scratch), "two")["mode"], "away");
    std::fs::rename(scratch.path("gone"), scratch.path("two")).unwrap();
    until("the volume to come back", || {
        Client::open(&scratch.path("nbd"), "two").is_ok_and(|opened| opened.is_ok())
    });
    daemon.stop();
}

#[test]
fn a_stop_leaves_it_as_it_is_and_a_forced_detach_gives_it_up() {
    let scratch = one_disk_is_gone();
    Daemon::start(&scratch, &FILE).stop();
    let daemon = Daemon::start(&scratch, &FILE);
    assert_eq!(
        volume(&daemon.status(&scratch), "two")["dirty_bytes"],
        3 * 4096
    );
    let said = daemon.command(&scratch, &["detach", "two", "--force"]);
    assert!(said.contains("12 KiB"), "{said}");
    assert_eq!(open(&scratch, "one").read(0, 4096), [1; 4096]);
    daemon.stop();
    let said = forebay_ok(&scratch, &["check", "cache"]);
    assert!(
        said.contains("volume one") && !said.contains("volume two"),
        "{said}"
    );
}

#[test]
fn its_data_is_written_to_a_file_and_each_volume_is_drained_or_detached_alone() {
    let scratch = one_disk_is_gone();
    let drain = [
        "drain",
        "--offline",
        "one",
        "--origin",
        "one",
        "--cache",
        "cache",
    ];
    let said = forebay_ok(&scratch, &drain);
    assert!(said.contains("volume one is drained"), "{said}");
    let disk = std::fs::read(scratch.path("one")).unwrap();
    assert_eq!(disk[7 * 4096..9 * 4096], [1; 8192]);

    let rescue = [
        "rescue", "two", "--cache", "cache", "--to", "saved", "--json",
    ];
    let said: Value = serde_json::from_str(&forebay_ok(&scratch, &rescue)).unwrap();
    let ranges = serde_json::json!([
        { "offset_bytes": 0, "len_bytes": 4096 },
        { "offset_bytes": 7 * 4096, "len_bytes": 8192 },
    ]);
    assert_eq!(said["ranges"], ranges);
    let saved = std::fs::read(scratch.path("saved")).unwrap();
    assert_eq!(saved.len() as u64, 16 * MIB);
    assert_eq!(saved[7 * 4096..9 * 4096], [2; 8192]);
    assert_eq!(saved[4096..7 * 4096], [0; 6 * 4096]);
    forebay_says(&scratch, &rescue, 3, &["saved", "--force"]);
    let typo = ["rescue", "tow", "--cache", "cache", "--to", "other"];
    forebay_says(&scratch, &typo, 2, &["no volume `tow`", "two"]);

    let detach = ["detach", "--offline", "two", "--cache", "cache"];
    forebay_says(
        &scratch,
        &detach,
        3,
        &["12 KiB", "would be lost", "forebay rescue two"],
    );
    let forced = [&detach[..], &["--force"]].concat();
    assert!(forebay_ok(&scratch, &forced).contains("12 KiB"));
    let said = forebay_ok(&scratch, &["check", "cache"]);
    assert!(!said.contains("volume two"), "{said}");
}

/// The others are served all the while, and move what is dirty of it about in the log.
#[test]
fn its_data_is_written_to_a_file_while_the_others_are_served() {
    let scratch = one_disk_is_gone();
    let daemon = Daemon::start(&scratch, &FILE);
    let control = scratch.text("control");
    let rescue = |to: &str| {
        let rescue = ["rescue", "two", "--control", &control, "--to", to, "--json"];
        let said: Value = serde_json::from_str(&forebay_ok(&scratch, &rescue)).unwrap();
        let lengths = said["ranges"].as_array().unwrap().iter();
        let lengths = lengths.map(|range| range["len_bytes"].as_u64().unwrap());
        assert_eq!(lengths.sum::<u64>(), 3 * 4096, "{said}");
        let saved = std::fs::read(scratch.path(to)).unwrap();
        assert_eq!(saved.len() as u64, 16 * MIB);
        assert_eq!(saved[..4096], [2; 4096]);
        assert_eq!(saved[7 * 4096..9 * 4096], [2; 8192]);
    };
    rescue("first");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut one = open(&scratch, "one");
            let mut run = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                one.write(run % 64 * (256 << 10), &[3; 256 << 10]);
                run += 1;
            }
        });
        for round in 0..10 {
            rescue(&format!("saved-{round}"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let served = ["rescue", "one", "--control", &control, "--to", "x"];
    forebay_says(
        &scratch,
        &served,
        3,
        &["volume one is served", "forebay drain one"],
    );
    let typo = ["rescue", "tow", "--control", &control, "--to", "x"];
    forebay_says(&scratch, &typo, 2, &["no volume `tow` is away"]);
    assert!(!scratch.path("x").exists());
    daemon.stop();
}

#[test]
fn a_disk_that_changed_is_left_out_and_said() {
    let scratch = one_disk_is_gone();
    std::fs::rename(scratch.path("gone"), scratch.path("two")).unwrap();
    Daemon::start(&scratch, &FILE).stop();
    let mut disk = std::fs::read(scratch.path("two")).unwrap();
    disk[0] = 99;
    std::fs::write(scratch.path("two"), disk).unwrap();
    let daemon = Daemon::start(&scratch, &FILE);
    let status = daemon.status(&scratch);
    let why = volume(&status, "two")["away"].as_str().unwrap();
    assert!(why.contains("changed since it was last served"), "{why}");
    assert_eq!(open(&scratch, "one").read(0, 4096), [1; 4096]);
    daemon.stop();
}

/// The file names the disk's new path, and the volume is in the plan of the start already.
#[test]
fn a_reload_serves_it_from_another_path_once() {
    let scratch = one_disk_is_gone();
    let daemon = Daemon::start(&scratch, &FILE);
    let file = std::fs::read_to_string(scratch.path("f.toml")).unwrap();
    let moved = file.replace("origin = \"two\"", "origin = \"gone\"\nname = \"two\"");
    std::fs::write(scratch.path("f.toml"), moved).unwrap();
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("volume two is attached"), "{said}");
    assert_eq!(open(&scratch, "two").read(7 * 4096, 4096), [2; 4096]);
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("nothing has changed"), "{said}");
    daemon.stop();
}

/// A cache that was killed with dirty data of its only volume, whose disk is gone.
fn the_only_disk_is_gone() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("one", 16 * MIB);
    scratch.file("cache", 64 * MIB);
    only_volume(&scratch, "one");
    let daemon = Daemon::start(&scratch, &FILE);
    let mut client = open(&scratch, "one");
    client.write(7 * 4096, &[1; 8192]);
    client.flush();
    daemon.kill();
    std::fs::rename(scratch.path("one"), scratch.path("gone")).unwrap();
    scratch
}

fn only_volume(scratch: &Scratch, origin: &str) {
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n\
         [settings]\nage = \"1h\"\n[[volume]]\norigin = \"{origin}\"\nmode = \"writeback\"\n",
        scratch.text("nbd")
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
}

#[test]
fn a_daemon_without_its_only_disk_waits_for_it_and_serves_it_when_it_comes() {
    let scratch = the_only_disk_is_gone();
    Daemon::start_without_volumes(&scratch, &FILE).stop();
    let daemon = Daemon::start_without_volumes(&scratch, &FILE);
    let status = daemon.status(&scratch);
    assert_eq!(volume(&status, "one")["mode"], "away");
    assert_eq!(volume(&status, "one")["dirty_bytes"], 8192);
    assert_eq!(status["trouble"][0]["kind"], "volume-away");
    assert!(open_fails(&scratch, "one"));
    let words = ["one", "is not served", "cannot find"];
    daemon.says(&scratch, &["drain"], 3, &words);
    daemon.says(&scratch, &["drain", "one"], 3, &words);

    std::fs::rename(scratch.path("gone"), scratch.path("one")).unwrap();
    until("the volume to come back", || !open_fails(&scratch, "one"));
    assert_eq!(open(&scratch, "one").read(7 * 4096, 8192), [1; 8192]);
    daemon.stop();

    // Another disk in its place, and then its own again.
    std::fs::rename(scratch.path("one"), scratch.path("gone")).unwrap();
    scratch.file("one", 16 * MIB);
    let daemon = Daemon::start_without_volumes(&scratch, &FILE);
    let status = daemon.status(&scratch);
    let why = volume(&status, "one")["away"].as_str().unwrap();
    assert!(why.contains("another origin"), "{why}");
    std::fs::rename(scratch.path("gone"), scratch.path("one")).unwrap();
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("volume one is attached"), "{said}");
    assert_eq!(open(&scratch, "one").read(7 * 4096, 8192), [1; 8192]);
    daemon.stop();
}

fn open_fails(scratch: &Scratch, name: &str) -> bool {
    !Client::open(&scratch.path("nbd"), name).is_ok_and(|opened| opened.is_ok())
}

/// Somebody reads the error at once, or nothing of it is in any cache.
#[test]
fn a_command_line_and_a_first_start_end_without_their_disk() {
    let scratch = the_only_disk_is_gone();
    let typed = ["--origin", "one", "--cache", "cache"];
    let said = Daemon::try_start(&scratch, &typed).err().unwrap();
    assert!(said.contains("cannot find"), "{said}");

    scratch.file("cache", 64 * MIB);
    only_volume(&scratch, "onne");
    let said = Daemon::try_start(&scratch, &FILE).err().unwrap();
    assert!(
        said.contains("cannot find") && said.contains("onne"),
        "{said}"
    );
    let cache = std::fs::read(scratch.path("cache")).unwrap();
    assert!(cache.iter().all(|byte| *byte == 0), "no cache is made");
}
