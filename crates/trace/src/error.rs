//! Faults of a trace, and their places.

use std::fmt;

/// A place in a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a text format, counted from 1.
    Line(u64),
    /// A byte offset in a binary format, or where a compressed file breaks off.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Something that does not fit the format: the text expected there, and the text found. Boxed,
/// because every request passes through a result that could hold one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}, found {}", .0[0], .0[1])]
pub struct Bad(Box<[String; 2]>);

impl Bad {
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Bad {
        Bad(Box::new([expected.into(), found.into()]))
    }

    /// With text from the trace, cut and made printable: it may be anything.
    pub(crate) fn text(expected: impl Into<String>, found: &[u8]) -> Bad {
        const MOST: usize = 60;
        let cut = &found[..found.len().min(MOST)];
        let dots = if found.len() > MOST { "…" } else { "" };
        Bad::new(expected, format!("`{}`{dots}", cut.escape_ascii()))
    }
}

/// Why a trace cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The trace is malformed or truncated.
    #[error("{place}: {bad}")]
    Malformed {
        /// The place.
        place: Place,
        /// The fault.
        bad: Bad,
    },
    /// The file cannot be read.
    #[error("cannot read the trace")]
    Io(#[from] std::io::Error),
}
