//! Debian packages of the host.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Packages that every experiment needs.
pub(super) const WANTED: &[&str] = &[
    "bcache-tools",
    "busybox-static",
    "dmsetup",
    "e2fsprogs",
    "fdisk",
    "fio",
    "gcc",
    "kmod",
    "libc6-dev",
    "lvm2",
    "mdadm",
    "nbd-client",
    "nbdkit",
    "qemu-system-x86",
    "systemd",
    "udev",
    "util-linux",
    "xfsprogs",
    "xz-utils",
];

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("ok installed"))
}

/// Installs what is missing.
pub(super) fn install(wanted: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = wanted.iter().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("lab: installing {} packages", missing.len());
    apt(&["update", "-q"])?;
    let mut arguments = vec!["install", "-qy", "--no-install-recommends"];
    arguments.extend(missing.iter().copied());
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run apt-get; the lab needs Debian 12")?;
    if !status.success() {
        bail!(
            "apt-get {} failed ({status}); run the lab as root, with package sources that work",
            arguments.join(" ")
        );
    }
    Ok(())
}
