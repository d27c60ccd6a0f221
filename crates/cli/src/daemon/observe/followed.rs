//! Knowledge of volumes from following their requests.

use std::sync::{Arc, Mutex, MutexGuard};

use forebay_engine::VolumeSlot;
use forebay_trace::{Adviser, Request};

use super::heat::Heat;
use crate::daemon::data::tap::{Seen, Tap};
use crate::lock::lock;

/// Requests between two looks; beyond it some are not seen, which a sample bears.
pub(super) const ROOM: usize = 1 << 15;

/// A volume that is followed.
#[derive(Debug)]
pub(super) struct Watched {
    pub(in crate::daemon) slot: VolumeSlot,
    pub(in crate::daemon) tap: Arc<Tap>,
    pub(in crate::daemon) followed: Followed,
}

/// Knowledge of a volume from following it.
#[derive(Debug)]
pub(super) struct Followed {
    pub(in crate::daemon) block_bytes: u64,
    pub(super) adviser: Adviser,
    pub(super) heat: Heat,
}

impl Watched {
    /// Sees what has come, at most a queue of it. Says whether there was anything.
    pub(super) fn catch_up(&mut self) -> bool {
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

/// Everything that is watched.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Advisers(Mutex<Vec<Watched>>);

impl Advisers {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        lock(&self.0)
    }

    /// Sees what has come of all. Says whether there was anything.
    pub(in crate::daemon) fn look(&self) -> bool {
        let mut watched = self.lock();
        let any = watched
            .iter_mut()
            .map(Watched::catch_up)
            .fold(false, |any, one| any | one);
        watched.retain(|watched| !watched.tap.is_closed());
        any
    }
}
