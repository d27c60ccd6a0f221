//! Advice on a running volume: each volume's requests are followed all the time, by a sample, on a
//! thread of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use forebay_engine::VolumeSlot;
use forebay_trace::{Adviser, Findings};

use super::followed::{Followed, ROOM, Watched};
use super::heat::Heat;
use crate::daemon::state::{Daemon, VolumeSide};
use crate::thread;

/// Blocks that are followed, at most: with the simulation's part about 4 MB for each volume.
const SAMPLES: usize = 16_384;
/// Of a volume's blocks no more than one in so many is followed, however few are used.
const ONE_IN: u64 = 8;
/// Intervals between looks while requests come, and otherwise.
const BUSY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(200);

/// Basis of advice.
#[derive(Debug)]
pub(in crate::daemon) struct Advised {
    pub(in crate::daemon) block_bytes: u64,
    /// Requests that were not seen: they came too fast.
    pub(in crate::daemon) missed: u64,
    pub(in crate::daemon) findings: Findings,
}

/// Follows all volumes from a thread of its own.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>) -> Result<()> {
    // Not in the loop's head: a lock taken there is held in the loop.
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
    pub(in crate::daemon) fn follow(&self, volume: &VolumeSide) -> Result<()> {
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

    /// Has the heat of a volume that grew begin anew, over all of it.
    pub(in crate::daemon) fn follow_in_size(&self, slot: VolumeSlot, size_bytes: u64) {
        let mut watched = self.advisers.lock();
        for watched in watched.iter_mut().filter(|watched| watched.slot == slot) {
            watched.followed.heat.grow(size_bytes);
        }
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

    /// Advises on the cache a volume wants, from its requests so far; on a cache of this size if
    /// one is given.
    pub(in crate::daemon) fn advise(
        &self,
        volume: &VolumeSide,
        size_bytes: Option<u64>,
    ) -> Result<Advised> {
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
