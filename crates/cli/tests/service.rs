//! The daemon as a service: messages to its manager, configuration files checked together and read
//! again, obstacles to a removal.

mod support;

use std::fs::File;

use serde_json::Value;
use support::manager::Manager;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay, forebay_ok, forebay_says, text, until};

#[test]
fn the_service_manager_is_told() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    let manager = Manager::new(&scratch.path("notify"));
    let arguments = ["--origin", "origin", "--cache", "cache", "--create"];
    let environment = [
        ("NOTIFY_SOCKET", &*scratch.text("notify")),
        ("WATCHDOG_USEC", "150000"),
    ];
    let mut daemon = Daemon::try_start_in(&scratch, &arguments, &environment).unwrap();
    // Before it is ready it is alive at most.
    let ready = manager.wait_for("READY=1", "WATCHDOG=1");
    assert!(ready.contains(&scratch.text("nbd")), "{ready}");
    Client::connect(&scratch.path("nbd")).unwrap();
    for _ in 0..5 {
        manager.wait_for("WATCHDOG=1", "WATCHDOG=1");
    }
    daemon.signal("-TERM");
    let stopping = manager.wait_for("STOPPING=1", "WATCHDOG=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC="), "{stopping}");
    assert_eq!(daemon.wait(), Some(0));
}

/// S22: the unit's settings that keep its reach small, and none that would have its devices hang
/// when it ends.
#[test]
fn the_unit_has_little_reach_and_no_mount_namespace() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/forebay@.service"
    );
    let text = std::fs::read_to_string(unit).unwrap();
    let keys: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once('=').map(|(key, _)| key))
        .collect();
    for key in ["RestartSteps", "RestartMaxDelaySec", "NoNewPrivileges"] {
        assert!(keys.contains(&key), "{key}");
    }
    for key in [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateUsers",
        "ReadWritePaths",
        "ReadOnlyPaths",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
    ] {
        assert!(!keys.contains(&key), "{key} makes a mount namespace");
    }
    if support::installed("systemd-analyze") {
        let rating = ["security", "--offline=true", "--threshold=41", unit];
        let rated = support::try_run("systemd-analyze", &rating);
        assert!(rated.status.success(), "{}", support::text(&rated));
    }
}

#[test]
fn a_manager_that_is_gone_does_not_matter() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    let environment = [("NOTIFY_SOCKET", &*scratch.text("nobody"))];
    let daemon = Daemon::try_start_in(&scratch, &["--origin", "origin"], &environment).unwrap();
    until("a word about it", || {
        daemon.log().contains("could not be told")
    });
    daemon.stop();
}

#[test]
fn the_signal_that_keeps_devices_stops_in_order() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    let mut daemon = Daemon::cached(&scratch, "writeback", &[]);
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(0, &[7; 4096]);
    daemon.signal("-USR1");
    assert_eq!(daemon.wait(), Some(0));
    let checked = forebay_ok(&scratch, &["check", "cache"]);
    assert!(checked.contains("stopped in order"), "{checked}");
}

/// A configuration for the socket `nbd` of this test.
fn configuration(scratch: &Scratch, more: &str) -> String {
    format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n{more}",
        scratch.text("nbd")
    )
}

#[test]
fn configuration_files_are_checked_together() {
    let scratch = Scratch::new();
    scratch.file("origin", MIB);
    std::os::unix::fs::symlink(scratch.path("origin"), scratch.path("alias")).unwrap();
    let file = |name: &str, cache: &str, origin: &str, socket: &str, volume: &str| {
        let text = format!(
            "[cache]\ndevice = \"{cache}\"\n[ublk]\nenabled = true\n[nbd]\nlisten = [\"unix:{socket}\"]\n\
             [[volume]]\norigin = \"{origin}\"\nname = \"{volume}\"\n"
        );
        std::fs::write(scratch.path(name), text).unwrap();
    };
    file("a.toml", "c1", "origin", "s1", "one");
    file("b.toml", "c2", "o2", "s2", "two");
    let said = forebay_ok(&scratch, &["check-config", "a.toml", "b.toml"]);
    assert!(said.contains("2 configuration files, 2 volumes"), "{said}");
    assert!(
        said.contains("b.toml: line 8: o2 is not there now"),
        "{said}"
    );
    assert!(!said.contains("origin is not there"), "{said}");

    file("b.toml", "c1", "alias", "s1", "one");
    let words = [
        "b.toml: line 2: the device c1 is used already (a.toml, line 2)",
        "b.toml: line 8: the device alias is used already as origin (a.toml, line 8)",
        "b.toml: line 9: the block device /dev/forebay/one is used already (a.toml, line 9)",
        "b.toml: line 6: the address unix:s1 is used already (a.toml, line 6)",
    ];
    forebay_says(&scratch, &["check-config", "a.toml", "b.toml"], 2, &words);
    let report = forebay(&scratch, &["check-config", "--json", "a.toml", "b.toml"]);
    assert_eq!(report.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["faults"].as_array().unwrap().len(), 4, "{report}");

    file("b.toml", "same", "same", "s2", "two");
    let words = ["line 8: the device same is used already (line 2)"];
    forebay_says(&scratch, &["check-config", "b.toml"], 2, &words);
    forebay_says(&scratch, &["serve", "--config", "b.toml"], 2, &words);
    forebay_says(&scratch, &["check-config", "none.toml"], 2, &["none.toml"]);
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    let scratch = Scratch::new();
    let text = "[cache]\ndevice = \"c\"\n[settings]\ndirty-limt = 60\n[[volume]]\norigin = \"a\"\n";
    std::fs::write(scratch.path("a.toml"), text).unwrap();
    let words = [
        "a.toml: line 4",
        "unknown key `dirty-limt`, did you mean `dirty-limit`?",
    ];
    forebay_says(&scratch, &["check-config", "a.toml"], 2, &words);
}

#[test]
fn a_changed_file_is_applied_as_far_as_that_can_be() {
    let scratch = Scratch::new();
    for name in ["one", "two"] {
        scratch.file(name, 32 * MIB);
    }
    scratch.file("cache", 16 * MIB);
    let write = |more: &str| {
        std::fs::write(scratch.path("f.toml"), configuration(&scratch, more)).unwrap();
    };
    write("[settings]\nage = 5\n[[volume]]\norigin = \"one\"\n");
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    assert_eq!(
        daemon.command(&scratch, &["reload"]),
        "nothing has changed\n"
    );

    write(
        "[settings]\nage = 7\n[daemon]\nmemory = \"128M\"\n[[volume]]\norigin = \"one\"\nmode = \"writeback\"\n\
         [[volume]]\norigin = \"two\"\n",
    );
    let report = daemon.command(&scratch, &["reload", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let expected = [
        "settings",
        "volume one is in mode writeback",
        "volume two is attached",
    ];
    assert_eq!(report["changed"], Value::from(expected.to_vec()));
    assert_eq!(
        report["needs_restart"],
        Value::from(vec!["[daemon] memory"])
    );
    let status = daemon.status(&scratch);
    assert_eq!(
        status["settings"]["age_limit_seconds"].as_u64(),
        Some(7),
        "{status}"
    );
    assert_eq!(status["volumes"][0]["mode"], "writeback");
    assert_eq!(status["volumes"][1]["name"], "two");

    // Changes that wait are named again; a wrong file changes nothing.
    write(
        "[settings]\nage = 7\n[daemon]\nmemory = \"128M\"\n[[volume]]\norigin = \"one\"\nmode = \"writeback\"\n",
    );
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("[daemon] memory: needs a restart"), "{said}");
    assert!(said.contains("forebay detach two"), "{said}");
    write("[settings]\nage = 9\nspeed = 1\n[[volume]]\norigin = \"one\"\n");
    let output = daemon
        .begin(&scratch, &["reload"])
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("unknown key `speed`"),
        "{}",
        text(&output)
    );
    let status = daemon.status(&scratch);
    assert_eq!(status["settings"]["age_limit_seconds"].as_u64(), Some(7));
    daemon.stop();
}

#[test]
fn every_fault_of_a_file_is_told_at_once() {
    let scratch = Scratch::new();
    scratch.file("origin", MIB);
    let file = |text: &str| std::fs::write(scratch.path("f.toml"), text).unwrap();
    let said = |words: &[&str]| forebay_says(&scratch, &["check-config", "f.toml"], 2, words);
    file(
        "[cache]\ndevise = \"c\"\n[nbd]\nlisten = [\"pipe:x\"]\n[settings]\nage = \"soon\"\ndirty-low = 500\n\
         [extra]\nx = 1\n[[volume]]\norigin = \"origin\"\nmode = \"fast\"\n",
    );
    said(&[
        "line 2: unknown key `devise`",
        "line 4: ",
        "line 6: `soon` is not a time",
        "line 7: ",
        "line 8: unknown key `extra`",
        "line 12: unknown mode `fast`",
    ]);
    // Contradictions come after faults of single keys.
    file(
        "[cache]\ndevice = \"c\"\n[settings]\ndirty-low = 88\n[[volume]]\norigin = \"a/x\"\n[[volume]]\norigin = \"b/x\"\n",
    );
    said(&[
        "line 8: two volumes are called `x`",
        "line 4: dirty-low 88 % must be at most dirty-high",
    ]);
    // A device of two volumes is told as that, whatever they are called.
    file("[ublk]\nenabled = true\n[[volume]]\norigin = \"x\"\n[[volume]]\norigin = \"./x\"\n");
    said(&["line 6: the device ./x is used already as x (line 4)"]);
    let output = forebay(&scratch, &["check-config", "f.toml"]);
    assert!(!text(&output).contains("two volumes"), "{}", text(&output));
}

#[test]
fn a_reload_that_cannot_be_done_changes_nothing() {
    let scratch = Scratch::new();
    scratch.file("one", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    let write = |more: &str| {
        std::fs::write(scratch.path("f.toml"), configuration(&scratch, more)).unwrap();
    };
    write("[settings]\nage = 5\n[[volume]]\norigin = \"one\"\n");
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    for volumes in [
        "[[volume]]\norigin = \"one\"\nmode = \"writeback\"\n[[volume]]\norigin = \"none\"\n",
        "[[volume]]\norigin = \"none\"\nname = \"one\"\n",
    ] {
        write(&format!("[settings]\nage = 9\n{volumes}"));
        let output = daemon
            .begin(&scratch, &["reload"])
            .wait_with_output()
            .unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("nothing was changed") && said.contains("none"),
            "{said}"
        );
        let status = daemon.status(&scratch);
        assert_eq!(status["settings"]["age_limit_seconds"], 5);
        assert_eq!(status["volumes"][0]["mode"], "writethrough");
    }
    daemon.stop();
}

/// Two volumes of one name would share their place in the cache.
#[test]
fn a_name_taken_while_a_reload_opens_its_origins_stays_with_its_taker() {
    let scratch = Scratch::new();
    for name in ["one", "new", "busy", "other"] {
        scratch.file(name, 32 * MIB);
    }
    scratch.file("cache", 16 * MIB);
    let write = |volumes: &str| {
        std::fs::write(scratch.path("f.toml"), configuration(&scratch, volumes)).unwrap();
    };
    write("[[volume]]\norigin = \"one\"\n");
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    write(
        "[[volume]]\norigin = \"one\"\n[[volume]]\norigin = \"new\"\nname = \"wanted\"\n\
         [[volume]]\norigin = \"busy\"\n",
    );
    // The daemon waits a moment for what is locked, with `new` open.
    let busy = File::open(scratch.path("busy")).unwrap();
    busy.lock().unwrap();
    let reload = daemon.begin(&scratch, &["reload"]);
    let new = File::open(scratch.path("new")).unwrap();
    until("the first origin to be open", || match new.try_lock() {
        Ok(()) => new.unlock().is_err(),
        Err(_) => true,
    });
    daemon.command(&scratch, &["attach", "other", "--name", "wanted"]);
    busy.unlock().unwrap();
    let output = reload.wait_with_output().unwrap();
    assert!(!output.status.success(), "{}", text(&output));
    let status = daemon.status(&scratch);
    let volumes = status["volumes"].as_array().unwrap();
    let wanted: Vec<_> = volumes
        .iter()
        .filter(|volume| volume["name"] == "wanted")
        .collect();
    assert_eq!(wanted.len(), 1, "{status}");
    daemon.stop();
}

#[test]
fn removal_is_refused_while_a_cache_holds_what_its_origin_does_not() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    let volume = "[settings]\nage = 86400\n[[volume]]\norigin = \"origin\"\nmode = \"writeback\"\n";
    std::fs::write(scratch.path("f.toml"), configuration(&scratch, volume)).unwrap();
    let may_remove = ["packaging", "may-remove", "f.toml"];
    // Nothing was ever made on the device. Other daemons of this user may have their own to say.
    let output = forebay(&scratch, &may_remove);
    assert!(!text(&output).contains("cache holds"), "{}", text(&output));

    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[7; 4096]);
    client.flush();
    drop(client);
    daemon.stop();
    let words = [
        "cache holds 4 KiB of volume origin",
        "forebay detach origin",
    ];
    forebay_says(&scratch, &may_remove, 3, &words);

    forebay_ok(
        &scratch,
        &[
            "drain",
            "--offline",
            "--cache",
            "cache",
            "--origin",
            "origin",
        ],
    );
    let output = forebay(&scratch, &may_remove);
    assert!(!text(&output).contains("cache holds"), "{}", text(&output));

    std::fs::rename(scratch.path("cache"), scratch.path("elsewhere")).unwrap();
    forebay_says(&scratch, &may_remove, 3, &["is not known", "f.toml"]);
}

/// A9, A10: what the rules of the package ask of every block device. lab/guest/experiments/package.sh
/// has udev itself ask it.
#[test]
fn udev_is_told_of_caches_and_of_origins() {
    let scratch = Scratch::new();
    scratch.file("disk", 16 * MIB);
    scratch.file("other", 16 * MIB);
    forebay_ok(&scratch, &["create", "ssd", "--size", "64M"]);
    let file = "[cache]\ndevice = \"ssd\"\n[ublk]\nenabled = true\n[[volume]]\norigin = \"disk\"\nname = \"a b\"\n";
    std::fs::write(scratch.path("f.toml"), file).unwrap();
    std::fs::write(scratch.path("wrong.toml"), "[cache\n").unwrap();
    let asked = |device: &str| {
        let links = [
            "disk/by-id/ata-X",
            "disk/by-uuid/0a1b",
            "disk/by-partlabel/x",
        ];
        let ask = [
            "packaging",
            "udev",
            device,
            "--config",
            "wrong.toml",
            "--config",
            "f.toml",
        ];
        forebay_ok(&scratch, &[&ask[..], &links[..]].concat())
    };
    assert_eq!(
        asked("disk"),
        "FOREBAY_ORIGIN_OF=a_b\nFOREBAY_LINKS=disk/by-id/ata-X\n"
    );
    assert_eq!(asked("other"), "");
    let cache = asked("ssd");
    let id = forebay_ok(&scratch, &["dump", "ssd", "--json"]);
    let id: serde_json::Value = serde_json::from_str(&id).unwrap();
    let id = id["id"].as_str().unwrap();
    let expected =
        format!("ID_FS_TYPE=forebay\nID_FS_USAGE=other\nID_FS_UUID={id}\nID_FS_UUID_ENC={id}\n");
    assert_eq!(cache, expected);
    // A daemon that serves them makes no difference, and is not disturbed.
    let daemon = Daemon::start(
        &scratch,
        &["--origin", "disk", "--name", "v", "--cache", "ssd"],
    );
    assert_eq!(asked("ssd"), expected);
    daemon.stop();
}

#[test]
fn completions_and_manual_pages_are_written() {
    let scratch = Scratch::new();
    forebay_ok(&scratch, &["packaging", "man", "man"]);
    forebay_ok(&scratch, &["packaging", "completions", "completions"]);
    let page = std::fs::read_to_string(scratch.path("man/forebay-check-config.8")).unwrap();
    assert!(page.contains(".SH EXAMPLES"), "{page}");
    for name in ["bash/forebay", "zsh/_forebay", "fish/forebay.fish"] {
        let text = std::fs::read_to_string(scratch.path("completions").join(name)).unwrap();
        assert!(
            text.contains("check-config") && text.contains("log-level"),
            "{name}"
        );
        // Names of volumes are asked for with a hidden command, which is not offered.
        assert!(!text.contains("may-remove"), "{name} offers what is hidden");
    }
}
