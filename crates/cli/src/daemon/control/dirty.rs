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
        {
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
        }
        for link in &self.links {
            let (dirty, buffered) = link.call(move |worker| {
                let engines = worker.engines();
                let counts = engines.map(|engine| {
                    let (dirty, _) = engine.volume_blocks(slot).unwrap_or_default();
                    (dirty, engine.buffered_blocks(slot))
                });
                counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
            })?;
            page.dirty_blocks += dirty;
            page.buffered_blocks += buffered;
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
                self.has_shard(shard + 1)?.then_some((shard + 1, 0))
            } else {
                Some((shard, from + PART))
            };
        }
        Ok(json!(page))
    }

    fn has_shard(&self, shard: u16) -> Result<bool> {
        let mut admin = self.admin();
        Ok(shard < cache_of(&mut admin)?.superblock().geometry.shards)
    }
}
