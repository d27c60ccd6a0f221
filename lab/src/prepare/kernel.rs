//! The guest's kernel. Debian 12's own has no ublk, that of its backports has everything, and that of
//! Debian 13's backports has the newer ways of ublk.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::command::output;
use crate::lab::{Lab, Series};

impl Series {
    fn suite(self) -> &'static str {
        match self {
            Series::Linux6_12 => "bookworm-backports",
            Series::Linux7_3 => "trixie-backports",
        }
    }

    /// The end of a release's name.
    fn suffix(self) -> &'static str {
        match self {
            Series::Linux6_12 => "+deb12-amd64",
            Series::Linux7_3 => "+deb13-amd64",
        }
    }

    /// The kinds of packages that have the kernel, its modules, and the list of those built in.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Series::Linux6_12 => &["image"],
            Series::Linux7_3 => &["base", "binary", "modules"],
        }
    }
}

/// Unpacks the kernel's packages unless that has been done; returns the kernel's release.
pub(super) fn fetch(lab: &Lab) -> anyhow::Result<String> {
    if let Some(release) = unpacked(lab) {
        return Ok(release);
    }
    let series = lab.series();
    println!("lab: fetching a kernel {}.x from backports", series.name());
    let apt = Apt::new(lab)?;
    output(apt.get().arg("update")).context("cannot read the list of backports")?;
    let prefix = format!("linux-image-{}", series.name());
    let names = output(apt.cache().args(["pkgnames", &prefix]))?;
    let Some(release) = newest(&names, series) else {
        bail!(
            "{} has no {prefix}.*{}; check that the mirror that apt uses carries backports",
            series.suite(),
            series.suffix()
        );
    };
    let packages = lab.root().join("packages");
    if packages.exists() {
        std::fs::remove_dir_all(&packages)?;
    }
    std::fs::create_dir_all(&packages)
        .with_context(|| format!("cannot make {}", packages.display()))?;
    let wanted = series.packages().iter();
    let wanted = wanted.map(|kind| format!("linux-{kind}-{release}"));
    output(
        apt.get()
            .current_dir(&packages)
            .arg("download")
            .args(wanted),
    )
    .context("cannot download the guest's kernel")?;
    unpack(lab, &packages, &release)?;
    Ok(release)
}

fn unpack(lab: &Lab, packages: &Path, release: &str) -> anyhow::Result<()> {
    let part = lab.root().join("kernel.part");
    if part.exists() {
        std::fs::remove_dir_all(&part)?;
    }
    for package in std::fs::read_dir(packages)? {
        output(
            Command::new("dpkg")
                .arg("-x")
                .arg(package?.path())
                .arg(&part),
        )?;
    }
    if !part.join("lib").exists() {
        // Debian 13 has nothing beside /usr.
        symlink("usr/lib", part.join("lib"))?;
    }
    let modules = part.join("lib/modules").join(release);
    let boot = part.join("boot");
    std::fs::create_dir_all(&boot)?;
    let vmlinuz = boot.join(format!("vmlinuz-{release}"));
    if !vmlinuz.exists() {
        std::fs::copy(modules.join("vmlinuz"), &vmlinuz)
            .context("the kernel's packages hold no kernel")?;
    }
    output(Command::new("depmod").arg("-b").arg(&part).arg(release))?;
    std::fs::copy(&vmlinuz, lab.vmlinuz())?;
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

/// The newest release of a series among package names.
fn newest(names: &str, series: Series) -> Option<String> {
    let prefix = format!("{}.", series.name());
    let number = |release: &str| -> Option<Vec<u32>> {
        let number = release.strip_prefix(&prefix)?;
        let number = number.strip_suffix(series.suffix())?;
        number.split('.').map(|part| part.parse().ok()).collect()
    };
    let releases = names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-"));
    releases
        .filter_map(|release| Some((number(release)?, release)))
        .max()
        .map(|(_, release)| release.to_owned())
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
            format!(
                "deb [signed-by={key}] {mirror} {} main\n",
                lab.series().suite()
            ),
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
        let newest = |names| newest(names, Series::Linux6_12);
        assert_eq!(newest(names).as_deref(), Some("6.12.95+deb12-amd64"));
        assert_eq!(newest("linux-image-amd64\n"), None);
    }
}
