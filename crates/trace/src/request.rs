//! What every format is read into.

/// Whether data came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data was read.
    Read,
    /// Data was written.
    Write,
}

/// One request of a trace, in whole cache blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it came, counted from anywhere; formats without time have none.
    pub time_ns: Option<u64>,
    /// Read or write.
    pub kind: Kind,
    /// Which of the trace's volumes.
    pub volume: u32,
    /// The first block it touches.
    pub first_block: u64,
    /// How many blocks it touches, at least one.
    pub blocks: u32,
}
