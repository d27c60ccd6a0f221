//! `forebay trace replay`.
//!
//! | module | subject |
//! |---|---|
//! | [`operations`] | a trace as operations on one target |
//! | [`pace`] | a real target, in real time |
//! | [`target`], [`nbd`] | what can be driven |
//! | [`simulation`] | the engine with models of devices, in virtual time |
//! | [`tally`] | what is counted |
//! | [`report`] | how it is said |

mod nbd;
mod operations;
mod pace;
mod report;
mod simulation;
mod tally;
mod target;

use anyhow::{Result, anyhow};

use super::progress::Progress;
use crate::args::ReplayArgs;
use crate::failure::{Interrupted, Usage, refuse, wrong_usage};
use crate::output::line;
use crate::units::{Speed, size};
use operations::{Limits, Operations, Survey};
use report::Report;
use target::Target;

pub(crate) fn run(args: &ReplayArgs) -> Result<()> {
    let progress = Progress::start()?;
    let survey = survey(args, &progress)?;
    let report = match &args.target {
        Some(name) => on_target(args, name, survey.as_ref(), &progress)?,
        None => simulation::run(args, survey.as_ref(), &progress)?,
    };
    progress.finish();
    if args.json {
        line(report.document());
    } else {
        line(report.text().trim_end());
    }
    let tally = &report.tally;
    if let Some(why) = &tally.lost {
        return Err(anyhow!("{} is lost: {why}", report.target));
    }
    if let Some(first) = &tally.first_error {
        return Err(anyhow!(
            "{} requests failed; the first: {first}",
            tally.failed()
        ));
    }
    if tally.interrupted {
        return Err(Interrupted("the report is on what was replayed until then".to_owned()).into());
    }
    Ok(())
}

/// Reads the whole trace once for what it will ask for. Standard input is there once only.
fn survey(args: &ReplayArgs, progress: &Progress) -> Result<Option<Survey>> {
    if args.file.as_os_str() != "-" {
        let survey = Survey::of(args, progress)?;
        if !survey.timed && args.speed != Speed::Max {
            return Err(Usage(format!(
                "{} has no times: replay it with --speed max",
                args.file.display()
            ))
            .into());
        }
        return Ok(Some(survey));
    }
    let missing = if !args.wrap {
        "--wrap, as how far it goes is not known before"
    } else if args.simulate && args.simulation.origin_size.is_none() {
        "--origin-size, as how far it goes is not known before"
    } else {
        return Ok(None);
    };
    Err(Usage(format!("a trace from standard input needs {missing}")).into())
}

fn on_target(
    args: &ReplayArgs,
    name: &str,
    survey: Option<&Survey>,
    progress: &Progress,
) -> Result<Report> {
    let changes = !args.reads_only && survey.is_none_or(|survey| survey.changes);
    if changes && !args.force {
        refuse!(
            "the trace writes, and what is on {name} would be lost: replay its reads with --reads-only, or give the data up with --force"
        );
    }
    let target = Target::open(name, !changes, args.depth)?;
    check_span(args, survey, name, target.size_bytes)?;
    let limits = Limits {
        size_bytes: target.size_bytes,
        block_bytes: target.block_bytes,
        discards: target.discards,
        zeroes: target.zeroes,
    };
    let mut operations = Operations::open(args, survey, limits)?;
    let tally = pace::run(args, &target, &mut operations, progress)?;
    Ok(Report::new(args, name.to_owned(), &operations, tally))
}

/// Refuses a trace that goes beyond the end, unless that is wanted.
fn check_span(
    args: &ReplayArgs,
    survey: Option<&Survey>,
    name: &str,
    size_bytes: u64,
) -> Result<()> {
    if let Some(survey) = survey
        && !args.wrap
        && survey.span_bytes() > size_bytes
    {
        wrong_usage!(
            "the trace goes up to {}, and {name} ends at {}: take a larger one, or --wrap what is beyond",
            size(survey.span_bytes()),
            size(size_bytes)
        );
    }
    Ok(())
}
