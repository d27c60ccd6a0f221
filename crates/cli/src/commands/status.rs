//! `forebay status`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::args::StatusArgs;
use crate::client::Client;
use crate::report::metrics::Named;
use crate::report::status::Status;

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let control = args.control.control.as_deref();
    if args.prometheus {
        return metrics(control);
    }
    let mut shown: Vec<Shown> = Client::each(control)?.into_iter().map(Shown::new).collect();
    let as_json = args.control.json;
    if !args.watch {
        let (text, result) = say_each(&mut shown, as_json);
        if !text.is_empty() {
            crate::output::line(text.trim_end());
        }
        return result;
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .context("cannot watch for Ctrl-C")?;
    // Home, the pages, and nothing below them.
    let before = if as_json { "" } else { "\x1b[H\x1b[J" };
    while !stop.load(Ordering::Relaxed) {
        let (text, result) = say_each(&mut shown, as_json);
        let mut out = std::io::stdout();
        let text = crate::output::plain(&text);
        let written = write!(out, "{before}{text}").and_then(|()| out.flush());
        written.context("cannot write to standard output")?;
        result?;
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// The metrics of each daemon, and whether it answers. Only if none does there is nothing to print.
fn metrics(control: Option<&Path>) -> Result<()> {
    let mut caches = Vec::new();
    let mut failed = None;
    let mut answered = false;
    for (socket, mut client) in Client::each(control)? {
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
        match client.status() {
            Ok(status) => {
                answered = true;
                caches.push((stem.into_owned(), Some(status)));
            }
            Err(error) => {
                failed = Some(error);
                caches.push((stem.into_owned(), None));
            }
        }
    }
    if let (Some(error), false) = (failed, answered) {
        return Err(error);
    }
    print!(
        "{}",
        crate::report::metrics::page(&Named::told_apart(caches))
    );
    Ok(())
}

/// A daemon, and what it said the last time.
struct Shown {
    socket: PathBuf,
    client: Client,
    before: Option<Status>,
}

impl Shown {
    fn new((socket, client): (PathBuf, Client)) -> Shown {
        Shown {
            socket,
            client,
            before: None,
        }
    }

    fn says(&mut self, as_json: bool) -> Result<String> {
        if as_json {
            let answer = self.client.ask("Status", &json!({}))?;
            return Ok(format!("{answer}\n"));
        }
        let status = self.client.status()?;
        let page = status.page(self.before.as_ref());
        self.before = Some(status);
        Ok(page)
    }
}

/// The status of each daemon: of several, a page for each below its socket, or a line of JSON for
/// each. A daemon that does not answer is the error, and the others are shown all the same.
fn say_each(daemons: &mut [Shown], as_json: bool) -> (String, Result<()>) {
    let several = daemons.len() > 1;
    let mut text = String::new();
    let mut result = Ok(());
    for daemon in daemons {
        match daemon.says(as_json) {
            Ok(page) if several && !as_json => {
                let blank = if text.is_empty() { "" } else { "\n" };
                text.push_str(&format!("{blank}{}:\n{page}", daemon.socket.display()));
            }
            Ok(said) => text.push_str(&said),
            Err(error) => {
                let failed = || format!("cannot ask the daemon at {}", daemon.socket.display());
                result = Err(error).with_context(failed);
            }
        }
    }
    (text, result)
}
