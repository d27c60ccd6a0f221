//! Answers of a running daemon to commands that cannot be carried out: the fault, its object, and
//! what to do instead.

mod support;

use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says};

fn cached(scratch: &Scratch) -> Daemon {
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 64 * MIB);
    Daemon::cached(scratch, "writeback", &[])
}

#[test]
fn a_setting_that_cannot_be_is_named_with_what_it_can_be() {
    let scratch = Scratch::new();
    let daemon = cached(&scratch);
    for (key, value, words) in [
        ("dirty-low", "x", &["dirty-low x:", "not a percentage"][..]),
        ("dirty-low", "-5", &["dirty-low -5:", "not a percentage"]),
        ("dirty-lo", "5", &["did you mean `dirty-low`?"]),
        ("age", "soon", &["age soon:", "5min"]),
        ("mode", "readonly", &["forebay mode NAME readonly"]),
        ("write-budget", "10B", &["10 B a day", "at least 1M"]),
        ("write-budget", "100", &["`100` has no unit", "100M"]),
    ] {
        daemon.says(&scratch, &["set", key, value], 2, words);
    }
    daemon.command(&scratch, &["set", "age", "2min"]);
    let status = daemon.status(&scratch);
    assert_eq!(status["settings"]["age_limit_seconds"], 120);
    assert_eq!(status["settings"]["dirty_low_percent"], 10);
    daemon.stop();
}

#[test]
fn plain_usage_has_its_own_code() {
    let scratch = Scratch::new();
    let daemon = cached(&scratch);
    for (arguments, words) in [
        (
            &["mode", "orgin", "readonly"][..],
            &["no volume `orgin`, did you mean `origin`?"][..],
        ),
        (&["reload"], &["without a configuration file"]),
        (
            &["attach", "origin"],
            &["served by this daemon already, as volume origin"],
        ),
        (&["attach", "cache"], &["a cache device of this daemon"]),
    ] {
        daemon.says(&scratch, arguments, 2, words);
    }
    let socket = scratch.text("nbd");
    forebay_says(
        &scratch,
        &["status", "--control", &socket],
        2,
        &["is an NBD export", "control socket"],
    );
    daemon.command(&scratch, &["detach", "origin"]);
    for command in [&["advise", "origin"][..], &["drain"]] {
        daemon.says(&scratch, command, 2, &["serves no volume now"]);
    }
    daemon.stop();
}

#[test]
fn a_file_is_not_taken_for_a_socket() {
    let scratch = Scratch::new();
    scratch.file("origin", MIB);
    let file = scratch.pattern("file", 4096);
    let before = std::fs::read(&file).unwrap();
    let serve = ["serve", "--origin", "origin", "--nbd", "unix:file"];
    forebay_says(&scratch, &serve, 3, &["file is there already"]);
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_sound_cache_is_not_repaired() {
    let scratch = Scratch::new();
    cached(&scratch).stop();
    let before = std::fs::read(scratch.path("cache")).unwrap();
    let repair = ["repair", "cache", "--accept-damage"];
    let said = forebay_ok(&scratch, &repair);
    assert!(
        said.contains("is not damaged: nothing was changed"),
        "{said}"
    );
    let said = forebay_ok(&scratch, &[&repair[..], &["--json"]].concat());
    assert!(said.contains("\"repaired\":false"), "{said}");
    assert!(std::fs::read(scratch.path("cache")).unwrap() == before);
}

#[test]
fn a_volume_that_came_by_attach_is_asked_for_in_the_file() {
    let scratch = Scratch::new();
    for name in ["origin", "second"] {
        scratch.file(name, 32 * MIB);
    }
    scratch.file("cache", 64 * MIB);
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n[[volume]]\norigin = \"origin\"\n",
        scratch.text("nbd")
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
    let daemon = Daemon::start(&scratch, &["--config", "f.toml"]);
    daemon.command(&scratch, &["attach", "second", "--mode", "writeback"]);
    daemon.kill();
    let Err(said) = Daemon::try_start(&scratch, &["--config", "f.toml"]) else {
        panic!("it was served without its second origin");
    };
    assert!(said.contains("Some(3)"), "{said}");
    assert!(said.contains("name = \"second\" to f.toml"), "{said}");
}
