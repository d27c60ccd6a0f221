//! Failures of clients' flushes that no client has heard of yet (I10). Until one has, no flush of the
//! volume succeeds.
//!
//! 1. A flush of client A fails in a shard: failure 1 of its volume. The answer is on its way.
//! 2. A flush of client B ends well in all shards, and fails all the same: A may never hear of its own.
//! 3. The answer to B has gone out. Failures up to 1 have been heard of, also if A is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_engine::VolumeSlot;

/// The failures of a volume, which are numbered from 1 on.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    last: u64,
    /// The last of which a client has heard, and of all before it.
    heard: u64,
}

/// See the module. Each call is one step: threads come one after the other.
#[derive(Debug, Default)]
pub(crate) struct UnheardFailures {
    volumes: Mutex<HashMap<VolumeSlot, Failures>>,
    /// Failures of all volumes: read without a lock by each flush that ends.
    all: AtomicU64,
}

impl UnheardFailures {
    fn volumes(&self) -> MutexGuard<'_, HashMap<VolumeSlot, Failures>> {
        // Every change is whole before anything could panic.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard has failed a client's flush of the volume.
    pub(crate) fn add(&self, volume: VolumeSlot) {
        self.volumes().entry(volume).or_default().last += 1;
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    /// The last failure of a volume, if no client has heard of it.
    pub(crate) fn last(&self, volume: VolumeSlot) -> Option<u64> {
        if self.all.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let volumes = self.volumes();
        let failures = volumes.get(&volume)?;
        (failures.last > failures.heard).then_some(failures.last)
    }

    /// A client has heard of the failures of a volume up to this one.
    pub(crate) fn heard(&self, volume: VolumeSlot, last: u64) {
        let mut volumes = self.volumes();
        let failures = volumes.entry(volume).or_default();
        failures.heard = failures.heard.max(last);
    }

    /// Another volume has this number from now on. The numbers of failures go on: answers that tell of
    /// the old one's may be on their way.
    pub(crate) fn forget(&self, volume: VolumeSlot) {
        if let Some(failures) = self.volumes().get_mut(&volume) {
            failures.heard = failures.last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeSlot = VolumeSlot(3);

    #[test]
    fn failures_count_until_a_client_has_heard_of_the_last() {
        let failures = UnheardFailures::default();
        assert_eq!(failures.last(VOLUME), None);
        failures.add(VOLUME);
        failures.add(VOLUME);
        assert_eq!(failures.last(VOLUME), Some(2));
        assert_eq!(failures.last(VolumeSlot(4)), None);
        failures.heard(VOLUME, 1);
        assert_eq!(failures.last(VOLUME), Some(2));
        failures.heard(VOLUME, 2);
        failures.heard(VOLUME, 1);
        assert_eq!(failures.last(VOLUME), None);
    }

    #[test]
    fn a_volume_has_no_failures_of_another_that_had_its_number() {
        let failures = UnheardFailures::default();
        failures.add(VOLUME);
        failures.forget(VOLUME);
        assert_eq!(failures.last(VOLUME), None);
        failures.add(VOLUME);
        failures.heard(VOLUME, 1);
        assert_eq!(failures.last(VOLUME), Some(2));
    }
}
