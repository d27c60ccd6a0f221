//! Where the lab keeps what it downloads, builds and finds out.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A series of kernels, one of which the guest boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Series {
    /// Of Debian 12's backports: what all tables are of that name no other.
    #[value(name = "6.12")]
    Linux6_12,
    /// Of Debian 13's backports: with the newer ways of ublk.
    #[value(name = "7.3")]
    Linux7_3,
}

impl Series {
    /// As the user names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Series::Linux6_12 => "6.12",
            Series::Linux7_3 => "7.3",
        }
    }
}

/// The lab's directory.
#[derive(Clone, Debug)]
pub struct Lab {
    root: PathBuf,
    series: Series,
}

impl Lab {
    /// `$FOREBAY_LAB_DIR`, or `lab` in cargo's target directory. Everything of another kernel than the
    /// usual one is in a directory below.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(given: Option<&Path>, series: Series) -> anyhow::Result<Lab> {
        let target = || {
            let target = std::env::var_os("CARGO_TARGET_DIR");
            PathBuf::from(target.unwrap_or_else(|| "target".into())).join("lab")
        };
        let mut root = given.map_or_else(target, Path::to_owned);
        if series != Series::Linux6_12 {
            root.push(format!("linux-{}", series.name()));
        }
        std::fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the lab's directory {}", root.display()))?;
        let root = root
            .canonicalize()
            .with_context(|| format!("cannot find the lab's directory {}", root.display()))?;
        Ok(Lab { root, series })
    }

    /// The series of the guest's kernel.
    #[must_use]
    pub fn series(&self) -> Series {
        self.series
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The unpacked kernel package.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.root.join("kernel")
    }

    /// The kernel that QEMU boots.
    #[must_use]
    pub fn vmlinuz(&self) -> PathBuf {
        self.root.join("vmlinuz")
    }

    /// The guest's first file system, but for our own binaries.
    #[must_use]
    pub fn base_image(&self) -> PathBuf {
        self.root.join("guest.cpio")
    }

    /// The guest's first file system, with our binaries.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.root.join("guest-full.cpio")
    }

    /// The compiled time shim.
    #[must_use]
    pub fn shim(&self) -> PathBuf {
        self.root.join("dilate.so")
    }

    /// Everything one guest writes.
    #[must_use]
    pub fn run(&self, name: &str) -> PathBuf {
        self.root.join("runs").join(name)
    }

    /// Results of one experiment.
    #[must_use]
    pub fn results(&self, experiment: &str) -> PathBuf {
        self.root.join("results").join(experiment)
    }
}
