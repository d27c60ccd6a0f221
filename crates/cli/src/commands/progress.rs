//! Long calls of a daemon: their progress, and Ctrl-C.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::args::ControlArgs;
use crate::client::Client;
use crate::units::{duration, size};

/// Calls a method that may take long. Ctrl-C ends this process, and the daemon notices; `goes_on`
/// says what holds then.
pub(super) fn call(
    control: &ControlArgs,
    mut client: Client,
    method: &str,
    parameters: &Value,
    goes_on: &'static str,
    words: &dyn Fn(&Value) -> String,
) -> Result<Value> {
    let show = Show::new(control.json);
    let watched = watch_interrupts(goes_on)?;
    let answer = client.call(method, parameters, &mut |progress| {
        show.progress(progress, words);
    });
    drop(watched);
    show.end();
    answer
}

/// The remaining time, for people.
pub(super) fn time_left(progress: &Value) -> String {
    let seconds = progress["seconds_left"].as_f64();
    seconds.map_or("?".to_owned(), duration)
}

/// A number of bytes in an answer, for people.
pub(super) fn bytes(answer: &Value, key: &str) -> String {
    size(answer[key].as_u64().unwrap_or(0))
}

/// Lets Ctrl-C end the command with its own exit code.
fn watch_interrupts(goes_on: &'static str) -> Result<signal_hook::iterator::Handle> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .context("cannot watch for Ctrl-C")?;
    let handle = signals.handle();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("\nforebay: interrupted: {goes_on}");
            std::process::exit(crate::failure::INTERRUPTED.into());
        }
    });
    Ok(handle)
}

/// Shows how far something is: a line that changes on a terminal, JSON lines for programs.
pub(super) struct Show {
    json: bool,
    terminal: bool,
}

impl Show {
    pub(super) fn new(json: bool) -> Show {
        Show {
            json,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    pub(super) fn progress(&self, progress: &Value, words: &dyn Fn(&Value) -> String) {
        if self.json {
            crate::output::line(format_args!("{progress}"));
        } else if self.terminal {
            eprint!("\r\x1b[K{}", words(progress));
        }
    }

    pub(super) fn end(&self) {
        if self.terminal && !self.json {
            eprint!("\r\x1b[K");
        }
    }
}
