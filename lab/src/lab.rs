//! Where the lab keeps what it downloads, builds and finds out.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The lab's directory.
#[derive(Clone, Debug)]
pub struct Lab {
    root: PathBuf,
}

impl Lab {
    /// `$FOREBAY_LAB_DIR`, or `lab` in cargo's target directory.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(given: Option<&Path>) -> anyhow::Result<Lab> {
        let target = || {
            let target = std::env::var_os("CARGO_TARGET_DIR");
            PathBuf::from(target.unwrap_or_else(|| "target".into())).join("lab")
        };
        let root = given.map_or_else(target, Path::to_owned);
        std::fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the lab's directory {}", root.display()))?;
        let root = root
            .canonicalize()
            .with_context(|| format!("cannot find the lab's directory {}", root.display()))?;
        Ok(Lab { root })
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
