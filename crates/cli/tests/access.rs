//! Access of other users of the machine to what the commands make.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use support::{Daemon, MIB, Scratch, text};

/// Runs `forebay` with a umask that keeps nobody out.
fn without_umask(scratch: &Scratch, arguments: &[&str]) -> Output {
    let script = "umask 0; exec \"$0\" \"$@\"";
    Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_forebay")])
        .args(arguments)
        .current_dir(scratch.path(""))
        .output()
        .unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A8: a cache file holds any data of the disk.
#[test]
fn a_cache_file_is_its_owners_alone() {
    let scratch = Scratch::new();
    let output = without_umask(&scratch, &["create", "cache", "--size", "16M"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(mode(&scratch.path("cache")), 0o600);
}

/// A8: so does the log of all that is written to the devices.
#[test]
fn a_recording_is_its_owners_alone() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    Daemon::cached(&scratch, "writeback", &["--record", "recording"]).stop();
    assert_eq!(mode(&scratch.path("recording")), 0o600);
}

/// The user nobody and its group, of every Debian.
const NOBODY: u32 = 65534;

fn as_nobody(scratch: &Scratch, arguments: &[&str]) -> Output {
    let own = format!("--reuid={NOBODY}");
    let group = format!("--regid={NOBODY}");
    Command::new("setpriv")
        .args([
            own.as_str(),
            &group,
            "--clear-groups",
            env!("CARGO_BIN_EXE_forebay"),
        ])
        .args(arguments)
        .current_dir(scratch.path(""))
        .output()
        .unwrap()
}

/// A4: QEMU of libvirt is not root.
#[test]
fn sockets_are_for_the_group_that_was_named() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can give a socket to another group");
        return;
    }
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    scratch.file("origin", 16 * MIB);
    let control = scratch.text("control");
    let closed = Daemon::start(&scratch, &["--origin", "origin", "--socket-mode", "600"]);
    assert_eq!(mode(&scratch.path("nbd")), 0o600);
    let output = as_nobody(&scratch, &["status", "--control", &control]);
    assert!(!output.status.success(), "{}", text(&output));
    closed.stop();

    let nobody = NOBODY.to_string();
    let open = [
        "--origin",
        "origin",
        "--socket-group",
        &nobody,
        "--control-group",
        "nogroup",
    ];
    let daemon = Daemon::start(&scratch, &open);
    let socket = std::fs::metadata(scratch.path("nbd")).unwrap();
    assert_eq!((socket.gid(), mode(&scratch.path("nbd"))), (NOBODY, 0o660));
    let output = as_nobody(&scratch, &["status", "--control", &control]);
    assert!(output.status.success(), "{}", text(&output));
    daemon.stop();
    support::forebay_says(
        &scratch,
        &[
            "serve",
            "--origin",
            "origin",
            "--nbd",
            "unix:x",
            "--socket-group",
            "no-such-group",
        ],
        2,
        &["/etc/group has no `no-such-group`"],
    );
}
