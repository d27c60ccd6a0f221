//! Slowing writes down, smoothly, to the rate that the origin takes.
//!
//! Between the high mark and the limit of dirty data, writes are let in at the rate at which
//! write-back goes, times a factor that falls from two to nothing; so the level settles in
//! between and no writer ever waits for a burst to end.

use std::collections::VecDeque;

use crate::ids::RequestIndex;
use crate::interface::Nanos;
use crate::origin::Origin;
use crate::store::Store;
use crate::store::dirty_marks::DirtyMarks;

/// Time between looks at held writes.
const TICK: Nanos = Nanos(2_000_000);
/// The rate is measured over this time.
const WINDOW: Nanos = Nanos(200_000_000);
/// The least that is let in whatever write-back does, in blocks per second.
const LEAST_RATE: f64 = 256.0;
/// The part of write-back's rate that is let in above a limit that has come down.
const ABOVE_LIMIT: f64 = 0.75;

/// Writes that wait for dirty data to shrink.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    held: VecDeque<(RequestIndex, u64)>,
    /// Blocks that may pass.
    credit: f64,
    credited_at: Nanos,
    rate: f64,
    window_began: Nanos,
    window_blocks: u64,
    next_tick: Option<Nanos>,
}

impl Throttle {
    pub(crate) fn hold(&mut self, request: RequestIndex, blocks: u64) {
        self.held.push_back((request, blocks));
    }

    /// The requests that wait.
    pub(crate) fn held(&self) -> impl Iterator<Item = RequestIndex> {
        self.held.iter().map(|(request, _)| *request)
    }

    /// Sets when those that wait are looked at again.
    pub(crate) fn look_again(&mut self, now: Nanos) {
        self.next_tick = (!self.held.is_empty()).then(|| now.after(TICK));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Write-back has put blocks on the origin.
    pub(crate) fn written_back(&mut self, blocks: u64) {
        self.window_blocks += blocks;
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.next_tick
    }

    fn measure(&mut self, now: Nanos) {
        let elapsed = now.since(self.window_began);
        if elapsed < WINDOW {
            return;
        }
        let measured = self.window_blocks as f64 / (elapsed.0 as f64 / 1e9);
        self.rate = if self.rate == 0.0 {
            measured
        } else {
            self.rate * 0.6 + measured * 0.4
        };
        self.window_began = now;
        self.window_blocks = 0;
    }
}

impl Origin {
    /// Whether a write of this many blocks has to wait.
    pub(crate) fn throttles(&mut self, store: &Store, now: Nanos, blocks: u64) -> bool {
        if self.throttle.held.is_empty() && !store.dirty_is_high() {
            return false;
        }
        self.refill(store, now);
        if self.throttle.held.is_empty() && self.throttle.credit >= blocks as f64 {
            self.throttle.credit -= blocks as f64;
            return false;
        }
        self.throttle.next_tick.get_or_insert(now.after(TICK));
        true
    }

    /// Counts the blocks that may pass by now.
    pub(crate) fn refill(&mut self, store: &Store, now: Nanos) {
        let DirtyMarks { high, limit, most } = store.dirty_marks();
        let dirty = store.dirty_blocks_to_come();
        let room = limit.saturating_sub(dirty) as f64 / (limit - high).max(1) as f64;
        let throttle = &mut self.throttle;
        throttle.measure(now);
        let elapsed = now.since(throttle.credited_at).0 as f64 / 1e9;
        throttle.credited_at = now;
        let rate = if dirty >= most {
            0.0
        } else if dirty >= limit {
            (throttle.rate * ABOVE_LIMIT).max(LEAST_RATE)
        } else {
            (throttle.rate * 2.0 * room).max(LEAST_RATE)
        };
        // A pause must not become a burst.
        throttle.credit = (throttle.credit + rate * elapsed.min(0.1)).min(rate * 0.05 + 256.0);
    }

    /// Takes the write that waited longest, if it may pass now.
    pub(crate) fn next_released(&mut self, store: &Store) -> Option<RequestIndex> {
        let &(request, blocks) = self.throttle.held.front()?;
        let free = !store.dirty_is_high() || store.failed_cache();
        // A write longer than the credit can ever be passes when the credit is full.
        let enough = self.throttle.credit >= (blocks as f64).min(256.0);
        if !free && !enough {
            return None;
        }
        self.throttle.held.pop_front();
        if !free {
            self.throttle.credit -= blocks as f64;
        }
        Some(request)
    }
}
