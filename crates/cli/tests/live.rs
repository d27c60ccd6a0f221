//! Running daemons: other people's clients, switched modes, several volumes and threads.

mod support;

use forebay_random::SplitMix64;
use support::nbd::Client;
use support::{
    Daemon, MIB, Scratch, finish, fio, forebay_ok, forebay_says, installed, run, spawn, text, until,
};

const MODES: [&str; 5] = [
    "writeback",
    "writethrough",
    "writearound",
    "readonly",
    "passthrough",
];

#[test]
fn images_are_copied_in_and_out() {
    if !installed("nbdcopy") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.pattern("image", 64 * MIB);
    for mode in MODES {
        scratch.file("origin", 64 * MIB);
        scratch.file("cache", 24 * MIB);
        let daemon = Daemon::cached(&scratch, mode, &["--memory", "64M"]);
        run(
            "nbdcopy",
            &["--flush", image.to_str().unwrap(), daemon.uri()],
        );
        run(
            "nbdcopy",
            &["--connections=4", daemon.uri(), &scratch.text("out")],
        );
        assert!(
            std::fs::read(&image).unwrap() == std::fs::read(scratch.path("out")).unwrap(),
            "{mode}"
        );
        daemon.command(&scratch, &["drain"]);
        daemon.stop();
        let whole =
            std::fs::read(&image).unwrap() == std::fs::read(scratch.path("origin")).unwrap();
        assert!(whole, "{mode}: the origin is whole by itself after a drain");
    }
}

/// A5: a volume has no room for what a guest writes next.
#[test]
fn an_image_that_grows_is_no_new_volume() {
    let scratch = Scratch::new();
    scratch.file("cache", 16 * MIB);
    scratch.file("disk", 16 * MIB);
    let origin = scratch.path("image");
    std::fs::write(&origin, b"QFI\xfb\0\0\0\x03").unwrap();
    std::fs::File::options()
        .write(true)
        .open(&origin)
        .and_then(|file| file.set_len(8 * MIB))
        .unwrap();
    let serve = [
        "serve", "--origin", "image", "--nbd", "unix:nbd", "--cache", "cache", "--create",
    ];
    let words = [
        "is a qcow2 image",
        "qemu-img convert",
        "--origin-format raw",
    ];
    forebay_says(&scratch, &serve, 3, &words);
    let blank = std::fs::read(scratch.path("cache")).unwrap();
    assert!(
        blank.iter().all(|byte| *byte == 0),
        "a cache was made before the refusal"
    );

    let daemon = Daemon::start(
        &scratch,
        &["--origin", "disk", "--cache", "cache", "--create"],
    );
    let refused = daemon
        .begin(&scratch, &["attach", "image"])
        .wait_with_output()
        .unwrap();
    assert!(
        text(&refused).contains("is a qcow2 image"),
        "{}",
        text(&refused)
    );
    daemon.command(&scratch, &["attach", "image", "--origin-format", "raw"]);
    // It is known from now on, whatever its user writes.
    daemon.command(&scratch, &["detach", "image"]);
    daemon.command(&scratch, &["attach", "image", "--origin-format", "raw"]);
    daemon.stop();
}

#[test]
fn qemu_and_libnbd_are_content() {
    if !(installed("qemu-io") && installed("qemu-img") && installed("nbdinfo")) {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let commands = [
        "write -P 0x5a 512 1536",
        "write -f -P 0x11 1M 4M",
        "read -P 0x5a 512 1536",
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "read -P 0x11 1M 1M",
        "discard 8M 8M",
        "flush",
        "aio_write -P 7 20M 3M",
        "aio_flush",
        "read -P 7 20M 3M",
    ];
    let mut arguments = vec!["-f", "raw", "-t", "none"];
    commands
        .iter()
        .for_each(|command| arguments.extend(["-c", command]));
    arguments.push(daemon.uri());
    let said = run("qemu-io", &arguments);
    assert!(
        !said.contains("failed") && !said.contains("differ"),
        "{said}"
    );
    run("qemu-img", &["info", daemon.uri()]);
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "raw",
            daemon.uri(),
            &scratch.text("out"),
        ],
    );
    run(
        "qemu-img",
        &[
            "compare",
            "-f",
            "raw",
            "-F",
            "raw",
            daemon.uri(),
            &scratch.text("out"),
        ],
    );
    let map = run("nbdinfo", &["--map=forebay:state", daemon.uri()]);
    assert!(map.contains("33554432") || map.lines().count() > 1, "{map}");
    daemon.stop();
}

#[test]
fn a_switched_mode_and_a_setting_hold() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    daemon.command(&scratch, &["mode", "origin", "readonly"]);
    daemon.command(&scratch, &["set", "sequential-cutoff", "4M"]);
    let settings = daemon.status(&scratch)["settings"].clone();
    assert_eq!(settings["sequential_cutoff_bytes"], 4 * MIB);
    assert_eq!(daemon.status(&scratch)["cache"]["variants"]["plain"], 1);
    assert_eq!(
        daemon.command(&scratch, &["get", "sequential-cutoff"]),
        "4 MiB\n"
    );
    let all = daemon.command(&scratch, &["get"]);
    assert!(all.contains("\ndiscard-freed      no\n"), "{all}");
    assert!(all.contains("\npolling            25 %\n"), "{all}");
    daemon.command(&scratch, &["set", "replacement", "fifo"]);
    let variants = daemon.status(&scratch)["cache"]["variants"].clone();
    assert_eq!(variants, serde_json::json!({}));
    daemon.kill();
    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--cache", "cache"]);
    assert_eq!(daemon.status(&scratch)["volumes"][0]["mode"], "readonly");
    daemon.stop();
}

#[test]
fn a_change_is_in_the_log_with_who_made_it_and_can_be_taken_back() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let set = |value: &str| daemon.command(&scratch, &["set", "sequential-cutoff", value]);
    assert_eq!(set("4M"), "sequential-cutoff is now 4 MiB\n");
    assert_eq!(set("default"), "sequential-cutoff is now off\n");
    daemon.command(&scratch, &["mode", "origin", "readonly"]);
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let log = daemon.log();
    for said in [
        "setting sequential-cutoff is now 4 MiB, was off: by ",
        "setting sequential-cutoff is now off, was 4 MiB: by ",
        "volume origin is now in mode readonly, was in writeback: by ",
    ] {
        let line = log.lines().find(|line| line.contains(said));
        let line = line.unwrap_or_else(|| panic!("{said:?} is not in the log: {log}"));
        assert!(line.contains(&format!("uid {uid}")), "{line}");
    }
    let words = ["`4` has no unit", "4K, 4M or 4G"];
    daemon.says(&scratch, &["set", "sequential-cutoff", "4"], 2, &words);
    daemon.says(&scratch, &["get", "sequential-cutoff"], 0, &["off"]);
    daemon.stop();
}

#[test]
fn create_says_how_it_read_a_size() {
    let scratch = Scratch::new();
    let words = ["1GB is read as 1 GiB, 1073741824 bytes"];
    let create = |size| ["create", "cache", "--size", size];
    support::forebay_says(&scratch, &create("1GB"), 0, &words);
    support::forebay_says(&scratch, &create("4"), 2, &["`4` has no unit"]);
}

#[test]
fn an_origin_that_grew_meanwhile_is_served_in_its_new_size() {
    let scratch = Scratch::new();
    let origin = scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let size = |daemon: &Daemon| daemon.status(&scratch)["volumes"][0]["size_bytes"].clone();
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(MIB, &[7; 4096]);
    let file = std::fs::File::options().write(true).open(&origin).unwrap();
    daemon.stop();
    file.set_len(10 * MIB).unwrap();
    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--cache", "cache"]);
    assert_eq!(size(&daemon), 10 * MIB);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(client.read(MIB, 4096), [7; 4096]);
    client.write(9 * MIB, &[8; 4096]);
    assert_eq!(client.read(9 * MIB, 4096), [8; 4096]);
    daemon.stop();
}

/// A sparse origin, as large as one is beside the room that a volume has to grow.
#[test]
fn a_large_origin_is_found_again_whatever_the_block_size() {
    const GIB: u64 = 1 << 30;
    let scratch = Scratch::new();
    scratch.file("origin", 8 * GIB);
    scratch.cache_in_blocks("64K", "256M");
    let arguments = ["--origin", "origin", "--cache", "cache"];
    let daemon = Daemon::start(&scratch, &arguments);
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(8 * GIB - 4096, &[3; 4096]);
    daemon.stop();

    let daemon = Daemon::start(&scratch, &arguments);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(client.read(8 * GIB - 4096, 4096), [3; 4096]);
    drop(client);
    daemon.stop();

    scratch.file("origin", 13 * GIB);
    let said = Daemon::try_start(&scratch, &arguments).err().unwrap();
    assert!(said.contains("grew to 13 GiB, beyond the 12 GiB"), "{said}");
}

#[test]
fn volumes_come_and_go_while_another_is_used() {
    if !installed("fio") {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.pattern("second", 16 * MIB);
    scratch.file("cache", 48 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &["--age", "3600"]);
    let arguments = fio::verified(daemon.uri(), "randwrite", "32M", "4k-64k", 1);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let load = spawn("fio", &arguments);
    let origin = scratch.text("second");
    let uri = daemon.command(&scratch, &["attach", &origin, "--mode", "writeback"]);
    let uri = uri.trim();
    let expected = std::fs::read(scratch.path("second")).unwrap();
    if installed("nbdcopy") {
        run("nbdcopy", &[uri, &scratch.text("out")]);
        assert!(std::fs::read(scratch.path("out")).unwrap() == expected);
        let changed: Vec<u8> = expected.iter().map(|byte| !byte).collect();
        std::fs::write(scratch.path("in"), &changed).unwrap();
        run("nbdcopy", &["--flush", &scratch.text("in"), uri]);
        daemon.command(&scratch, &["detach", "second"]);
        assert!(
            std::fs::read(scratch.path("second")).unwrap() == changed,
            "detached, the origin is whole"
        );
    }
    finish(load);
    daemon.stop();
}

#[test]
fn offline_drain_makes_the_origin_whole() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(
        &scratch,
        "writeback",
        &["--age", "3600", "--dirty-low", "50"],
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..512u64 {
        client.write(block * 4096, &[block as u8 | 1; 4096]);
    }
    drop(client);
    daemon.kill();
    let drain = [
        "drain",
        "--offline",
        "--origin",
        "origin",
        "--cache",
        "cache",
        "--json",
    ];
    let drained = forebay_ok(&scratch, &drain);
    let last: serde_json::Value = serde_json::from_str(drained.lines().last().unwrap()).unwrap();
    assert_eq!(last["dirty_bytes"], 0);
    let origin = std::fs::read(scratch.path("origin")).unwrap();
    for block in 0..512 {
        assert!(
            origin[block * 4096..(block + 1) * 4096]
                .iter()
                .all(|byte| *byte == block as u8 | 1)
        );
    }
    forebay_ok(&scratch, &["check", "cache"]);
}

#[test]
fn signals_at_any_time_end_in_order() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 32 * MIB);
    let mut random = SplitMix64::new(5);
    let mut version = 0u8;
    for round in 0..12 {
        let mut daemon = Daemon::cached(&scratch, "writeback", &[]);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        if round > 0 {
            assert_eq!(client.read(0, 4096), [version; 4096]);
        }
        let replies = random.below(400);
        for _ in 0..replies {
            while client.waiting() < 8 {
                client
                    .begin_write((1 + random.below(7000)) * 4096, &[9; 4096])
                    .unwrap();
            }
            client.reply().unwrap();
        }
        while client.waiting() > 0 {
            client.reply().unwrap();
        }
        version = version.wrapping_add(1);
        client.write(0, &[version; 4096]);
        // The last client stays connected and says nothing: it must not hold up the stop.
        daemon.signal(if round % 2 == 0 { "-INT" } else { "-TERM" });
        assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
        let left: Vec<_> = std::fs::read_dir(scratch.path(""))
            .unwrap()
            .flatten()
            .collect();
        assert!(
            left.iter()
                .all(|entry| entry.file_name() != "nbd" && entry.file_name() != "control")
        );
        assert!(forebay_ok(&scratch, &["check", "cache"]).contains("stopped in order"));
    }
    forebay_ok(&scratch, &["check", "cache", "--json"]);
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 64 * MIB);
    scratch.file("cache", 32 * MIB);
    let mut daemon = Daemon::cached(&scratch, "writeback", &["--memory", "64M"]);
    let mut deaf = Client::connect(&scratch.path("nbd")).unwrap();
    for request in 0..200 {
        deaf.begin_read(request % 60 * MIB, MIB as u32).unwrap();
    }
    let mut other = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..1000 {
        other.read(block * 4096, 4096);
        other.write(block * 4096, &[1; 4096]);
    }
    daemon.signal("-TERM");
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}

#[test]
fn several_shards_on_several_threads_agree() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    forebay_ok(
        &scratch,
        &["create", "cache", "--size", "96M", "--shards", "4"],
    );
    let daemon = Daemon::cached(
        &scratch,
        "writeback",
        &["--threads", "3", "--memory", "96M"],
    );
    let mut clients: Vec<Client> = (0..4)
        .map(|_| Client::connect(&scratch.path("nbd")).unwrap())
        .collect();
    // Across the borders of regions, 8 MiB each.
    for round in 0..40u64 {
        let at = (round % 7 + 1) * 8 * MIB - 1024 * (round % 9);
        let data = vec![round as u8 + 1; 16384];
        clients[round as usize % 4].write(at, &data);
        clients[(round as usize + 1) % 4].flush();
        assert_eq!(clients[(round as usize + 2) % 4].read(at, 16384), data);
    }
    let data: Vec<u8> = (0..20 * MIB).map(|byte| (byte / 4096) as u8).collect();
    clients[0].write(7 * MIB, &data[..MIB as usize * 3]);
    assert_eq!(clients[1].read(7 * MIB, 3 << 20), data[..MIB as usize * 3]);
    until("statistics", || daemon.status(&scratch)["threads"] == 3);
    daemon.stop();
}

/// A file system that fills up under an origin file: clients hear of it, nothing else breaks.
#[test]
fn a_full_file_system_is_an_error_for_those_it_concerns() {
    let scratch = Scratch::new();
    let small = scratch.path("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args([
            "-t",
            "tmpfs",
            "-o",
            "size=16m",
            "tmpfs",
            small.to_str().unwrap(),
        ])
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: a small file system cannot be mounted");
        return;
    }
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fill_up(&scratch)));
    run("umount", &["-l", small.to_str().unwrap()]);
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

fn fill_up(scratch: &Scratch) {
    scratch.file("small/origin", 64 * MIB);
    scratch.file("cache", 32 * MIB);
    for mode in ["writethrough", "writearound", "passthrough"] {
        let arguments = [
            "--origin",
            "small/origin",
            "--cache",
            "cache",
            "--create",
            "--mode",
            mode,
        ];
        let daemon = Daemon::start(scratch, &arguments);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        let mut failed = 0;
        for piece in 0..64 {
            client.begin_write(piece * MIB, &[7; 1 << 20]).unwrap();
            failed += u64::from(client.reply().unwrap().error != 0);
        }
        assert!(
            failed > 30,
            "{mode}: {failed} writes failed for want of space"
        );
        client.write(0, &[8; 4096]);
        assert_eq!(client.read(0, 4096), [8; 4096]);
        drop(client);
        daemon.kill();
    }
}
