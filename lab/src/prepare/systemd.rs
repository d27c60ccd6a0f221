//! Files of the host that a guest needs beside the usual to be a small Debian: systemd, udev and
//! dpkg.

use std::path::Path;

use super::initramfs::{Tree, find};

/// Programs, and where the guest has them.
const PROGRAMS: &[(&str, &str)] = &[
    ("/lib/systemd/systemd", "/lib/systemd/systemd"),
    (
        "/lib/systemd/systemd-journald",
        "/lib/systemd/systemd-journald",
    ),
    (
        "/lib/systemd/system-generators/systemd-fstab-generator",
        "/lib/systemd/system-generators/systemd-fstab-generator",
    ),
    ("journalctl", "/usr/bin/journalctl"),
    ("systemctl", "/usr/bin/systemctl"),
    ("systemd-analyze", "/usr/bin/systemd-analyze"),
    ("udevadm", "/usr/bin/udevadm"),
    // In the places that are compiled into systemd; busybox has them without some options.
    ("mount", "/bin/mount"),
    ("umount", "/bin/umount"),
    ("udevadm", "/bin/udevadm"),
    ("dpkg", "/usr/bin/dpkg"),
    ("dpkg-deb", "/usr/bin/dpkg-deb"),
    ("dpkg-query", "/usr/bin/dpkg-query"),
    ("dpkg-split", "/usr/bin/dpkg-split"),
    ("tar", "/usr/bin/tar"),
];

/// Units, of /lib/systemd/system.
const UNITS: &[&str] = &[
    "basic.target",
    "local-fs-pre.target",
    "local-fs.target",
    "modprobe@.service",
    "multi-user.target",
    "paths.target",
    "shutdown.target",
    "slices.target",
    "sockets.target",
    "swap.target",
    "sysinit.target",
    "systemd-journald-dev-log.socket",
    "systemd-journald.service",
    "systemd-journald.socket",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "timers.target",
    "umount.target",
];

/// Rules, of /lib/udev/rules.d.
const RULES: &[&str] = &[
    "50-udev-default.rules",
    "60-block.rules",
    "60-persistent-storage.rules",
    "99-systemd.rules",
];

/// Files that dpkg, systemd and the C library look for.
const FILES: &[(&str, &str)] = &[
    ("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n"),
    ("/etc/group", "root:x:0:\ndisk:x:6:\ntty:x:5:\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\n"),
    ("/etc/os-release", "ID=lab\nPRETTY_NAME=\"Forebay's lab\"\n"),
    ("/etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("/var/lib/dpkg/status", ""),
    ("/var/lib/dpkg/available", ""),
    ("/var/lib/dpkg/info/format", "1\n"),
    ("/var/lib/dpkg/updates/.keep", ""),
    ("/sbin/ldconfig", "#!/bin/sh\n"),
    (
        "/etc/systemd/system/lab.service",
        "[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nExecStart=/bin/sh /lab/run.sh\n\
         ExecStopPost=/bin/sh -c 'echo \"@lab done $(cut -d\" \" -f1 /proc/uptime)\"; poweroff -f'\n\
         StandardOutput=tty\nStandardError=tty\nTTYPath=/dev/console\nTimeoutStartSec=infinity\n",
    ),
];

const LINKS: &[(&str, &str)] = &[
    ("lib/systemd/systemd-udevd", "/bin/udevadm"),
    (
        "etc/systemd/system/default.target",
        "/lib/systemd/system/multi-user.target",
    ),
];

/// Units, and those that want them.
const WANTED: &[(&str, &str)] = &[
    ("sockets.target", "systemd-journald-dev-log.socket"),
    ("sockets.target", "systemd-journald.socket"),
    ("sockets.target", "systemd-udevd-control.socket"),
    ("sockets.target", "systemd-udevd-kernel.socket"),
    ("sysinit.target", "systemd-journald.service"),
    ("sysinit.target", "systemd-udevd.service"),
    ("sysinit.target", "systemd-udev-trigger.service"),
];

/// Everything of it.
pub(super) fn add<W: std::io::Write>(tree: &mut Tree<W>) -> anyhow::Result<()> {
    for (from, to) in PROGRAMS {
        let path = if from.starts_with('/') {
            Path::new(from).to_owned()
        } else {
            find(from)?
        };
        tree.program(&path, to)?;
    }
    for (directory, names) in [("/lib/systemd/system", UNITS), ("/lib/udev/rules.d", RULES)] {
        for name in names {
            let path = format!("{directory}/{name}");
            tree.copy(Path::new(&path), &path)?;
        }
    }
    for (path, text) in FILES {
        tree.put(path, text.as_bytes())?;
    }
    for (path, target) in LINKS {
        tree.link(path, target)?;
    }
    for (target, unit) in WANTED {
        let unit_path = format!("/lib/systemd/system/{unit}");
        tree.link(
            &format!("lib/systemd/system/{target}.wants/{unit}"),
            &unit_path,
        )?;
    }
    tree.link(
        "etc/systemd/system/multi-user.target.wants/lab.service",
        "/etc/systemd/system/lab.service",
    )
}
