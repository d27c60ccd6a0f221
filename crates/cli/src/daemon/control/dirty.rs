//! Where the dirty blocks of a volume are that is away, for `forebay rescue`.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::commands::cache_of;
use crate::daemon::state::Daemon;
use crate::failure::{refuse, wrong_usage};
use crate::report::dirty_page::DirtyPage;

/// Places of the log that are looked through at a time, on the thread that serves the shard.
const PART: u32 = 65_536;

impl Daemon {
    /// A part of the dirty blocks of a volume, from this place of this shard's log on.
    pub(super) fn dirty_blocks(&self, name: &str, shard: u16, from: u32) -> Result<Value> {
        let Some(away) = self.away_volume(name) else {
            if self.volume(name).is_some() {
                refuse!(
                    "volume {name} is served: `forebay drain {name}` writes its dirty data to its origin"
                );
            }
            wrong_usage!("no volume `{name}` is away; `forebay status` lists those that are");
        };
        let mut page = DirtyPage::default();
        let Some((slot, size_bytes)) = away.kept else {
            refuse!("the cache holds nothing of volume {name}");
        };
        page.size_bytes = size_bytes;
        let shards = {
            let mut admin = self.admin();
            let cache = cache_of(&mut admin)?;
            let geometry = cache.superblock().geometry;
            page.block_bytes = u64::from(geometry.block_bytes);
            let devices = cache.storage.devices();
            page.devices = devices
                .map(|(number, storage)| {
                    let path = std::path::absolute(storage.device().path());
                    Ok((number, path.context("a cache device has no path")?))
                })
                .collect::<Result<_>>()?;
            if shard >= geometry.shards {
                wrong_usage!(
                    "the cache has {} shards, and no number {shard}",
                    geometry.shards
                );
            }
            geometry.shards
        };
        page.dirty_blocks = self.dirty_bytes_of(&away)? / page.block_bytes;
        for link in &self.links {
            page.buffered_blocks += link.call(move |worker| {
                let engines = worker.engines();
                engines
                    .map(|engine| engine.buffered_blocks(slot))
                    .sum::<u64>()
            })?;
        }
        for link in &self.links {
            let part = link.call(move |worker| {
                let engine = worker.host.engine(shard)?;
                let found = engine.dirty_blocks_in(slot, from..from.saturating_add(PART));
                Some((found, engine.log_slots()))
            })?;
            let Some((found, slots)) = part else {
                continue;
            };
            let blocks = found.into_iter();
            page.blocks = blocks
                .map(|(offset, block)| (offset, block.address, block.checksum))
                .collect();
            let is_last = from.saturating_add(PART) >= slots;
            page.next = if is_last {
                (shard + 1 < shards).then_some((shard + 1, 0))
            } else {
                Some((shard, from + PART))
            };
        }
        Ok(json!(page))
    }
}
