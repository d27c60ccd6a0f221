//! A daemon that another process of this program starts and looks after: it hears from it what a
//! service manager would, as sd_notify(3) has it.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Interval between checks that the daemon still runs, if nothing prompts an earlier check.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest start of a daemon: it recovers the log first.
const START: Duration = Duration::from_secs(180);

/// Where daemons leave their messages.
pub(crate) struct Mailbox {
    socket: UnixDatagram,
    path: PathBuf,
}

/// The part of a daemon's message that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// It serves.
    pub(crate) ready: bool,
}

impl Message {
    fn parse(text: &[u8]) -> Message {
        let says = |wanted: &[u8]| text.split(|byte| *byte == b'\n').any(|line| line == wanted);
        Message {
            ready: says(b"READY=1"),
        }
    }
}

impl Mailbox {
    /// In the place of one that was left there.
    pub(crate) fn open(path: PathBuf) -> Result<Mailbox> {
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
        Ok(Mailbox { socket, path })
    }

    /// The next message; none after a while, or when a signal was handled.
    fn receive(&self) -> Option<Message> {
        let mut text = [0; 4096];
        let length = self.socket.recv(&mut text).ok()?;
        (length > 0).then(|| Message::parse(&text[..length]))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // A socket that is gone already does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A daemon, and the way to hear from it.
pub(crate) struct ChildDaemon<'a> {
    child: Child,
    mailbox: &'a Mailbox,
    watchdog: Duration,
    heard: Instant,
    served: bool,
}

/// A sign of life, or of death, of a daemon.
pub(crate) enum Sign {
    Message(Message),
    Nothing,
    /// It hung, and was killed. While the kernel waits for a device on its behalf it is there
    /// still.
    Killed,
    Ended(Ended),
}

/// The end of a daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// It had served.
    pub(crate) served: bool,
}

impl<'a> ChildDaemon<'a> {
    /// Runs the command. Once it has said that it serves, it must say something within each
    /// `watchdog`, or it hangs, and is killed.
    pub(crate) fn start(
        command: &mut Command,
        mailbox: &'a Mailbox,
        watchdog: Duration,
    ) -> Result<ChildDaemon<'a>> {
        let child = command
            .env("NOTIFY_SOCKET", &mailbox.path)
            .env("WATCHDOG_USEC", watchdog.as_micros().to_string())
            // Of this process, if it is watched itself.
            .env_remove("WATCHDOG_PID")
            .spawn()
            .context("cannot start the daemon")?;
        Ok(ChildDaemon {
            child,
            mailbox,
            watchdog,
            heard: Instant::now(),
            served: false,
        })
    }

    /// Waits for the next sign of it, at most for an interval.
    pub(crate) fn wait(&mut self) -> Result<Sign> {
        let message = self.mailbox.receive();
        if let Some(message) = message {
            self.heard = Instant::now();
            self.served |= message.ready;
        }
        let status = self.child.try_wait();
        if let Some(status) = status.context("cannot find out what became of the daemon")? {
            return Ok(Sign::Ended(Ended {
                status,
                served: self.served,
            }));
        }
        let timeout = if self.served { self.watchdog } else { START };
        if self.heard.elapsed() > timeout {
            tracing::error!("the daemon hangs, and is killed");
            // It may have ended meanwhile.
            let _ = self.child.kill();
            self.heard = Instant::now();
            return Ok(Sign::Killed);
        }
        Ok(message.map_or(Sign::Nothing, Sign::Message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_a_line_of_its_own() {
        let ready = |text: &[u8]| Message::parse(text).ready;
        assert!(ready(b"READY=1\nSTATUS=serving\n"));
        assert!(ready(b"STATUS=x\nREADY=1"));
        assert!(!ready(b"STATUS=READY=1\nWATCHDOG=1\n"));
    }
}
