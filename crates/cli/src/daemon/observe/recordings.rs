//! How many recordings are being made.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many recordings are being made.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Recordings(AtomicUsize);

impl Recordings {
    pub(in crate::daemon) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self) -> Counted<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Counted(self)
    }
}

/// One of them, while it is being made.
pub(super) struct Counted<'a>(&'a Recordings);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
