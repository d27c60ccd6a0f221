//! Memory that outlives the daemon and not the machine: each shard's crash journal and memory
//! buffer, files in a directory in /dev/shm.
//!
//! | module | subject |
//! |---|---|
//! | [`place`] | the directory |
//! | [`left_over`] | the memory of all caches, to list and to remove |

pub(crate) mod left_over;
mod place;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::shm_journal::JOURNAL_BYTES;
use forebay_engine::{CacheId, Commit, Settings, Superblock, Surviving};
use forebay_io::{DAEMON_END_TIMEOUT, SharedMemory, SharedMemoryError, retry_for};

/// Memory of a shard that an earlier daemon left.
pub(crate) struct Left {
    pub(crate) journal: Option<SharedMemory>,
    pub(crate) buffer: Option<SharedMemory>,
}

impl Left {
    /// For the engine's recovery.
    pub(crate) fn surviving(&mut self) -> Surviving<'_> {
        Surviving {
            journal: self.journal.as_mut().map(|journal| &*journal.bytes_mut()),
            buffer: self.buffer.as_mut().map(SharedMemory::bytes_mut),
        }
    }
}

/// Memory of a shard of a running cache.
pub(crate) struct ShardMemory {
    pub(crate) journal: SharedMemory,
    /// For acknowledging writes from (`commit = memory`).
    pub(crate) buffer: Option<SharedMemory>,
}

/// Opens the memory that an earlier daemon left, by shard.
pub(crate) fn open(superblock: &Superblock) -> Result<Vec<Left>> {
    let directories = place::directories()?;
    let shards = 0..usize::from(superblock.geometry.shards);
    shards
        .map(|shard| {
            let [journal, buffer] = names(superblock.id, shard);
            let open_journal = |path: &Path| SharedMemory::open(path, JOURNAL_BYTES);
            Ok(Left {
                journal: open_if_there(&directories, &journal, open_journal)?,
                buffer: open_if_there(&directories, &buffer, SharedMemory::open_whole)?,
            })
        })
        .collect()
}

fn open_if_there(
    directories: &[PathBuf],
    name: &str,
    open: impl Fn(&Path) -> Result<SharedMemory, SharedMemoryError>,
) -> Result<Option<SharedMemory>> {
    // A file in the place of earlier versions comes first: it was made after any other, because a
    // daemon of this version moves what it finds there.
    let directories = directories.iter().map(|directory| directory.join(name));
    for path in std::iter::once(earlier_place(name)).chain(directories) {
        // Not to know whether there is one is no reason to go on without what it may hold.
        let is_there = place::is_own_file(&path)
            .with_context(|| format!("cannot look for the shared memory {}", path.display()))?;
        if is_there {
            let opened = retry_for(
                DAEMON_END_TIMEOUT,
                || open(&path),
                |error| matches!(error, SharedMemoryError::InUse { .. }),
            );
            match opened {
                // A daemon was killed while it made it: nothing is in it, and it is removed.
                Err(error) if error.is_absence() => continue,
                opened => return Ok(Some(opened?)),
            }
        }
    }
    Ok(None)
}

/// Makes the memory of an attached cache complete: a crash journal for each shard, and a memory
/// buffer if the settings want one. A buffer that holds acknowledged writes stays whatever they
/// want.
pub(crate) fn complete(
    cache: CacheId,
    left: Vec<(Left, u64)>,
    settings: &Settings,
) -> Result<Vec<ShardMemory>> {
    let shards = left.len();
    let memory = left.into_iter().enumerate().map(|(shard, (left, held))| {
        let [journal_name, buffer_name] = names(cache, shard);
        let journal = match left.journal {
            Some(journal) => into_place(journal, &journal_name)?,
            None => SharedMemory::create(&place::for_new()?.join(journal_name), JOURNAL_BYTES)?,
        };
        let buffer = match left.buffer {
            Some(buffer) if held > 0 => Some(into_place(buffer, &buffer_name)?),
            useless => {
                useless.map(SharedMemory::remove).transpose()?;
                let wanted = settings.commit == Commit::Memory;
                wanted
                    .then(|| create_buffer(cache, shard, shards, settings))
                    .transpose()?
            }
        };
        Ok(ShardMemory { journal, buffer })
    });
    memory.collect()
}

/// Moves memory that a daemon of an earlier version left.
fn into_place(mut memory: SharedMemory, name: &str) -> Result<SharedMemory> {
    if memory.path() == earlier_place(name) {
        memory.move_to(&place::for_new()?.join(name))?;
    }
    Ok(memory)
}

/// Makes the memory buffer of one shard of so many.
pub(crate) fn create_buffer(
    cache: CacheId,
    shard: usize,
    shards: usize,
    settings: &Settings,
) -> Result<SharedMemory> {
    let len_bytes = settings.memory_buffer_bytes as usize / shards.max(1);
    let [_, name] = names(cache, shard);
    Ok(SharedMemory::create(
        &place::for_new()?.join(name),
        len_bytes,
    )?)
}

/// Names of a shard's crash journal and memory buffer.
fn names(cache: CacheId, shard: usize) -> [String; 2] {
    let journal = format!("{cache}-{shard}");
    let buffer = format!("{journal}-buffer");
    [journal, buffer]
}

/// Place of a file before there was a directory of the user's own.
fn earlier_place(name: &str) -> PathBuf {
    format!("/dev/shm/forebay-{name}").into()
}
