//! Shared memory of all caches of this user, for a list and for removal.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use super::place;
use crate::failure::{Usage, refuse};

/// Length of a cache's identity as text.
const ID_BYTES: usize = 36;

/// The memory of a cache.
#[derive(Debug, Default)]
pub(crate) struct CacheMemory {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) bytes: u64,
    /// Part of that in memory buffers, which hold acknowledged writes.
    pub(crate) buffer_bytes: u64,
    pub(crate) in_use: bool,
}

/// All of it, by the identity of its cache.
pub(crate) fn list() -> Result<BTreeMap<String, CacheMemory>> {
    let mut caches: BTreeMap<String, CacheMemory> = BTreeMap::new();
    for path in files()? {
        let Some((cache, is_buffer)) = meaning(&path) else {
            continue;
        };
        let examined = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = match examined {
            Ok(found) => found,
            // Its daemon has just stopped.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot examine the shared memory {}", path.display())
                });
            }
        };
        let memory = caches.entry(cache).or_default();
        memory.bytes += bytes;
        memory.buffer_bytes += if is_buffer { bytes } else { 0 };
        memory.in_use |= !lock(&file)?;
        memory.files.push(path);
    }
    Ok(caches)
}

/// Removes the memory of a cache that no daemon serves; returns how much that was, in bytes.
pub(crate) fn remove(cache: &str) -> Result<u64> {
    let caches = list()?;
    let Some(memory) = caches.get(cache) else {
        let known: Vec<&str> = caches.keys().map(String::as_str).collect();
        return Err(Usage(format!(
            "there is no shared memory of a cache `{cache}`; there is that of: {}",
            if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            }
        ))
        .into());
    };
    let failed = |path: &PathBuf| format!("cannot remove the shared memory {}", path.display());
    // All are locked before the first is removed: a daemon that starts meanwhile has all or none.
    let mut locked = Vec::new();
    for path in &memory.files {
        let file = File::open(path).with_context(|| failed(path))?;
        if !lock(&file)? {
            refuse!(
                "the shared memory of cache {cache} is in use by the daemon that serves it; stop that first"
            );
        }
        locked.push(file);
    }
    for path in &memory.files {
        fs::remove_file(path).with_context(|| failed(path))?;
    }
    Ok(memory.bytes)
}

/// Locks a file as a daemon does; false if one has it.
fn lock(file: &File) -> Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(std::io::Error::from(error)).context("cannot lock shared memory"),
    }
}

fn files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for directory in place::directories()? {
        let failed = || format!("cannot read {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(failed)? {
            files.push(entry.with_context(failed)?.path());
        }
    }
    // Of earlier versions.
    for path in place::names()? {
        if place::is_own_file(&path).is_ok_and(|own| own) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The cache that a file belongs to, and whether it is a buffer: `[forebay-]ID-SHARD[-buffer]`.
fn meaning(path: &std::path::Path) -> Option<(String, bool)> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix("forebay-").unwrap_or(name);
    let (cache, rest) = name.split_at_checked(ID_BYTES)?;
    let shard = rest.strip_prefix('-')?;
    let (shard, is_buffer) = match shard.strip_suffix("-buffer") {
        Some(shard) => (shard, true),
        None => (shard, false),
    };
    let is_id = cache
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (is_id && shard.parse::<u16>().is_ok()).then(|| (cache.to_owned(), is_buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_and_earlier_versions_are_told_from_others() {
        let id = "2e288451-9eaa-0b24-770b-bc7d629a5b1a";
        let of = |name: String| meaning(&PathBuf::from(name));
        assert_eq!(of(format!("/x/{id}-0")), Some((id.to_owned(), false)));
        assert_eq!(
            of(format!("/x/forebay-{id}-12-buffer")),
            Some((id.to_owned(), true))
        );
        for other in ["forebay-0-0123456789abcdef", "x", "", "ä-0"] {
            assert_eq!(of(other.to_owned()), None);
        }
        assert_eq!(of(format!("{id}-x")), None);
        assert_eq!(of(id.to_owned()), None);
    }
}
