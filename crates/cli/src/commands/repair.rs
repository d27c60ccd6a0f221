//! `forebay repair`: attach a cache once that is damaged, or that misses a device with dirty data on it
//! alone, accepting what recovery could save. A sound one is left as it is.

use std::path::PathBuf;

use anyhow::Result;
use forebay_engine::Settings;
use serde_json::json;

use super::check::open_to_read;
use crate::args::RepairArgs;
use crate::device::attach::{self, Accepted, Opened, Surroundings};
use crate::device::cache_storage;
use crate::device::inspection::{Inspection, inspect};
use crate::device::present::{Decision, Present};
use crate::device::state_dir::StateDir;
use crate::failure::refuse;
use crate::report::status::Recovery;

pub(crate) fn run(args: &RepairArgs) -> Result<()> {
    let direct = crate::config::direct(args.devices.direct);
    let surroundings = Surroundings {
        direct,
        state: StateDir::open(args.devices.state_dir.as_deref())?,
        recording: None,
    };
    let misses_some = misses_some(&args.cache, direct)?;
    if misses_some {
        check_missing(args, &surroundings)?;
    } else {
        let mut storage = open_to_read(&args.cache, direct)?;
        let names = cache_storage::names(&storage);
        let found = inspect(&mut storage, &names)?;
        drop(storage);
        if found.recovery.damage.is_empty() {
            return say_undamaged(args, &found);
        }
        if !args.accept_damage {
            refuse!(
                "what the missing records superseded may come back as old data; look with `forebay check {0}` and accept \
                 it with `forebay repair {0} --accept-damage`",
                cache_storage::joined(&args.cache, " ")
            );
        }
    }
    let Present {
        storage,
        superblock,
        ..
    } = attach::open_present(&args.cache, None, &surroundings, Decision::DataIsLost)?;
    let accepted = Accepted {
        damage: true,
        lack: misses_some,
    };
    let attached = attach::attach(storage, &superblock, accepted, &Settings::default(), None)?;
    let recovery = Recovery::of(&attached.report);
    // Recovery's decisions are durable: the crash journals have nothing to add. Memory buffers may.
    for memory in attached.memory {
        memory.journal.remove()?;
    }
    if args.json {
        crate::output::line(format_args!(
            "{}",
            json!({
                "cache": attached.superblock.id.to_string(),
                "repaired": true,
                "recovery": recovery,
            })
        ));
        return Ok(());
    }
    crate::output::line(format_args!(
        "cache {} is usable again: {} blocks cached, {} dirty",
        attached.superblock.id, recovery.cached_blocks, recovery.dirty_blocks
    ));
    for damage in &recovery.damage {
        crate::output::line(format_args!("given up: {damage}"));
    }
    Ok(())
}

/// Whether devices of a cache that keeps two copies are not among these.
fn misses_some(paths: &[PathBuf], direct: forebay_io::DirectIo) -> Result<bool> {
    let opened = paths.iter().map(|path| Opened::new(path, direct, true));
    let mut opened = opened.collect::<Result<Vec<_>>>()?;
    let found = cache_storage::identify(&mut opened, &mut |_, _| false)?;
    Ok(found.superblock.copies > 1 && !found.missing.is_empty())
}

/// Devices are missing. Refuses to go on without them if nothing says that their data may be given up,
/// or if that is not needed.
fn check_missing(args: &RepairArgs, surroundings: &Surroundings) -> Result<()> {
    match attach::open_present(&args.cache, None, surroundings, Decision::AskedWhether) {
        Ok(_) => refuse!(
            "the cache can do without the device that is missing: start it with `forebay serve --without-missing`"
        ),
        Err(_) if args.accept_damage => Ok(()),
        Err(why) => Err(why),
    }
}

fn say_undamaged(args: &RepairArgs, found: &Inspection) -> Result<()> {
    if args.json {
        let answer = json!({ "cache": found.id, "repaired": false, "recovery": found.recovery });
        crate::output::line(format_args!("{answer}"));
        return Ok(());
    }
    crate::output::line(format_args!(
        "cache {} is not damaged: nothing was changed",
        found.id
    ));
    Ok(())
}
