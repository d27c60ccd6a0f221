//! `forebay status`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::args::StatusArgs;
use crate::client::{Client, PATIENCE};
use crate::status::Status;

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let control = args.control.control.as_deref();
    if args.prometheus {
        let status = Client::connect(control)?.status()?;
        print!("{}", crate::metrics::page(&status));
        return Ok(());
    }
    let mut shown: Vec<Shown> = Client::each(control)?.into_iter().map(Shown::new).collect();
    if !args.watch {
        return show(&mut shown, args.control.json, "");
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .context("cannot watch for Ctrl-C")?;
    while !stop.load(Ordering::Relaxed) {
        // Home, the pages, and nothing below them.
        show(&mut shown, args.control.json, "\x1b[H\x1b[J")?;
        std::thread::sleep(Duration::from_secs(1));
    }
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

    fn page(&mut self) -> Result<String> {
        let status = self.client.status()?;
        let page = status.page(self.before.as_ref());
        self.before = Some(status);
        Ok(page)
    }
}

/// What each says: of several, a page for each below its socket, or a line of JSON for each. One
/// that does not answer is told when the others are shown.
fn show(daemons: &mut [Shown], as_json: bool, before: &str) -> Result<()> {
    let several = daemons.len() > 1;
    let mut text = String::new();
    let mut result = Ok(());
    for daemon in daemons {
        daemon.client.answers_within(several.then_some(PATIENCE))?;
        let said = match as_json {
            true => daemon
                .client
                .ask("Status", &json!({}))
                .map(|answer| format!("{answer}\n")),
            false => daemon.page(),
        };
        match said {
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
    let before = if as_json { "" } else { before };
    print!("{before}{text}");
    std::io::Write::flush(&mut std::io::stdout()).context("cannot write to standard output")?;
    result
}
