//! Hints in the log that a version is clean.

use crate::format::{Entry, Slot, Stream};
use crate::interface::{Memory, Nanos};
use crate::store::Store;
use crate::store::log::Claim;

impl Store {
    /// Notes in the log that a version is clean: a hint that spares a second write-back after a
    /// crash. The hint waits for room like everything that is not reclaim (I18).
    pub(crate) fn log_clean(&mut self, now: Nanos, slot: Slot, memory: &mut dyn Memory) {
        self.waiting.cleans.push_back(self.log.version(slot));
        self.log_cleans(now, memory);
    }

    /// Logs the hints that wait, as far as there is room.
    pub(crate) fn log_cleans(&mut self, now: Nanos, memory: &mut dyn Memory) {
        while let Some(&version) = self.waiting.cleans.front() {
            // A version that is gone needs no hint.
            if self.log.holds(version) && self.index.flags(version.slot).live() {
                if self.failed_cache()
                    || !self.ensure_entry_room(now, Stream::Write, 1, Claim::Client, memory)
                {
                    return;
                }
                let segment = self.log.geometry.segment_of(version.slot);
                let in_segment = self.log.geometry.slot_in_segment(version.slot);
                let entry = Entry::Clean {
                    segment,
                    slot: in_segment,
                    count: 1,
                };
                self.log_entry(Stream::Write, entry, memory);
            }
            self.waiting.cleans.pop_front();
        }
    }
}
