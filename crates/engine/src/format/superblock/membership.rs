//! Membership: which devices count, and which of them dirty data needs (I28).

use super::{CacheDevice, Superblock};
use crate::format::Sequence;
use crate::planted::{self, Bug};

impl Superblock {
    /// Devices that are in the cache and not lost.
    pub fn devices_in_use(&self) -> impl Iterator<Item = &CacheDevice> {
        self.devices.iter().filter(|on| !on.out)
    }

    /// Devices that the cache goes on without.
    pub fn devices_out(&self) -> impl Iterator<Item = &CacheDevice> {
        self.devices.iter().filter(|on| on.out)
    }

    /// Whether the cache of this superblock went on without a device of this serial: that is out, or
    /// was removed. Not so of a device that came later, and of none by number: that may be another's.
    #[must_use]
    pub fn is_without(&self, serial: u32) -> bool {
        serial < self.next_serial && self.devices_in_use().all(|on| on.serial != serial)
    }

    /// Whether a device is in the cache, and not lost.
    #[must_use]
    pub fn has_device(&self, number: u8) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|on| on.number == number && (!on.out || planted::is(Bug::OutBelieved)))
    }

    /// Whether dirty data is on two devices, of those that are there.
    #[must_use]
    pub fn keeps_two(&self) -> bool {
        self.copies > 1 && self.devices_in_use().count() > 1
    }

    /// Has each dirty block on so many devices, 1 or 2, from the next write of this superblock on.
    pub fn set_copies(&mut self, copies: u8) {
        assert!((1..=2).contains(&copies), "one copy or two");
        if self.copies == copies {
            return;
        }
        self.copies = copies;
        if copies == 1 {
            self.leave_two(|_| true);
        } else {
            self.membership += 1;
        }
        // A cache that was never attached holds nothing.
        if self.epoch == 0 && self.keeps_two() {
            self.be_on_two();
        }
    }

    /// The cache goes on without a device, once this superblock is written: what its clean streams
    /// hold below these numbers, by shard, counts no more (I28). A `Drop` may have been on that
    /// device alone.
    pub fn lose_device(&mut self, number: u8, clean_from: &[(u16, Sequence)]) {
        for on in self.devices.iter_mut().filter(|on| on.number == number) {
            on.out = true;
        }
        // The other copy of what was on it may be on any.
        self.leave_two(|_| true);
        self.leave_clean_behind(clean_from);
    }

    /// Whether no dirty data is on any device alone, as far as is on record.
    #[must_use]
    pub fn is_all_on_two(&self) -> bool {
        self.devices_in_use().all(|on| on.dispensable)
    }

    /// Dirty data may be on one of these devices alone, once this superblock is written. A count that
    /// began before says nothing any more.
    pub fn leave_two(&mut self, stay: impl Fn(&CacheDevice) -> bool) {
        for on in &mut self.devices {
            on.dispensable &= !stay(on);
        }
        self.membership += 1;
    }

    /// No dirty data is on any device alone, once this superblock is written.
    pub fn be_on_two(&mut self) {
        for on in &mut self.devices {
            on.dispensable = !on.out;
        }
    }

    /// Has nothing count that the clean streams hold below these numbers, by shard.
    pub(crate) fn leave_clean_behind(&mut self, clean_from: &[(u16, Sequence)]) {
        let shards = usize::from(self.geometry.shards);
        self.clean_from.resize(shards, Sequence::ZERO);
        for (shard, from) in clean_from {
            let known = &mut self.clean_from[usize::from(*shard)];
            *known = (*known).max(*from);
        }
    }
}
