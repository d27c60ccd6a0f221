//! The dirty blocks of a cache that no daemon serves.

use anyhow::Result;
use forebay_engine::{Storage, VolumeSlot};

use super::Dirty;
use crate::args::RescueArgs;
use crate::commands::check::open_to_read;
use crate::device::attach;
use crate::device::cache_storage;
use crate::device::inspection::{engines, read_through};
use crate::failure::{refuse, wrong_usage};

/// Reads the log of the cache, which is not changed.
pub(super) fn dirty(args: &RescueArgs) -> Result<Dirty> {
    let direct = crate::config::direct(args.devices.direct);
    let mut storage = open_to_read(&args.cache, direct)?;
    let names = cache_storage::names(&storage);
    let (attached, boot_id) = read_through(&mut storage, &names)?;
    if attached
        .report
        .shards
        .iter()
        .any(|shard| shard.buffered_blocks > 0)
    {
        refuse!(
            "some acknowledged writes are in shared memory, and not in the log of the cache yet: serve it once \
             (`forebay serve`), which logs them, and stop it; nothing was written"
        );
    }
    let superblock = attached.superblock;
    if superblock.abandoned {
        refuse!(
            "the cache was abandoned: of what it holds, only what is on record is newer than on the disks. Write that \
             out with `forebay drain --offline`"
        );
    }
    let mut volumes = attach::attached_volumes(&superblock).zip((0..).map(VolumeSlot));
    let Some((volume, slot)) = volumes.find(|(volume, _)| volume.name == args.name) else {
        let names: Vec<&str> = attach::attached_volumes(&superblock)
            .map(|volume| volume.name.as_str())
            .collect();
        wrong_usage!(
            "the cache has no volume `{}`; it has: {}",
            args.name,
            names.join(", ")
        );
    };
    let engines = engines(attached.shards, boot_id, &superblock);
    let blocks = engines
        .iter()
        .flat_map(|engine| engine.dirty_blocks_in(slot, 0..engine.log_slots()));
    Ok(Dirty {
        size_bytes: volume.size_bytes,
        block_bytes: u64::from(superblock.geometry.block_bytes),
        blocks: blocks.collect(),
        read: Box::new(move |address, into| storage.read(address, into).is_ok()),
    })
}
