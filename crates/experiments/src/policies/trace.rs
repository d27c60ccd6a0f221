//! A trace as a list of block accesses with their direction.

use std::io::Read;

use forebay_trace::{Accesses, Format, Kind, TraceReader};

use super::BLOCK_BYTES;

/// Accesses of one block each, blocks numbered in the order of their first.
#[derive(Debug, Default)]
pub struct Trace {
    blocks: Accesses,
    writes: Vec<bool>,
}

impl Trace {
    /// Reads a trace of any format, plain, gzip or zstd.
    ///
    /// # Errors
    /// Says where it is malformed, or that it is too long.
    pub fn read(source: impl Read, format: Format) -> Result<Trace, String> {
        let reader = TraceReader::new(source, format, u64::from(BLOCK_BYTES), false)
            .map_err(|error| error.to_string())?;
        let mut trace = Trace::default();
        for request in reader {
            let request = request.map_err(|error| error.to_string())?;
            trace
                .blocks
                .push(&request)
                .map_err(|error| error.to_string())?;
            let write = request.kind == Kind::Write;
            trace.writes.resize(trace.blocks.len(), write);
        }
        Ok(trace)
    }

    /// Adds one access.
    pub(crate) fn push(&mut self, block: u64, write: bool) -> Result<(), String> {
        let request = forebay_trace::Request {
            time_ns: None,
            kind: if write { Kind::Write } else { Kind::Read },
            volume: 0,
            first_block: block,
            blocks: 1,
        };
        self.writes.push(write);
        self.blocks
            .push(&request)
            .map_err(|error| error.to_string())
    }

    /// The number of accesses.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The number of distinct blocks.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.blocks.footprint() as u64
    }

    /// Block and whether it is written, in order.
    pub fn accesses(&self) -> impl Iterator<Item = (u32, bool)> {
        let blocks = self.blocks.blocks().iter().copied();
        blocks.zip(self.writes.iter().copied())
    }

    pub(crate) fn blocks(&self) -> &Accesses {
        &self.blocks
    }
}
