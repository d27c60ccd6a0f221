//! Requests that find no memory: they wait for what comes back.

use super::shortage::Shortage;
use super::worker::Worker;

impl Worker {
    /// Whether a request that found no memory may wait for it, and is not to fail. Shards here hold
    /// some for requests of other threads' clients too.
    pub(super) fn memory_will_return(&mut self) -> bool {
        let comes_back = self.host.requests() > 0
            || !self.done.is_empty()
            || self.host.holds_requests()
            || self.driver.in_flight() > 0
            || self.clients.iter_mut().any(|client| client.holds_memory())
            || self.release_spare_memory();
        if comes_back {
            self.shortage = None;
            return true;
        }
        let now = self.now;
        let shortage = self.shortage.get_or_insert_with(|| Shortage::new(now));
        shortage.is_bearable(now)
    }

    /// Has clients that wait for memory try again.
    pub(super) fn wake_starving(&mut self) {
        if !self.is_short_of_memory() {
            self.shortage = None;
        }
        for id in std::mem::take(&mut self.starving) {
            if let Some(client) = self.clients.get_mut(id) {
                client.queue(&mut self.busy);
            }
        }
    }

    /// Whether a request waits for memory.
    pub(super) fn is_short_of_memory(&self) -> bool {
        !self.starving.is_empty() || self.ublk.any_waits()
    }

    /// Gives back memory that serves no request yet; says whether there was any, of which what a
    /// device is reading into follows.
    pub(super) fn release_spare_memory(&mut self) -> bool {
        let mut any = false;
        for shard in self.host.shards_mut() {
            any |= shard.release_spare_memory(&mut self.arena);
        }
        any
    }
}
