//! `forebay detach --offline`: a volume is taken off a cache that no daemon serves.

use anyhow::{Context, Result};
use forebay_cache::control::Change;
use serde_json::json;

use super::check::open_to_read;
use crate::args::DetachArgs;
use crate::device::attach::{self, Surroundings};
use crate::device::cache_storage;
use crate::device::inspection::inspect;
use crate::device::state_dir::StateDir;
use crate::failure::{refuse, wrong_usage};
use crate::quoting::in_shell;
use crate::units::size;

pub(crate) fn run(args: &DetachArgs) -> Result<()> {
    let direct = crate::config::direct(args.devices.direct);
    let mut storage = open_to_read(&args.cache, direct)?;
    let names = cache_storage::names(&storage);
    let options = cache_storage::options(&storage);
    let found = inspect(&mut storage, &names)?;
    drop(storage);
    let mut attached = found
        .volumes
        .iter()
        .filter(|volume| volume.state == "attached");
    let Some(volume) = attached.find(|volume| volume.name == args.name) else {
        wrong_usage!(
            "the cache on {names} has no volume `{}`; see `forebay check {names}`",
            args.name
        );
    };
    let buffered_bytes = found.recovery.buffered_blocks * u64::from(found.block_bytes);
    let at_stake = volume.dirty_bytes + buffered_bytes;
    if at_stake > 0 && !args.force {
        refuse!(
            "{} of volume {1} are in the cache alone, acknowledged and on no disk, and would be lost: write them out \
             with `forebay rescue {1} {2} --to FILE`, or to their disk with \
             `forebay drain --offline {1} {2} --origin DISK`; \
             lose them with --force",
            size(at_stake),
            in_shell(&args.name),
            options
        );
    }
    let surroundings = Surroundings {
        direct,
        state: StateDir::open(args.devices.state_dir.as_deref())?,
        recording: None,
    };
    let (mut storage, mut superblock) = attach::open_cache(&args.cache, &surroundings)?;
    let cannot = || format!("cannot write the superblock of the cache on {names}");
    let changed = Change::Detach(volume.id)
        .of(&superblock)
        .with_context(cannot)?;
    superblock
        .replace(changed, &mut storage)
        .with_context(cannot)?;
    if args.control.json {
        let answer = json!({ "name": args.name, "lost_bytes": volume.dirty_bytes });
        crate::output::line(format_args!("{answer}"));
    } else {
        crate::output::line(format_args!(
            "volume {} is off the cache; {} of dirty data are lost",
            args.name,
            size(volume.dirty_bytes)
        ));
    }
    Ok(())
}
