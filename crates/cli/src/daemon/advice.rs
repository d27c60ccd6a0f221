//! Advice on a running volume: each volume's requests are followed all the time, by a sample, on a
//! thread of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use forebay_engine::VolumeSlot;
use forebay_trace::{Adviser, Findings, Request};

use super::heat::Heat;
use super::tap::{Seen, Tap};
use super::{Daemon, VolumeSide};
use crate::thread;

/// Blocks that are followed, at most: with the simulation's part about 4 MB for each volume.
const SAMPLES: usize = 16_384;
/// Of a volume's blocks no more than one in so many is followed, however few are used.
const ONE_IN: u64 = 8;
/// Requests between two looks; beyond it some are not seen, which a sample bears.
const ROOM: usize = 1 << 15;
/// How often to look while requests come, and otherwise.
const BUSY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Watched {
    slot: VolumeSlot,
    tap: Arc<Tap>,
    followed: Followed,
}

/// What is known of a volume by following it.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) block_bytes: u64,
    pub(super) adviser: Adviser,
    pub(super) heat: Heat,
}

impl Watched {
    /// Sees what has come, at most a queue of it. Says whether there was anything.
    fn catch_up(&mut self) -> bool {
        let mut any = false;
        for _ in 0..ROOM {
            let Some(seen) = self.tap.take() else { break };
            any = true;
            if seen.kind.moves_data() && seen.len_bytes > 0 {
                let followed = &mut self.followed;
                followed.adviser.see(&request(seen, followed.block_bytes));
                followed
                    .heat
                    .see(seen.at, seen.offset_bytes, seen.len_bytes);
            }
        }
        any
    }
}

fn request(seen: Seen, block_bytes: u64) -> Request {
    let first_block = seen.offset_bytes / block_bytes;
    let last_block = (seen.offset_bytes + u64::from(seen.len_bytes) - 1) / block_bytes;
    Request {
        time_ns: Some(seen.at.0),
        kind: seen.kind,
        volume: 0,
        first_block,
        blocks: (last_block - first_block + 1) as u32,
    }
}

/// What advice is based on.
#[derive(Debug)]
pub(super) struct Advised {
    pub(super) block_bytes: u64,
    /// Requests that were not seen: they came too fast.
    pub(super) missed: u64,
    pub(super) findings: Findings,
}

/// Everything that is watched.
#[derive(Debug, Default)]
pub(super) struct Advisers(Mutex<Vec<Watched>>);

impl Advisers {
    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> bool {
        let mut watched = self.lock();
        let any = watched
            .iter_mut()
            .map(Watched::catch_up)
            .fold(false, |any, one| any | one);
        watched.retain(|watched| !watched.tap.is_closed());
        any
    }
}

/// Follows all volumes from a thread of its own.
pub(super) fn start(daemon: &Arc<Daemon>) -> Result<()> {
    // Not in the loop's head: what is locked there stays locked in the loop.
    let volumes = daemon.admin().volumes.clone();
    for volume in volumes {
        daemon.follow(&volume)?;
    }
    let daemon = Arc::clone(daemon);
    let follow = move || {
        loop {
            let any = daemon.advisers.look();
            std::thread::sleep(if any { BUSY } else { IDLE });
        }
    };
    thread::start("forebay-advice", follow)?;
    Ok(())
}

impl Daemon {
    /// Follows a volume from now on, until it is detached.
    pub(super) fn follow(&self, volume: &VolumeSide) -> Result<()> {
        let (block_bytes, age_seconds) = {
            let admin = self.admin();
            (
                admin.block_bytes(),
                admin.settings.age_limit.0 / 1_000_000_000,
            )
        };
        let tap = self.tap(volume.slot, ROOM)?;
        self.advisers.lock().push(Watched {
            slot: volume.slot,
            tap,
            followed: Followed {
                block_bytes,
                adviser: Adviser::new(SAMPLES, age_seconds).at_most_one_in(ONE_IN),
                heat: Heat::new(volume.size_bytes),
            },
        });
        Ok(())
    }

    /// Looks at what is known of a volume; nothing if it is being detached.
    pub(super) fn followed<T>(
        &self,
        slot: VolumeSlot,
        look: impl FnOnce(&Followed) -> T,
    ) -> Option<T> {
        let mut watched = self.advisers.lock();
        let found = watched
            .iter_mut()
            .find(|watched| watched.slot == slot && !watched.tap.is_closed())?;
        found.catch_up();
        Some(look(&found.followed))
    }

    /// What a volume's requests so far say about the cache it wants, of this size if one is given.
    pub(super) fn advise(&self, volume: &VolumeSide, size_bytes: Option<u64>) -> Result<Advised> {
        let mut watched = self.advisers.lock();
        let found = watched
            .iter_mut()
            .find(|watched| watched.slot == volume.slot && !watched.tap.is_closed());
        let Some(watched) = found else {
            bail!(
                "volume `{}` is being detached; ask for another",
                volume.name
            )
        };
        watched.catch_up();
        let followed = &watched.followed;
        if followed.adviser.accesses() == (0, 0) {
            bail!(
                "nothing was read from volume `{}` or written to it since it is served: there is nothing to advise on yet",
                volume.name
            );
        }
        let size_blocks = size_bytes.map(|bytes| (bytes / followed.block_bytes).max(1));
        Ok(Advised {
            block_bytes: followed.block_bytes,
            missed: watched.tap.dropped(),
            findings: followed.adviser.findings(size_blocks),
        })
    }
}
