//! Locks of threads that may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. What a thread left that panicked with it is whole: each change is made at once.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
