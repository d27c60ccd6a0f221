//! Trying again what another process holds that has ended, or is about to.

use std::time::{Duration, Instant};

/// The kernel takes the io_uring of a killed daemon apart in its own time, and with it the files
/// in it: they stay locked that much longer.
pub(crate) const OF_A_DAEMON_THAT_ENDED: Duration = Duration::from_secs(3);

const LOOK: Duration = Duration::from_millis(20);

/// Repeats an attempt for as long as `patience` while it fails with what may pass.
pub(crate) fn patiently<T, E>(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if may_pass(&error) && began.elapsed() < patience => {
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}
