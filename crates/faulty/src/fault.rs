//! Faults that a test asks of a device.

use std::ops::Range;

/// Kind of a device's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read.
    Read,
    /// A write, or zeroes that are written.
    Write,
    /// A flush.
    Flush,
}

/// Error of an operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The medium or the path to it: EIO.
    Failed,
    /// No room is left for this: ENOSPC.
    Full,
}

/// Operations of one kind that fail. Unless told otherwise all of them do, from now on, and leave
/// nothing behind: a write what was there, a flush what is durable.
#[derive(Clone, Debug)]
pub struct Fault {
    operation: Operation,
    range: Range<u64>,
    pass: u64,
    fail: u64,
    error: Error,
    tears: Option<u64>,
    rewritable: bool,
}

impl Fault {
    /// All operations of this kind fail with [`Error::Failed`].
    #[must_use]
    pub fn of(operation: Operation) -> Fault {
        Fault {
            operation,
            range: 0..u64::MAX,
            pass: 0,
            fail: u64::MAX,
            error: Error::Failed,
            tears: None,
            rewritable: false,
        }
    }

    /// Only those that touch this range, in bytes. A flush touches all.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Fault {
        self.range = range;
        self
    }

    /// The first so many still succeed.
    #[must_use]
    pub fn after(mut self, count: u64) -> Fault {
        self.pass = count;
        self
    }

    /// Only so many fail.
    #[must_use]
    pub fn times(mut self, count: u64) -> Fault {
        self.fail = count;
        self
    }

    /// With another error.
    #[must_use]
    pub fn with(mut self, error: Error) -> Fault {
        self.error = error;
        self
    }

    /// Of a write, or of what a flush should have made durable, each page of 4 KiB may be kept
    /// after all; this seed decides which.
    #[must_use]
    pub fn torn(mut self, seed: u64) -> Fault {
        self.tears = Some(seed);
        self
    }

    /// A write of its range ends it, as a disk gives a sector that it cannot read another place
    /// when it is written again.
    #[must_use]
    pub fn until_written(mut self) -> Fault {
        self.rewritable = true;
        self
    }

    /// Whether a write of this range, which succeeded, ends it.
    pub(crate) fn ends_with(&self, written: &Range<u64>) -> bool {
        self.rewritable && written.start <= self.range.start && self.range.end <= written.end
    }

    /// The number of operations that this still fails, if it ends by itself.
    pub(crate) fn left(&self) -> u64 {
        self.fail
    }

    /// Counts an operation, and says whether it fails and how it tears.
    pub(crate) fn strikes(
        &mut self,
        operation: Operation,
        range: &Range<u64>,
    ) -> Option<(Error, Option<u64>)> {
        let touches = operation == Operation::Flush
            || (self.range.start < range.end && range.start < self.range.end);
        if operation != self.operation || !touches || self.fail == 0 {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        self.fail -= 1;
        Some((self.error, self.tears))
    }
}
