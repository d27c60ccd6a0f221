//! Warnings that whoever connects can cause: one line of a kind in ten seconds, and a count of the
//! others. Otherwise a client writes the log full, and the journal's own limit then drops the
//! lines that matter.

use std::fmt::Arguments;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The shortest time between two lines of a kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// A kind of warning.
#[derive(Debug)]
pub(in crate::daemon) struct Seldom {
    /// The others in words, after their number.
    others: &'static str,
    said: Mutex<Said>,
}

#[derive(Debug)]
struct Said {
    last: Option<Instant>,
    left_out: u64,
}

/// A connection that is no client's yet could not be accepted.
pub(in crate::daemon) static NOT_ACCEPTED: Seldom =
    Seldom::new("connections could not be accepted");
/// A connection that had to make room, or took too long.
pub(in crate::daemon) static UNFINISHED: Seldom =
    Seldom::new("connections were closed that had opened no export");
/// A client for whom there is no place.
pub(in crate::daemon) static TURNED_AWAY: Seldom = Seldom::new("clients were turned away");
/// A connection that ended against the protocol.
pub(in crate::daemon) static ENDED: Seldom =
    Seldom::new("connections ended otherwise than the protocol wants");
/// A client that held others up.
pub(in crate::daemon) static HELD_UP: Seldom =
    Seldom::new("connections of clients were closed that held up others");
/// A connection to the control socket.
pub(in crate::daemon) static COMMANDS: Seldom =
    Seldom::new("connections to the control socket were closed or turned away");
/// A connection to the dashboard.
pub(in crate::daemon) static PAGES: Seldom =
    Seldom::new("connections to the dashboard were closed or turned away");

static ALL: [&Seldom; 7] = [
    &NOT_ACCEPTED,
    &UNFINISHED,
    &TURNED_AWAY,
    &ENDED,
    &HELD_UP,
    &COMMANDS,
    &PAGES,
];

impl Seldom {
    const fn new(others: &'static str) -> Seldom {
        let said = Said {
            last: None,
            left_out: 0,
        };
        Seldom {
            others,
            said: Mutex::new(said),
        }
    }

    /// Logs a warning, or counts it if another of its kind was logged just now.
    pub(in crate::daemon) fn warn(&self, line: Arguments<'_>) {
        if self.may_say(Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    fn may_say(&self, now: Instant) -> bool {
        let mut said = lock(&self.said);
        let recent = |last: Instant| now.saturating_duration_since(last) < INTERVAL;
        if said.last.is_some_and(recent) {
            said.left_out += 1;
            return false;
        }
        said.last = Some(now);
        true
    }

    /// The number of those that were counted in the interval that has ended.
    fn take_left_out(&self, now: Instant) -> Option<u64> {
        let mut said = lock(&self.said);
        let recent = |last: Instant| now.saturating_duration_since(last) < INTERVAL;
        if said.left_out == 0 || said.last.is_some_and(recent) {
            return None;
        }
        // The count is a line of its kind itself.
        said.last = Some(now);
        Some(std::mem::take(&mut said.left_out))
    }
}

/// Logs the counts of what was left out. Called about once a second.
pub(in crate::daemon) fn catch_up() {
    for kind in ALL {
        if let Some(count) = kind.take_left_out(Instant::now()) {
            tracing::warn!("{count} more {} since the last such line", kind.others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_warnings_one_is_logged_and_the_others_are_counted() {
        let kind = Seldom::new("of them");
        let start = Instant::now();
        assert!(kind.may_say(start));
        let soon = start + Duration::from_secs(1);
        assert!((0..5).all(|_| !kind.may_say(soon)));
        assert_eq!(kind.take_left_out(soon), None);
        let later = start + INTERVAL;
        assert_eq!(kind.take_left_out(later), Some(5));
        assert!(!kind.may_say(later), "the count was a line of this kind");
        assert_eq!(kind.take_left_out(later + INTERVAL), Some(1));
        assert!(kind.may_say(later + 3 * INTERVAL));
        assert_eq!(kind.take_left_out(later + 9 * INTERVAL), None);
    }
}
