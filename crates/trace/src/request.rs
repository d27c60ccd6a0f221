//! Requests, into which every format is read.

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data was read.
    Read,
    /// Data was written.
    Write,
    /// A range was made zeroes without data.
    WriteZeroes,
    /// A range is no longer used.
    Discard,
    /// Written data is to be durable.
    Flush,
}

impl Kind {
    /// Its name, as in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::WriteZeroes => "write-zeroes",
            Kind::Discard => "discard",
            Kind::Flush => "flush",
        }
    }

    /// Whether data comes or goes: a cache is there for such requests.
    #[must_use]
    pub fn moves_data(self) -> bool {
        matches!(self, Kind::Read | Kind::Write)
    }
}

/// A request of a trace, in whole cache blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it came, counted from anywhere; formats without time have none.
    pub time_ns: Option<u64>,
    /// The kind of request.
    pub kind: Kind,
    /// Which of the trace's volumes.
    pub volume: u32,
    /// The first block it touches.
    pub first_block: u64,
    /// Blocks it touches: at least one, none if it is a flush.
    pub blocks: u32,
}

impl Request {
    /// A flush of a volume.
    pub(crate) fn flush(time_ns: Option<u64>, volume: u32) -> Request {
        Request {
            time_ns,
            kind: Kind::Flush,
            volume,
            first_block: 0,
            blocks: 0,
        }
    }
}
