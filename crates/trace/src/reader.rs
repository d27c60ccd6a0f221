//! Requests out of a trace.

use std::io::{self, Read};

use crate::error::TraceError;
use crate::formats::{Format, Parser};
use crate::input::Input;
use crate::request::Request;

/// An iterator over the reads and writes of a trace. Memory does not grow with the trace.
#[derive(Debug)]
pub struct TraceReader<'a> {
    input: Input<'a>,
    parser: Box<dyn Parser>,
    skip_bad: bool,
    data_only: bool,
    skipped: u64,
    ended: bool,
}

impl<'a> TraceReader<'a> {
    /// Reads `format`, plain, gzip or zstd, in cache blocks of `block_size` bytes (a power of two).
    /// With `skip_bad` what does not fit the format is left out and counted.
    pub fn new(
        source: impl Read + 'a,
        format: Format,
        block_size: u64,
        skip_bad: bool,
    ) -> io::Result<TraceReader<'a>> {
        Ok(TraceReader {
            input: Input::open(source)?,
            parser: format.parser(block_size),
            skip_bad,
            data_only: true,
            skipped: 0,
            ended: false,
        })
    }

    /// Gives the requests that move no data too: write-zeroes, discards, flushes, as far as the
    /// format has them.
    #[must_use]
    pub fn with_all_kinds(self) -> TraceReader<'a> {
        TraceReader {
            data_only: false,
            ..self
        }
    }

    /// The number of requests that the trace says are missing in it; known when it is read.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.parser.dropped()
    }

    /// The number of malformed lines or records that were left out.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl Iterator for TraceReader<'_> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        while !self.ended {
            match self.parser.next(&mut self.input) {
                Ok(Some(request)) if self.data_only && !request.kind.moves_data() => {}
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => self.ended = true,
                Err(TraceError::Malformed { .. }) if self.skip_bad => self.skipped += 1,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
