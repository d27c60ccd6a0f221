//! Trying again what another process holds that has ended, or is about to.

use std::time::{Duration, Instant};

/// The kernel takes the io_uring of a killed daemon apart in its own time, and with it the files
/// in it: they stay locked that much longer.
pub(crate) const DAEMON_END_TIMEOUT: Duration = Duration::from_secs(3);

const LOOK: Duration = Duration::from_millis(20);

/// Repeats an attempt for as long as `timeout` while it fails with what may pass.
pub(crate) fn retry_for<T, E>(
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if may_pass(&error) && began.elapsed() < timeout => {
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}
