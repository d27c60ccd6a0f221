//! `forebay status`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::args::StatusArgs;
use crate::client::Client;
use crate::status::Status;

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let mut client = Client::connect(args.control.control.as_deref())?;
    if !args.watch {
        if args.control.json {
            let answer = client.ask("Status", &json!({}))?;
            crate::output::line(format_args!("{answer}"));
            return Ok(());
        }
        let status = client.status()?;
        print!(
            "{}",
            if args.prometheus {
                crate::metrics::page(&status)
            } else {
                status.page(None)
            }
        );
        return Ok(());
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .context("cannot watch for Ctrl-C")?;
    let mut before: Option<Status> = None;
    while !stop.load(Ordering::Relaxed) {
        if args.control.json {
            let answer = client.ask("Status", &json!({}))?;
            crate::output::line(format_args!("{answer}"));
        } else {
            let status = client.status()?;
            // Home, the page, and nothing below it.
            print!("\x1b[H\x1b[J{}", status.page(before.as_ref()));
            std::io::Write::flush(&mut std::io::stdout())
                .context("cannot write to standard output")?;
            before = Some(status);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
