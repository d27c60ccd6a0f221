//! `forebay check` and `forebay dump`: reading a cache that nobody serves.

use std::path::PathBuf;

use anyhow::{Context, Result};
use forebay_engine::Superblock;

use crate::args::{CheckArgs, DeviceArgs};
use crate::device::attach::{self, Opened};
use crate::device::cache_storage::{self, CacheStorage};
use crate::device::inspection::{Inspection, inspect};
use crate::failure::{DamageFound, wrong_usage};
use crate::units::{share, size};

/// Opens the devices of a cache to read them.
pub(crate) fn open_to_read(
    cache: &[PathBuf],
    direct: forebay_io::DirectIo,
) -> Result<CacheStorage> {
    cache_storage::open(cache, |path| Opened::new(path, direct, true))
}

fn open(cache: &[PathBuf], devices: &DeviceArgs) -> Result<Inspection> {
    let mut storage = open_to_read(cache, crate::config::direct(devices.direct))?;
    let names = cache_storage::names(&storage);
    inspect(&mut storage, &names)
}

/// The name of an attached volume of a cache; without one the only volume.
pub(crate) fn volume_to_drain(
    cache: &[PathBuf],
    devices: &DeviceArgs,
    wanted: Option<&str>,
) -> Result<String> {
    let mut storage = open_to_read(cache, crate::config::direct(devices.direct))?;
    let on = cache_storage::names(&storage);
    let superblock = Superblock::read(&mut storage)
        .with_context(|| format!("cannot use the cache device {on}"))?;
    let names: Vec<String> = attach::attached_volumes(&superblock)
        .map(|volume| volume.name.clone())
        .collect();
    if let Some(wanted) = wanted {
        if names.iter().any(|name| name == wanted) {
            return Ok(wanted.to_owned());
        }
        wrong_usage!(
            "the cache on {on} has no volume `{wanted}`; it has: {}",
            names.join(", ")
        );
    }
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => wrong_usage!("the cache on {on} has no volume: there is nothing to drain"),
        _ => wrong_usage!(
            "the cache on {on} has several volumes ({}); say which: `forebay drain --offline NAME {} --origin DISK`",
            names.join(", "),
            cache_storage::options(&storage)
        ),
    }
}

pub(crate) fn check(args: &CheckArgs) -> Result<()> {
    let found = open(&args.cache, &args.devices)?;
    if args.json {
        crate::output::line(format_args!("{}", serde_json::to_string(&found)?));
    } else {
        crate::output::line(format_args!(
            "cache {} on {} ({}), epoch {}",
            found.id,
            found.device,
            size(found.device_bytes),
            found.epoch
        ));
        if found.abandoned {
            crate::output::line(format_args!(
                "  abandoned: its volumes went on without it, so what it holds is old, but for what `forebay drain --offline` writes out"
            ));
        }
        if found.copies > 1 {
            crate::output::line(format_args!("  {} copies of dirty data", found.copies));
        }
        for number in &found.devices_out {
            crate::output::line(format_args!(
                "  goes on without its device number {number}, on which nothing counts"
            ));
        }
        let recovery = &found.recovery;
        crate::output::line(format_args!(
            "  {} of {} segments used, {} to be scanned, {} read",
            recovery.used_segments,
            recovery.segments,
            recovery.scanned_segments,
            size(recovery.bytes_read)
        ));
        let block_bytes = u64::from(found.block_bytes);
        crate::output::line(format_args!(
            "  {} cached, {} dirty, {} rejected",
            size(recovery.cached_blocks * block_bytes),
            size(recovery.dirty_blocks * block_bytes),
            size(recovery.rejected_blocks * block_bytes),
        ));
        if let Some(why) = &recovery.clean_left {
            crate::output::line(format_args!(
                "  damaged where it is clean: {why}. The next start forgets the clean blocks; dirty data is on two devices"
            ));
        }
        if recovery.buffered_blocks > 0 {
            crate::output::line(format_args!(
                "  {} acknowledged from memory and not in the log yet: serve the cache before this machine is restarted",
                size(recovery.buffered_blocks * block_bytes),
            ));
        }
        for volume in found
            .volumes
            .iter()
            .filter(|volume| volume.state == "attached")
        {
            crate::output::line(format_args!(
                "volume {} ({}, {}): {} cached, {} dirty ({}), {}",
                volume.name,
                size(volume.size_bytes),
                volume.mode,
                size(volume.cached_bytes),
                size(volume.dirty_bytes),
                share(volume.dirty_bytes, volume.cached_bytes),
                if volume.stopped_in_order {
                    "stopped in order"
                } else {
                    "not stopped in order"
                },
            ));
        }
    }
    refuse_damage(&found)
}

/// Ends a command that has told all it found with the exit code for damage, if there is any.
fn refuse_damage(found: &Inspection) -> Result<()> {
    let damage = &found.recovery.damage;
    if damage.is_empty() {
        return Ok(());
    }
    let text = format!("the cache is damaged: {}", damage.join("; "));
    Err(DamageFound(text).into())
}

pub(crate) fn dump(args: &CheckArgs) -> Result<()> {
    let found = open(&args.cache, &args.devices)?;
    // The structure is the same for people and programs; only its layout differs.
    crate::output::line(format_args!(
        "{}",
        if args.json {
            serde_json::to_string(&found)?
        } else {
            serde_json::to_string_pretty(&found)?
        }
    ));
    refuse_damage(&found)
}
