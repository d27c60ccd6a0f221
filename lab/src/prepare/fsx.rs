//! fsx, the file system exerciser: from the crate registry, as Debian has none.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::lab::Lab;

const VERSION: &str = "0.3.2";

/// Builds it the first time; returns where it is.
///
/// # Errors
/// If cargo cannot.
pub fn install(lab: &Lab) -> anyhow::Result<PathBuf> {
    let root = lab.root().join("fsx");
    let binary = root.join("bin/fsx");
    if binary.exists() {
        return Ok(binary);
    }
    println!("lab: building fsx {VERSION}");
    let status = Command::new("cargo")
        .args([
            "install",
            "fsx",
            "--locked",
            "--quiet",
            "--version",
            VERSION,
        ])
        .arg("--root")
        .arg(&root)
        .env("CARGO_TARGET_DIR", root.join("build"))
        .status()
        .context("cannot run cargo")?;
    anyhow::ensure!(
        status.success(),
        "cargo could not install fsx {VERSION}; see above"
    );
    Ok(binary)
}
