//! Room ahead of need: free segments for as much as arrives while more are being freed.
//!
//! An example. Clients write 400 MB/s, and a flush of the cache device takes 1 ms. Two flushes free
//! what reclaim has emptied, and may take a 32nd of the time: one round in 64 ms. In that time 26 MB
//! arrive, so twice as much is kept free: half of it is used while the other half is being freed.
//! The least room takes no account of arrivals, and stays when they end.

use crate::interface::Nanos;
use crate::policy::Policy;
use crate::store::Store;
use crate::store::device_times::Transfer;

/// Arrivals are counted over this time.
const PERIOD: Nanos = Nanos(50_000_000);
/// The most that arrived lately counts half after this time, in seconds.
const HALF_SECONDS: f64 = 60.0;
/// Flushes of reclaim take at most this part of the time.
const FLUSH_PART: u64 = 32;
/// Flushes until an emptied segment is free: of what supersedes its entries, and of the tail.
const FLUSHES: u64 = 2;
/// Time between two rounds of flushes, at least and at most.
const ROUND: (Nanos, Nanos) = (Nanos(10_000_000), Nanos(250_000_000));
/// The most room ahead of need, as a part of the shard.
const MOST_PART: usize = 16;

/// Data that arrives in the log.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    looked_at: Option<Nanos>,
    arrived_bytes: u64,
    /// The most that arrived in a second, lately.
    bytes_per_second: f64,
}

impl Demand {
    /// Brings the figure up to date.
    pub(crate) fn advance(&mut self, now: Nanos, store: &Store, policy: &Policy) {
        let arrived_bytes = arrived_bytes(store) + policy.gate.turned_away_bytes;
        let Some(looked_at) = self.looked_at else {
            self.looked_at = Some(now);
            self.arrived_bytes = arrived_bytes;
            return;
        };
        let elapsed = now.since(looked_at);
        if elapsed < PERIOD {
            return;
        }
        let seconds = elapsed.0 as f64 / 1e9;
        let arrives = arrived_bytes.saturating_sub(self.arrived_bytes) as f64 / seconds;
        let remembered = self.bytes_per_second * 0.5_f64.powf(seconds / HALF_SECONDS);
        self.bytes_per_second = arrives.max(remembered);
        self.looked_at = Some(now);
        self.arrived_bytes = arrived_bytes;
    }

    /// The number of segments to keep free beyond the least.
    pub(crate) fn segments(&self, store: &Store) -> usize {
        let flush_ns = (store.operations.times.of_cache())
            .of(Transfer::Flush)
            .mean_ns;
        let round_ns = (flush_ns * FLUSHES * FLUSH_PART).clamp(ROUND.0.0, ROUND.1.0);
        let bytes = 2.0 * self.bytes_per_second * round_ns as f64 / 1e9;
        let segments = bytes / f64::from(store.log.geometry.segment_bytes);
        (segments as usize).min(store.log.usable_segments() / MOST_PART)
    }
}

/// Data that clients have written to the cache device. Promotions can do without room, and reclaim
/// makes its own.
fn arrived_bytes(store: &Store) -> u64 {
    let stats = &store.stats;
    let block_bytes = store.block_bytes() as u64;
    let copied = (stats.retained_blocks + stats.promoted_blocks) * block_bytes;
    stats.cache_data_written_bytes.saturating_sub(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::settings::{Mode, Settings};

    fn rig() -> Rig {
        Rig::new(Mode::Writeback, Settings::default())
    }

    #[test]
    fn room_follows_what_arrives_and_shrinks_when_nothing_does() {
        let mut rig = rig();
        let policy = Policy::new(rig.store.log.usable_slots(), &rig.store.settings);
        let mut demand = Demand::default();
        let mut now = Nanos(0);
        demand.advance(now, &rig.store, &policy);
        let segment_bytes = u64::from(rig.store.log.geometry.segment_bytes);
        assert_eq!(demand.segments(&rig.store), 0);
        for _ in 0..10 {
            now = now.after(PERIOD);
            rig.store.stats.cache_data_written_bytes += 5 * segment_bytes;
            demand.advance(now, &rig.store, &policy);
        }
        assert_eq!(
            demand.segments(&rig.store),
            2,
            "a hundred a second, in twice 10 ms"
        );
        assert!(demand.bytes_per_second > 99.0 * segment_bytes as f64);
        now = now.after(Nanos(60 * Nanos::SECOND.0));
        demand.advance(now, &rig.store, &policy);
        assert!(demand.bytes_per_second < 51.0 * segment_bytes as f64);
        now = now.after(Nanos(600 * Nanos::SECOND.0));
        demand.advance(now, &rig.store, &policy);
        assert_eq!(demand.segments(&rig.store), 0);
    }

    #[test]
    fn time_that_stands_still_asks_for_nothing() {
        let mut rig = rig();
        let policy = Policy::new(rig.store.log.usable_slots(), &rig.store.settings);
        let mut demand = Demand::default();
        for _ in 0..100 {
            rig.store.stats.cache_data_written_bytes += 1 << 20;
            demand.advance(Nanos(7), &rig.store, &policy);
        }
        assert_eq!(demand.segments(&rig.store), 0);
    }
}
