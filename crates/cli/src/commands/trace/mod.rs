//! `forebay trace` and `forebay advise`: commands that read block traces.

mod advise;
mod html;
mod input;
mod progress;
mod simulate;

use anyhow::Result;

pub(crate) use advise::run as advise;

use crate::args::{TraceArgs, TraceCommand};

pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    match &args.command {
        TraceCommand::Simulate(args) => simulate::run(args),
    }
}
