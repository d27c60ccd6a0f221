//! Staying awake for a moment after the last answer: a client that asks one thing at a time asks
//! the next within microseconds, and to sleep and be woken for it takes longer than that.
//!
//! Only where nothing else is in progress, so that the next event can only be a client's; and only
//! as long as experience bears it out: after each time in vain the thread sleeps at once twice as
//! often as before.
//!
//! A share of the core bounds it, and the model of the cache device: where an answer takes long, a
//! client does not notice that the thread was woken for it.

use forebay_engine::{DeviceTimes, Nanos, Settings, Transfer};

/// Time to stay awake: the cost of sleeping and being woken (docs/measurements.md).
const MOMENT: Nanos = Nanos(25_000);
/// The most often that the thread sleeps at once after a time in vain.
const MOST_SKIPPED: u32 = 1023;
/// A short operation that takes so many moments is no faster to its client without the wake-up: it
/// is 2 % of the time.
const MOMENTS_THAT_PAY: u64 = 50;
/// Time of the core is saved up for so long.
const SAVED: Nanos = Nanos(100_000_000);

/// Whether staying awake has paid, and may go on.
#[derive(Debug)]
pub(super) struct AdaptivePolling {
    /// Times still to sleep at once.
    skip: u32,
    /// Value of `skip` after the last time in vain.
    skipped: u32,
    /// The bound, in percent of a core.
    percent: u8,
    /// Time that may be spent, in hundredths of a nanosecond: below zero by a moment at most.
    credit: i64,
    credited_at: Nanos,
    /// The cache device answers soon enough.
    pays: bool,
}

impl Default for AdaptivePolling {
    fn default() -> AdaptivePolling {
        AdaptivePolling {
            skip: 0,
            skipped: 0,
            percent: Settings::default().polling_percent,
            credit: 0,
            credited_at: Nanos(0),
            pays: true,
        }
    }
}

impl AdaptivePolling {
    /// Bounds the time awake to so many percent of a core.
    pub(super) fn set_percent(&mut self, percent: u8) {
        self.percent = percent.min(100);
        self.credit = self.credit.min(0);
    }

    /// Takes what the shards know of their cache devices. A device that nothing is known of counts
    /// as fast.
    pub(super) fn heed(&mut self, shards: &[DeviceTimes]) {
        let short = [Transfer::ShortRead, Transfer::ShortWrite];
        let known = shards
            .iter()
            .flat_map(|times| short.map(|transfer| times.of(transfer)))
            .filter(|times| times.timed > 0);
        let soonest_ns = known.map(|times| times.mean_ns).min();
        self.pays = soonest_ns.is_none_or(|mean_ns| mean_ns < MOMENTS_THAT_PAY * MOMENT.0);
    }

    /// Looks for a client's next request for a moment, if that has paid and may be spent.
    pub(in crate::daemon) fn look(
        &mut self,
        mut clock: impl FnMut() -> Nanos,
        mut came: impl FnMut() -> bool,
    ) {
        if !self.pays || self.percent == 0 {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let began = clock();
        self.save(began);
        if self.credit <= 0 {
            return;
        }
        let mut now = began;
        let mut there = came();
        while !there && now.since(began) < MOMENT {
            std::hint::spin_loop();
            there = came();
            now = clock();
        }
        self.credit -= hundredths(now.since(began));
        self.learn(there);
    }

    /// Adds the share of the time since the last look.
    fn save(&mut self, now: Nanos) {
        let elapsed = Nanos(now.since(self.credited_at).0.min(SAVED.0));
        self.credited_at = now;
        let percent = i64::from(self.percent);
        let most = hundredths(SAVED) / 100 * percent;
        self.credit = (self.credit + hundredths(elapsed) / 100 * percent).min(most);
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

/// A time in hundredths of a nanosecond, of which a percent is a whole number.
fn hundredths(time: Nanos) -> i64 {
    i64::try_from(time.0.saturating_mul(100)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread whose turns are a millisecond apart, and whose clock goes on by 1 µs at each look.
    struct Thread {
        polling: AdaptivePolling,
        now: Nanos,
        awake_ns: u64,
    }

    impl Thread {
        fn new() -> Thread {
            Thread {
                polling: AdaptivePolling::default(),
                now: Nanos(0),
                awake_ns: 0,
            }
        }

        /// A turn after so long; the client comes at this look. Returns whether it was looked for.
        fn turn(&mut self, after_ns: u64, comes_at: u32) -> bool {
            self.now = Nanos(self.now.0 + after_ns);
            let began = self.now;
            let (now, mut looks) = (std::cell::Cell::new(began), 0);
            let clock = || {
                let read = now.get();
                now.set(Nanos(read.0 + 1_000));
                read
            };
            self.polling.look(clock, || {
                looks += 1;
                looks == comes_at
            });
            self.now = now.get();
            if looks > 0 {
                self.awake_ns += self.now.since(began).0;
            }
            looks > 0
        }
    }

    /// Counts the looks of so many turns in vain.
    fn looks(thread: &mut Thread, turns: u32) -> u32 {
        let looked = (0..turns).filter(|_| thread.turn(1_000_000, u32::MAX));
        looked.count() as u32
    }

    fn cache_of(transfer_ns: u64) -> DeviceTimes {
        DeviceTimes::default().with(Transfer::ShortRead, transfer_ns)
    }

    #[test]
    fn clients_that_do_not_come_back_are_hardly_waited_for() {
        let mut thread = Thread::new();
        let first = looks(&mut thread, 2047);
        assert!((1..=11).contains(&first), "{first}");
        assert!(looks(&mut thread, 10_240) <= 11);
    }

    #[test]
    fn one_that_comes_back_is_waited_for_again() {
        let mut thread = Thread::new();
        assert!(thread.turn(1_000_000, u32::MAX));
        assert!(!thread.turn(1_000_000, 1), "it sleeps at once");
        assert!(thread.turn(1_000_000, 1));
        assert!(thread.turn(1_000_000, 1));
        assert_eq!(looks(&mut thread, 1), 1);
    }

    #[test]
    fn a_share_of_the_core_bounds_the_time_awake() {
        for percent in [0_u8, 1, 10, 50, 100] {
            let mut thread = Thread::new();
            thread.polling.set_percent(percent);
            // A client that comes after 15 looks, 20 µs after each answer: 40 % without a bound.
            for _ in 0..100_000 {
                thread.turn(20_000, 15);
            }
            let share = thread.awake_ns as f64 / thread.now.0 as f64 * 100.0;
            assert!(share <= f64::from(percent) + 1.0, "{share} of {percent}");
            assert!(
                share >= f64::from(percent.min(40)) * 0.8,
                "{share} of {percent}"
            );
        }
    }

    #[test]
    fn a_slow_cache_device_is_not_waited_for() {
        let mut thread = Thread::new();
        thread.polling.heed(&[cache_of(8_000_000)]);
        assert!(!thread.turn(1_000_000, 1));
        thread
            .polling
            .heed(&[cache_of(8_000_000), cache_of(100_000)]);
        assert!(thread.turn(1_000_000, 1));
        thread.polling.heed(&[]);
        assert!(thread.turn(1_000_000, 1), "nothing is known");
    }
}
