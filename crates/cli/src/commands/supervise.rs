//! `forebay packaging supervise`: the cache that the root file system is on. No service manager
//! can replace its daemon, as that would have to read its own program from the volume which nobody
//! answers for. This process is in memory as a whole, and does nothing else.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signal_hook::consts::SIGCHLD;

use super::absolute::absolute;
use crate::args::SuperviseArgs;
use crate::child_daemon::{ChildDaemon, Ended, Mailbox, Sign};
use crate::root_storage;

/// This program, wherever its file has gone: from the working directory, /proc/1.
const OWN_PROGRAM: &str = "../self/exe";
/// systemd leaves processes alone at shutdown whose name begins so.
const DAEMON_NAME: &str = "@forebay";
/// Before a daemon takes the place of one that did not come to serve.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &SuperviseArgs) -> Result<()> {
    root_storage::stay_in_memory();
    let control = absolute(&args.control, "the control socket")?;
    let supervisor = Supervisor {
        config: absolute(&args.config, "the configuration file")?,
        directory: control.with_extension("initramfs"),
        control,
        watchdog: Duration::from_nanos(args.watchdog.0.0),
    };
    supervisor.make_directory()?;
    let mailbox = Mailbox::open(supervisor.directory.join("messages"))?;
    // With a handler the end of a daemon ends the wait for its messages.
    signal_hook::flag::register(SIGCHLD, Arc::default()).context("cannot watch for signals")?;
    std::env::set_current_dir("/proc/1").context("cannot enter /proc/1; is /proc mounted?")?;
    supervisor.replace_for_ever(&mailbox)
}

struct Supervisor {
    config: PathBuf,
    control: PathBuf,
    /// In memory, with all that a daemon needs.
    directory: PathBuf,
    watchdog: Duration,
}

impl Supervisor {
    fn make_directory(&self) -> Result<()> {
        let made = std::fs::create_dir_all(&self.directory)
            .and_then(|()| root_storage::copy_configuration(&self.config, &self.directory));
        made.with_context(|| {
            format!(
                "cannot copy {} to {}",
                self.config.display(),
                self.directory.display()
            )
        })
    }

    /// Starts a new daemon whenever the last has ended, even if it was told to stop: the root file
    /// system needs it. Ends only if the first never served.
    fn replace_for_ever(&self, mailbox: &Mailbox) -> Result<()> {
        let mut has_served = false;
        loop {
            let ended = self.one_daemon(mailbox)?;
            has_served |= ended.served;
            if !has_served {
                bail!(
                    "the daemon for {} ended before it served ({})",
                    self.config.display(),
                    ended.status
                );
            }
            tracing::error!(
                "the daemon that the root file system is on has ended ({}): another takes its place",
                ended.status
            );
            if !ended.served {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn one_daemon(&self, mailbox: &Mailbox) -> Result<Ended> {
        let mut daemon = ChildDaemon::start(&mut self.command(), mailbox, self.watchdog)?;
        loop {
            match daemon.wait()? {
                Sign::Message(message) if message.ready => self.note_served(),
                Sign::Message(_) | Sign::Nothing | Sign::Killed => {}
                Sign::Ended(ended) => return Ok(ended),
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(OWN_PROGRAM);
        command
            .arg0(DAEMON_NAME)
            .args(["serve", "--root-storage"])
            .arg(&self.directory)
            .arg("--config")
            .arg(&self.config)
            .arg("--control")
            .arg(&self.control);
        command
    }

    /// For the initramfs, which waits for this; when that was left there is nobody to tell.
    fn note_served(&self) {
        let path = self.directory.join("served");
        if let Err(error) = std::fs::write(&path, "") {
            tracing::debug!("cannot write {}: {error}", path.display());
        }
    }
}
