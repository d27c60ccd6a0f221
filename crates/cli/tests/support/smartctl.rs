//! A stand-in for smartctl, first on the daemon's search path.

use std::os::unix::fs::PermissionsExt;

use super::{Daemon, Scratch};

/// The answer of an NVMe SSD, and of one behind SATA.
pub(crate) const NVME: &str = include_str!("../smartctl/nvme.json");
pub(crate) const SATA: &str = include_str!("../smartctl/sata.json");

/// Makes a program of this name in the directory `bin`.
pub(crate) fn program(scratch: &Scratch, name: &str, script: &str) -> String {
    std::fs::create_dir_all(scratch.path("bin")).unwrap();
    let path = scratch.path("bin").join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A stand-in that prints an answer and ends with a code.
pub(crate) fn printing(scratch: &Scratch, answer: &str, code: u8) {
    std::fs::write(scratch.path("answer.json"), answer).unwrap();
    let answer = scratch.text("answer.json");
    let script = format!(
        "echo \"$@\" >> {}\ncat {answer}\nexit {code}",
        scratch.text("asked")
    );
    program(scratch, "smartctl", &script);
}

/// A daemon that finds the stand-in.
pub(crate) fn daemon(scratch: &Scratch, more: &[&str]) -> Daemon {
    let others = std::env::var("PATH").unwrap();
    let path = format!("{}:{others}", scratch.text("bin"));
    let mut arguments = vec!["--origin", "origin", "--cache", "cache", "--create"];
    arguments.extend(["--mode", "writeback"]);
    arguments.extend(more);
    Daemon::try_start_in(scratch, &arguments, &[("PATH", &path)])
        .unwrap_or_else(|said| panic!("the daemon did not start: {said}"))
}
