//! A whole Debian 12 for guests that follow the manual: its packages from the mirror that apt uses,
//! the lab's kernel, and a service that runs `/lab/run.sh`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::initramfs::find;
use super::{kernel, packages};
use crate::command::output;
use crate::lab::Lab;

/// Packages of the host that make it.
const TOOLS: &[&str] = &["mmdebstrap", "e2fsprogs"];

/// Its packages, beside those that are essential: what a recipe takes for granted.
const PACKAGES: &[&str] = &[
    "bash",
    "busybox",
    "crun",
    "dbus",
    "dmsetup",
    "e2fsprogs",
    "fdisk",
    "grub2-common",
    "initramfs-tools",
    "iproute2",
    "kmod",
    "libnbd-bin",
    "lvm2",
    "mdadm",
    "open-iscsi",
    "podman",
    "postgresql",
    "systemd-sysv",
    "tgt",
    "thin-provisioning-tools",
    "udev",
    "zstd",
];

/// The disk's name for its label, and its size.
const LABEL: &str = "system";
const IMAGE_MIB: u64 = 2048;

/// Files of its own. The manual's pages name devices of some machine: udev gives those names to the
/// lab's disk and SSD, before the package's rules look at names.
const FILES: &[(&str, &str)] = &[
    ("etc/hostname", "server\n"),
    (
        "etc/fstab",
        "LABEL=system / ext4 defaults 0 1\nlab /lab 9p trans=virtio,version=9p2000.L,msize=262144 0 0\n",
    ),
    ("etc/initramfs-tools/conf.d/lab", "MODULES=list\n"),
    (
        "etc/initramfs-tools/modules",
        "virtio_pci\nvirtio_blk\next4\n",
    ),
    (
        "etc/udev/rules.d/60-lab-names.rules",
        "SUBSYSTEM!=\"block\", GOTO=\"lab_end\"\n\
         ENV{DEVTYPE}==\"disk\", ATTR{serial}==\"hdd\", SYMLINK+=\"sdb disk/by-id/ata-DISK\"\n\
         ENV{DEVTYPE}==\"disk\", ATTR{serial}==\"ssd\", SYMLINK+=\"nvme0n1 disk/by-id/nvme-SSD\"\n\
         ENV{DEVTYPE}==\"partition\", ATTRS{serial}==\"hdd\", SYMLINK+=\"sdb%n disk/by-id/ata-DISK-part%n\"\n\
         ENV{DEVTYPE}==\"partition\", ATTRS{serial}==\"ssd\", SYMLINK+=\"nvme0n1p%n disk/by-id/nvme-SSD-part%n\"\n\
         LABEL=\"lab_end\"\n",
    ),
    // They are wanted before the root file system is there, too.
    (
        "etc/initramfs-tools/hooks/lab",
        "#!/bin/sh\n[ \"$1\" = prereqs ] && exit 0\n. /usr/share/initramfs-tools/hook-functions\n\
         copy_file rules /etc/udev/rules.d/60-lab-names.rules\n",
    ),
    // Its end without a word is a fault that the host sees: the guest stops before it is done.
    (
        "etc/systemd/system/lab.service",
        "[Unit]\nRequiresMountsFor=/lab\nAfter=multi-user.target\nFailureAction=poweroff-immediate\n\
         [Service]\nType=oneshot\nExecStart=/bin/sh /lab/run.sh\nStandardOutput=tty\nStandardError=tty\n\
         TTYPath=/dev/console\nTimeoutStartSec=infinity\n",
    ),
    (
        "etc/systemd/system/lab.target",
        "[Unit]\nRequires=multi-user.target\nWants=lab.service\nAfter=multi-user.target\nAllowIsolate=yes\n",
    ),
];

/// Commands in it, by its own programs. What a recipe is to start does not run before.
const COMMANDS: &str = "systemctl -q set-default lab.target && \
    systemctl -q disable postgresql.service tgt.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
        e2scrub_all.timer fstrim.timer mdcheck_start.timer mdcheck_continue.timer mdmonitor-oneshot.timer \
        podman-auto-update.timer podman.socket podman-restart.service man-db.timer 2> /dev/null; \
    systemctl -q mask getty@tty1.service serial-getty@ttyS0.service && \
    rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*";

/// The file system of a Debian, and what boots it.
#[derive(Clone, Debug)]
pub struct Debian {
    /// An ext4 file system.
    pub image: PathBuf,
    /// Its own initramfs.
    pub initrd: PathBuf,
}

impl Debian {
    /// For the kernel: its root, which the lab starts with the same contents each time.
    pub const ARGUMENTS: &'static str = "panic=-1 root=LABEL=system rw";
}

/// Makes it the first time, and when something that decides its contents has changed.
///
/// # Errors
/// If the mirror cannot be reached, or a program fails.
pub fn make(lab: &Lab) -> anyhow::Result<Debian> {
    let release = kernel::fetch(lab)?;
    let debian = Debian {
        image: lab.root().join("debian.img"),
        initrd: lab.root().join("debian.initrd"),
    };
    let stamp = lab.root().join("debian.recipe");
    let recipe = format!("{release}\n{PACKAGES:?}\n{IMAGE_MIB}\n{FILES:?}\n{COMMANDS}");
    if debian.image.exists() && std::fs::read_to_string(&stamp).is_ok_and(|made| made == recipe) {
        return Ok(debian);
    }
    println!("lab: making a Debian for the guests, which takes some minutes");
    packages::install(TOOLS)?;
    let root = lab.root().join("debian");
    remove(&root)?;
    bootstrap(lab, &release, &root)?;
    std::fs::copy(
        root.join(format!("boot/initrd.img-{release}")),
        &debian.initrd,
    )
    .context("the guest's Debian has no initramfs")?;
    let part = debian.image.with_extension("part");
    let file =
        std::fs::File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
    file.set_len(IMAGE_MIB << 20)?;
    output(
        Command::new(find("mkfs.ext4")?)
            .args(["-q", "-F", "-L", LABEL, "-E", "lazy_itable_init=0", "-d"])
            .arg(&root)
            .arg(&part),
    )?;
    remove(&root)?;
    std::fs::rename(&part, &debian.image)?;
    std::fs::write(&stamp, recipe).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(debian)
}

/// Debian in a directory, with the kernel and what the lab adds, from within as far as Debian's own
/// programs do it.
fn bootstrap(lab: &Lab, release: &str, root: &Path) -> anyhow::Result<()> {
    let additions = lab.root().join("debian.additions");
    remove(&additions)?;
    for (path, text) in FILES {
        let path = additions.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&additions))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    std::fs::create_dir_all(additions.join("lab"))?;
    let mut hook = String::new();
    let kernel = lab.kernel();
    write!(
        hook,
        "cp -r '{kernel}/boot/.' \"$1/boot\" && cp -r '{kernel}/lib/modules' \"$1/usr/lib\" && \
         cp -r '{additions}/.' \"$1\" && chmod +x \"$1/etc/initramfs-tools/hooks/lab\" && chroot \"$1\" update-initramfs -c -k {release} && \
         chroot \"$1\" sh -c '{COMMANDS}'",
        kernel = kernel.display(),
        additions = additions.display(),
    )?;
    let mirror = kernel::mirror()?;
    output(
        Command::new(find("mmdebstrap")?)
            .args(["--quiet", "--mode=root", "--variant=apt"])
            .arg(format!("--include={}", PACKAGES.join(",")))
            .arg(format!("--customize-hook={hook}"))
            .arg("bookworm")
            .arg(root)
            .arg(format!(
                "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} bookworm main"
            )),
    )
    .context("cannot make the guest's Debian")?;
    remove(&additions)
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}
