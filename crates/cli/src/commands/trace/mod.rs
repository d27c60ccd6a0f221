//! `forebay trace`: commands that read block traces.

mod input;
mod progress;
mod simulate;

use anyhow::Result;

use crate::args::{TraceArgs, TraceCommand};

pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    match &args.command {
        TraceCommand::Simulate(args) => simulate::run(args),
    }
}
