//! A trace as operations on one target: volumes laid one behind the other, lengths rounded to what
//! the target takes, what it does not take left out and counted.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use forebay_trace::{Format, Kind, Request, TraceReader};

use super::super::input;
use super::super::progress::Progress;
use crate::args::{ReplayArgs, TraceFileArgs};
use crate::units::Speed;

/// Unit of formats that know bytes.
const SECTOR_BYTES: u64 = 512;
/// Volumes of a trace begin at multiples of this.
const ALIGNMENT_BYTES: u64 = 1 << 20;
/// Requests between two looks at Ctrl-C.
const STEP: u64 = 1 << 16;
/// A longer range without data is several operations.
const LONGEST_BYTES: u64 = 1 << 30;

/// A request to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// Since the trace's first request; `None` in formats without times.
    pub(super) after_ns: Option<u64>,
    pub(super) kind: Kind,
    pub(super) offset_bytes: u64,
    /// At most 1 GiB.
    pub(super) len_bytes: u32,
}

impl Operation {
    /// When it is to be sent, in nanoseconds from the beginning; `None` for as soon as possible.
    ///
    /// # Errors
    /// If that depends on a time that the trace does not have.
    pub(super) fn due_ns(&self, speed: Speed) -> Result<Option<u64>> {
        match (speed, self.after_ns) {
            (Speed::Max, _) => Ok(None),
            (Speed::Factor(factor), Some(after_ns)) => Ok(Some((after_ns as f64 / factor) as u64)),
            (Speed::Factor(_), None) => Err(anyhow!(
                "the trace has requests without times: replay it with --speed max"
            )),
        }
    }
}

fn open(args: &ReplayArgs) -> Result<(TraceReader<'static>, u64)> {
    let unit_bytes = match args.format {
        Format::Blocks | Format::OracleGeneral => args.block_size,
        _ => SECTOR_BYTES,
    };
    let trace = TraceFileArgs {
        file: args.file.clone(),
        format: args.format,
        block_size: unit_bytes,
        skip_bad: args.skip_bad,
    };
    input::check_block_size(args.block_size)?;
    Ok((input::open(&trace)?.with_all_kinds(), unit_bytes))
}

fn named(args: &ReplayArgs) -> String {
    format!("{} as {}", args.file.display(), args.format)
}

/// Needs of a trace: the size of each volume, writes, times.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Where each volume ends, in bytes.
    ends: BTreeMap<u32, u64>,
    /// Whether the target is written to.
    pub(super) changes: bool,
    /// Whether requests have times.
    pub(super) timed: bool,
}

impl Survey {
    /// Reads the trace through.
    pub(super) fn of(args: &ReplayArgs, progress: &Progress) -> Result<Survey> {
        let (reader, unit_bytes) = open(args)?;
        let mut survey = Survey {
            timed: true,
            ..Survey::default()
        };
        let mut seen = 0u64;
        for request in reader {
            let request = request.with_context(|| named(args))?;
            survey.see(&request, unit_bytes);
            seen += 1;
            let say = |done| format!("{:.1} million requests read", done as f64 / 1e6);
            if seen.is_multiple_of(STEP) && !progress.advance(STEP, say) {
                return Err(progress.interrupted());
            }
        }
        progress.finish();
        if seen == 0 {
            return Err(anyhow!(
                "{} has no request in the format {}",
                args.file.display(),
                args.format
            ));
        }
        Ok(survey)
    }

    fn see(&mut self, request: &Request, unit_bytes: u64) {
        let end =
            (request.first_block.saturating_add(request.blocks.into())).saturating_mul(unit_bytes);
        let known = self.ends.entry(request.volume).or_default();
        *known = end.max(*known);
        self.changes |= !matches!(request.kind, Kind::Read | Kind::Flush);
        self.timed &= request.time_ns.is_some();
    }

    /// Where each volume begins on the target.
    fn starts(&self) -> BTreeMap<u32, u64> {
        let mut at = 0u64;
        let mut starts = BTreeMap::new();
        for (&volume, &end) in &self.ends {
            starts.insert(volume, at);
            at = at.saturating_add(rounded_up(end));
        }
        starts
    }

    /// Where the last volume ends.
    pub(super) fn span_bytes(&self) -> u64 {
        let before_last = self.starts().into_values().next_back().unwrap_or(0);
        before_last.saturating_add(self.ends.values().next_back().copied().unwrap_or(0))
    }
}

fn rounded_up(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(ALIGNMENT_BYTES)
        .unwrap_or(u64::MAX)
}

/// Sizes and requests that a target takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) size_bytes: u64,
    /// Unit of offsets and lengths.
    pub(super) block_bytes: u64,
    pub(super) discards: bool,
    pub(super) zeroes: bool,
}

/// The operations of a trace, in its order.
#[derive(Debug)]
pub(super) struct Operations {
    reader: TraceReader<'static>,
    unit_bytes: u64,
    named: String,
    starts: BTreeMap<u32, u64>,
    limits: Limits,
    reads_only: bool,
    wrap: bool,
    first_ns: Option<u64>,
    /// The rest of a long range.
    rest: Option<(Operation, u64)>,
    /// Requests that are not replayed: not wanted, or not known to the target.
    pub(super) left_out: u64,
}

impl Operations {
    /// From the beginning of the trace.
    pub(super) fn open(
        args: &ReplayArgs,
        survey: Option<&Survey>,
        limits: Limits,
    ) -> Result<Operations> {
        let (reader, unit_bytes) = open(args)?;
        Ok(Operations {
            reader,
            unit_bytes,
            named: named(args),
            starts: survey.map(Survey::starts).unwrap_or_default(),
            limits,
            reads_only: args.reads_only,
            wrap: args.wrap,
            first_ns: None,
            rest: None,
            left_out: 0,
        })
    }

    /// Malformed entries of the trace that were left out.
    pub(super) fn skipped(&self) -> u64 {
        self.reader.skipped()
    }

    /// Requests that the trace says are missing in it.
    pub(super) fn dropped(&self) -> u64 {
        self.reader.dropped()
    }

    /// The next operation, or `None` at the end of the trace.
    pub(super) fn next(&mut self) -> Result<Option<Operation>> {
        if let Some((operation, len_bytes)) = self.rest.take() {
            return Ok(Some(self.cut(operation, len_bytes)));
        }
        while let Some(request) = self.reader.next() {
            let request = request.with_context(|| self.named.clone())?;
            if self.takes(request.kind) {
                return self.operation(&request).map(Some);
            }
            self.left_out += 1;
        }
        Ok(None)
    }

    fn takes(&self, kind: Kind) -> bool {
        match kind {
            Kind::Read => true,
            Kind::Write | Kind::Flush => !self.reads_only,
            Kind::WriteZeroes => !self.reads_only && self.limits.zeroes,
            Kind::Discard => !self.reads_only && self.limits.discards,
        }
    }

    fn operation(&mut self, request: &Request) -> Result<Operation> {
        let after_ns = request.time_ns.map(|time| {
            let first = *self.first_ns.get_or_insert(time);
            time.saturating_sub(first)
        });
        let operation = Operation {
            after_ns,
            kind: request.kind,
            offset_bytes: 0,
            len_bytes: 0,
        };
        if request.kind == Kind::Flush {
            return Ok(operation);
        }
        let (offset_bytes, len_bytes) = self.place(request)?;
        let operation = Operation {
            offset_bytes,
            ..operation
        };
        Ok(self.cut(operation, len_bytes))
    }

    /// Where a request lies on the target, in whole blocks of the target's.
    fn place(&self, request: &Request) -> Result<(u64, u64)> {
        let block_bytes = u128::from(self.limits.block_bytes);
        let size_bytes = u128::from(self.limits.size_bytes) / block_bytes * block_bytes;
        let unit_bytes = u128::from(self.unit_bytes);
        let volume = self.starts.get(&request.volume).copied().unwrap_or(0);
        let begin = u128::from(volume) + u128::from(request.first_block) * unit_bytes;
        let end = begin + u128::from(request.blocks) * unit_bytes;
        let begin = begin / block_bytes * block_bytes;
        let len = end.next_multiple_of(block_bytes) - begin;
        let (begin, len) = if begin + len <= size_bytes {
            (begin, len)
        } else if self.wrap {
            let len = len.min(size_bytes);
            ((begin % size_bytes).min(size_bytes - len), len)
        } else {
            return Err(anyhow!(
                "{}: a request ends at byte {end}, beyond the target's whole blocks of {block_bytes} bytes; replay it with --wrap",
                self.named
            ));
        };
        Ok((begin as u64, len as u64))
    }

    fn cut(&mut self, operation: Operation, len_bytes: u64) -> Operation {
        let now = len_bytes.min(LONGEST_BYTES);
        if now < len_bytes {
            let rest = Operation {
                offset_bytes: operation.offset_bytes + now,
                ..operation
            };
            self.rest = Some((rest, len_bytes - now));
        }
        Operation {
            len_bytes: now as u32,
            ..operation
        }
    }
}
