//! The guest's file system: the programs and modules it needs, and nothing else.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::command::output;
use crate::cpio::Archive;
use crate::experiments::Experiment;
use crate::lab::Lab;

const INIT: &str = include_str!("../../guest/init");

const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "9pnet_virtio",
    "9p",
    "bcache",
    "dm_cache",
    "dm_cache_smq",
    "dm_writecache",
    "nbd",
    "loop",
    "ublk_drv",
    "null_blk",
    "brd",
    "raid0",
    "raid1",
    "raid10",
    "ext4",
    "xfs",
];

const PROGRAMS: &[&str] = &[
    "bcache-super-show",
    "blkdiscard",
    "blkid",
    "dmsetup",
    "e2fsck",
    "fio",
    "fstrim",
    "losetup",
    "lsblk",
    "lvm",
    "make-bcache",
    "mdadm",
    "mkfs.ext4",
    "mkfs.xfs",
    "nbd-client",
    "nbdkit",
    "sfdisk",
    "wipefs",
    "xfs_repair",
];

const FILES: &[&str] = &[
    "/etc/mke2fs.conf",
    "/usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-file-plugin.so",
    "/usr/lib/x86_64-linux-gnu/nbdkit/filters/nbdkit-cache-filter.so",
    "/usr/lib/x86_64-linux-gnu/nbdkit/filters/nbdkit-delay-filter.so",
];

/// Everything that decides what the base image holds.
pub(super) fn recipe(release: &str) -> String {
    format!("{release}\n{MODULES:?}\n{PROGRAMS:?}\n{FILES:?}\n{INIT}")
}

/// Writes the base image.
pub(super) fn build(lab: &Lab, release: &str) -> anyhow::Result<()> {
    let part = lab.root().join("guest.part");
    let file = File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
    let mut tree = Tree::new(BufWriter::new(file));
    for directory in ["proc", "sys", "dev", "tmp", "run", "lab", "mnt", "modules"] {
        tree.archive.directory(directory)?;
    }
    tree.put("/init", INIT.as_bytes())?;
    tree.copy(&find("busybox")?, "/bin/busybox")?;
    tree.archive.symlink("bin/sh", "busybox")?;
    for program in PROGRAMS {
        let path = find(program)?;
        tree.program(&path, &format!("/usr/bin/{program}"))?;
    }
    for path in FILES {
        tree.copy(Path::new(path), path)?;
        if Path::new(path).extension().is_some_and(|end| end == "so") {
            tree.libraries_of(Path::new(path))?;
        }
    }
    let mut order = String::new();
    for module in load_order(lab, release)? {
        let bytes = module_bytes(&module)?;
        let name = module_name(&module);
        tree.put(&format!("/modules/{name}"), &bytes)?;
        order.push_str(&name);
        order.push('\n');
    }
    tree.put("/modules/order", order.as_bytes())?;
    tree.archive.finish()?;
    std::fs::rename(&part, lab.base_image())?;
    Ok(())
}

/// Appends the forebay binary, this one and `tools` to a copy of the base image, with their
/// libraries, and what else an experiment needs.
///
/// # Errors
/// If a binary cannot be read or the image cannot be written.
pub fn add_binaries(
    lab: &Lab,
    forebay: &Path,
    tools: &[PathBuf],
    experiment: &Experiment,
) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find the lab's own binary")?;
    let part = lab.root().join("guest-full.part");
    std::fs::copy(lab.base_image(), &part)
        .with_context(|| format!("cannot copy {}", lab.base_image().display()))?;
    let mut file = File::options().append(true).open(&part)?;
    // The kernel finds a further archive at a multiple of four.
    let missing = file.metadata()?.len().next_multiple_of(4) - file.metadata()?.len();
    file.write_all(&[0; 4][..missing as usize])?;
    let mut tree = Tree::new(BufWriter::new(file));
    for (binary, name) in [(forebay, "forebay"), (&own, "forebay-lab")] {
        let stripped = lab.root().join(name);
        output(Command::new("strip").arg("-o").arg(&stripped).arg(binary)).with_context(|| {
            format!(
                "cannot use the binary {}; build it with `cargo build --release`",
                binary.display()
            )
        })?;
        tree.program(&stripped, &format!("/usr/bin/{name}"))?;
    }
    for tool in tools {
        let name = tool.file_name().unwrap_or_default().to_string_lossy();
        tree.program(tool, &format!("/usr/bin/{name}"))?;
    }
    if experiment.installs_package() {
        super::systemd::add(&mut tree)?;
    }
    if experiment.makes_initramfs() {
        super::initramfs_tools::add(&mut tree)?;
    }
    if experiment.runs_database() {
        super::database::add(&mut tree)?;
    }
    tree.archive.finish()?;
    std::fs::rename(&part, lab.image())?;
    Ok(())
}

/// An archive under construction.
pub(super) struct Tree<W: std::io::Write> {
    archive: Archive<W>,
    present: BTreeSet<String>,
}

impl<W: std::io::Write> Tree<W> {
    fn new(out: W) -> Tree<W> {
        Tree {
            archive: Archive::new(out),
            present: BTreeSet::new(),
        }
    }

    pub(super) fn put(&mut self, path: &str, contents: &[u8]) -> anyhow::Result<()> {
        if !self.present.insert(path.to_owned()) {
            return Ok(());
        }
        self.directories_above(path)?;
        Ok(self.archive.file(path, contents)?)
    }

    /// A directory with the files in it, not those below.
    pub(super) fn directory(&mut self, directory: &str) -> anyhow::Result<()> {
        let listed =
            std::fs::read_dir(directory).with_context(|| format!("cannot list {directory}"))?;
        let mut paths: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            self.copy(path, &path.to_string_lossy())?;
        }
        Ok(())
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> anyhow::Result<()> {
        self.directories_above(path)?;
        Ok(self.archive.symlink(path, target)?)
    }

    fn directories_above(&mut self, path: &str) -> anyhow::Result<()> {
        let mut above = String::new();
        for part in Path::new(path).parent().into_iter().flat_map(Path::iter) {
            let part = part.to_string_lossy();
            if part == "/" {
                continue;
            }
            above = format!("{above}/{part}");
            if self.present.insert(above.clone()) {
                self.archive.directory(&above)?;
            }
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, from: &Path, to: &str) -> anyhow::Result<()> {
        let bytes =
            std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.put(to, &bytes)
    }

    pub(super) fn program(&mut self, from: &Path, to: &str) -> anyhow::Result<()> {
        self.copy(from, to)?;
        self.libraries_of(from)
    }

    fn libraries_of(&mut self, program: &Path) -> anyhow::Result<()> {
        let listed = output(Command::new("ldd").arg(program))?;
        for library in libraries(&listed) {
            self.copy(Path::new(&library), &library)?;
        }
        Ok(())
    }
}

/// The paths that ldd prints.
fn libraries(listed: &str) -> Vec<String> {
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(str::to_owned)
        .collect()
}

pub(super) fn find(program: &str) -> anyhow::Result<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|path| path.exists())
        .with_context(|| format!("{program} is not installed; run `make lab` as root once"))
}

/// The modules and what they depend on, in the order in which they load.
fn load_order(lab: &Lab, release: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut order = Vec::new();
    for module in MODULES {
        let listed = output(Command::new("modprobe").arg("-d").arg(lab.kernel()).args([
            "-S",
            release,
            "--show-depends",
            module,
        ]))?;
        for path in module_paths(&listed) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

/// The paths that `modprobe --show-depends` prints; built-in modules have none.
fn module_paths(listed: &str) -> Vec<PathBuf> {
    listed
        .lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .filter_map(|rest| rest.split_whitespace().next())
        .map(PathBuf::from)
        .collect()
}

fn module_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".xz").to_owned()
}

fn module_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.extension().is_none_or(|end| end != "xz") {
        return std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let unpacked = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .output()
        .context("cannot run xz")?;
    anyhow::ensure!(
        unpacked.status.success(),
        "xz cannot unpack {}; remove the lab's directory and prepare it again",
        path.display()
    );
    Ok(unpacked.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_both_forms_of_a_line() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                      \tlibaio.so.1 => /lib/x86_64-linux-gnu/libaio.so.1 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libaio.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(libraries(listed), expected);
        assert!(libraries("\tstatically linked\n").is_empty());
    }

    #[test]
    fn modules_are_listed_without_those_built_in() {
        let listed =
            "builtin virtio_pci\ninsmod /k/lib/modules/6/kernel/a.ko.xz \ninsmod /k/b.ko x=1\n";
        let paths = module_paths(listed);
        assert_eq!(
            paths,
            [
                PathBuf::from("/k/lib/modules/6/kernel/a.ko.xz"),
                PathBuf::from("/k/b.ko")
            ]
        );
        assert_eq!(module_name(&paths[0]), "a.ko");
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_nothing_twice() {
        let mut tree = Tree::new(Vec::new());
        tree.put("/usr/lib/one", b"1").unwrap();
        tree.put("/usr/lib/two", b"2").unwrap();
        tree.put("/usr/lib/one", b"3").unwrap();
        let bytes = tree.archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| {
            text.match_indices(name)
                .map(|(at, _)| at)
                .collect::<Vec<_>>()
        };
        assert_eq!(at("usr/lib/one").len(), 1);
        assert_eq!(at("usr/lib").len(), 3);
        assert!(at("usr\0")[0] < at("usr/lib\0")[0]);
        assert!(at("usr/lib\0")[0] < at("usr/lib/one")[0]);
    }
}
