//! Memory that outlives the daemon and not the machine: each shard's ring and memory buffer, files
//! in /dev/shm.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::ring::RING_BYTES;
use forebay_engine::{CacheId, Commit, Settings, Superblock, Surviving};
use forebay_io::{RingMemory, RingMemoryError};

use crate::device::patience::{OF_A_DAEMON_THAT_ENDED, patiently};

/// Memory of a shard that an earlier daemon left.
pub(crate) struct Left {
    pub(crate) ring: Option<RingMemory>,
    pub(crate) buffer: Option<RingMemory>,
}

impl Left {
    /// For the engine's recovery.
    pub(crate) fn surviving(&mut self) -> Surviving<'_> {
        Surviving {
            ring: self.ring.as_mut().map(|ring| &*ring.bytes_mut()),
            buffer: self.buffer.as_mut().map(RingMemory::bytes_mut),
        }
    }
}

/// Memory of a shard of a running cache.
pub(crate) struct ShardMemory {
    pub(crate) ring: RingMemory,
    /// For acknowledging writes from (`commit = memory`).
    pub(crate) buffer: Option<RingMemory>,
}

/// Opens the memory that an earlier daemon left, by shard.
pub(crate) fn open(superblock: &Superblock) -> Result<Vec<Left>> {
    let shards = 0..usize::from(superblock.geometry.shards);
    shards
        .map(|shard| {
            let ring = ring_path(superblock.id, shard);
            let buffer = buffer_path(superblock.id, shard);
            Ok(Left {
                ring: open_if_there(&ring, |path| RingMemory::open(path, RING_BYTES))?,
                buffer: open_if_there(&buffer, RingMemory::open_whole)?,
            })
        })
        .collect()
}

fn open_if_there(
    path: &Path,
    open: impl Fn(&Path) -> Result<RingMemory, RingMemoryError>,
) -> Result<Option<RingMemory>> {
    // Not to know whether there is one is no reason to go on without what it may hold.
    let is_there = path
        .try_exists()
        .with_context(|| format!("cannot look for the shared memory {}", path.display()))?;
    if !is_there {
        return Ok(None);
    }
    let opened = patiently(
        OF_A_DAEMON_THAT_ENDED,
        || open(path),
        |error| matches!(error, RingMemoryError::InUse { .. }),
    )?;
    Ok(Some(opened))
}

/// Makes the memory of an attached cache complete: a ring for each shard, and a memory buffer if
/// the settings want one. A buffer that holds acknowledged writes stays whatever they want.
pub(crate) fn complete(
    cache: CacheId,
    left: Vec<(Left, u64)>,
    settings: &Settings,
) -> Result<Vec<ShardMemory>> {
    let shards = left.len();
    let memory = left.into_iter().enumerate().map(|(shard, (left, held))| {
        let ring = match left.ring {
            Some(ring) => ring,
            None => RingMemory::create(&ring_path(cache, shard), RING_BYTES)?,
        };
        let buffer = match left.buffer {
            Some(buffer) if held > 0 => Some(buffer),
            useless => {
                useless.map(RingMemory::remove).transpose()?;
                let wanted = settings.commit == Commit::Memory;
                wanted
                    .then(|| create_buffer(cache, shard, shards, settings))
                    .transpose()?
            }
        };
        Ok(ShardMemory { ring, buffer })
    });
    memory.collect()
}

/// Makes the memory buffer of one shard of so many.
pub(crate) fn create_buffer(
    cache: CacheId,
    shard: usize,
    shards: usize,
    settings: &Settings,
) -> Result<RingMemory, RingMemoryError> {
    let len_bytes = settings.memory_buffer_bytes as usize / shards.max(1);
    RingMemory::create(&buffer_path(cache, shard), len_bytes)
}

fn ring_path(cache: CacheId, shard: usize) -> PathBuf {
    format!("/dev/shm/forebay-{cache}-{shard}").into()
}

fn buffer_path(cache: CacheId, shard: usize) -> PathBuf {
    format!("/dev/shm/forebay-{cache}-{shard}-buffer").into()
}
