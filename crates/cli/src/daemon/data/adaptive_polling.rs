//! Staying awake for a moment after the last answer: a client that asks one thing at a time asks
//! the next within microseconds, and to sleep and be woken for it takes longer than that.
//!
//! Only where nothing else is in progress, so that the next event can only be a client's; and only
//! as long as experience bears it out: after each time in vain the thread sleeps at once twice as
//! often as before.

use std::time::{Duration, Instant};

/// Time to stay awake: the cost of sleeping and being woken (docs/measurements.md).
const MOMENT: Duration = Duration::from_micros(25);
/// The most often that the thread sleeps at once after a time in vain.
const MOST_SKIPPED: u32 = 1023;

/// Whether staying awake has paid.
#[derive(Debug, Default)]
pub(super) struct AdaptivePolling {
    /// Times still to sleep at once.
    skip: u32,
    /// Value of `skip` after the last time in vain.
    skipped: u32,
}

impl AdaptivePolling {
    /// Looks for a client's next request for a moment, if that has paid.
    pub(in crate::daemon) fn look(&mut self, mut came: impl FnMut() -> bool) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let until = Instant::now() + MOMENT;
        let mut there = came();
        while !there && Instant::now() < until {
            std::hint::spin_loop();
            there = came();
        }
        self.learn(there);
    }

    fn learn(&mut self, there: bool) {
        self.skipped = if there {
            0
        } else {
            (self.skipped * 2 + 1).min(MOST_SKIPPED)
        };
        self.skip = self.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the looks of so many turns in vain.
    fn looks(adaptive_polling: &mut AdaptivePolling, turns: u32) -> u32 {
        let mut looked = 0;
        for _ in 0..turns {
            let mut asked = false;
            adaptive_polling.look(|| {
                asked = true;
                false
            });
            looked += u32::from(asked);
        }
        looked
    }

    #[test]
    fn clients_that_do_not_come_back_are_hardly_waited_for() {
        let mut adaptive_polling = AdaptivePolling::default();
        assert!(looks(&mut adaptive_polling, 2047) <= 11);
        assert!(looks(&mut adaptive_polling, 10_240) <= 11);
    }

    #[test]
    fn one_that_comes_back_is_waited_for_again() {
        let mut adaptive_polling = AdaptivePolling::default();
        adaptive_polling.look(|| false);
        adaptive_polling.look(|| panic!("it sleeps at once"));
        adaptive_polling.look(|| true);
        adaptive_polling.look(|| true);
        assert_eq!(looks(&mut adaptive_polling, 1), 1);
    }
}
