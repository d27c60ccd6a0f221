//! Paths for a daemon with another working directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::device::network::uri;

/// The path of something, as a daemon with another working directory needs it.
pub(super) fn absolute(path: &Path, what: &str) -> Result<PathBuf> {
    if uri::as_uri(path).is_some() {
        return Ok(path.to_owned());
    }
    std::path::absolute(path)
        .with_context(|| format!("there is no working directory; give the whole path of {what}"))
}
