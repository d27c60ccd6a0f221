//! Waking a thread that waits in its ring.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
struct Shared {
    event: File,
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
        // SAFETY: eventfd has no preconditions.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        Ok(Waker {
            shared: Arc::new(Shared {
                event,
                pending: AtomicBool::new(false),
            }),
        })
    }

    /// Makes the ring complete [`super::Token::WAKE`]. An entry put into a queue before the call is
    /// seen by a look after that completion; several calls may make one completion.
    pub fn wake(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow: it is one at most.
            let _ = (&self.shared.event).write(&1u64.to_ne_bytes());
        }
    }

    pub(super) fn acknowledge(&self) {
        // Emptied first: a wake after the flag is cleared writes again.
        let _ = (&self.shared.event).read(&mut [0; 8]);
        // Taken and not just stored: the last waker's entries are then visible here.
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}
