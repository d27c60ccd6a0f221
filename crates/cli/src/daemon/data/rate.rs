//! The most that clients of a volume are served in a second.
//!
//! Each request moves the moment at which its volume is even again (the generic cell rate algorithm,
//! ITU-T I.371, annex A, with one addition: a request is never refused, so it may go into debt). A
//! request begins if that moment is at most a burst away. An example with 1 MiB a second:
//!
//! 1. At 0 s a client writes 256 KiB. It is even again at 0.25 s.
//! 2. At 0.01 s it writes 4 KiB. That is more than the burst of 0.1 s before 0.25 s, so the request
//!    waits until 0.15 s.
//! 3. At 0.15 s the request begins, and the volume is even again at 0.254 s.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_engine::Nanos;

use crate::settings::Rates;

/// Time of which the worth may be used at once, by clients that asked for nothing before.
const BURST: Nanos = Nanos(100 * Nanos::MILLISECOND.0);
/// The longest time that one request costs, so that no client waits longer for its next.
const MOST: Nanos = Nanos(10 * Nanos::SECOND.0);

/// A volume's rates, for all threads.
#[derive(Debug, Default)]
pub(in crate::daemon) struct RateLimit {
    bytes: Pace,
    operations: Pace,
}

/// A rate, of bytes or of operations.
#[derive(Debug, Default)]
struct Pace {
    /// Units a second; 0 is no limit.
    per_second: AtomicU64,
    /// The moment at which all that was used is paid for.
    even_at: AtomicU64,
}

impl Pace {
    fn set(&self, per_second: Option<u64>) {
        let per_second = per_second.unwrap_or(0);
        if self.per_second.swap(per_second, Ordering::Relaxed) != per_second {
            self.even_at.store(0, Ordering::Relaxed);
        }
    }

    fn charge(&self, now: Nanos, units: u64) {
        let per_second = self.per_second.load(Ordering::Relaxed);
        if per_second == 0 || units == 0 {
            return;
        }
        let cost = u128::from(units) * u128::from(Nanos::SECOND.0) / u128::from(per_second);
        let cost = cost.min(MOST.0.into()) as u64;
        let paid = |even_at: u64| Some(even_at.max(now.0) + cost);
        // It always changes.
        let _ = (self.even_at).fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }

    fn next(&self) -> Nanos {
        Nanos(self.even_at.load(Ordering::Relaxed).saturating_sub(BURST.0))
    }
}

impl RateLimit {
    /// Puts other rates into force.
    pub(super) fn set(&self, rates: Rates) {
        self.bytes.set(rates.bytes);
        self.operations.set(rates.operations);
    }

    /// Counts a request that begins.
    pub(super) fn charge(&self, now: Nanos, bytes: u64) {
        self.bytes.charge(now, bytes);
        self.operations.charge(now, 1);
    }

    /// When the next request may begin, if not now.
    pub(super) fn waits_until(&self, now: Nanos) -> Option<Nanos> {
        let next = self.bytes.next().max(self.operations.next());
        (next > now).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * Nanos::MILLISECOND.0)
    }

    #[test]
    fn a_burst_is_served_at_once_and_the_rest_at_its_rate() {
        let limit = RateLimit::default();
        assert_eq!(limit.waits_until(at(0)), None);
        limit.charge(at(0), 1 << 30);
        assert_eq!(limit.waits_until(at(0)), None, "nothing is limited");
        let rates = Rates {
            bytes: Some(1 << 20),
            operations: None,
        };
        limit.set(rates);
        limit.charge(at(0), 256 << 10);
        assert_eq!(limit.waits_until(at(10)), Some(at(150)));
        assert_eq!(limit.waits_until(at(150)), None);
        limit.charge(at(150), 4096);
        assert!(limit.waits_until(at(150)) > Some(at(153)));
        // What was not used is not saved up.
        limit.charge(at(9_000), 1 << 20);
        assert_eq!(limit.waits_until(at(9_001)), Some(at(9_900)));
        // A request that is larger than anything costs no more than the most.
        limit.charge(at(20_000), 1 << 40);
        assert_eq!(limit.waits_until(at(20_000)), Some(at(29_900)));
        limit.set(Rates::default());
        assert_eq!(limit.waits_until(at(20_000)), None);
    }

    #[test]
    fn operations_count_whatever_their_length() {
        let limit = RateLimit::default();
        limit.set(Rates {
            bytes: None,
            operations: Some(100),
        });
        let mut served = 0;
        for millisecond in 0..1000 {
            while limit.waits_until(at(millisecond)).is_none() {
                limit.charge(at(millisecond), 0);
                served += 1;
            }
        }
        assert!((100..=112).contains(&served), "{served}");
    }
}
