//! An eventfd: a thread tells another, which waits in a ring or in poll(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Readable from a call of [`Event::notify`] until it is cleared.
#[derive(Clone, Debug)]
pub struct Event(Arc<File>);

impl Event {
    /// An event that has not happened yet.
    ///
    /// # Errors
    /// If the kernel has no descriptor for it.
    pub fn new() -> io::Result<Event> {
        // SAFETY: eventfd has no preconditions.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Event(Arc::new(File::from(owned))))
    }

    /// Makes the descriptor readable.
    pub fn notify(&self) {
        // A counter that is full is readable as well.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        // An event that did not happen is clear already.
        let _ = (&*self.0).read(&mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
