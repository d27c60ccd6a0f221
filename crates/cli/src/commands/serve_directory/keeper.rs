//! Whoever looks after the daemon of one cache: a thread that starts it, and starts another when
//! that is of use.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{Event, State};
use crate::args::LogArgs;
use crate::child_daemon::{Bell, ChildDaemon, Ended, Mailbox, Sign};
use crate::client::Client;
use crate::commands::live;
use crate::failure::{DAMAGE, USAGE, describe, wrong_usage};
use crate::thread;

/// Before the next daemon of a cache whose last one did not come to serve: a device may come.
const PAUSE: Duration = Duration::from_secs(2);

/// What all daemons have in common.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) program: PathBuf,
    /// Where control sockets are.
    pub(super) sockets: PathBuf,
    pub(super) log: LogArgs,
    pub(super) watchdog: Duration,
}

/// Why there will be no other daemon.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// It was told to stop.
    Stopped,
    /// Another one serves the cache, and is not this process's to look after.
    Elsewhere,
    /// What the next one would meet as well, or what came of the stop.
    Failed(ExitStatus),
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Stopped => out.write_str("stopped"),
            Outcome::Elsewhere => out.write_str("served by a daemon of another service"),
            Outcome::Failed(status) => write!(
                out,
                "its daemon ended ({status}), and there will be no other: it says above what is wrong; mend that, \
                 and reload this service"
            ),
        }
    }
}

/// What a daemon has been told, or is to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Orders {
    /// The last one.
    stop: Option<Signal>,
    /// How often: the second one hurries it.
    times: u32,
}

pub(super) struct Keeper {
    file: PathBuf,
    name: String,
    control: PathBuf,
    site: Site,
    bell: Bell,
    orders: Mutex<Orders>,
    events: Sender<Event>,
}

/// A keeper and its thread.
pub(super) struct Kept {
    pub(super) keeper: Arc<Keeper>,
    thread: JoinHandle<()>,
}

impl Kept {
    /// Once it is over: leaves the place to another.
    pub(super) fn end(self) {
        if self.thread.join().is_err() {
            tracing::error!(
                "{}: the thread that looked after its daemon broke down; this is a bug: report it, with the log",
                self.keeper.name
            );
        }
    }
}

impl Keeper {
    /// Begins to look after the cache of this file; the thread ends as soon as it has told that
    /// this is over.
    pub(super) fn start(site: &Site, file: &Path, events: Sender<Event>) -> Result<Kept> {
        let Some(name) = file.file_stem().and_then(|name| name.to_str()) else {
            wrong_usage!(
                "the name of {} is not UTF-8; the cache is called after it",
                file.display()
            );
        };
        // The name is this keeper's alone: another service, or the next keeper of this cache, must
        // not be listened to in its place.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let messages = format!("{name}.{}-{number}.messages", std::process::id());
        let mailbox = Mailbox::open(site.sockets.join(messages))?;
        let keeper = Arc::new(Keeper {
            file: file.to_owned(),
            name: name.to_owned(),
            // As forebay@NAME.service has it, whatever the file says.
            control: site.sockets.join(format!("{name}.sock")),
            site: site.clone(),
            bell: mailbox.bell()?,
            orders: Mutex::default(),
            events,
        });
        let kept = Arc::clone(&keeper);
        let thread = thread::start("forebay-keeper", move || kept.keep(mailbox))?;
        Ok(Kept { keeper, thread })
    }

    /// What the cache is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn control(&self) -> &Path {
        &self.control
    }

    pub(super) fn stop(&self, signal: Signal) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        *orders = Orders {
            stop: Some(signal),
            times: orders.times + 1,
        };
        self.bell.ring();
    }

    /// Has the thread look at its daemon at once.
    pub(super) fn look(&self) {
        self.bell.ring();
    }

    /// Has the daemon read its file again, in a thread: that may take long.
    pub(super) fn reload(self: &Arc<Self>) {
        let keeper = Arc::clone(self);
        let started = thread::start("forebay-reload", move || {
            let name = keeper.name();
            let answer = Client::connect(Some(&keeper.control))
                .and_then(|mut client| client.ask("Reload", &json!({})));
            match answer {
                Ok(answer) => {
                    for line in live::words_of_reload(&answer) {
                        tracing::info!("{name}: {line}");
                    }
                }
                Err(error) => tracing::error!("{name}: not reloaded: {}", describe(&error)),
            }
        });
        if let Err(error) = started {
            tracing::error!("{}", describe(&error));
        }
    }

    fn orders(&self) -> Orders {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_to_stop(&self) -> bool {
        self.orders().stop.is_some()
    }

    fn tell(&self, state: State) {
        // The process ends when nobody hears.
        let _ = self.events.send(Event::Cache {
            file: self.file.clone(),
            state,
        });
    }

    fn keep(&self, mailbox: Mailbox) {
        let outcome = self.one_after_the_other(&mailbox);
        // Nobody listens any more, and nobody may wait until somebody does.
        drop(mailbox);
        let name = &self.name;
        match outcome {
            Outcome::Failed(_) => tracing::error!("{name}: {outcome}"),
            _ => tracing::info!("{name}: {outcome}"),
        }
        self.tell(State::Over(outcome));
    }

    fn one_after_the_other(&self, mailbox: &Mailbox) -> Outcome {
        loop {
            if self.is_to_stop() {
                return Outcome::Stopped;
            }
            if self.is_served_elsewhere() {
                return Outcome::Elsewhere;
            }
            let (why, served) = match self.one_daemon(mailbox) {
                // One that nobody waits for any more and that has served nobody has stopped,
                // whatever ended it: the signal, before it watched for it, what kept it from
                // serving, or that its file is gone before the reload that tells of it.
                Ok(Ended { status, served })
                    if status.success()
                        || (!served && (self.is_to_stop() || !self.file.exists())) =>
                {
                    return Outcome::Stopped;
                }
                Ok(Ended { status, .. }) if self.is_to_stop() || is_for_good(status) => {
                    return Outcome::Failed(status);
                }
                Ok(Ended { status, served }) => (status.to_string(), served),
                Err(error) => (describe(&error), false),
            };
            tracing::error!(
                "{}: its daemon ended ({why}), and another takes its place",
                self.name
            );
            self.tell(State::Failed(why));
            // Clients wait for one whose daemon broke down; for one that did not come to serve,
            // something must happen first.
            if !served {
                mailbox.pause(PAUSE, || self.is_to_stop());
            }
        }
    }

    /// By a service of its own, or since the initramfs.
    fn is_served_elsewhere(&self) -> bool {
        self.control.with_extension("initramfs").exists()
            || Client::connect(Some(&self.control)).is_ok()
    }

    fn one_daemon(&self, mailbox: &Mailbox) -> Result<Ended> {
        let mut daemon = ChildDaemon::start(&mut self.command(), mailbox, self.site.watchdog)?;
        let mut told = Orders::default();
        loop {
            match daemon.wait()? {
                Sign::Message(message) if message.stopping => self.tell(State::Stopping),
                Sign::Message(message) if message.ready => self.tell(State::Serving),
                Sign::Message(_) | Sign::Nothing => {}
                Sign::Killed => self.tell(State::Hung),
                Sign::Ended(ended) => return Ok(ended),
            }
            let orders = self.orders();
            if let Some(signal) = orders.stop.filter(|_| orders != told) {
                told = orders;
                kill_process(Pid::from_child(daemon.child()), signal)
                    .map_err(std::io::Error::from)
                    .with_context(|| format!("cannot stop the daemon of {}", self.name))?;
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.site.program);
        command
            .arg("serve")
            .arg("--config")
            .arg(&self.file)
            .arg("--control")
            .arg(&self.control)
            .args(self.site.log.again())
            .args(["--log-cache", &self.name])
            // A key pressed in this process's terminal is told to this process alone, which passes
            // it on: a daemon that hears it twice would hurry.
            .process_group(0);
        command
    }
}

/// Whether another daemon would meet the same: a wrong configuration, or damage.
fn is_for_good(status: ExitStatus) -> bool {
    let code = status.code();
    code == Some(USAGE.into()) || code == Some(DAMAGE.into())
}
