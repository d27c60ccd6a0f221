//! The number of recordings in progress.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of recordings in progress.
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

/// A recording in progress.
pub(super) struct Counted<'a>(&'a Recordings);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
