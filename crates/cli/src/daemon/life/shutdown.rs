//! The orderly stop. Acknowledged writes are on the cache device before any of this; the stop makes
//! it quick to start again and tells an origin that changes meanwhile.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay_cache::control::Command;

use crate::daemon::control::block_devices::Removed;
use crate::daemon::control::commands::{Hooks, Progress};
use crate::daemon::data::link::{Link, WorkerGone};
use crate::daemon::data::ublk::in_use::{in_use_by, user_of};
use crate::daemon::data::ublk::path;
use crate::daemon::data::worker::Worker;
use crate::daemon::life::checkpoint;
use crate::daemon::notice::{Devices, Notice};
use crate::daemon::state::Daemon;
use crate::service_manager;

/// The longest wait for the answers to clients' last requests.
const CLIENTS: Duration = Duration::from_secs(10);
/// The longest wait for recorders to receive the end.
const RECORDINGS: Duration = Duration::from_secs(2);
/// The longest wait for devices to finish.
const DEVICES: Duration = Duration::from_secs(60);
/// Interval between looks, and between messages on what is waited for.
const LOOK: Duration = Duration::from_millis(10);
const SAY: Duration = Duration::from_secs(2);

/// Stops everything; the daemon is of no use afterwards.
pub(in crate::daemon) fn stop(
    daemon: &Arc<Daemon>,
    notices: &Receiver<Notice>,
    threads: Vec<JoinHandle<()>>,
    devices: Devices,
) -> Result<()> {
    service_manager::stopping("stopping in order");
    daemon.events.note("stop", "stopping in order");
    let result = settle(daemon, notices, devices);
    let kept_journals = result.is_err();
    for link in &daemon.links {
        let ended = link.call(move |worker| {
            if !kept_journals {
                worker.remove_shared_memory();
            }
            worker.stop();
        });
        if let Err(error) = ended {
            tracing::warn!("{error}");
        }
    }
    if result.is_ok() {
        for thread in threads {
            if thread.join().is_err() {
                tracing::warn!(
                    "a thread of the daemon broke down (it says where above); this is a bug: report it, with the log"
                );
            }
        }
    }
    // A socket that is gone already does no harm.
    let _ = std::fs::remove_file(&daemon.control_path);
    match &result {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => {
            let then = daemon.after_failure();
            let then = then
                .as_deref()
                .unwrap_or("what was acknowledged is recovered at the next start");
            tracing::error!(
                "not stopped in order: {}; {then}",
                crate::failure::describe(error)
            );
        }
    }
    result
}

fn settle(daemon: &Daemon, notices: &Receiver<Notice>, devices: Devices) -> Result<()> {
    // Clients wait for the answers of frozen volumes too, and block devices for longer than a stop.
    daemon.thaw_all();
    // While everything still works: to take a device away is to answer all it was asked.
    remove_block_devices(daemon, devices)?;
    daemon.entrance.close();
    for link in &daemon.links {
        link.call(Worker::refuse_requests)?;
    }
    let mut wait = Wait {
        daemon,
        notices,
        hurried: false,
        said: Instant::now(),
    };
    wait.until("clients to take their last answers", CLIENTS, |link| {
        link.call(|worker| worker.close_clients(false))
    })?;
    for link in &daemon.links {
        link.call(|worker| worker.close_clients(true))?;
    }
    end_recordings(daemon)?;
    let held = wait.until(
        "the last requests: an origin or cache device does not answer; a second signal ends this, what was acknowledged \
         stays, and the users of block devices wait for the next daemon",
        DEVICES,
        |link| link.call(Worker::hold_queues),
    )?;
    if !held {
        bail!(
            "requests were not answered within {} seconds, or before a second signal",
            DEVICES.as_secs()
        );
    }
    if daemon.admin().cache.is_none() {
        return flush(daemon, &mut wait);
    }
    let began = Instant::now();
    let tell = |_: Progress| {
        wait.look_at_notices();
        wait.say_now_and_then("waiting for devices to finish");
        began.elapsed() < DEVICES && !wait.hurried
    };
    daemon.record_all_on_two()?;
    let stopped = daemon.carry_out(Command::Stop, Hooks::telling(tell));
    if let Err(error) = stopped {
        if wait.hurried {
            bail!("devices did not finish before a second signal");
        }
        if began.elapsed() < DEVICES {
            return Err(error);
        }
        bail!(
            "devices did not finish within {} seconds",
            DEVICES.as_secs()
        );
    }
    write_checkpoint(daemon, &mut wait);
    Ok(())
}

fn write_checkpoint(daemon: &Daemon, wait: &mut Wait<'_>) {
    let written = checkpoint::write(daemon, |percent| {
        wait.look_at_notices();
        wait.say_now_and_then(&format!(
            "writing the index down for the next start, {percent} %"
        ));
        !wait.hurried
    });
    if let Err(error) = written {
        tracing::warn!(
            "the index could not be written down: {}; the next start takes longer, for it reads all summaries",
            crate::failure::describe(&error)
        );
    }
}

/// Lets recordings have their end.
fn end_recordings(daemon: &Daemon) -> Result<()> {
    for link in &daemon.links {
        link.call(|worker| worker.taps.end_all())?;
    }
    let began = Instant::now();
    while daemon.recordings.count() > 0 && began.elapsed() < RECORDINGS {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Tells who watches, and the service manager, that the stop goes on.
fn say(what: &str) {
    tracing::info!("stopping: {what}");
    service_manager::stopping(what);
}

/// Takes away the block devices that nobody uses. The users of the others wait for the next
/// daemon: to fail their requests would cost them data.
fn remove_block_devices(daemon: &Daemon, devices: Devices) -> Result<()> {
    daemon.close_block_devices();
    let volumes = daemon.admin().volumes.clone();
    for volume in volumes {
        let Some(number) = volume.block_device else {
            continue;
        };
        let user = match devices {
            Devices::Keep => Some("kept".to_owned()),
            Devices::KeepUsed => user_of(path(number).as_ref())?,
        };
        let removed = match user {
            None => daemon.remove_block_device(volume.slot)?,
            Some(user) => Removed::InUse(in_use_by(&user, &path(number), &volume.name)),
        };
        if let Removed::InUse(in_use) = removed {
            tracing::warn!("{in_use}: its users wait until a daemon serves it again");
        }
    }
    Ok(())
}

/// Makes everything durable, on every volume.
fn flush(daemon: &Daemon, wait: &mut Wait<'_>) -> Result<()> {
    let slots: Vec<_> = daemon
        .admin()
        .volumes
        .iter()
        .map(|volume| (volume.slot, volume.name.clone()))
        .collect();
    for (slot, name) in slots {
        let (sender, receiver) = channel();
        daemon.links[0].call(move |worker| worker.flush_volume(slot, sender))?;
        let began = Instant::now();
        let answer = loop {
            if let Ok(answer) = receiver.recv_timeout(SAY) {
                break answer;
            }
            wait.look_at_notices();
            say(&format!("waiting for volume {name} to be flushed"));
            if wait.hurried {
                bail!("volume {name} was not flushed before a second signal");
            }
            if began.elapsed() > DEVICES {
                bail!(
                    "volume {name} was not flushed within {} seconds",
                    DEVICES.as_secs()
                );
            }
        };
        if let Err(failure) = answer {
            bail!("volume {name} could not be flushed: {failure}");
        }
    }
    Ok(())
}

struct Wait<'a> {
    daemon: &'a Daemon,
    notices: &'a Receiver<Notice>,
    /// Another signal came: nothing is waited for.
    hurried: bool,
    /// When it was last said what is waited for.
    said: Instant,
}

impl Wait<'_> {
    /// Waits until nothing is left on any worker, or time is up; says which.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        left: impl Fn(&Link) -> Result<usize, WorkerGone>,
    ) -> Result<bool> {
        let began = Instant::now();
        let mut said = began;
        loop {
            self.look_at_notices();
            let mut count = 0;
            for link in &self.daemon.links {
                count += left(link)?;
            }
            if count == 0 {
                return Ok(true);
            }
            if began.elapsed() > limit || self.hurried {
                tracing::warn!("stopping: no longer waiting for {what} ({count} left)");
                return Ok(false);
            }
            if said.elapsed() > SAY {
                said = Instant::now();
                say(&format!("waiting for {what} ({count} left)"));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn say_now_and_then(&mut self, what: &str) {
        if self.said.elapsed() > SAY {
            self.said = Instant::now();
            say(what);
        }
    }

    fn look_at_notices(&mut self) {
        self.daemon.put_on_record();
        while let Ok(notice) = self.notices.try_recv() {
            match notice {
                Notice::Signal(_) => self.hurried = true,
                Notice::Reload => tracing::info!("SIGHUP came: the daemon is stopping already"),
                Notice::CacheFailed { worker, report } => {
                    self.daemon.take_failure_report(worker, report)
                }
                Notice::Stop { done, .. } => {
                    // A requester that asked twice is told by the end of the process.
                    let _ = done.send(Err("the daemon is stopping already".to_owned()));
                }
                Notice::Failed { worker, reason } => {
                    tracing::error!("thread {worker} of the daemon: {reason}")
                }
            }
        }
    }
}
