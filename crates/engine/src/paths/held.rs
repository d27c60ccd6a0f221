//! Writes that wait until there is less dirty data.

use crate::bypass::BypassReason;
use crate::format::BlockKey;
use crate::interface::{Memory, Nanos};
use crate::parts::Engine;

impl Engine {
    /// Whether a write that waits has this block.
    pub(crate) fn is_held(&self, key: BlockKey) -> bool {
        let held = self.origin.throttle.held();
        let mut requests = held.filter_map(|index| self.requests.get(index));
        requests.any(|waiting| {
            let (first, end) = self.store.keys_of(&waiting.request);
            (first..end).contains(&key)
        })
    }

    /// Starts the writes that may pass by now.
    pub(crate) fn release_throttled(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.origin.refill(&self.store, now);
        while let Some(request) = self.origin.next_released(&self.store) {
            let failed = self.store.failed_cache();
            let bypass = failed.then_some(BypassReason::Failed);
            self.start_write(now, request, bypass, memory);
        }
        self.origin.throttle.look_again(now);
    }
}
