//! Slowing writes down, smoothly, to what the origin takes.
//!
//! Between the high mark and the limit of dirty data, writes are let in at the rate at which
//! write-back goes, times a factor that falls from two to nothing; so the level settles in
//! between and no writer ever waits for a burst to end.

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::format::BlockKey;
use crate::interface::{Memory, Nanos};

/// How often held writes are looked at.
const TICK: Nanos = Nanos(2_000_000);
/// The rate is measured over this time.
const WINDOW: Nanos = Nanos(200_000_000);
/// What is let in whatever write-back does, in blocks per second.
const LEAST_RATE: f64 = 256.0;

/// Writes that wait for dirty data to shrink.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    held: VecDeque<(u32, u64)>,
    /// Blocks that may pass.
    credit: f64,
    credited_at: Nanos,
    rate: f64,
    window_began: Nanos,
    window_blocks: u64,
    next_tick: Option<Nanos>,
    /// Single long writes go past the cache until then.
    pub(crate) no_room_until: Nanos,
}

impl Throttle {
    pub(crate) fn hold(&mut self, request: u32, blocks: u64) {
        self.held.push_back((request, blocks));
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

impl Engine {
    /// Whether a write of this many blocks has to wait.
    pub(crate) fn throttles(&mut self, now: Nanos, blocks: u64) -> bool {
        if self.throttle.held.is_empty() && !self.store.dirty_is_high() {
            return false;
        }
        self.refill(now);
        if self.throttle.held.is_empty() && self.throttle.credit >= blocks as f64 {
            self.throttle.credit -= blocks as f64;
            return false;
        }
        self.throttle.next_tick.get_or_insert(now.after(TICK));
        true
    }

    /// Whether a write that waits has this block.
    pub(crate) fn is_held(&self, key: BlockKey) -> bool {
        let held = self.throttle.held.iter();
        let mut requests = held.filter_map(|(name, _)| self.requests.get(*name));
        requests.any(|waiting| {
            let (first, end) = self.store.keys_of(&waiting.request);
            (first..end).contains(&key)
        })
    }

    fn refill(&mut self, now: Nanos) {
        let (high, limit) = (
            self.store.share(self.store.settings.dirty_high_percent),
            self.store.share(self.store.settings.dirty_limit_percent),
        );
        let dirty = self.store.dirty_blocks_to_come();
        let room = limit.saturating_sub(dirty) as f64 / (limit - high).max(1) as f64;
        let throttle = &mut self.throttle;
        throttle.measure(now);
        let elapsed = now.since(throttle.credited_at).0 as f64 / 1e9;
        throttle.credited_at = now;
        let rate = if dirty >= limit {
            0.0
        } else {
            (throttle.rate * 2.0 * room).max(LEAST_RATE)
        };
        // A pause must not become a burst.
        throttle.credit = (throttle.credit + rate * elapsed.min(0.1)).min(rate * 0.05 + 256.0);
    }

    pub(crate) fn release_throttled(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.refill(now);
        while let Some(&(request, blocks)) = self.throttle.held.front() {
            let free = !self.store.dirty_is_high() || self.store.failed_cache();
            // A write longer than the credit can ever be passes when the credit is full.
            let enough = self.throttle.credit >= (blocks as f64).min(256.0);
            if !free && !enough {
                break;
            }
            self.throttle.held.pop_front();
            if !free {
                self.throttle.credit -= blocks as f64;
            }
            let bypass = self
                .store
                .failed_cache()
                .then_some(crate::bypass::BypassReason::Failed);
            self.start_write(now, request, bypass, memory);
        }
        self.throttle.next_tick = (!self.throttle.held.is_empty()).then(|| now.after(TICK));
    }
}
