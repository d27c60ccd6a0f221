//! The checkpoint of an orderly stop: the next start reads it and not all summaries. Nothing depends
//! on it, so that a stop that cannot write it is as good, and the next start takes longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_engine::{CHECKPOINT_LEAST_SLOTS, Checkpoint, CheckpointHead, Geometry, Storage};

use crate::daemon::data::link::{Link, WorkerGone};
use crate::daemon::state::{CacheSide, Daemon};
use crate::units;

/// No part is begun after this time: the service manager waits for 90 seconds for the whole stop. A
/// device that never answers a write is not waited out, and systemd ends the daemon.
const LONGEST: Duration = Duration::from_secs(25);

/// The checkpoint of a shard, and the thread that has the shard.
struct OfShard {
    shard: u16,
    checkpoint: Arc<Checkpoint>,
    link: Link,
}

/// Writes the checkpoint of a cache whose shards are at rest. `goes_on` is told how much of it is
/// written, in hundredths, and says whether to go on.
///
/// # Errors
/// If a device fails: there is none then.
pub(super) fn write(daemon: &Daemon, mut goes_on: impl FnMut(u64) -> bool) -> Result<()> {
    let superblock = with_cache(daemon, |cache| Ok(cache.superblock().clone()))?;
    if superblock.geometry.slots() < CHECKPOINT_LEAST_SLOTS {
        return Ok(());
    }
    let began = Instant::now();
    let shards = begin(&daemon.links, superblock.geometry)?;
    let all: usize = shards.iter().map(|of| of.checkpoint.parts()).sum();
    let mut head = CheckpointHead::new(&superblock);
    let mut written = 0;
    let mut bytes = 0;
    for OfShard {
        shard,
        checkpoint,
        link,
    } in &shards
    {
        for number in 0..checkpoint.parts() {
            if began.elapsed() > LONGEST || !goes_on(written * 100 / all as u64) {
                tracing::warn!(
                    "the index was not written down within {} seconds, or before a second signal: the next start takes \
                     longer, for it reads all summaries",
                    LONGEST.as_secs()
                );
                return Ok(());
            }
            let (shard, checkpoint) = (*shard, Arc::clone(checkpoint));
            let part = link.call(move |worker| {
                let engine = worker.host.engine(shard)?;
                Some(engine.checkpoint_part(&checkpoint, number))
            })?;
            let (address, part) = part.ok_or(WorkerGone)?;
            with_cache(daemon, |cache| Ok(cache.storage.write(address, &part)?))?;
            bytes += part.len() as u64;
            written += 1;
        }
        head.add(*shard, checkpoint.first_place());
    }
    if head.shards() == 0 {
        tracing::info!(
            "the index is not written down, and the next start reads all summaries: dirty data is on two devices, too little \
             is free, or something is not on record yet"
        );
        return Ok(());
    }
    // The shards are at rest: nobody has written what this flush is to cover, and a failure tells them
    // nothing.
    with_cache(daemon, |cache| {
        cache.storage.flush()?;
        Ok(head.write(&superblock, &mut cache.storage)?)
    })?;
    tracing::info!(
        "the index is written down for the next start, of {} of {} shards: {} in {:.1} s",
        head.shards(),
        superblock.geometry.shards,
        units::size(bytes),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Does something with the cache, which others can look at in between.
fn with_cache<T>(daemon: &Daemon, of: impl FnOnce(&mut CacheSide) -> Result<T>) -> Result<T> {
    let mut admin = daemon.admin();
    of(admin.cache.as_mut().context("there is no cache")?)
}

fn begin(links: &[Link], geometry: Geometry) -> Result<Vec<OfShard>, WorkerGone> {
    let mut shards = Vec::new();
    for link in links {
        let begun = link.call(move |worker| {
            let engines = worker.host.engines();
            let begun = engines.map(|engine| (engine.shard(), engine.begin_checkpoint(&geometry)));
            begun.collect::<Vec<_>>()
        })?;
        for (shard, checkpoint) in begun {
            let Some(checkpoint) = checkpoint else {
                continue;
            };
            shards.push(OfShard {
                shard,
                checkpoint: Arc::new(checkpoint),
                link: link.clone(),
            });
        }
    }
    Ok(shards)
}
