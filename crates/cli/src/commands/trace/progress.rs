//! Progress of a long command, and Ctrl-C.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::failure::Interrupted;

/// Says on a terminal how far things are; knows when to stop.
pub(crate) struct Progress {
    stop: Arc<AtomicBool>,
    terminal: bool,
    done: AtomicU64,
    shown: Mutex<Instant>,
}

impl Progress {
    /// Takes SIGINT and SIGTERM over.
    pub(crate) fn start() -> Result<Progress> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .context("cannot watch for Ctrl-C")?;
        }
        Ok(Progress {
            stop,
            terminal: std::io::stderr().is_terminal(),
            done: AtomicU64::new(0),
            shown: Mutex::new(Instant::now()),
        })
    }

    /// More was done; `say` makes the words from what was done in all. `false`: stop.
    pub(crate) fn advance(&self, more: u64, say: impl FnOnce(u64) -> String) -> bool {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        if self.terminal {
            // Another thread that holds it prints something newer.
            if let Ok(mut shown) = self.shown.try_lock()
                && shown.elapsed() >= Duration::from_millis(200)
            {
                *shown = Instant::now();
                let _ = write!(std::io::stderr(), "\r\x1b[K{}", say(done));
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }

    /// The end of a stage: clears the line and counts from 0 again.
    pub(crate) fn finish(&self) {
        self.done.store(0, Ordering::Relaxed);
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// The error of a command that was stopped.
    pub(crate) fn interrupted(&self) -> anyhow::Error {
        self.finish();
        Interrupted("nothing was changed".to_owned()).into()
    }
}
