//! Profiles through the binary: at the start, in a configuration file, live, and shown.

mod support;

use serde_json::Value;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, text};

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    scratch
}

const CACHED: [&str; 5] = ["--origin", "origin", "--cache", "cache", "--create"];

#[test]
fn a_profile_sets_and_own_options_win() {
    let scratch = scratch();
    let arguments = [
        &CACHED[..],
        &["--profile", "bcache", "--set", "writeback_percent=20"],
        &[
            "--set",
            "cache_replacement_policy=lru",
            "--dirty-limit",
            "50",
        ],
    ];
    let daemon = Daemon::start(&scratch, &arguments.concat());
    let status = daemon.status(&scratch);
    let settings = &status["settings"];
    assert_eq!(settings["profile"], "bcache", "{status}");
    assert_eq!(settings["sequential_cutoff_bytes"], 4 * MIB);
    assert_eq!(settings["congestion_read_us"], 2000);
    assert_eq!(settings["writeback"], "rate");
    assert_eq!(settings["dirty_low_percent"], 20);
    assert_eq!(settings["dirty_high_percent"], 40);
    assert_eq!(settings["dirty_limit_percent"], 50);
    assert_eq!(status["volumes"][0]["mode"], "writethrough");
    assert_eq!(settings["replacement"], "clock");
    daemon.stop();
}

/// The arguments of a cached daemon in the manner of dm-cache, and more.
fn dm_cache<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&CACHED[..], &["--profile", "dm-cache"], more].concat()
}

#[test]
fn a_mode_of_a_profile_is_for_new_volumes_and_one_that_is_set_for_all() {
    let scratch = scratch();
    let mode_of = |daemon: &Daemon| daemon.status(&scratch)["volumes"][0]["mode"].clone();
    let daemon = Daemon::start(&scratch, &dm_cache(&[]));
    assert_eq!(mode_of(&daemon), "writeback");
    daemon.command(&scratch, &["mode", "origin", "writearound"]);
    daemon.stop();
    let daemon = Daemon::start(&scratch, &dm_cache(&[]));
    assert_eq!(mode_of(&daemon), "writearound", "the mode is remembered");
    daemon.stop();
    let daemon = Daemon::start(&scratch, &dm_cache(&["--set", "cache_mode=writethrough"]));
    assert_eq!(mode_of(&daemon), "writethrough");
    daemon.stop();
    let both = ["--set", "cache_mode=writethrough", "--mode", "readonly"];
    let daemon = Daemon::start(&scratch, &dm_cache(&both));
    assert_eq!(mode_of(&daemon), "readonly", "our own option wins");
    daemon.stop();
}

#[test]
fn settings_of_other_caches_change_live() {
    let scratch = scratch();
    let daemon = Daemon::start(&scratch, &CACHED);
    let said = daemon.command(&scratch, &["set", "bcache.writeback_percent", "20"]);
    assert_eq!(
        said.trim(),
        "bcache.writeback_percent 20: dirty-low is now 20 %, writeback is now rate"
    );
    let said = daemon.command(
        &scratch,
        &["set", "bcache.cache_mode", "writeback", "--json"],
    );
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["changed"]["mode"], "writeback", "{answer}");
    let status = daemon.status(&scratch);
    assert_eq!(status["settings"]["dirty_low_percent"], 20);
    assert_eq!(status["volumes"][0]["mode"], "writeback");
    let said = daemon.command(&scratch, &["set", "flashcache.reclaim_policy", "1"]);
    assert!(said.contains("replacement is now clock"), "{said}");
    let warned = daemon.begin(&scratch, &["set", "flashcache.fallow_clean_speed", "1"]);
    let warned = warned.wait_with_output().unwrap();
    assert!(warned.status.success());
    assert!(text(&warned).contains("warning: flashcache.fallow_clean_speed has no meaning here"));
    for (key, value, words) in [
        (
            "bcache.writeback_pct",
            "20",
            "did you mean `writeback_percent`?",
        ),
        ("bcache.writeback_percent", "200", "from 0 to"),
        ("bcash.writeback_percent", "20", "did you mean `bcache`?"),
    ] {
        let refused = daemon.begin(&scratch, &["set", key, value]);
        let refused = refused.wait_with_output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{key}");
        assert!(text(&refused).contains(words), "{}", text(&refused));
    }
    assert_eq!(daemon.status(&scratch)["settings"]["dirty_low_percent"], 20);
    daemon.stop();
}

const FILE: &str = r#"
[cache]
device = "cache"
create = true

[profile]
name = "open-cas"

[profile.settings]
cache-mode = "wb"
seq-cutoff = { policy = "always", threshold = 4096 }
cleaning-alru.staleness-time = 60

[settings]
dirty-low = 15

[nbd]
listen = ["unix:nbd"]

[[volume]]
origin = "origin"

[[volume]]
origin = "other"
mode = "readonly"
"#;

#[test]
fn a_configuration_file_has_a_profile() {
    let scratch = scratch();
    scratch.file("other", 32 * MIB);
    std::fs::write(scratch.path("forebay.toml"), FILE).unwrap();
    let arguments = ["--config", "forebay.toml", "--set", "promotion.policy=nhit"];
    let daemon = Daemon::start(&scratch, &[&arguments[..], &["--age", "7"]].concat());
    let status = daemon.status(&scratch);
    let settings = &status["settings"];
    assert_eq!(settings["profile"], "open-cas", "{status}");
    assert_eq!(settings["commit"], "write");
    assert_eq!(settings["sequential_cutoff_bytes"], 4 * MIB);
    assert_eq!(settings["admission"], "touch-3");
    assert_eq!(settings["age_limit_seconds"], 7);
    assert_eq!(settings["dirty_low_percent"], 15);
    assert_eq!(status["volumes"][0]["mode"], "writeback");
    assert_eq!(status["volumes"][1]["mode"], "readonly");
    let mut refused = daemon.begin(&scratch, &["set", "open-cas.cache-mode", "wt"]);
    assert_eq!(
        refused.wait().unwrap().code(),
        Some(2),
        "two volumes, which?"
    );

    let other = FILE
        .replace("open-cas", "enhanceio")
        .replace("cache-mode = \"wb\"", "dirty_high_threshold = 55")
        .replace("seq-cutoff = { policy = \"always\", threshold = 4096 }", "")
        .replace("cleaning-alru.staleness-time = 60", "");
    std::fs::write(scratch.path("forebay.toml"), &other).unwrap();
    let mut refused = daemon.begin(&scratch, &["reload"]);
    assert_eq!(
        refused.wait().unwrap().code(),
        Some(2),
        "--set is of the other cache"
    );
    assert_eq!(daemon.status(&scratch)["settings"]["profile"], "open-cas");
    daemon.stop();
    let daemon = Daemon::start(&scratch, &["--config", "forebay.toml"]);
    assert_eq!(
        daemon.status(&scratch)["settings"]["dirty_high_percent"],
        55
    );
    let changed = other.replace("dirty_high_threshold = 55", "dirty_high_threshold = 44");
    std::fs::write(scratch.path("forebay.toml"), changed).unwrap();
    daemon.command(&scratch, &["reload"]);
    let settings = &daemon.status(&scratch)["settings"];
    assert_eq!(settings["dirty_high_percent"], 44);
    assert_eq!(settings["profile"], "enhanceio");
    daemon.stop();
}

#[test]
fn what_is_wrong_in_a_file_is_said_with_its_line() {
    let scratch = scratch();
    scratch.file("other", 32 * MIB);
    for (from, to, words) in [
        (
            "cache-mode",
            "cache-mod",
            "line 10: open-cas has no setting `cache-mod`, did you mean `cache-mode`?",
        ),
        (
            "\"wb\"",
            "\"fast\"",
            "line 10: open-cas.cache-mode: `fast` is not one of wt, wb",
        ),
        (
            "threshold = 4096",
            "threshold = 0",
            "line 11: open-cas.seq-cutoff.threshold: `0` is not",
        ),
        (
            "4096",
            "[1]",
            "line 11: `seq-cutoff.threshold` has no value that a setting can have",
        ),
        (
            "\"open-cas\"",
            "\"opencas\"",
            "line 7: there is no profile `opencas`, did you mean `open-cas`?",
        ),
        (
            "[profile]",
            "[profile]\nnames = 1",
            "line 7: unknown key `names`, did you mean `name`?",
        ),
    ] {
        std::fs::write(scratch.path("wrong.toml"), FILE.replacen(from, to, 1)).unwrap();
        forebay_says(&scratch, &["check-config", "wrong.toml"], 2, &[words]);
    }
    std::fs::write(scratch.path("right.toml"), FILE).unwrap();
    for (more, words) in [
        (
            ["--profile", "bcache"],
            "the file is in the manner of open-cas",
        ),
        (["--set", "nothing"], "--set nothing is not SETTING=VALUE"),
    ] {
        let arguments = ["serve", "--config", "right.toml", "--nbd", "unix:nbd"];
        forebay_says(&scratch, &[&arguments[..], &more].concat(), 2, &[words]);
    }
    let serve = ["serve", "--nbd", "unix:nbd", "--origin", "origin"];
    for (more, words) in [
        (["--profile", "bcache"], "a profile needs a cache"),
        (["--set", "cache_mode=writeback"], "is of no cache"),
    ] {
        forebay_says(&scratch, &[&serve[..], &more].concat(), 2, &[words]);
    }
    assert!(
        std::fs::read(scratch.path("cache"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0),
        "nothing was written"
    );
}

#[test]
fn profiles_are_shown() {
    let scratch = Scratch::new();
    let listed: Value =
        serde_json::from_str(&forebay_ok(&scratch, &["profile", "list", "--json"])).unwrap();
    let names: Vec<&str> = listed["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| profile["name"].as_str().unwrap())
        .collect();
    let page = forebay_ok(&scratch, &["profile", "list"]);
    for name in &names {
        assert!(page.contains(name), "{name}");
        let shown = forebay_ok(&scratch, &["profile", "show", name, "--json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["settings"]["profile"], *name);
        for setting in shown["foreign"].as_array().unwrap() {
            let explained = setting["no_meaning_because"].is_string();
            assert_ne!(explained, setting["sets"].is_array(), "{name}: {setting}");
        }
    }
    assert_eq!(names.len(), 8);
    let page = forebay_ok(&scratch, &["profile", "show", "bcache"]);
    for words in [
        "sequential-cutoff        4 MiB",
        "cache_replacement_policy",
        "`lru` is `clock`",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let page = forebay_ok(&scratch, &["profile", "show", "gflash"]);
    assert!(page.contains("commit `memory`"), "{page}");
    forebay_says(
        &scratch,
        &["profile", "show", "flash-cache"],
        2,
        &["did you mean `flashcache`?"],
    );
}
