//! Paths for a daemon with another working directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The path of something, as a daemon with another working directory needs it.
pub(super) fn absolute(path: &Path, what: &str) -> Result<PathBuf> {
    std::path::absolute(path)
        .with_context(|| format!("there is no working directory; give the whole path of {what}"))
}
