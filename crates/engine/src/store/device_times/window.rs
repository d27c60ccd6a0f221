//! The rate of long transfers of a kind, in windows of a few MiB.

use super::STALE;
use crate::interface::Nanos;

/// A rate is taken over so many bytes, or so much time in which transfers were in flight.
pub(super) const WINDOW_BYTES: u64 = 4 << 20;
const WINDOW: Nanos = Nanos(50_000_000);
/// A rate that was taken so long ago is to be taken anew.
const OLD: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Long transfers of a kind while their rate is being taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) in_flight: u32,
    busy_since: Nanos,
    busy: Nanos,
    bytes: u64,
    /// When a transfer last ended.
    pub(super) ended_at: Nanos,
    /// When the rate was last taken.
    rated_at: Option<Nanos>,
}

impl Window {
    pub(super) fn begins(&mut self, now: Nanos) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.in_flight += 1;
    }

    pub(super) fn fails(&mut self) {
        self.in_flight -= 1;
        (self.bytes, self.busy) = (0, Nanos(0));
    }

    /// The rate of the window that ends with this transfer, in bytes a second. The first ends at once:
    /// a guess is better than nothing.
    pub(super) fn ends(&mut self, now: Nanos, len_bytes: u64, is_first: bool) -> Option<u64> {
        self.in_flight -= 1;
        self.ended_at = now;
        self.bytes += len_bytes;
        self.busy.0 += now.since(self.busy_since).0;
        self.busy_since = now;
        if self.busy == Nanos(0) {
            // It ended in the turn that began it: how long that took is not known.
            self.bytes = 0;
            return None;
        }
        if self.bytes < WINDOW_BYTES && self.busy < WINDOW && !is_first {
            return None;
        }
        let seconds = self.busy.0 as f64 / 1e9;
        let rate = (self.bytes as f64 / seconds) as u64;
        (self.bytes, self.busy) = (0, Nanos(0));
        self.rated_at = Some(now);
        Some(rate.max(1))
    }

    /// A device that holds what it was given for so long has no speed.
    pub(super) fn is_stuck(&self, now: Nanos) -> bool {
        self.in_flight > 0 && now.since(self.busy_since) > STALE
    }

    /// Whether the rate was taken lately.
    pub(super) fn rate_is_fresh(&self, now: Nanos) -> bool {
        self.was_rated_within(STALE, now)
    }

    /// Whether the rate was taken long ago.
    pub(super) fn rate_is_old(&self, now: Nanos) -> bool {
        !self.was_rated_within(OLD, now)
    }

    fn was_rated_within(&self, time: Nanos, now: Nanos) -> bool {
        self.rated_at.is_some_and(|at| now.since(at) <= time)
    }
}
