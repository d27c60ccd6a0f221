//! From a fresh Debian 12 machine to a guest that boots: packages, kernel, file system, time shim.

mod database;
mod debian;
mod fsx;
mod initramfs;
mod initramfs_tools;
mod kernel;
mod packages;
mod systemd;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::command::{output, version};
use crate::lab::Lab;

pub use database::make as make_database;
pub use debian::{Debian, make as make_debian};
pub use fsx::install as install_fsx;
pub use initramfs::add_binaries;

const SHIM_SOURCE: &str = include_str!("../../shim/dilate.c");

/// Makes whatever is missing; the second time there is next to nothing to do. Returns the version
/// of everything that takes part.
///
/// # Errors
/// If a package cannot be installed or a part cannot be made.
pub fn prepare(lab: &Lab) -> anyhow::Result<BTreeMap<String, String>> {
    packages::install(packages::WANTED)?;
    compile_shim(lab)?;
    let release = kernel::fetch(lab)?;
    let recipe = initramfs::recipe(&release);
    let stamp = lab.root().join("guest.recipe");
    let fresh = lab.base_image().exists()
        && std::fs::read_to_string(&stamp).is_ok_and(|made| made == recipe);
    if !fresh {
        println!("lab: building the guest's file system");
        initramfs::build(lab, &release)?;
        std::fs::write(&stamp, recipe)
            .with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    let mut versions = versions();
    versions.insert("kernel".to_owned(), release);
    Ok(versions)
}

fn compile_shim(lab: &Lab) -> anyhow::Result<()> {
    let source = lab.root().join("dilate.c");
    let unchanged = std::fs::read_to_string(&source).is_ok_and(|text| text == SHIM_SOURCE);
    if unchanged && lab.shim().exists() {
        return Ok(());
    }
    std::fs::write(&source, SHIM_SOURCE)
        .with_context(|| format!("cannot write {}", source.display()))?;
    output(
        Command::new("gcc")
            .args(["-O2", "-Wall", "-shared", "-fPIC", "-o"])
            .arg(lab.shim())
            .arg(&source)
            .args(["-ldl", "-lpthread"]),
    )
    .context("cannot compile the time shim")?;
    Ok(())
}

fn versions() -> BTreeMap<String, String> {
    let ask = |program: &str, argument: &str| version(Command::new(program).arg(argument));
    let package =
        |name: &str| version(Command::new("dpkg-query").args(["-W", "-f", "${Version}\\n", name]));
    BTreeMap::from(
        [
            ("qemu", ask("qemu-system-x86_64", "--version")),
            ("fio", ask("fio", "--version")),
            ("nbdkit", ask("nbdkit", "--version")),
            ("bcache-tools", package("bcache-tools")),
            ("dmsetup", package("dmsetup")),
            ("nbd-client", package("nbd-client")),
        ]
        .map(|(name, version)| (name.to_owned(), version)),
    )
}

/// The answer of `forebay --version`.
#[must_use]
pub fn forebay_version(binary: &Path) -> String {
    version(Command::new(binary).arg("--version"))
}
