//! The hook: an administrator's program that is run at each event, from a thread of its own. Events
//! wait for it in a bounded queue, and those that find it full are counted and left out.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use anyhow::Result;

use crate::bounded_program::{Program, Ran};
use crate::daemon::state::Daemon;
use crate::failure;
use crate::lock::lock;
use crate::report::status::HookStatus;
use crate::thread;

/// The longest time that a hook may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The most events that wait for it.
const WAITING: usize = 64;
/// The most that is taken of its output to the log.
const MOST_BYTES: usize = 4096;

/// Whether something begins, ends, or happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Phase {
    Begin,
    End,
    Once,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Begin => "begin",
            Phase::End => "end",
            Phase::Once => "once",
        }
    }
}

/// Something to tell the hook.
#[derive(Debug)]
pub(super) struct HookEvent {
    pub(super) kind: String,
    pub(super) phase: Phase,
    pub(super) volume: Option<String>,
    pub(super) text: String,
    pub(super) unix_seconds: f64,
}

/// The hook, and what became of its calls.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Hook {
    program: Mutex<Option<PathBuf>>,
    queue: OnceLock<SyncSender<HookEvent>>,
    succeeded: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

impl Hook {
    fn program(&self) -> MutexGuard<'_, Option<PathBuf>> {
        lock(&self.program)
    }

    /// Puts another program into its place, from the next event on.
    pub(in crate::daemon) fn set(&self, program: Option<PathBuf>) {
        *self.program() = program;
    }

    /// Leaves a message for the hook, without waiting.
    pub(super) fn tell(&self, event: HookEvent) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        if self.program().is_none() {
            return;
        }
        if let Err(TrySendError::Full(event)) = queue.try_send(event) {
            let before = self.left_out.fetch_add(1, Ordering::Relaxed);
            if before == 0 {
                tracing::warn!(
                    "the hook is too slow: {WAITING} events wait for it, and `{}` is left out; `forebay status --json` counts those",
                    event.kind
                );
            }
        }
    }

    /// Counts, for the status.
    pub(super) fn status(&self) -> HookStatus {
        HookStatus {
            program: self
                .program()
                .as_ref()
                .map(|path| path.display().to_string()),
            succeeded: self.succeeded.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
        }
    }

    fn call(&self, daemon: &Daemon, event: &HookEvent) {
        let Some(path) = self.program().clone() else {
            return;
        };
        let program = Program::new(&path)
            .argument(&event.kind)
            .argument(event.phase.name())
            .variable("FOREBAY_EVENT", &event.kind)
            .variable("FOREBAY_PHASE", event.phase.name())
            .variable("FOREBAY_CACHE", &daemon.name)
            .variable("FOREBAY_VOLUME", event.volume.as_deref().unwrap_or(""))
            .variable("FOREBAY_TEXT", &event.text)
            .variable("FOREBAY_TIME", format!("{:.3}", event.unix_seconds))
            .variable("FOREBAY_CONTROL", &daemon.control_path);
        let called = format!("the hook {} for `{}`", path.display(), event.kind);
        let (is_done, words) = match program.run(LIMIT, MOST_BYTES) {
            Ok(Ran { status, output }) => (
                status.is_some_and(|status| status.success()),
                outcome(status, &output),
            ),
            Err(error) => (
                false,
                format!("cannot be run: {}", failure::in_words(&error)),
            ),
        };
        let count = if is_done {
            &self.succeeded
        } else {
            &self.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
        if is_done {
            tracing::info!("{called} {words}");
        } else {
            tracing::warn!("{called} {words}");
        }
    }
}

/// The end of a hook in words, with the beginning of its output on one line.
fn outcome(status: Option<ExitStatus>, output: &[u8]) -> String {
    let ended = match status {
        Some(status) if status.success() => "is done".to_owned(),
        Some(status) => format!("failed ({status})"),
        None => format!("did not end within {} s, and was killed", LIMIT.as_secs()),
    };
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return ended;
    }
    let said: String = lines
        .join(" | ")
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    format!("{ended}: {said}")
}

/// Runs the hook for each event, one after the other.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>) -> Result<()> {
    if daemon.is_under_root() {
        return Ok(());
    }
    let (sender, receiver): (_, Receiver<HookEvent>) = sync_channel(WAITING);
    // Set once, here.
    let _ = daemon.events.hook.queue.set(sender);
    let daemon = Arc::clone(daemon);
    thread::start("forebay-hook", move || {
        while let Ok(event) = receiver.recv() {
            daemon.events.hook.call(&daemon, &event);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_one_line_without_control() {
        let success = ExitStatus::default();
        let said = outcome(Some(success), b"\n  one\n\x1b[31mtwo\xff\n\n");
        assert_eq!(said, "is done: one | [31mtwo\u{fffd}");
        assert_eq!(
            outcome(None, b""),
            "did not end within 30 s, and was killed"
        );
    }

    #[test]
    fn nobody_waits_for_a_full_queue() {
        let hook = Hook::default();
        let event = || HookEvent {
            kind: "mode".to_owned(),
            phase: Phase::Once,
            volume: None,
            text: String::new(),
            unix_seconds: 0.0,
        };
        let (sender, _receiver) = sync_channel(2);
        hook.queue.set(sender).unwrap();
        hook.tell(event());
        hook.set(Some("/bin/true".into()));
        (0..5).for_each(|_| hook.tell(event()));
        assert_eq!(hook.status().left_out, 3);
    }
}
