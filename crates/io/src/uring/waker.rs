//! Waking a thread that waits in its ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::event::Event;

#[derive(Debug)]
struct Shared {
    event: Event,
    // Spares the system call while an earlier wake has not been seen.
    pending: AtomicBool,
}

/// Wakes the thread of one ring from any other.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        Ok(Waker {
            shared: Arc::new(Shared {
                event: Event::new()?,
                pending: AtomicBool::new(false),
            }),
        })
    }

    /// Makes the ring complete [`super::Token::WAKE`]. An entry put into a queue before the call is
    /// seen by a look after that completion; several calls may make one completion.
    pub fn wake(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            self.shared.event.notify();
        }
    }

    pub(super) fn acknowledge(&self) {
        // Emptied first: a wake after the flag is cleared writes again.
        self.shared.event.clear();
        // Taken and not just stored: the last waker's entries are then visible here.
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}
