//! Events of the daemon as a whole: the last ones, for the dashboard and `forebay top`. The log has
//! them and more, and outlives the daemon.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use super::hook::{Hook, HookEvent, Phase};
use crate::lock::lock;
use crate::report::trouble::Trouble;
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

/// The last events, and the hook that hears of each.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Events {
    kept: Mutex<VecDeque<Event>>,
    pub(in crate::daemon) hook: Hook,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        lock(&self.kept)
    }

    /// Remembers an event of the daemon as a whole.
    pub(in crate::daemon) fn note(&self, kind: &str, text: impl Into<String>) {
        self.note_once(kind, None, text.into());
    }

    /// Remembers an event of a volume.
    pub(in crate::daemon) fn note_of(&self, volume: &str, kind: &str, text: impl Into<String>) {
        self.note_once(kind, Some(volume.to_owned()), text.into());
    }

    fn note_once(&self, kind: &str, volume: Option<String>, text: String) {
        let unix_seconds = self.keep(kind, text.clone());
        self.hook.tell(HookEvent {
            kind: kind.to_owned(),
            phase: Phase::Once,
            volume,
            text,
            unix_seconds,
        });
    }

    /// Remembers that a trouble began or is over. The hook hears of it by its own kind.
    pub(in crate::daemon) fn note_trouble(&self, trouble: &Trouble, phase: Phase) {
        let (kind, text) = match phase {
            Phase::End => ("trouble-over", format!("no longer so: {}", trouble.text)),
            Phase::Begin | Phase::Once => ("trouble", trouble.text.clone()),
        };
        let unix_seconds = self.keep(kind, text.clone());
        self.hook.tell(HookEvent {
            kind: trouble.kind.clone(),
            phase,
            volume: trouble.volume.clone(),
            text,
            unix_seconds,
        });
    }

    /// Keeps an event; the oldest goes. Returns when that was.
    fn keep(&self, kind: &str, text: String) -> f64 {
        let unix_seconds = since_1970().as_secs_f64();
        let mut kept = self.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let number = kept.back().map_or(0, |last| last.number) + 1;
        kept.push_back(Event {
            number,
            unix_seconds,
            kind: kind.to_owned(),
            text,
        });
        unix_seconds
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
