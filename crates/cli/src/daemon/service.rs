//! What the service manager is told, as sd_notify(3) has it; where none listens, nothing.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use sd_notify::NotifyState;

use super::Daemon;
use super::link::Message;
use crate::failure;
use crate::thread;

/// How much longer a stop may take from each message on. Messages come every few seconds, so that
/// only a daemon that hangs runs out of this.
const STOP_EXTENSION: Duration = Duration::from_secs(30);

/// Tells the service manager. What it does not hear ends in a restart at worst, which loses
/// nothing.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let error = failure::in_words(&error);
        tracing::warn!("the service manager could not be told: {error}");
    }
}

/// Clients can come.
pub(super) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The orderly stop begins.
pub(super) fn stopping() {
    still_stopping("stopping in order");
}

/// The orderly stop goes on, and is not to be cut short.
pub(super) fn still_stopping(status: &str) {
    let extension = STOP_EXTENSION.as_micros() as u32;
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status(status),
        NotifyState::ExtendTimeoutUsec(extension),
        // The watchdog's own thread ends with the workers that it asks.
        NotifyState::Watchdog,
    ]);
}

/// Tells the watchdog that the daemon lives, each time that every thread of the data path has
/// come round: three times in the interval that the service manager gave. The thread ends with
/// the daemon.
pub(super) fn start_watchdog(daemon: &Arc<Daemon>) -> Result<()> {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    let daemon = Arc::clone(daemon);
    thread::start("forebay-watchdog", move || watch(&daemon, interval / 3))?;
    Ok(())
}

fn watch(daemon: &Daemon, every: Duration) {
    loop {
        let began = Instant::now();
        if !all_come_round(daemon) {
            // The daemon stops, and its main thread speaks from now on.
            return;
        }
        tell(&[NotifyState::Watchdog]);
        std::thread::sleep(every.saturating_sub(began.elapsed()));
    }
}

/// Waits until every worker has carried out a task, however long that takes: a worker that never
/// does keeps the watchdog from being told. False when one has ended.
fn all_come_round(daemon: &Daemon) -> bool {
    let (sender, receiver) = channel();
    for link in &daemon.links {
        let sender: Sender<()> = sender.clone();
        link.send(Message::Task(Box::new(move |_| {
            // Whoever asked waits for this.
            let _ = sender.send(());
        })));
    }
    drop(sender);
    let answers = daemon.links.iter().map_while(|_| receiver.recv().ok());
    answers.count() == daemon.links.len()
}
