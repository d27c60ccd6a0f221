//! The wall clock, read here and nowhere else. The data path goes by a clock of its own
//! (`daemon/worker.rs`), which nobody sets.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970; nothing, on a clock that is set to before.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
