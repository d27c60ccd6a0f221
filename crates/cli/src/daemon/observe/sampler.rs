//! A sample for the history each second, and what a status has from it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::history::sample;
use super::hook::Phase;
use super::report;
use crate::daemon::state::Daemon;
use crate::report::copies::Copies;
use crate::report::status::{CacheStatus, Lately, Status, Times};
use crate::report::trouble::{self, Trouble};
use crate::thread;

const EVERY: Duration = Duration::from_secs(1);

impl Daemon {
    /// All that a client is told: with the last minute, and what is wrong.
    pub(in crate::daemon) fn status(&self) -> Result<Status> {
        Ok(self.complete(report::measured(self)?.0))
    }

    /// Copied, so that nothing is asked of the kernel under the lock.
    fn device_paths(&self) -> Vec<PathBuf> {
        let admin = self.admin();
        admin
            .devices()
            .map(|device| device.path().to_owned())
            .collect()
    }

    fn complete(&self, mut status: Status) -> Status {
        status.lately = self.history.lately(&status);
        status.trouble = trouble::of(&status);
        status.dashboard = self.dashboard.page_of(&self.name);
        status
    }
}

/// Takes a sample each second, from a thread of its own, until the daemon stops.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>) -> Result<()> {
    let daemon = Arc::clone(daemon);
    thread::start("forebay-history", move || {
        let mut before: Option<(Status, Times)> = None;
        let mut exposure = Exposure::default();
        // It ends with the workers that it asks.
        loop {
            exposure.hear_of_losses(&daemon);
            let Ok((status, times)) = report::measured(&daemon) else {
                return;
            };
            let began = Instant::now();
            daemon
                .members
                .look(began, daemon.device_paths().into_iter());
            let status = daemon.complete(status);
            let earlier = before
                .as_ref()
                .map_or(&[][..], |(earlier, _)| &earlier.trouble);
            note_troubles(&daemon, earlier, &status.trouble);
            if daemon.heed_degraded(&status).is_err() || daemon.record_all_on_two().is_err() {
                return;
            }
            exposure.note_whole(&daemon, &status);
            if let Some((earlier, earlier_times)) = &before {
                let counters = Lately::whole(&status);
                let sample = sample((earlier, earlier_times), (&status, &times));
                daemon.history.push(sample, counters);
            }
            before = Some((status, times));
            std::thread::sleep(EVERY.saturating_sub(began.elapsed()));
        }
    })?;
    Ok(())
}

/// Dirty data that is or may be on one device, since it was last on two.
#[derive(Debug, Default)]
struct Exposure {
    some: bool,
    /// The last event that was looked at.
    seen: u64,
}

impl Exposure {
    /// A device may be lost and replaced between two samples. To be called before a sample is taken:
    /// that shows what has become of it since.
    fn hear_of_losses(&mut self, daemon: &Daemon) {
        for event in daemon.events.after(self.seen) {
            self.some |= event.kind == "device-lost";
            self.seen = event.number;
        }
    }

    /// All dirty data is on two devices, where some was not.
    fn note_whole(&mut self, daemon: &Daemon, now: &Status) {
        match now.cache.as_ref().map(CacheStatus::copies) {
            Some(Copies::One | Copies::Alone | Copies::Copying) => self.some = true,
            Some(Copies::Two) if std::mem::take(&mut self.some) => {
                let said = "all dirty data is on two devices: any one of them may die now";
                tracing::info!("{said}");
                daemon.events.note("copies-whole", said);
            }
            _ => {}
        }
    }
}

/// Trouble that comes and goes is an event.
fn note_troubles(daemon: &Daemon, before: &[Trouble], now: &[Trouble]) {
    let lacks =
        |list: &[Trouble], trouble: &Trouble| list.iter().all(|other| !trouble.is_same(other));
    for trouble in now.iter().filter(|trouble| lacks(before, trouble)) {
        tracing::warn!(trouble = trouble.kind, "{}", trouble.text);
        daemon.events.note_trouble(trouble, Phase::Begin);
    }
    for trouble in before.iter().filter(|trouble| lacks(now, trouble)) {
        tracing::info!(trouble = trouble.kind, "no longer so: {}", trouble.text);
        daemon.events.note_trouble(trouble, Phase::End);
    }
}
