//! Changes of an origin that forgets when it returns: a server on the network that was started
//! again. It may have lost all that was written since its last good flush.
//!
//! Every acknowledged change is kept until a flush that began after it has succeeded. After a
//! return the changes are sent again, in their order, before anything else (I26).

use std::collections::VecDeque;

use forebay_engine::planted::{self, Bug};

/// A change of an origin that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data was written.
    Write {
        /// The first byte.
        offset_bytes: u64,
        /// The data.
        data: Vec<u8>,
    },
    /// Zeroes were written.
    Zeroes {
        /// The first byte.
        offset_bytes: u64,
        /// The length, in bytes.
        len_bytes: u64,
    },
    /// A range was discarded.
    Discard {
        /// The first byte.
        offset_bytes: u64,
        /// The length, in bytes.
        len_bytes: u64,
    },
}

impl Change {
    /// Memory for the change beside its data, in bytes.
    const OWN_BYTES: usize = 64;

    fn memory_bytes(&self) -> usize {
        match self {
            Change::Write { data, .. } => data.len() + Change::OWN_BYTES,
            _ => Change::OWN_BYTES,
        }
    }
}

/// The acknowledged changes of an origin since its last good flush.
#[derive(Debug, Default)]
pub struct Resend {
    changes: VecDeque<Change>,
    memory_bytes: usize,
    /// Changes, from the oldest on, that the flush in flight covers.
    covered: usize,
    /// A flush failed, or a change could not be sent again: the next flush fails.
    is_uncertain: bool,
}

impl Resend {
    /// Notes a change that the origin has acknowledged.
    pub fn acknowledged(&mut self, change: Change) {
        self.memory_bytes += change.memory_bytes();
        self.changes.push_back(change);
    }

    /// Memory that the changes take, in bytes. A flush frees it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Notes the begin of a flush: it covers all changes so far.
    pub fn flush_begins(&mut self) {
        self.covered = self.changes.len();
    }

    /// Notes the end of the flush. After a failure the changes it covered are uncertain for ever
    /// (I10): whoever asked for the flush hears of it, and they are not sent again.
    pub fn flush_ended(&mut self) {
        for change in self.changes.drain(..self.covered) {
            self.memory_bytes -= change.memory_bytes();
        }
        self.covered = 0;
    }

    /// Notes that changes may be lost of which nobody was told: the next flush has to fail.
    pub fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    /// Whether the next flush has to fail, which is then told.
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_uncertain)
    }

    /// The origin is gone, with the flush in flight. That flush may begin again after all has
    /// been sent again: the changes are then written anew, so a success speaks for them.
    pub fn lost(&mut self) {
        self.covered = 0;
    }

    /// The changes that the origin may have forgotten, in the order in which they are sent again.
    pub fn to_send(&self) -> impl Iterator<Item = &Change> {
        let believed = planted::is(Bug::ReconnectBelieved);
        self.changes.iter().filter(move |_| !believed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroes(offset_bytes: u64) -> Change {
        let len_bytes = 512;
        Change::Zeroes {
            offset_bytes,
            len_bytes,
        }
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_began() {
        let mut resend = Resend::default();
        resend.acknowledged(zeroes(0));
        resend.flush_begins();
        resend.acknowledged(zeroes(512));
        resend.flush_ended();
        assert_eq!(resend.to_send().collect::<Vec<_>>(), [&zeroes(512)]);
        resend.flush_begins();
        resend.flush_ended();
        assert_eq!(resend.to_send().count(), 0);
        assert_eq!(resend.memory_bytes(), 0);
    }

    #[test]
    fn a_flush_that_was_lost_with_the_origin_covers_nothing() {
        let mut resend = Resend::default();
        resend.acknowledged(zeroes(0));
        resend.flush_begins();
        resend.lost();
        resend.flush_ended();
        assert_eq!(resend.to_send().count(), 1);
    }

    #[test]
    fn a_doubt_is_told_once() {
        let mut resend = Resend::default();
        assert!(!resend.take_doubt());
        resend.doubt();
        assert!(resend.take_doubt() && !resend.take_doubt());
    }
}
