//! `forebay serve --config DIRECTORY`: all caches of a directory's files as one service.
//!
//! Each has a daemon of its own, so that a fault, an upgrade or a slow recovery of one concerns no
//! other. This process starts them, hears from each as a service manager would, replaces one that
//! breaks down or hangs, and passes on what it is told itself.

mod keeper;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::absolute::absolute;
use crate::args::{LogArgs, ServeArgs};
use crate::device::state_dir::run_dir;
use crate::failure::{DAMAGE, DamageFound, USAGE, Usage, describe, wrong_usage};
use crate::{config, service_manager, thread};
use keeper::{Keeper, Kept, Outcome, Site};

/// How often this process says that it lives, if nobody says how often it must.
const BREATH: Duration = Duration::from_secs(10);
/// How long a daemon may say nothing, if the service manager does not say it.
const WATCHDOG: Duration = Duration::from_secs(60);

/// What the main thread waits for.
enum Event {
    /// SIGTERM or SIGINT, or SIGUSR1, which keeps block devices.
    Stop(Signal),
    /// SIGHUP.
    Reload,
    /// A child process has ended.
    ChildEnded,
    /// A cache's daemon came to serve, failed, or goes on stopping.
    Cache { file: PathBuf, state: State },
}

/// How it is with a cache.
#[derive(Clone, Debug)]
enum State {
    Starting,
    Serving,
    /// Its daemon ended, and another will come.
    Failed(String),
    /// Its daemon was killed, and is not gone yet.
    Hung,
    Stopping,
    Over(Outcome),
}

/// Serves until told to stop, or until every daemon was.
pub(super) fn run(args: &ServeArgs, directory: &Path, log: &LogArgs) -> Result<()> {
    if *args != only_a_directory(args) {
        wrong_usage!(
            "{} is a directory: what is to be done is said in the files in it, and no option but --control goes \
             with that",
            directory.display()
        );
    }
    let directory = absolute(directory, "the configuration")?;
    let sockets = args.control.clone().unwrap_or_else(run_dir);
    let sockets = absolute(&sockets, "the directory of the control sockets")?;
    std::fs::create_dir_all(&sockets).with_context(|| {
        format!(
            "cannot make {}; choose a place with --control",
            sockets.display()
        )
    })?;
    let watched = sd_notify::watchdog_enabled();
    let (events, received) = channel();
    watch_signals(events.clone())?;
    let mut service = Service {
        site: Site {
            // The file of that name, which an upgrade replaces.
            program: std::env::current_exe().context("cannot find the program's own file")?,
            sockets,
            log: log.clone(),
            watchdog: watched.unwrap_or(WATCHDOG),
        },
        directory,
        caches: BTreeMap::new(),
        events,
        stopping: false,
        told: None,
    };
    let started = service.start_new_ones();
    if service.caches.is_empty() {
        started?;
        wrong_usage!(
            "there is no configuration file in {}: write one for each cache, NAME.toml (the manual and \
             /usr/share/doc/forebay/examples show how)",
            service.directory.display()
        );
    }
    // The others must not wait for one to be mended.
    say(started);
    service.run(&received, watched.map_or(BREATH, |interval| interval / 3))
}

fn say(result: Result<()>) {
    if let Err(error) = result {
        tracing::error!("{}", describe(&error));
    }
}

fn only_a_directory(args: &ServeArgs) -> ServeArgs {
    ServeArgs {
        config: args.config.clone(),
        control: args.control.clone(),
        ..ServeArgs::of_file(PathBuf::new())
    }
}

fn watch_signals(events: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD])
        .context("cannot watch for signals")?;
    thread::start("forebay-signals", move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGHUP => Event::Reload,
                SIGCHLD => Event::ChildEnded,
                SIGUSR1 => Event::Stop(Signal::USR1),
                _ => Event::Stop(Signal::TERM),
            };
            if events.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// A cache and who looks after it.
struct Cache {
    kept: Kept,
    state: State,
    /// A reload came while its daemon could not be told: it is as soon as it serves, or another is
    /// started when it has stopped.
    again: bool,
}

impl Cache {
    fn keeper(&self) -> &Arc<Keeper> {
        &self.kept.keeper
    }
}

struct Service {
    site: Site,
    directory: PathBuf,
    caches: BTreeMap<PathBuf, Cache>,
    events: Sender<Event>,
    stopping: bool,
    /// What the service manager knows since it was told that this is ready.
    told: Option<String>,
}

impl Service {
    fn run(&mut self, events: &Receiver<Event>, breath: Duration) -> Result<()> {
        let mut breathed = Instant::now();
        while !self.is_over() {
            match events.recv_timeout(breath.saturating_sub(breathed.elapsed())) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {
                    breathed = Instant::now();
                    self.breathe();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell();
        }
        let result = self.result();
        self.forget_those_over();
        result
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Stop(signal) => {
                self.stopping = true;
                for cache in self.caches.values() {
                    cache.keeper().stop(signal);
                }
                self.breathe();
            }
            Event::Reload if self.stopping => {}
            Event::Reload => self.reload(),
            Event::ChildEnded => {
                for cache in self.caches.values() {
                    cache.keeper().look();
                }
            }
            Event::Cache { file, state } => {
                if self.stopping {
                    self.breathe();
                }
                if let Some(cache) = self.caches.get_mut(&file) {
                    cache.state = state;
                }
                self.reload_late(&file);
            }
        }
    }

    /// What a reload could not do when it came.
    fn reload_late(&mut self, file: &Path) {
        let Some(cache) = self.caches.get_mut(file).filter(|cache| cache.again) else {
            return;
        };
        match cache.state {
            State::Serving => {
                cache.again = false;
                cache.keeper().reload();
            }
            State::Over(_) if !self.stopping => self.start_again(),
            _ => {}
        }
    }

    /// Starts a daemon for each file that has none, or whose last one has ended for good.
    fn start_again(&mut self) {
        self.forget_those_over();
        say(self.start_new_ones());
    }

    /// Starts a daemon for each file that has none. Of those that cannot be looked after at all the
    /// last is the error, and the others are in the log.
    fn start_new_ones(&mut self) -> Result<()> {
        let files = config::files_in(&self.directory)?;
        for fault in config::faults_between(&files) {
            tracing::error!("{fault}");
        }
        let mut result = Ok(());
        for file in files {
            if self.caches.contains_key(&file) {
                continue;
            }
            match Keeper::start(&self.site, &file, self.events.clone()) {
                Ok(kept) => {
                    let cache = Cache {
                        kept,
                        state: State::Starting,
                        again: false,
                    };
                    self.caches.insert(file, cache);
                }
                Err(error) => say(std::mem::replace(&mut result, Err(error))),
            }
        }
        result
    }

    fn forget_those_over(&mut self) {
        let is_over = |cache: &Cache| matches!(cache.state, State::Over(_));
        let (over, rest) = std::mem::take(&mut self.caches)
            .into_iter()
            .partition(|(_, cache)| is_over(cache));
        self.caches = rest;
        let over: BTreeMap<PathBuf, Cache> = over;
        for cache in over.into_values() {
            cache.kept.end();
        }
    }

    fn reload(&mut self) {
        for (file, cache) in &mut self.caches {
            match (&cache.state, file.exists()) {
                (State::Serving, true) => cache.keeper().reload(),
                (State::Starting | State::Stopping, true) => cache.again = true,
                (State::Serving, false) => tracing::warn!(
                    "{} is gone; its cache is served until `forebay stop --control {}`",
                    file.display(),
                    cache.keeper().control().display()
                ),
                // Nobody waits for it any more.
                (State::Starting | State::Failed(_), false) => cache.keeper().stop(Signal::TERM),
                _ => {}
            }
        }
        self.start_again();
    }

    fn is_over(&self) -> bool {
        let mut caches = self.caches.values();
        caches.all(|cache| matches!(cache.state, State::Over(_)))
    }

    /// Says that this process lives, or that its stop goes on.
    fn breathe(&self) {
        if self.stopping {
            // For those that get on. Whoever was killed and is not gone may never be.
            let gets_on = |cache: &Cache| !matches!(cache.state, State::Hung | State::Over(_));
            if self.caches.values().any(gets_on) {
                service_manager::stopping("waiting for daemons to stop in order");
            }
        } else {
            service_manager::alive();
        }
    }

    fn tell(&mut self) {
        let mut caches = self.caches.values();
        let starting = caches.any(|cache| matches!(cache.state, State::Starting));
        // What cannot be served must not keep the machine from booting.
        let failed = self.is_over() && self.result().is_err();
        if self.stopping || failed || (self.told.is_none() && starting) {
            return;
        }
        let summary = self.summary();
        match &self.told {
            None => service_manager::ready(&summary),
            Some(told) if *told != summary => service_manager::status(&summary),
            Some(_) => {}
        }
        self.told = Some(summary);
    }

    fn summary(&self) -> String {
        let serving = |cache: &&Cache| matches!(cache.state, State::Serving);
        let count = self.caches.values().filter(serving).count();
        let troubles = self.caches.values().filter_map(|cache| match &cache.state {
            State::Failed(why) => Some(format!("; {}: {why}, tried again", cache.keeper().name())),
            State::Hung => Some(format!("; {}: hangs", cache.keeper().name())),
            State::Over(Outcome::Failed(status)) => {
                Some(format!("; {}: {status}, for good", cache.keeper().name()))
            }
            _ => None,
        });
        let troubles: String = troubles.collect();
        format!(
            "{count} of {} caches are served{troubles}",
            self.caches.len()
        )
    }

    /// Once all is over: the gravest of what happened.
    fn result(&self) -> Result<()> {
        let failed: Vec<(&str, Option<i32>)> = self
            .caches
            .values()
            .filter_map(|cache| match &cache.state {
                State::Over(Outcome::Failed(status)) => {
                    Some((cache.keeper().name(), status.code()))
                }
                _ => None,
            })
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
        let message = format!(
            "not served: {}; what is wrong with each is said above",
            names.join(", ")
        );
        let any = |code: u8| failed.iter().any(|(_, found)| *found == Some(code.into()));
        if any(DAMAGE) {
            return Err(DamageFound(message).into());
        }
        if any(USAGE) {
            return Err(Usage(message).into());
        }
        bail!(message)
    }
}
