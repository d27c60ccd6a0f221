//! `forebay packaging supervise`: the cache that the root file system is on. No service manager
//! can replace its daemon, as that would have to read its own program from the volume which nobody
//! answers for. This process is in memory as a whole, and does nothing else.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::SIGCHLD;

use crate::args::SuperviseArgs;
use crate::root_storage;

/// The same program, wherever its file has gone: from the working directory, /proc/1.
const OWN_PROGRAM: &str = "../self/exe";
/// systemd leaves processes alone at shutdown whose name begins so.
const DAEMON_NAME: &str = "@forebay";
/// How often it is looked whether the daemon still is, if nothing says that it may not be.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long one may take that comes: it recovers the log first.
const START: Duration = Duration::from_secs(180);
/// Before a daemon takes the place of one that did not come to serve.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &SuperviseArgs) -> Result<()> {
    root_storage::stay_in_memory();
    let control = super::absolute(&args.control, "the control socket")?;
    let supervisor = Supervisor {
        config: super::absolute(&args.config, "the configuration file")?,
        directory: control.with_extension("initramfs"),
        control,
        watchdog: Duration::from_nanos(args.watchdog.0.0),
    };
    supervisor.make_directory()?;
    let messages = supervisor.listen()?;
    // With a handler the end of a daemon ends the wait for its messages.
    signal_hook::flag::register(SIGCHLD, Arc::default()).context("cannot watch for signals")?;
    std::env::set_current_dir("/proc/1").context("cannot enter /proc/1; is /proc mounted?")?;
    supervisor.replace_for_ever(&messages)
}

struct Supervisor {
    config: PathBuf,
    control: PathBuf,
    /// In memory, with all that a daemon needs.
    directory: PathBuf,
    watchdog: Duration,
}

/// What became of a daemon.
struct Ended {
    status: ExitStatus,
    /// It had served.
    served: bool,
}

impl Supervisor {
    fn messages(&self) -> PathBuf {
        self.directory.join("messages")
    }

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

    /// Where daemons say that they live (sd_notify(3)).
    fn listen(&self) -> Result<UnixDatagram> {
        let path = self.messages();
        let failed = || format!("cannot listen at {}", path.display());
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(failed);
        }
        let socket = UnixDatagram::bind(&path).with_context(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .with_context(failed)?;
        socket
            .set_read_timeout(Some(INTERVAL))
            .with_context(failed)?;
        Ok(socket)
    }

    /// One daemon after the other: also one that was told to stop is replaced, as the root file
    /// system would be gone without. Ends only if the first one never served.
    fn replace_for_ever(&self, messages: &UnixDatagram) -> Result<()> {
        let mut has_served = false;
        loop {
            let ended = self.one_daemon(messages)?;
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

    fn one_daemon(&self, messages: &UnixDatagram) -> Result<Ended> {
        let mut daemon = self.start()?;
        let mut served = false;
        let mut heard = Instant::now();
        let mut message = [0; 4096];
        loop {
            if let Ok(length) = messages.recv(&mut message) {
                heard = Instant::now();
                if says_ready(&message[..length]) {
                    served = true;
                    self.note_served();
                }
            }
            let status = daemon
                .try_wait()
                .context("cannot find out what became of the daemon")?;
            if let Some(status) = status {
                return Ok(Ended { status, served });
            }
            let patience = if served { self.watchdog } else { START };
            if heard.elapsed() > patience {
                tracing::error!("the daemon hangs, and is killed");
                // It may have ended meanwhile.
                let _ = daemon.kill();
                heard = Instant::now();
            }
        }
    }

    fn start(&self) -> Result<Child> {
        Command::new(OWN_PROGRAM)
            .arg0(DAEMON_NAME)
            .args(["serve", "--root-storage"])
            .arg(&self.directory)
            .arg("--config")
            .arg(&self.config)
            .arg("--control")
            .arg(&self.control)
            .env("NOTIFY_SOCKET", self.messages())
            .env("WATCHDOG_USEC", self.watchdog.as_micros().to_string())
            .spawn()
            .context("cannot start the daemon")
    }

    /// For the initramfs, which waits for this; when that was left there is nobody to tell.
    fn note_served(&self) {
        let path = self.directory.join("served");
        if let Err(error) = std::fs::write(&path, "") {
            tracing::debug!("cannot write {}: {error}", path.display());
        }
    }
}

fn says_ready(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == b'\n')
        .any(|line| line == b"READY=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_line_of_its_own() {
        assert!(says_ready(b"READY=1\nSTATUS=serving\n"));
        assert!(says_ready(b"STATUS=x\nREADY=1"));
        assert!(!says_ready(b"STATUS=READY=1\nWATCHDOG=1\n"));
    }
}
