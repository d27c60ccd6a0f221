//! The dirty blocks of a volume that is away, beside the daemon that serves the others of its cache.
//! The daemon says where each is; the cache devices are read here, with this user's rights.

use std::collections::BTreeMap;

use anyhow::Result;
use forebay_engine::format::extents::place_of;
use forebay_engine::{DirtyBlock, Storage};
use serde_json::json;

use super::Dirty;
use crate::args::RescueArgs;
use crate::client::{Client, understood};
use crate::device::looked::Looked;
use crate::failure::refuse;
use crate::report::dirty_page::DirtyPage;

/// Complete lists that are asked for: blocks may move past a list while it is made.
const LISTS: u32 = 5;

/// Asks the daemon where the dirty blocks of a volume are.
pub(super) fn dirty(args: &RescueArgs) -> Result<Dirty> {
    let mut client = Client::serving(args.control.as_deref(), &[&args.name])?;
    let mut blocks = BTreeMap::new();
    let mut last = DirtyPage::default();
    for _ in 0..LISTS {
        let mut next = Some((0, 0));
        while let Some((shard, from)) = next {
            let asked = json!({ "name": args.name, "shard": shard, "from": from });
            last = understood(client.ask("DirtyBlocks", &asked)?)?;
            for (offset, address, checksum) in &last.blocks {
                let block = DirtyBlock {
                    address: *address,
                    checksum: *checksum,
                };
                blocks.insert(*offset, block);
            }
            next = last.next;
        }
        if last.buffered_blocks > 0 {
            refuse!(
                "{} acknowledged blocks of volume {} are in memory, and not in the log of the cache yet: stop the daemon, \
                 serve the cache once, and stop it again; then `forebay rescue {} --cache SSD` finds them",
                last.buffered_blocks,
                args.name,
                args.name
            );
        }
        if blocks.len() as u64 >= last.dirty_blocks {
            break;
        }
    }
    if (blocks.len() as u64) < last.dirty_blocks {
        refuse!(
            "only {} of {} dirty blocks of volume {} were found while the cache is in use; stop the daemon, and name the \
             cache device with --cache",
            blocks.len(),
            last.dirty_blocks,
            args.name
        );
    }
    let devices = last.devices.iter();
    let mut devices = devices
        .map(|(number, path)| Ok((*number, Looked::open(path)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(Dirty {
        size_bytes: last.size_bytes,
        block_bytes: last.block_bytes,
        blocks,
        read: Box::new(move |address, into| {
            let (number, offset_bytes) = place_of(address);
            let mut devices = devices.iter_mut();
            let device = devices.find(|(known, _)| *known == number);
            device.is_some_and(|(_, device)| device.read(offset_bytes, into).is_ok())
        }),
    })
}
