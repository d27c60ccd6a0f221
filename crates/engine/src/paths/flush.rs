//! Flush: answered when everything acknowledged before it is durable (I7).

use crate::durability::Waiter;
use crate::engine::Engine;
use crate::interface::{Failure, Nanos, Request};
use crate::planted::{self, Bug};
use crate::volume::OriginWaiter;

impl Engine {
    /// Flushes what is published. `since` is when the client asked.
    pub(crate) fn flush(&mut self, now: Nanos, since: Nanos, request: Request) {
        self.stats.flush_requests += 1;
        self.sync_writer.flushed();
        let volume = request.volume;
        let name = self.begin_request(since, request);
        if !self.all_durable() {
            self.add_part(name);
            self.await_durable(self.last_number(), Waiter::Request(name));
        }
        let state = self.volume(volume);
        if std::mem::take(&mut state.flush_error) {
            self.add_part(name);
            self.finish_part(now, name, Err(Failure::Io));
        }
        if self.volume(volume).has_unflushed() && !planted::is(Bug::OriginNotFlushed) {
            self.add_part(name);
            self.await_origin(volume, OriginWaiter::Request(name));
        }
        self.finish_part(now, name, Ok(()));
    }
}
