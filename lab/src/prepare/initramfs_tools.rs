//! Files of the host that a guest needs, as a small Debian, to make an initramfs as Debian does.

use std::path::Path;

use super::initramfs::{Tree, find};
use super::packages;

const PACKAGES: &[&str] = &["cpio", "initramfs-tools-core", "klibc-utils"];

/// Programs that mkinitramfs and its hooks call; busybox has several of them without some options.
const PROGRAMS: &[&str] = &[
    "bash", "cp", "cpio", "env", "find", "findmnt", "getopt", "ln", "realpath", "stat", "tsort",
];

/// kmod's other names.
const KMOD: &[&str] = &["depmod", "modinfo", "modprobe", "rmmod"];

/// Files, where the host has them too; the units are of an orderly power-off.
const FILES: &[&str] = &[
    "/etc/initramfs-tools/initramfs.conf",
    "/etc/udev/udev.conf",
    "/lib/systemd/system/final.target",
    "/lib/systemd/system/poweroff.target",
    "/lib/systemd/system/systemd-poweroff.service",
    "/lib/systemd/system/systemd-remount-fs.service",
    "/lib/udev/rules.d/80-drivers.rules",
    "/usr/bin/ldd",
    "/usr/sbin/mkinitramfs",
    "/usr/share/initramfs-tools/conf-hooks.d/busybox",
    "/usr/share/initramfs-tools/hook-functions",
    "/usr/share/initramfs-tools/hooks/klibc-utils",
    "/usr/share/initramfs-tools/hooks/kmod",
    "/usr/share/initramfs-tools/hooks/udev",
    "/usr/share/initramfs-tools/hooks/zz-busybox",
    "/usr/share/initramfs-tools/init",
    "/usr/share/initramfs-tools/scripts/functions",
    "/usr/share/initramfs-tools/scripts/init-bottom/udev",
    "/usr/share/initramfs-tools/scripts/init-top/udev",
    "/usr/share/initramfs-tools/scripts/local",
    "/usr/share/initramfs-tools/scripts/nfs",
];

/// Files that must be there, empty or nearly so.
const EMPTY: &[&str] = &[
    "/etc/initramfs-tools/conf.d/.keep",
    "/etc/initramfs-tools/hooks/.keep",
    "/etc/initramfs-tools/scripts/.keep",
    "/etc/ld.so.conf",
    "/lib/systemd/network/.keep",
    "/var/tmp/.keep",
];

/// Everything of it; installs on the host what that lacks.
pub(super) fn add<W: std::io::Write>(tree: &mut Tree<W>) -> anyhow::Result<()> {
    packages::install(PACKAGES)?;
    // busybox's shell prefers its own programs to those of the same name.
    tree.program(&find("dash")?, "/bin/dash")?;
    tree.link("bin/sh", "dash")?;
    tree.link("bin/bash", "/usr/bin/bash")?;
    tree.link("sbin/blkid", "/usr/bin/blkid")?;
    for name in PROGRAMS {
        tree.program(&find(name)?, &format!("/usr/bin/{name}"))?;
    }
    tree.program(&find("kmod")?, "/bin/kmod")?;
    for name in KMOD {
        tree.link(&format!("sbin/{name}"), "/bin/kmod")?;
    }
    for path in FILES {
        tree.copy(Path::new(path), path)?;
    }
    for path in EMPTY {
        tree.put(path, b"")?;
    }
    for program in [
        "/lib/systemd/systemd-shutdown",
        "/lib/systemd/systemd-remount-fs",
        "/lib/udev/ata_id",
        "/lib/udev/scsi_id",
    ] {
        tree.program(Path::new(program), program)?;
    }
    tree.directory("/usr/lib/klibc/bin")?;
    for entry in std::fs::read_dir("/lib")?.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("klibc-") {
            tree.copy(&path, &path.to_string_lossy())?;
        }
    }
    Ok(())
}
