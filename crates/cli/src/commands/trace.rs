//! `forebay trace` and `forebay advise`: commands that make and read block traces.

mod advise;
mod html;
mod input;
mod progress;
mod record;
mod replay;
mod simulate;

use anyhow::Result;

pub(crate) use advise::run as advise;

use crate::args::{TraceArgs, TraceCommand};

pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    match &args.command {
        TraceCommand::Simulate(args) => simulate::run(args),
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Replay(args) => replay::run(args),
    }
}
