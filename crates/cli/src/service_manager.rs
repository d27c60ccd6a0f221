//! Messages to the service manager, as in sd_notify(3); none if it does not listen.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::failure;

/// Extension of a stop by each message. Messages come every few seconds, so that only a daemon that
/// hangs runs out of time.
const STOP_EXTENSION: Duration = Duration::from_secs(30);

/// Tells the service manager. A message that it does not hear ends in a restart at worst, which
/// loses nothing.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let error = failure::in_words(&error);
        tracing::warn!("the service manager could not be told: {error}");
    }
}

/// Clients can come.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Within each interval of [`sd_notify::watchdog_enabled`], or else the service is killed.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The orderly stop begins, or goes on, and is not to be cut short.
pub(crate) fn stopping(status: &str) {
    let extension = STOP_EXTENSION.as_micros() as u32;
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status(status),
        NotifyState::ExtendTimeoutUsec(extension),
        // The watchdog's own thread ends with the workers that it asks.
        NotifyState::Watchdog,
    ]);
}
