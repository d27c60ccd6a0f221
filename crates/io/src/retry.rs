//! Trying again what another process holds that has ended, or is about to.

use std::time::{Duration, Instant};

/// The longest time that a daemon which was killed still holds its files: the kernel takes its
/// io_uring apart in its own time, and with it the files in it.
pub const DAEMON_END_TIMEOUT: Duration = Duration::from_secs(3);

const LOOK: Duration = Duration::from_millis(20);

/// Repeats an attempt for as long as `timeout` while it fails with what may pass.
///
/// # Errors
/// The last attempt's.
pub fn retry_for<T, E>(
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
