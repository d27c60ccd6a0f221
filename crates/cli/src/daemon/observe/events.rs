//! Events of the daemon as a whole: the last ones, for the dashboard and `forebay top`. The log has
//! them and more, and outlives the daemon.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::wall_clock::since_1970;

/// The number of events kept; each is a few lines of text.
const KEPT: usize = 500;

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// From 1, each by 1.
    pub(crate) number: u64,
    pub(crate) unix_seconds: f64,
    pub(crate) kind: String,
    pub(crate) text: String,
}

/// The last events.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Events(Mutex<VecDeque<Event>>);

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an event; the oldest goes.
    pub(in crate::daemon) fn note(&self, kind: &str, text: impl Into<String>) {
        let mut kept = self.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let number = kept.back().map_or(0, |last| last.number) + 1;
        kept.push_back(Event {
            number,
            unix_seconds: since_1970().as_secs_f64(),
            kind: kind.to_owned(),
            text: text.into(),
        });
    }

    /// Events after this number, the oldest first.
    pub(in crate::daemon) fn after(&self, number: u64) -> Vec<Event> {
        let kept = self.lock();
        kept.iter()
            .filter(|event| event.number > number)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_numbers_go_on() {
        let events = Events::default();
        for number in 1..=KEPT + 3 {
            events.note("mode", format!("event {number}"));
        }
        let all = events.after(0);
        assert_eq!(all.len(), KEPT);
        assert_eq!(all[0].number, 4);
        assert_eq!(all[0].text, "event 4");
        assert_eq!(events.after(KEPT as u64 + 2).len(), 1);
    }
}
