//! `forebay top`: a running cache, live, in a terminal.

mod recent;
mod screen;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::args::TopArgs;
use crate::client::Client;
use crate::failure::Usage;
use recent::Recent;
use view::View;

/// Interval between two questions to the daemon.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        let instead = "top needs a terminal, and standard output is none: use `forebay status --watch`, or `forebay status --json` in a script";
        return Err(Usage(instead.to_owned()).into());
    }
    let mut client = Client::connect(args.control.as_deref())?;
    let mut recent = Recent::ask(&mut client)?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let result = live(&mut terminal, &mut client, &mut recent);
    ratatui::restore();
    result
}

fn live(terminal: &mut DefaultTerminal, client: &mut Client, recent: &mut Recent) -> Result<()> {
    let mut view = View::default();
    loop {
        let asked = Instant::now();
        loop {
            terminal
                .draw(|frame| screen::draw(frame, recent, &view))
                .context("cannot write to the terminal")?;
            let left = EVERY.saturating_sub(asked.elapsed());
            if left.is_zero() {
                break;
            }
            if !event::poll(left).context("cannot read from the terminal")? {
                continue;
            }
            let event = event::read().context("cannot read from the terminal")?;
            let Event::Key(key) = event else { continue };
            let pressed = key.kind == KeyEventKind::Press;
            if pressed && view.quits(key.code, key.modifiers, recent.volumes(view.sort).len()) {
                return Ok(());
            }
        }
        if !view.paused {
            recent.refresh(client)?;
        }
    }
}
