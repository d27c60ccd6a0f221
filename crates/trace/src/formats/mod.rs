//! Trace formats, one file each.

mod blocks;

use std::fmt;
use std::str::FromStr;

use crate::error::{Bad, TraceError};
use crate::input::Input;
use crate::request::Request;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One block number a line.
    Blocks,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 1] = [Format::Blocks];

    /// The name that [`Format::from_str`] reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Blocks => "blocks",
        }
    }

    /// The names of all, for messages.
    #[must_use]
    pub fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    pub(crate) fn parser(self, block_size: u64) -> Box<dyn Parser> {
        let _ = block_size;
        match self {
            Format::Blocks => Box::new(Lines(blocks::Blocks)),
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

/// A decimal number and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &digit in text {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}
