//! Trace formats, one file each.

mod alibaba;
mod binary;
mod blkparse;
mod blktrace;
mod blocks;
mod cloudphysics;
mod fio;
mod forebay;
mod msr;
mod oracle_general;
mod spc;
mod tencent;
mod text;
mod vscsi;

use std::fmt;
use std::str::FromStr;

pub use forebay::{RECORD_BYTES, Recorded};

use crate::error::{Bad, TraceError};
use crate::input::Input;
use crate::request::Request;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A block number a line.
    Blocks,
    /// Text that blkparse prints.
    Blkparse,
    /// Output of blktrace, merged by `blkparse -d`.
    Blktrace,
    /// fio's I/O log, version 2 or 3.
    Fio,
    /// MSR Cambridge CSV.
    Msr,
    /// Alibaba cloud block storage CSV.
    Alibaba,
    /// Tencent cloud block storage CSV.
    Tencent,
    /// SPC, as the UMass repository has it.
    Spc,
    /// CloudPhysics traces as CSV.
    CloudPhysics,
    /// VMware's vscsi records, version 1 or 2.
    Vscsi,
    /// libCacheSim's oracleGeneral.
    OracleGeneral,
    /// Output of `forebay trace record`.
    Forebay,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 12] = [
        Format::Blocks,
        Format::Blkparse,
        Format::Blktrace,
        Format::Fio,
        Format::Msr,
        Format::Alibaba,
        Format::Tencent,
        Format::Spc,
        Format::CloudPhysics,
        Format::Vscsi,
        Format::OracleGeneral,
        Format::Forebay,
    ];

    /// The name that [`Format::from_str`] reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Blocks => "blocks",
            Format::Blkparse => "blkparse",
            Format::Blktrace => "blktrace",
            Format::Fio => "fio",
            Format::Msr => "msr",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Spc => "spc",
            Format::CloudPhysics => "cloudphysics",
            Format::Vscsi => "vscsi",
            Format::OracleGeneral => "oracle-general",
            Format::Forebay => "forebay",
        }
    }

    /// The names of all, for messages.
    #[must_use]
    pub fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    pub(crate) fn parser(self, block_size: u64) -> Box<dyn Parser> {
        let blocks = text::Blocks::new(block_size);
        match self {
            Format::Blocks => Box::new(Lines(blocks::Blocks)),
            Format::Blkparse => Box::new(Lines(blkparse::Blkparse::new(blocks))),
            Format::Blktrace => Box::new(blktrace::Blktrace::new(blocks)),
            Format::Fio => Box::new(Lines(fio::Fio::new(blocks))),
            Format::Msr => Box::new(Lines(msr::Msr::new(blocks))),
            Format::Alibaba => Box::new(Lines(alibaba::Alibaba::new(blocks))),
            Format::Tencent => Box::new(Lines(tencent::Tencent::new(blocks))),
            Format::Spc => Box::new(Lines(spc::Spc::new(blocks))),
            Format::CloudPhysics => Box::new(Lines(cloudphysics::CloudPhysics::new(blocks))),
            Format::Vscsi => Box::new(vscsi::Vscsi::new(blocks)),
            Format::OracleGeneral => Box::new(oracle_general::OracleGeneral),
            Format::Forebay => Box::new(forebay::Forebay::new(blocks)),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("`{text}` is no trace format; known: {}", Format::names()))
    }
}

/// The state of reading one format.
pub(crate) trait Parser: fmt::Debug {
    /// The next request, or `None` at the end of the trace. After an error the next call goes on
    /// behind what was malformed.
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError>;

    /// The number of requests that the trace says are missing in it.
    fn dropped(&self) -> u64 {
        0
    }
}

/// A format in which every line stands for itself.
pub(crate) trait LineFormat: fmt::Debug {
    /// The request of a line, or `None` if it has none.
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad>;
}

#[derive(Debug)]
struct Lines<F>(F);

impl<F: LineFormat> Parser for Lines<F> {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        while let Some(line) = input.line()? {
            match self.0.line(line) {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(bad) => {
                    let place = input.line_place();
                    return Err(TraceError::Malformed { place, bad });
                }
            }
        }
        Ok(None)
    }
}
