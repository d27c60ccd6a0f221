//! The time for which a job waits for a server that went away.

use std::time::{Duration, Instant};

/// The time of a job begins anew so often at most.
const MOST_BEGUN_ANEW: u32 = 2;

/// Bounds of the time of jobs whose server has gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The time that a job waits for a server.
    pub(super) of_job: Duration,
    /// Whether the one that has gone was there for a while.
    pub(super) was_steady: bool,
}

/// A job's time.
#[derive(Debug)]
pub(super) struct Waits {
    /// When the job came, or when its time began anew.
    since: Instant,
    /// Whether its server went away since it came, and how often its time began anew after that.
    was_lost: bool,
    begun_anew: u32,
}

impl Waits {
    pub(super) fn new() -> Waits {
        Waits {
            since: Instant::now(),
            was_lost: false,
            begun_anew: 0,
        }
    }

    /// Whether it has waited for so long.
    pub(super) fn is_over(&self, limit: Duration) -> bool {
        self.since.elapsed() >= limit
    }

    /// Its server has gone, which had it for so long. The time goes on if that server was hardly there,
    /// and begins anew a few times otherwise: one that ends at this very job, or is silent at it, would
    /// be asked for ever.
    pub(super) fn server_left(&mut self, had_it_for: Duration, limits: Limits) {
        let was_there = limits.was_steady || had_it_for >= limits.of_job;
        let begins_anew = self.was_lost && was_there && self.begun_anew < MOST_BEGUN_ANEW;
        self.begun_anew += u32::from(begins_anew);
        if begins_anew || !self.was_lost {
            self.since = Instant::now();
        }
        self.was_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Whether the time begins anew with each of five servers that leave.
    fn begins_anew(had_it_for: Duration, was_steady: bool) -> [bool; 5] {
        let of_job = LIMIT;
        let mut waits = Waits::new();
        [(); 5].map(|()| {
            let before = waits.since;
            std::thread::sleep(Duration::from_millis(1));
            waits.server_left(had_it_for, Limits { of_job, was_steady });
            waits.since > before
        })
    }

    #[test]
    fn it_begins_anew_a_few_times_after_servers_that_were_there() {
        let few = [true, true, true, false, false];
        let once = [true, false, false, false, false];
        assert_eq!(
            begins_anew(Duration::ZERO, false),
            once,
            "it ends at the job"
        );
        assert_eq!(begins_anew(LIMIT, false), few, "it is silent");
        assert_eq!(
            begins_anew(LIMIT / 2, true),
            few,
            "it goes for another reason"
        );
        assert_eq!(begins_anew(Duration::ZERO, true), few, "it was not asked");
    }
}
