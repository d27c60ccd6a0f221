//! When the oldest segment of main is renewed in place of being emptied.

use crate::engine::Engine;
use crate::format::Stream;
use crate::interface::{Memory, Nanos};

impl Engine {
    /// Whether the next segment of main to go is one to renew.
    pub(crate) fn renewal_is_due(&mut self) -> bool {
        let oldest = self.oldest(Stream::Main);
        oldest.is_some_and(|oldest| self.store.renewal_pays(oldest))
    }

    /// Renews the oldest segment of main if that pays and may be done. True if it was.
    pub(crate) fn renew_oldest(&mut self, now: Nanos, memory: &mut dyn Memory) -> bool {
        !self.renewal_has_to_wait() && self.store.renew_oldest(now, memory)
    }

    /// Whether an older segment of main is on its way out, or earlier renewals wait for a seal.
    pub(crate) fn renewal_has_to_wait(&self) -> bool {
        self.reclaim.is_busy(Stream::Main) || self.store.seal_is_to_promise()
    }
}
