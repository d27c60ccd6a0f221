//! State of the display, which keys change.

use ratatui::crossterm::event::{KeyCode, KeyModifiers};

/// The order of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Cached,
    Dirty,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Cached => "cached",
            Sort::Dirty => "dirty",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Cached,
            Sort::Cached => Sort::Dirty,
            Sort::Dirty => Sort::Name,
        }
    }
}

/// State of the display.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) sort: Sort,
    /// The place of the chosen volume in the order.
    pub(super) chosen: usize,
}

impl View {
    /// Does what a key says; true if it says to end.
    pub(super) fn quits(&mut self, key: KeyCode, with: KeyModifiers, volumes: usize) -> bool {
        let last = volumes.saturating_sub(1);
        match key {
            KeyCode::Char('c') if with.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') => return true,
            KeyCode::Esc if !self.help => return true,
            KeyCode::Esc => self.help = false,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Up | KeyCode::Char('k') => {
                self.chosen = self.chosen.min(last).saturating_sub(1)
            }
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let mut view = View::default();
        let mut press = |key: char| view.quits(KeyCode::Char(key), KeyModifiers::NONE, 2);
        assert!(press('q'));
        for key in ['p', 's', '?', 'j', 'j', 'x'] {
            assert!(!press(key), "{key}");
        }
        let expected = View {
            paused: true,
            help: true,
            sort: Sort::Cached,
            chosen: 1,
        };
        assert_eq!(view, expected);
        assert!(
            !view.quits(KeyCode::Esc, KeyModifiers::NONE, 2),
            "closes the help"
        );
        assert!(!view.quits(KeyCode::Up, KeyModifiers::NONE, 0));
        assert_eq!(view.chosen, 0);
        assert!(view.quits(KeyCode::Esc, KeyModifiers::NONE, 2));
        assert!(view.quits(KeyCode::Char('c'), KeyModifiers::CONTROL, 2));
    }
}
