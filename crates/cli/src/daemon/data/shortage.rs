//! A time without memory, and its end: a request that waits for some fails then.

use forebay_engine::Nanos;

/// The longest time that a request waits for memory of which nothing seems to come back. Not all of
/// it shows: engines hold some while they gather a batch for the SSD after the request that brought
/// it was answered, and connections for answers that they are about to send.
const PATIENCE: Nanos = Nanos(5 * Nanos::SECOND.0);
/// The most of it that passes between two looks: a daemon that was stopped gave nothing back.
const MOST_AT_ONCE: Nanos = Nanos(Nanos::SECOND.0);

/// A time in which nothing seemed to come back, as far as was looked.
#[derive(Debug)]
pub(super) struct Shortage {
    looked_at: Nanos,
    lasted: Nanos,
}

impl Shortage {
    /// It begins.
    pub(super) fn new(now: Nanos) -> Shortage {
        Shortage {
            looked_at: now,
            lasted: Nanos(0),
        }
    }

    /// Looks again and finds nothing; says whether the request still waits.
    pub(super) fn is_bearable(&mut self, now: Nanos) -> bool {
        let since_look = now.since(self.looked_at).min(MOST_AT_ONCE);
        self.lasted = self.lasted.after(since_look);
        self.looked_at = now;
        self.lasted < PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bearable_for_five_seconds_of_looks_and_for_any_pause() {
        let hour = Nanos(3600 * Nanos::SECOND.0);
        let mut shortage = Shortage::new(Nanos::SECOND);
        let mut now = Nanos::SECOND;
        assert!(shortage.is_bearable(now));
        now = now.after(hour);
        assert!(shortage.is_bearable(now));
        for _ in 0..39 {
            now = now.after(Nanos(100_000_000));
            assert!(shortage.is_bearable(now));
        }
        now = now.after(Nanos(100_000_000));
        assert!(!shortage.is_bearable(now));
    }
}
