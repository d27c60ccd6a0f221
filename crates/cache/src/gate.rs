//! Flushes of a device, one at a time over all threads and commands (I21).
//!
//! A thread enters the gate of a device before it flushes it and leaves with the result. A thread
//! that comes meanwhile waits; the next flush serves all that wait. So the results of a device's
//! flushes have an order, and every success comes with the number of failures before it. A client
//! that relied on something lost by an earlier flush is told of that first (I10).
//!
//! ```text
//! thread 1  enter ── flush A ── leave(failed): failures 1
//! thread 2        enter, waits          flush B ── leave(ok), failures 1: told of A, then given B
//! thread 3        enter, waits          served by B: told of A, then given B
//! ```

/// The gate of one device.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    holder: Option<u16>,
    /// Hosts that wait for the next flush.
    waiting: Vec<u16>,
    /// Whom the flush in flight serves besides its holder.
    served: Vec<u16>,
    failures: u64,
    /// Flushes that failed and were nobody's failure: the cache goes on without the device.
    forgiven: u64,
}

/// Consequences of the end of a flush.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Flushes of the device that failed up to now.
    pub(crate) failures: u64,
    /// Hosts that are told this result too.
    pub(crate) served: Vec<u16>,
    /// The host that holds the gate now, and is to flush.
    pub(crate) next: Option<u16>,
}

impl Gate {
    /// Whether `host` may flush now; if not, it is told when it may, or what the flush of another
    /// gave that serves it too.
    pub(crate) fn enter(&mut self, host: u16) -> bool {
        assert_ne!(
            self.holder,
            Some(host),
            "a host flushes a device once at a time (I21)"
        );
        if self.holder.is_none() {
            self.holder = Some(host);
            return true;
        }
        if !self.waiting.contains(&host) {
            self.waiting.push(host);
        }
        false
    }

    /// The holder's flush has ended. A failure is counted before anybody else may flush.
    pub(crate) fn leave(&mut self, host: u16, failed: bool) -> Left {
        assert_eq!(
            self.holder,
            Some(host),
            "only its holder opens a gate (I21)"
        );
        self.failures += u64::from(failed);
        let served = std::mem::take(&mut self.served);
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        self.holder = waiting.next();
        self.served = waiting.collect();
        Left {
            failures: self.failures,
            served,
            next: self.holder,
        }
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Counts a failure that only commands hear of.
    pub(crate) fn forgive(&mut self) {
        self.forgiven += 1;
    }

    pub(crate) fn forgiven(&self) -> u64 {
        self.forgiven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_at_a_time_and_the_next_serves_all_who_wait() {
        let mut gate = Gate::default();
        assert!(gate.enter(0));
        assert!(!gate.enter(1));
        assert!(!gate.enter(2));
        assert!(!gate.enter(1));
        let left = gate.leave(0, true);
        assert_eq!(
            (left.failures, left.served, left.next),
            (1, vec![], Some(1))
        );
        assert!(!gate.enter(0));
        let left = gate.leave(1, false);
        assert_eq!(
            (left.failures, left.served, left.next),
            (1, vec![2], Some(0))
        );
        let left = gate.leave(0, false);
        assert_eq!((left.failures, left.served, left.next), (1, vec![], None));
        assert!(gate.enter(2), "it is open");
    }

    #[test]
    #[should_panic(expected = "I21")]
    fn nobody_flushes_twice_at_a_time() {
        let mut gate = Gate::default();
        assert!(gate.enter(0));
        gate.enter(0);
    }
}
