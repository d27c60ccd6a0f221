//! Telling the service manager that the daemon lives.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::daemon::data::link::Message;
use crate::daemon::state::Daemon;
use crate::{service_manager, thread};

/// Tells it each time that every thread of the data path has come round: three times in the
/// interval that the service manager gave. The thread ends with the daemon.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>) -> Result<()> {
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
        service_manager::alive();
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
            // The watchdog waits for this.
            let _ = sender.send(());
        })));
    }
    drop(sender);
    let answers = daemon.links.iter().map_while(|_| receiver.recv().ok());
    answers.count() == daemon.links.len()
}
