//! The hook: an administrator's script that hears of each event, and one that fails, hangs or may
//! not be run.

mod support;

use std::os::unix::fs::PermissionsExt;

use support::hook::{called, until_called, writing};
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, smartctl, until};

fn write_file(scratch: &Scratch, hook: &str) {
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:nbd\"]\n[http]\nlisten = \"off\"\n[daemon]\nhook = \"{hook}\"\n\
         [[volume]]\norigin = \"one\"\n[[volume]]\norigin = \"two\"\n"
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
}

#[test]
fn a_script_hears_of_events_with_their_details() {
    let scratch = Scratch::new();
    scratch.file("cache", 64 * MIB);
    scratch.file("one", 16 * MIB);
    scratch.file("two", 16 * MIB);
    // Nothing of the daemon's is open in it, and little of its environment is there.
    let first = writing(
        &scratch,
        "first",
        "readlink /proc/$$/fd/* | grep -vE '^(/dev/null|pipe:|.*/bin/first)' && exit 9\n\
         [ -z \"$XDG_RUNTIME_DIR$SECRET\" ] || exit 8\n[ \"$PWD\" = / ] || exit 7",
    );
    write_file(&scratch, &first);
    forebay_ok(&scratch, &["check-config", "f.toml"]);
    let arguments = ["--config", "f.toml"];
    // On record in the cache, so that one of them can be away.
    Daemon::start(&scratch, &arguments).stop();
    std::fs::rename(scratch.path("two"), scratch.path("gone")).unwrap();
    std::fs::remove_file(scratch.path("first-called")).unwrap();
    let daemon = Daemon::try_start_in(&scratch, &arguments, &[("SECRET", "x")]).unwrap();
    until_called(&scratch, "first", "start|once|start|once|control||forebay ");
    let away = "volume-away|begin|volume-away|begin|control|two|volume two is not served: ";
    until_called(&scratch, "first", away);
    std::fs::rename(scratch.path("gone"), scratch.path("two")).unwrap();
    until_called(
        &scratch,
        "first",
        "volume-away|end|volume-away|end|control|two|no longer so: ",
    );
    daemon.command(&scratch, &["mode", "one", "readonly"]);
    let mode = "mode|once|mode|once|control|one|volume one is now in mode readonly";
    until_called(&scratch, "first", mode);
    until("its counts", || {
        daemon.status(&scratch)["hook"]["succeeded"].as_u64() >= Some(4)
    });
    let hook = daemon.status(&scratch)["hook"].clone();
    assert_eq!(
        (&hook["failed"], &hook["left_out"]),
        (&0.into(), &0.into()),
        "{}",
        daemon.log()
    );
    assert_eq!(hook["program"], first);

    // Another one, live. It fails, and that is in the log with its words on one line.
    let second = writing(&scratch, "second", "echo no\necho route >&2\nexit 3");
    write_file(&scratch, &second);
    let said = daemon.command(&scratch, &["reload"]);
    assert!(said.contains("the hook"), "{said}");
    daemon.command(&scratch, &["set", "dirty-limit", "80"]);
    until_called(
        &scratch,
        "second",
        "settings|once|settings|once|control||dirty-limit is now 80",
    );
    until("its failure", || {
        daemon.log().contains("failed (exit status: 3): no | route")
    });
    assert!(
        !called(&scratch, "first")
            .iter()
            .any(|call| call.starts_with("settings"))
    );
    let config = daemon.command(&scratch, &["config"]);
    assert!(config.contains(&format!("hook = \"{second}\"")), "{config}");
    std::fs::remove_file(&second).unwrap();
    daemon.command(&scratch, &["set", "dirty-limit", "79"]);
    until("its absence", || {
        daemon.log().contains("cannot be run: No such file")
    });
    daemon.stop();
}

#[test]
fn a_worn_device_is_an_event() {
    let scratch = Scratch::new();
    scratch.file("cache", 16 * MIB);
    scratch.file("origin", 8 * MIB);
    smartctl::printing(&scratch, smartctl::SATA, 0);
    let hook = writing(&scratch, "hook", "");
    let daemon = smartctl::daemon(&scratch, &["--hook", &hook, "--http", "off"]);
    let worn = "device-health|begin|device-health|begin|control||the cache device ";
    until_called(&scratch, "hook", worn);
    daemon.stop();
}

#[test]
fn a_hook_that_hangs_is_killed_and_keeps_nobody_waiting() {
    let scratch = Scratch::new();
    scratch.file("cache", 16 * MIB);
    scratch.file("origin", 8 * MIB);
    let hook = writing(&scratch, "hook", "[ $1 != start ] || sleep 1000");
    let daemon = Daemon::cached(&scratch, "writeback", &["--hook", &hook, "--http", "off"]);
    until_called(&scratch, "hook", "start");
    // Sixty-four wait, and the others are left out.
    for turn in 0..70 {
        let limit = ["80", "81"][turn % 2];
        daemon.command(&scratch, &["set", "dirty-limit", limit]);
    }
    let status = daemon.status(&scratch);
    assert_eq!(status["hook"]["left_out"], 6, "{}", status["hook"]);
    assert!(
        daemon.log().contains("the hook is too slow"),
        "{}",
        daemon.log()
    );
    until("its end", || {
        let log = daemon.log();
        log.contains("for `start` did not end within 30 s, and was killed")
    });
    until("the others", || {
        daemon.status(&scratch)["hook"]["succeeded"] == 64
    });
    daemon.stop();
}

#[test]
fn a_program_that_cannot_be_a_hook_is_refused_before_anything_begins() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    let nbd = format!("unix:{}", scratch.text("nbd"));
    let refused = |hook: &str, words: &[&str]| {
        let arguments = ["serve", "--origin", "origin", "--nbd", &nbd, "--hook", hook];
        forebay_says(&scratch, &arguments, 2, words);
    };
    refused("bin/hook", &["no absolute path"]);
    refused("/nowhere/hook", &["cannot find the hook /nowhere/hook"]);
    refused(
        &scratch.text("origin"),
        &["no program that can be run", "chmod +x"],
    );
    refused("/tmp", &["no program that can be run"]);
    let open = smartctl::program(&scratch, "open", "true");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    refused(&open, &["everybody can write", "chmod o-w"]);
    write_file(&scratch, "/nowhere/hook");
    let words = ["f.toml: cannot find the hook /nowhere/hook"];
    forebay_says(&scratch, &["check-config", "f.toml"], 2, &words);
}
