//! The directory of shared memory: /dev/shm/forebay-UID-RANDOM, of mode 0700.
//!
//! /dev/shm is open to every user. A name there that somebody can know beforehand can be taken by
//! somebody else, and the cache is not served any more. So the files are in a directory that only
//! this user reaches. Its name is not known beforehand and need not be remembered: it is found by
//! its owner, which nobody else can forge, and whose directories nobody else can move.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where memory is that outlives a process.
const SHM: &str = "/dev/shm";

/// This user's number.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The names in /dev/shm that are Forebay's, whoever made them.
pub(super) fn names() -> Result<Vec<PathBuf>> {
    let failed = || format!("cannot look for shared memory in {SHM}");
    let mut names = Vec::new();
    for entry in fs::read_dir(SHM).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_name().to_string_lossy().starts_with("forebay-") {
            names.push(entry.path());
        }
    }
    // All daemons agree on the first.
    names.sort();
    Ok(names)
}

/// The directories of this user. There are two if two daemons made the first at the same time.
pub(super) fn directories() -> Result<Vec<PathBuf>> {
    let mut names = names()?;
    names.retain(|path| is_own_directory(path, own_user()));
    Ok(names)
}

/// Whether a path is a directory, and no link, that only this user has access to.
fn is_own_directory(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

/// The directory for new files, made if there is none.
pub(super) fn for_new() -> Result<PathBuf> {
    if let Some(there) = directories()?.into_iter().next() {
        return Ok(there);
    }
    let mut random = [0; 8];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("cannot read /dev/urandom")?;
    let path = Path::new(SHM).join(format!(
        "forebay-{}-{:016x}",
        own_user(),
        u64::from_ne_bytes(random)
    ));
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot make the directory {}", path.display()))?;
    Ok(path)
}

/// Whether a file of this name is there and this user's. Anything else of that name is not ours, and
/// stands in nobody's way.
pub(super) fn is_own_file(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file() && found.uid() == own_user()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_closed_directory_of_the_user_counts() {
        let path = std::env::temp_dir().join(format!("forebay-place-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        let user = own_user();
        assert!(is_own_directory(&path, user));
        assert!(!is_own_directory(&path, user + 1));
        let link = path.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(!is_own_directory(&link, user));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(!is_own_directory(&path, user));
        fs::remove_dir_all(&path).unwrap();
        assert!(!is_own_directory(&path, user));
    }
}
