//! The guest's kernel: Debian 12's own has no ublk, that of its backports has everything.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::command::output;
use crate::lab::Lab;

/// The series whose caches and ublk the lab is about.
const SERIES: &str = "6.12.";
const SUFFIX: &str = "+deb12-amd64";

/// Unpacks the kernel package unless that has been done; returns the kernel's release.
pub(super) fn fetch(lab: &Lab) -> anyhow::Result<String> {
    if let Some(release) = unpacked(lab) {
        return Ok(release);
    }
    println!("lab: fetching a kernel {SERIES}x from backports");
    let apt = Apt::new(lab)?;
    output(apt.get().arg("update")).context("cannot read the list of backports")?;
    let names = output(apt.cache().args(["pkgnames", "linux-image-6.12"]))?;
    let Some(release) = newest(&names) else {
        bail!(
            "bookworm-backports has no linux-image-{SERIES}*{SUFFIX}; \
             check that the mirror that apt uses carries backports"
        );
    };
    let packages = lab.root().join("packages");
    std::fs::create_dir_all(&packages)
        .with_context(|| format!("cannot make {}", packages.display()))?;
    output(
        apt.get()
            .current_dir(&packages)
            .args(["download", &format!("linux-image-{release}")]),
    )
    .context("cannot download the guest's kernel")?;
    unpack(lab, &packages, &release)?;
    Ok(release)
}

fn unpack(lab: &Lab, packages: &Path, release: &str) -> anyhow::Result<()> {
    let prefix = format!("linux-image-{release}_");
    let package = std::fs::read_dir(packages)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        })
        .with_context(|| format!("apt-get left no {prefix}*.deb in {}", packages.display()))?;
    let part = lab.root().join("kernel.part");
    if part.exists() {
        std::fs::remove_dir_all(&part)?;
    }
    output(Command::new("dpkg").arg("-x").arg(&package).arg(&part))?;
    output(Command::new("depmod").arg("-b").arg(&part).arg(release))?;
    std::fs::copy(
        part.join("boot").join(format!("vmlinuz-{release}")),
        lab.vmlinuz(),
    )
    .context("the kernel package holds no kernel")?;
    std::fs::rename(&part, lab.kernel())?;
    std::fs::remove_dir_all(packages)?;
    Ok(())
}

pub(super) fn unpacked(lab: &Lab) -> Option<String> {
    let modules = std::fs::read_dir(lab.kernel().join("lib/modules")).ok()?;
    let mut releases = modules
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    releases.next().filter(|_| lab.vmlinuz().exists())
}

/// The newest release among package names.
fn newest(names: &str) -> Option<String> {
    names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-"))
        .filter(|release| release.starts_with(SERIES) && release.ends_with(SUFFIX))
        .max_by_key(|release| {
            release[SERIES.len()..release.len() - SUFFIX.len()]
                .split('.')
                .map(|part| part.parse::<u32>().unwrap_or(0))
                .collect::<Vec<_>>()
        })
        .map(str::to_owned)
}

/// apt with package lists of the lab's own, so that the machine's stay as they are.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(lab: &Lab) -> anyhow::Result<Apt> {
        let mirror = mirror()?;
        let root = lab.root().join("apt");
        std::fs::create_dir_all(root.join("lists/partial"))
            .with_context(|| format!("cannot make {}", root.display()))?;
        let list = root.join("backports.list");
        let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
        std::fs::write(
            &list,
            format!("deb [signed-by={key}] {mirror} bookworm-backports main\n"),
        )?;
        let options = [
            format!("-oDir::Etc::SourceList={}", list.display()),
            "-oDir::Etc::SourceParts=/dev/null".to_owned(),
            format!("-oDir::State::Lists={}", root.join("lists").display()),
            format!("-oDir::Cache={}", root.display()),
            // apt's own user may not see into the lab's directory.
            "-oAPT::Sandbox::User=root".to_owned(),
            "-q".to_owned(),
        ];
        Ok(Apt {
            options: options.to_vec(),
        })
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.args(&self.options);
        command
    }

    fn cache(&self) -> Command {
        let mut command = Command::new("apt-cache");
        command.args(&self.options);
        command
    }
}

/// Where apt gets Debian 12 from on this machine.
pub(super) fn mirror() -> anyhow::Result<String> {
    let targets = output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(CODENAME) $(REPO_URI)",
        "Created-By: Packages",
    ]))?;
    targets
        .lines()
        .find_map(|line| line.strip_prefix("bookworm "))
        .map(str::to_owned)
        .context("apt has no source for Debian 12 (bookworm); add one and run apt-get update")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_of_the_series_is_taken() {
        let names = "linux-image-6.12.9+deb12-amd64\nlinux-image-6.12.95+deb12-amd64\n\
                     linux-image-6.12.95+deb12-rt-amd64\nlinux-image-6.12.99+deb12-amd64-unsigned\n\
                     linux-image-6.1.0-40-amd64\nlinux-image-6.12.12+deb12-amd64\n";
        assert_eq!(newest(names).as_deref(), Some("6.12.95+deb12-amd64"));
        assert_eq!(newest("linux-image-amd64\n"), None);
    }
}
