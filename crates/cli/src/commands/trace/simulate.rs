//! `forebay trace simulate`.

use anyhow::{Result, anyhow};
use forebay_trace::{Accesses, Job, Outcome, PolicyKind, simulate};
use serde_json::json;

use super::input::each_request;
use super::progress::Progress;
use crate::args::SimulateArgs;
use crate::failure::Usage;
use crate::output::line;
use crate::units::CacheSize;

pub(crate) fn run(args: &SimulateArgs) -> Result<()> {
    if args.threads == Some(0) {
        return Err(Usage("--threads must be at least 1".to_owned()).into());
    }
    let progress = Progress::start()?;
    let mut accesses = Accesses::default();
    let read = each_request(&args.trace, &progress, |request| {
        accesses.push(request).map_err(|error| anyhow!(error))
    })?;
    if accesses.is_empty() {
        return Err(anyhow!(
            "{} has no read or write request in the format {}",
            args.trace.file.display(),
            args.trace.format
        ));
    }

    let policies = if args.policies.is_empty() {
        &PolicyKind::ALL[..]
    } else {
        &args.policies
    };
    let jobs: Vec<Job> = policies
        .iter()
        .flat_map(|&policy| {
            let footprint = accesses.footprint();
            args.sizes.iter().map(move |size| Job {
                policy,
                size_blocks: size.blocks(footprint),
            })
        })
        .collect();
    let all = accesses.len() as u64 * jobs.len() as u64;
    let threads = args.threads.unwrap_or_else(cores);
    let watch = |more| {
        progress.advance(more, |done| {
            format!("{} % simulated", u128::from(done) * 100 / u128::from(all))
        })
    };
    let outcomes = simulate(&accesses, &jobs, threads, args.seed, &watch)
        .ok_or_else(|| progress.interrupted())?;
    progress.finish();

    if args.json {
        let results: Vec<_> = outcomes.iter().map(result).collect();
        line(json!({
            "trace": args.trace.file.display().to_string(),
            "format": args.trace.format.name(),
            "block_size_bytes": args.trace.block_size,
            "requests": read.requests,
            "accesses": accesses.len(),
            "footprint_blocks": accesses.footprint(),
            "skipped": read.skipped,
            "results": results,
        }));
        return Ok(());
    }
    line(format_args!(
        "{} block accesses, {} distinct blocks of {} bytes",
        accesses.len(),
        accesses.footprint(),
        args.trace.block_size
    ));
    if read.skipped > 0 {
        line(format_args!("{} malformed entries left out", read.skipped));
    }
    table(&args.sizes, &outcomes);
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn result(outcome: &Outcome) -> serde_json::Value {
    json!({
        "policy": outcome.job.policy.name(),
        "size_blocks": outcome.job.size_blocks,
        "accesses": outcome.accesses,
        "misses": outcome.misses,
        "miss_ratio": outcome.miss_ratio(),
    })
}

/// Miss ratios: a row for each policy, a column for each size.
fn table(sizes: &[CacheSize], outcomes: &[Outcome]) {
    let columns = sizes.len();
    let head = |text: &dyn Fn(usize) -> String| -> String {
        (0..columns)
            .map(|at| format!(" {:>12}", text(at)))
            .collect()
    };
    line(format_args!(
        "{:<10}{}",
        "size",
        head(&|at| sizes[at].to_string())
    ));
    line(format_args!(
        "{:<10}{}",
        "blocks",
        head(&|at| outcomes[at].job.size_blocks.to_string())
    ));
    for row in outcomes.chunks(columns) {
        let cells = head(&|at| format!("{:.4}", row[at].miss_ratio()));
        line(format_args!("{:<10}{cells}", row[0].job.policy.name()));
    }
}
