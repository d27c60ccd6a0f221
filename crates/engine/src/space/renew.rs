//! When the oldest segment of main is renewed in place of being emptied.

use crate::format::Stream;
use crate::interface::{Memory, Nanos};
use crate::space::Space;
use crate::store::Store;

impl Space {
    /// Whether the next segment of main to go is one to renew.
    pub(crate) fn renewal_is_due(&mut self, store: &mut Store) -> bool {
        let oldest = self.oldest(store, Stream::Main);
        oldest.is_some_and(|oldest| store.renewal_pays(oldest))
    }

    /// Renews the oldest segment of main if that pays and may be done. True if it was.
    pub(crate) fn renew_oldest(
        &mut self,
        store: &mut Store,
        now: Nanos,
        memory: &mut dyn Memory,
    ) -> bool {
        !self.renewal_has_to_wait(store) && store.renew_oldest(now, memory)
    }

    /// Whether an older segment of main is on its way out, or earlier renewals wait for a seal.
    pub(crate) fn renewal_has_to_wait(&self, store: &Store) -> bool {
        self.reclaim.is_busy(Stream::Main) || store.seal_is_to_promise()
    }
}
