//! The pace of rate-controlled write-back: as much a second as keeps dirty data at its target,
//! changed slowly, so that the origin sees a steady stream instead of bursts.
//!
//! A proportional-integral controller on the level of dirty data, as bcache has one (Linux,
//! drivers/md/bcache/writeback.c, `__update_writeback_rate`), here in blocks and critically damped.

use crate::interface::Nanos;

/// Time between changes of the pace.
const PERIOD: Nanos = Nanos::SECOND;
/// Dirty data above the target would be gone after so many seconds at the proportional part alone.
const PROPORTIONAL_SECONDS: f64 = 40.0;
/// Blocks a second that each second adds for each block above the target. With dirty data growing
/// at a constant rate the level approaches the target as fast as it can without overshooting.
const INTEGRAL: f64 = 1.0 / (4.0 * PROPORTIONAL_SECONDS * PROPORTIONAL_SECONDS);
/// The least that is written back in any case, in blocks per second.
const LEAST: f64 = 16.0;
/// Credit is saved for so long, which bounds a burst.
const SAVED_SECONDS: f64 = 0.05;

/// The pace of write-back, and its credit: the blocks that it may still write back now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    blocks_per_second: f64,
    integral: f64,
    controlled_at: Option<Nanos>,
    credit: f64,
    credited_at: Nanos,
}

impl Pace {
    /// Brings the pace up to date with so many blocks dirty.
    pub(crate) fn advance(&mut self, now: Nanos, dirty: u64, target: u64) {
        let due = self.controlled_at.is_none_or(|at| now.since(at) >= PERIOD);
        if due {
            let error = dirty as f64 - target as f64;
            let seconds = self
                .controlled_at
                .map_or(0.0, |at| (now.since(at).0 as f64 / 1e9).min(10.0));
            // Below the target it runs down; it must not be owed later. Nor does it grow while
            // something else than the pace holds write-back up.
            if error < 0.0 || self.credit <= 0.0 {
                self.integral = (self.integral + error * seconds * INTEGRAL).max(0.0);
            }
            self.blocks_per_second = (error / PROPORTIONAL_SECONDS + self.integral).max(LEAST);
            self.controlled_at = Some(now);
        }
        let elapsed = now.since(self.credited_at).0 as f64 / 1e9;
        self.credited_at = now;
        let most = (self.blocks_per_second * SAVED_SECONDS).max(1.0);
        self.credit = (self.credit + self.blocks_per_second * elapsed).min(most);
    }

    /// Whether a run may start now.
    pub(crate) fn allows(&self) -> bool {
        self.credit > 0.0
    }

    /// A run of so many blocks started.
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.credit -= blocks as f64;
    }

    /// Time until a run may start.
    pub(crate) fn wait(&self) -> Nanos {
        let seconds = (1.0 - self.credit).max(0.0) / self.blocks_per_second.max(LEAST);
        Nanos((seconds * 1e9) as u64 + 1).min(PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dirty data that grows by a constant number of blocks a second, for so long.
    fn levels(growth: f64, seconds: u64) -> Vec<f64> {
        let mut pace = Pace::default();
        let mut dirty = 0.0;
        let mut levels = Vec::new();
        for tick in 0..seconds * 100 {
            let now = Nanos(tick * 10_000_000);
            dirty += growth / 100.0;
            pace.advance(now, dirty as u64, 20_000);
            while pace.allows() && dirty >= 8.0 {
                pace.spend(8);
                dirty -= 8.0;
            }
            if tick % 100 == 99 {
                levels.push(dirty);
            }
        }
        levels
    }

    #[test]
    fn the_level_settles_at_the_target_without_swinging() {
        let levels = levels(1_000.0, 1_200);
        let settled = &levels[800..];
        let (least, most) = settled
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), level| {
                (least.min(*level), most.max(*level))
            });
        assert!((19_000.0..21_000.0).contains(&least), "{least}");
        assert!((19_000.0..21_000.0).contains(&most), "{most}");
        let highest = levels.iter().fold(0.0_f64, |most, level| most.max(*level));
        assert!(
            highest < 60_000.0,
            "it rises no further than the controller needs: {highest}"
        );
    }

    #[test]
    fn little_is_written_back_slowly_and_none_is_saved_up() {
        let mut pace = Pace::default();
        pace.advance(Nanos(0), 10, 1_000);
        pace.advance(Nanos(100 * Nanos::SECOND.0), 10, 1_000);
        let mut runs = 0;
        while pace.allows() {
            pace.spend(1);
            runs += 1;
        }
        assert_eq!(runs, 1, "a pause must not become a burst");
        assert!(pace.wait() <= PERIOD && pace.wait() > Nanos(0));
    }
}
