//! What commands do to the cache's space while clients use it: more of it, or less.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_engine::{Engine, MIN_SEGMENTS, Superblock};

use super::volumes::write_superblock;
use super::worker::Worker;
use super::{CacheSide, Daemon};
use crate::failure::{Interrupted, refuse, wrong_usage};
use crate::units::size;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How far the emptying of what is to leave is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emptying {
    pub(super) left_bytes: u64,
    pub(super) all_bytes: u64,
    pub(super) seconds: f64,
}

/// What became of the cache.
#[derive(Clone, Debug)]
pub(super) struct Resized {
    /// Where its space on the device ends.
    pub(super) end_bytes: u64,
    pub(super) before_bytes: u64,
    pub(super) after_bytes: u64,
    pub(super) seconds: f64,
}

/// What is to be done to reach a size.
enum Change {
    Nothing,
    Grow(Superblock),
    Shrink(Vec<Range<u32>>),
}

impl Daemon {
    /// Gives the cache so much of its device, or all of it. What it loses is emptied first;
    /// `tell` hears how far that is, and ends it by saying that nobody listens.
    pub(super) fn resize(
        &self,
        wanted_bytes: Option<u64>,
        tell: &mut dyn FnMut(Emptying) -> bool,
    ) -> Result<Resized> {
        let Ok(_alone) = self.resizing.try_lock() else {
            refuse!("the cache is being resized already; wait for that, or interrupt it")
        };
        let began = Instant::now();
        let mut admin = self.admin();
        let Some(cache) = &mut admin.cache else {
            wrong_usage!(
                "this daemon serves no cache that could be resized; start one with --cache"
            )
        };
        let before_bytes = space_bytes(&cache.superblock);
        match plan_change(cache, wanted_bytes)? {
            Change::Nothing => {}
            Change::Grow(changed) => {
                write_superblock(cache, changed)?;
                let superblock = cache.superblock.clone();
                self.use_extents(&superblock)?;
            }
            Change::Shrink(gone) => {
                let segment_bytes = segment_bytes(&cache.superblock);
                drop(admin);
                self.empty(&gone, segment_bytes, began, tell)?;
                self.take_away(&gone)?;
                admin = self.admin();
            }
        }
        let cache = admin.cache.as_ref().context("the cache is gone")?;
        let superblock = &cache.superblock;
        let resized = Resized {
            end_bytes: superblock.extents.end_bytes(0, &superblock.geometry),
            before_bytes,
            after_bytes: space_bytes(superblock),
            seconds: began.elapsed().as_secs_f64(),
        };
        drop(admin);
        if resized.before_bytes != resized.after_bytes {
            let what = format!(
                "the cache has {} instead of {}",
                size(resized.after_bytes),
                size(resized.before_bytes)
            );
            tracing::info!("{what}");
            self.events.note("resize", what);
        }
        Ok(resized)
    }

    fn use_extents(&self, superblock: &Superblock) -> Result<()> {
        for link in &self.links {
            let superblock = superblock.clone();
            link.call(move |worker| {
                worker
                    .engines()
                    .for_each(|engine| engine.set_extents(&superblock));
            })?;
        }
        Ok(())
    }

    fn keep_retiring(&self) -> Result<()> {
        self.each_worker(|worker| worker.engines().for_each(Engine::keep_retiring))
    }

    /// Has every shard empty its segments of these ids. Put back if that is interrupted or fails.
    fn empty(
        &self,
        gone: &[Range<u32>],
        segment_bytes: u64,
        began: Instant,
        tell: &mut dyn FnMut(Emptying) -> bool,
    ) -> Result<()> {
        for link in &self.links {
            let gone = gone.to_vec();
            let begun = link.call(move |worker| {
                worker
                    .engines()
                    .all(|engine| engine.retire(gone.clone()).is_ok())
            })?;
            if !begun {
                self.keep_retiring()?;
                refuse!("too little of the cache would remain");
            }
        }
        let watched = self.watch_emptying(segment_bytes, began, tell);
        if watched.is_err() {
            self.keep_retiring()?;
        }
        watched
    }

    fn watch_emptying(
        &self,
        segment_bytes: u64,
        began: Instant,
        tell: &mut dyn FnMut(Emptying) -> bool,
    ) -> Result<()> {
        loop {
            let (mut left, mut all) = (0, 0);
            for link in &self.links {
                let counted = link.call(Worker::retiring)??;
                left += u64::from(counted.0);
                all += u64::from(counted.1);
            }
            if left == 0 {
                return Ok(());
            }
            let emptying = Emptying {
                left_bytes: left * segment_bytes,
                all_bytes: all * segment_bytes,
                seconds: began.elapsed().as_secs_f64(),
            };
            if !tell(emptying) {
                return Err(Interrupted("the cache keeps the size it had".to_owned()).into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Writes the superblock without what every shard has emptied.
    fn take_away(&self, gone: &[Range<u32>]) -> Result<()> {
        let mut admin = self.admin();
        let cache = admin.cache.as_mut().context("the cache is gone")?;
        // An orderly stop, which holds the same lock, may have put it all back.
        for link in &self.links {
            let (left, _) = link.call(Worker::retiring)??;
            if left > 0 {
                anyhow::bail!("the cache keeps the size it had");
            }
        }
        let mut changed = cache.superblock.clone();
        changed.shrink(gone);
        if let Err(error) = write_superblock(cache, changed) {
            // Which of the two counts is not known until the old one is written anew; if it cannot
            // be, what is empty stays out of use, which fits both.
            let again = cache.superblock.clone();
            if write_superblock(cache, again).is_ok() {
                self.keep_retiring()?;
            }
            return Err(error).context("the cache keeps the size it had");
        }
        let superblock = cache.superblock.clone();
        self.use_extents(&superblock)
    }

    /// An orderly stop does not wait for what is being emptied.
    pub(super) fn end_resizing(&self) -> Result<()> {
        let _admin = self.admin();
        self.keep_retiring()
    }
}

impl Worker {
    /// How many segments of the shards here are to leave and not empty yet, and of how many; an
    /// error if that came to an end meanwhile.
    fn retiring(&mut self) -> Result<(u32, u32)> {
        let (mut left, mut all) = (0, 0);
        for engine in self.engines() {
            if let Some(reason) = engine.failure() {
                anyhow::bail!("the cache stepped aside: {reason}");
            }
            let Some((of_it, of_all)) = engine.retiring() else {
                anyhow::bail!("the daemon stops; the cache keeps the size it had");
            };
            left += of_it;
            all += of_all;
        }
        Ok((left, all))
    }
}

/// Bytes of all segments.
fn space_bytes(superblock: &Superblock) -> u64 {
    let geometry = &superblock.geometry;
    u64::from(superblock.extents.segments())
        * u64::from(geometry.shards)
        * segment_bytes(superblock)
}

fn segment_bytes(superblock: &Superblock) -> u64 {
    u64::from(superblock.geometry.segment_bytes)
}

/// Everything is checked here, before anything is changed.
fn plan_change(cache: &CacheSide, wanted_bytes: Option<u64>) -> Result<Change> {
    let path = cache.device.path().display();
    if cache.emulated {
        refuse!(
            "{path} has the timing of another device, which has the size it had: without `emulate` it can be resized"
        );
    }
    let device_bytes = cache
        .device
        .look_at_size()
        .with_context(|| format!("cannot find the size of {path}"))?;
    let wanted_bytes = wanted_bytes.unwrap_or(device_bytes);
    if wanted_bytes > device_bytes {
        refuse!(
            "{path} has {}: make it larger first, or ask for `max`",
            size(device_bytes)
        );
    }
    let superblock = &cache.superblock;
    let geometry = &superblock.geometry;
    let end_bytes = superblock.extents.end_bytes(0, geometry);
    if wanted_bytes >= end_bytes {
        if superblock.segments_in(wanted_bytes - end_bytes) == 0 {
            return Ok(Change::Nothing);
        }
        let mut changed = superblock.clone();
        changed
            .grow(0, wanted_bytes)
            .with_context(|| format!("the cache on {path} cannot grow"))?;
        return Ok(Change::Grow(changed));
    }
    let gone = superblock
        .extents
        .beyond(0, wanted_bytes, geometry)
        .with_context(|| format!("the cache on {path} cannot end at {}", size(wanted_bytes)))?;
    let going: u32 = gone.iter().map(|ids| ids.end - ids.start).sum();
    let stay = superblock.extents.segments() - going;
    if stay < MIN_SEGMENTS {
        let row_bytes = segment_bytes(superblock) * u64::from(geometry.shards);
        refuse!(
            "{} is too small for this cache: it needs {}",
            size(wanted_bytes),
            size(end_bytes - row_bytes * u64::from(superblock.extents.segments() - MIN_SEGMENTS)),
        );
    }
    Ok(Change::Shrink(gone))
}
