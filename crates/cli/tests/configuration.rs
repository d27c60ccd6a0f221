//! `forebay config`: the running state as a file that serves the same again.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says};

#[test]
fn a_running_state_that_is_written_down_is_served_again() {
    let scratch = Scratch::new();
    for name in ["origin", "second disk"] {
        scratch.file(name, 32 * MIB);
    }
    forebay_ok(&scratch, &["create", "more", "--size", "24M"]);
    std::fs::remove_file(scratch.path("more")).unwrap();
    scratch.file("more", 24 * MIB);
    scratch.file("cache", 24 * MIB);
    let given = ["--memory", "100M", "--http", "off", "--age", "2500ms"];
    let daemon = Daemon::cached(&scratch, "writeback", &given);
    daemon.command(
        &scratch,
        &[
            "attach",
            "second disk",
            "--name",
            "two",
            "--mode",
            "readonly",
        ],
    );
    daemon.command(&scratch, &["set", "sequential-cutoff", "4M"]);
    daemon.command(&scratch, &["set", "dirty-high", "50"]);
    daemon.command(&scratch, &["mode", "origin", "writethrough"]);
    let own = ["set", "--volume", "two", "admission", "second-touch"];
    daemon.command(&scratch, &own);
    daemon.command(&scratch, &["cache", "add", "more"]);
    let written = daemon.command(&scratch, &["config"]);
    let settings = daemon.command(&scratch, &["get"]);
    for line in [
        "mode = \"readonly\"",
        "mode = \"writethrough\"",
        "sequential-cutoff = \"4 MiB\"",
        "age = \"2500 ms\"",
        "memory = \"100 MiB\"",
        "admission = \"second-touch\"",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
    assert!(
        !written.contains("dirty-low"),
        "only what is set: {written}"
    );
    let as_json = daemon.command(&scratch, &["config", "--json"]);
    let as_json: serde_json::Value = serde_json::from_str(&as_json).unwrap();
    assert_eq!(as_json["configuration"]["volume"][1]["name"], "two");
    daemon.stop();

    let file = scratch.path("ssd.toml");
    std::fs::write(&file, &written).unwrap();
    forebay_ok(&scratch, &["check-config", "ssd.toml"]);
    let daemon = Daemon::start(&scratch, &["--config", "ssd.toml"]);
    assert_eq!(daemon.command(&scratch, &["config"]), written);
    assert_eq!(daemon.command(&scratch, &["get"]), settings);
    daemon.stop();
}

#[test]
fn a_name_that_is_no_file_name_is_refused_and_an_odd_one_is_escaped() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("two words", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let serve = |name| {
        let fixed = [
            "serve", "--origin", "origin", "--cache", "cache", "--create",
        ];
        [&fixed[..], &["--nbd", "unix:nbd", "--name", name]].concat()
    };
    for (name, why) in [
        ("../../evil", "has a slash"),
        (".hidden", "begins with a dot"),
        ("a b", "has a blank"),
    ] {
        forebay_says(&scratch, &serve(name), 2, &[why, "--name"]);
    }
    let daemon = Daemon::cached(&scratch, "writeback", &["--name", "é"]);
    assert!(
        daemon.uri().contains("///%C3%A9?socket="),
        "{}",
        daemon.uri()
    );
    daemon.says(&scratch, &["rename", "é", "a/b"], 2, &["has a slash"]);
    daemon.says(
        &scratch,
        &["attach", "two words"],
        2,
        &["has a blank", "--name"],
    );
    let said = daemon.command(&scratch, &["rename", "é", "it's"]);
    assert!(said.contains("--name 'it'\\''s'"), "{said}");
    daemon.stop();
    let said = Daemon::try_start(&scratch, &["--origin", "origin", "--cache", "cache"]);
    let said = said.err().unwrap_or_default();
    assert!(said.contains("--name 'it'\\''s'"), "{said}");
}

#[test]
fn a_volume_that_has_an_odd_name_keeps_it() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    let cache = scratch.file("cache", 16 * MIB);
    Daemon::cached(&scratch, "writeback", &["--name", "plain"]).stop();
    {
        // As an earlier program, which took any name.
        let how = forebay_io::OpenHow {
            direct: forebay_io::DirectIo::IfPossible,
            read_only: false,
        };
        let device = forebay_io::RealDevice::open(&cache, how).unwrap();
        let mut storage = device.storage().unwrap();
        let mut superblock = forebay_engine::Superblock::read(&mut storage).unwrap();
        superblock.volumes[0].name = "a b/c".to_owned();
        superblock.write(&mut storage).unwrap();
    }
    let same = ["--origin", "origin", "--cache", "cache", "--name", "a b/c"];
    let daemon = Daemon::start(&scratch, &same);
    assert!(
        daemon.uri().contains("///a%20b/c?socket="),
        "{}",
        daemon.uri()
    );
    daemon.command(&scratch, &["mode", "a b/c", "readonly"]);
    daemon.command(&scratch, &["rename", "a b/c", "plain"]);
    daemon.stop();
}

#[test]
fn a_daemon_that_hangs_is_told_of_after_a_while() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    daemon.signal("-STOP");
    for command in [&["status"][..], &["status", "--prometheus"], &["explain"]] {
        let began = std::time::Instant::now();
        daemon.says(&scratch, command, 1, &["does not answer", "see its log"]);
        assert!(began.elapsed().as_secs() < 30, "{command:?}");
    }
    daemon.signal("-CONT");
    daemon.says(&scratch, &["status"], 0, &["no trouble"]);
    daemon.stop();
}

fn own_uid() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
}

#[test]
fn sockets_of_killed_daemons_go_at_the_next_start() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    // That of root is the machine's, whatever the environment says.
    let run = match own_uid() {
        0 => std::path::PathBuf::from("/run/forebay"),
        _ => scratch.path("forebay"),
    };
    std::fs::create_dir_all(&run).unwrap();
    let [dead, alive, note] = ["dead", "alive", "note"]
        .map(|name| run.join(format!("test-{name}-{}.sock", std::process::id())));
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let listener = std::os::unix::net::UnixListener::bind(&alive).unwrap();
    std::fs::write(&note, "no socket").unwrap();
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let left = [&dead, &alive, &note].map(|path| path.exists());
    drop(listener);
    let _ = std::fs::remove_file(&alive);
    let _ = std::fs::remove_file(&note);
    daemon.stop();
    assert_eq!(left, [false, true, true]);
}

#[test]
fn a_missing_device_and_a_wrong_block_size_are_named() {
    let scratch = Scratch::new();
    let file = "[cache]\ndevice = \"no-ssd\"\n[nbd]\nlisten = [\"unix:nbd\"]\n[[volume]]\norigin = \"no-disk\"\n";
    std::fs::write(scratch.path("f.toml"), file).unwrap();
    let words = [
        "1 configuration file, 1 volume:",
        "2 devices are not there",
        "would not start",
    ];
    forebay_says(&scratch, &["check-config", "f.toml"], 0, &words);
    let create = ["create", "ssd", "--size", "64M", "--block-size", "3K"];
    forebay_says(
        &scratch,
        &create,
        2,
        &["--block-size 3 KiB for ssd", "power of two"],
    );
    assert!(!scratch.path("ssd").exists());
    forebay_says(
        &scratch,
        &["create", ".", "--size", "64M"],
        3,
        &["is a directory"],
    );
    forebay_ok(&scratch, &["create", "ssd", "--size", "64M"]);
    forebay_says(
        &scratch,
        &["repair", "ssd"],
        0,
        &["is not damaged", "nothing was changed"],
    );
}

#[test]
fn completions_know_the_values() {
    let scratch = Scratch::new();
    forebay_ok(&scratch, &["packaging", "completions", "."]);
    let bash = std::fs::read_to_string(scratch.path("bash/forebay")).unwrap();
    for words in [
        "writeback writethrough writearound readonly passthrough",
        "bcache dm-cache",
        "commit admission",
        "flush write memory",
    ] {
        assert!(bash.contains(words), "{words}");
    }
    for file in ["zsh/_forebay", "fish/forebay.fish"] {
        let text = std::fs::read_to_string(scratch.path(file)).unwrap();
        assert!(
            text.contains("sequential-cutoff") && text.contains("writearound"),
            "{file}"
        );
    }
}

/// Blocks written bypassing the cache because they were part of a long stream.
fn written_past(daemon: &Daemon, scratch: &Scratch) -> u64 {
    let bypassed = daemon.status(scratch)["traffic"]["bypassed"].clone();
    let bypassed = bypassed.as_array().unwrap().iter();
    let mut sequential = bypassed.filter(|bypass| bypass["reason"] == "sequential");
    sequential
        .next()
        .map_or(0, |bypass| bypass["blocks"].as_u64().unwrap())
}

#[test]
fn a_volume_has_settings_of_its_own() {
    let scratch = Scratch::new();
    for name in ["one", "two"] {
        scratch.file(name, 32 * MIB);
    }
    scratch.file("cache", 24 * MIB);
    let write_file = |of_two: &str| {
        let file = format!(
            "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = []\n\
             [[volume]]\norigin = \"one\"\nmode = \"writeback\"\nsequential-cutoff = \"64K\"\n\
             [[volume]]\norigin = \"two\"\nmode = \"writeback\"\n{of_two}"
        );
        std::fs::write(scratch.path("f.toml"), file).unwrap();
    };
    write_file("");
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    let socket = scratch.path("nbd");
    let mut one = Client::open(&socket, "one").unwrap().unwrap();
    let mut two = Client::open(&socket, "two").unwrap().unwrap();
    one.write(0, &[1; 128 << 10]);
    assert_eq!(written_past(&daemon, &scratch), 32);
    two.write(0, &[1; 128 << 10]);
    assert_eq!(written_past(&daemon, &scratch), 32);
    let get = |of: &str| {
        let get = ["get", "sequential-cutoff", "--volume", of];
        daemon.command(&scratch, &get)
    };
    assert_eq!(
        (get("one"), get("two")),
        ("64 KiB\n".into(), "off\n".into())
    );

    let set = |value| ["set", "--volume", "one", "sequential-cutoff", value];
    let said = daemon.command(&scratch, &set("off"));
    assert_eq!(said, "sequential-cutoff of volume one is now off\n");
    one.write(4 << 20, &[1; 128 << 10]);
    assert_eq!(written_past(&daemon, &scratch), 32);
    assert!(
        daemon
            .log()
            .contains("sequential-cutoff of volume one is now off, was 64 KiB: by ")
    );
    let whole = ["set", "--volume", "one", "dirty-high", "50"];
    daemon.says(&scratch, &whole, 2, &["leave --volume out"]);
    daemon.says(&scratch, &set("4"), 2, &["`4` has no unit"]);

    // The file's hold again after a reload, and those of the cache where it has none.
    write_file("sequential-cutoff = \"64K\"\n");
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("settings of volume one: in force"), "{said}");
    assert!(said.contains("settings of volume two: in force"), "{said}");
    two.write(4 << 20, &[1; 128 << 10]);
    assert_eq!(written_past(&daemon, &scratch), 64);
    daemon.command(&scratch, &["set", "sequential-cutoff", "4K"]);
    daemon.command(&scratch, &set("default"));
    assert_eq!(get("one"), "4 KiB\n");
    daemon.stop();
}
