//! Opening a trace.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};
use forebay_trace::{Request, TraceReader};

use super::progress::Progress;
use crate::args::TraceFileArgs;
use crate::failure::Usage;

/// Counts of a trace that was read.
pub(crate) struct ReadTrace {
    pub(crate) requests: u64,
    pub(crate) skipped: u64,
}

/// Requests between two looks at Ctrl-C.
const STEP: u64 = 1 << 16;

/// The trace's requests in blocks of its `block_size`.
pub(crate) fn open(args: &TraceFileArgs) -> Result<TraceReader<'static>> {
    let name = args.file.display();
    let source: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).with_context(|| format!("cannot open {name}"))?)
    };
    TraceReader::new(source, args.format, args.block_size, args.skip_bad)
        .with_context(|| format!("cannot read {name}"))
}

/// Refuses what is no block size.
pub(crate) fn check_block_size(block_size: u64) -> Result<()> {
    if !block_size.is_power_of_two() || !(512..=1 << 20).contains(&block_size) {
        return Err(Usage("--block-size must be a power of two from 512 to 1M".to_owned()).into());
    }
    Ok(())
}

/// Hands every read and write of the trace on.
pub(crate) fn each_request(
    args: &TraceFileArgs,
    progress: &Progress,
    mut take: impl FnMut(&Request) -> Result<()>,
) -> Result<ReadTrace> {
    check_block_size(args.block_size)?;
    let name = args.file.display();
    let mut reader = open(args)?;
    let mut requests = 0;
    for request in reader.by_ref() {
        let request = request.with_context(|| format!("{name} as {}", args.format))?;
        take(&request)?;
        requests += 1;
        let say = |done| format!("{:.1} million requests read", done as f64 / 1e6);
        if requests % STEP == 0 && !progress.advance(STEP, say) {
            return Err(progress.interrupted());
        }
    }
    progress.finish();
    let dropped = reader.dropped();
    if dropped > 0 {
        tracing::warn!(dropped, "requests were dropped when this was recorded");
    }
    let skipped = reader.skipped();
    if skipped > 0 {
        tracing::warn!(skipped, "left out what does not fit the format");
    }
    Ok(ReadTrace { requests, skipped })
}
