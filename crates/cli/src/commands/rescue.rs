//! `forebay rescue`: the dirty data of a volume, written to a file. The cache is only read.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use forebay_engine::{DirtyBlock, Engine, Storage, VolumeSlot};
use serde_json::json;

use super::check::open_to_read;
use crate::args::RescueArgs;
use crate::device::attach;
use crate::device::cache_storage;
use crate::device::inspection::{engines, read_through};
use crate::failure::{DamageFound, refuse, wrong_usage};
use crate::quoting::in_shell;
use crate::units::size;

/// Dirty data of a volume, in offsets of it.
#[derive(Default)]
struct Found {
    written: Vec<Range<u64>>,
    /// Blocks with another checksum, or that cannot be read.
    unreadable: Vec<Range<u64>>,
}

pub(crate) fn run(args: &RescueArgs) -> Result<()> {
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
    if superblock.given_up {
        refuse!(
            "the cache was given up: of what it holds, only what is on record is newer than on the disks. Write that \
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
    let file = make(&args.to, args.force)?;
    let cannot = || format!("cannot write {}", args.to.display());
    file.set_len(volume.size_bytes).with_context(cannot)?;
    let block_bytes = u64::from(superblock.geometry.block_bytes);
    let mut dirty = dirty_blocks(
        engines(attached.shards, boot_id, &superblock),
        slot,
        block_bytes,
    );
    dirty.sort_unstable_by_key(|(offset, _)| *offset);
    let mut contents = vec![0; block_bytes as usize];
    let mut found = Found::default();
    for (offset, block) in dirty {
        let range = offset..(offset + block_bytes).min(volume.size_bytes);
        match block.address {
            None => contents.fill(0),
            Some(address) => {
                let read = storage.read(address, &mut contents);
                if read.is_err() || !block.is(&contents) {
                    add(&mut found.unreadable, range);
                    continue;
                }
            }
        }
        let len = (range.end - range.start) as usize;
        file.write_all_at(&contents[..len], offset)
            .with_context(cannot)?;
        add(&mut found.written, range);
    }
    file.sync_all().with_context(cannot)?;
    tell(args, &found)
}

/// The dirty blocks of a volume in all shards, each with its offset.
fn dirty_blocks(
    engines: Vec<Engine>,
    slot: VolumeSlot,
    block_bytes: u64,
) -> Vec<(u64, DirtyBlock)> {
    let mut blocks = Vec::new();
    for mut engine in engines {
        let ranges = engine.list_unsaved().unwrap_or_default();
        for range in ranges.iter().filter(|range| range.volume == slot) {
            let end = range.offset_bytes + range.len_bytes;
            let offsets = (range.offset_bytes..end).step_by(block_bytes as usize);
            blocks.extend(offsets.filter_map(|at| Some((at, engine.dirty_block(slot, at)?))));
        }
    }
    blocks
}

/// The file, which must be a new one unless that is not wanted.
fn make(path: &Path, force: bool) -> Result<File> {
    let mut how = OpenOptions::new();
    how.write(true).mode(0o600);
    if force {
        how.create(true).truncate(true);
    } else {
        how.create_new(true);
    }
    how.open(path).with_context(|| {
        format!(
            "cannot make {}; name a new file, or overwrite it with --force",
            path.display()
        )
    })
}

fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn tell(args: &RescueArgs, found: &Found) -> Result<()> {
    let list = |ranges: &[Range<u64>]| -> Vec<serde_json::Value> {
        let each = ranges.iter();
        each.map(
            |range| json!({ "offset_bytes": range.start, "len_bytes": range.end - range.start }),
        )
        .collect()
    };
    if args.json {
        crate::output::line(format_args!(
            "{}",
            json!({
                "name": args.name,
                "ranges": list(&found.written),
                "unreadable": list(&found.unreadable),
            })
        ));
    } else {
        for range in &found.written {
            crate::output::line(format_args!("{} {}", range.start, range.end - range.start));
        }
        crate::output::line(format_args!(
            "volume {}: {} in {} range(s) written to {}, each at its place (offset and length above, in bytes); \
             the cache is as it was",
            args.name,
            size(bytes(&found.written)),
            found.written.len(),
            in_shell(&args.to.display().to_string()),
        ));
    }
    if found.unreadable.is_empty() {
        return Ok(());
    }
    let places: Vec<String> = found
        .unreadable
        .iter()
        .map(|range| format!("{} at {}", size(range.end - range.start), range.start))
        .collect();
    Err(DamageFound(format!(
        "{} of volume {} cannot be read from the cache: {}",
        size(bytes(&found.unreadable)),
        args.name,
        places.join(", ")
    ))
    .into())
}
