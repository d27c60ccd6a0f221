//! Access of other users of the machine to what the commands make.

mod support;

use std::os::unix::fs::PermissionsExt;
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
