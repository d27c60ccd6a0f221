//! The modes of a volume, in a table.
//!
//! | mode | clean blocks are read from the cache, and misses cached | a write of a whole block that is not dirty |
//! |---|---|---|
//! | `writeback` | yes | logged; the origin gets it later |
//! | `writethrough` | yes | logged and written to the origin before the answer |
//! | `writearound` | yes | likewise if all its blocks are cached; else to the origin alone |
//! | `readonly` | yes | to the origin alone; a cached copy is dropped |
//! | `passthrough` | no | to the origin alone; a cached copy is dropped |
//!
//! A write that touches a dirty block is logged in every mode (I5).

/// The ways of a volume with reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Reads and writes are cached; writes reach the origin later.
    Writeback = 1,
    /// Reads and writes are cached; a write is acknowledged when it is on both devices.
    Writethrough = 2,
    /// Reads are cached; writes go to the origin, and to the cache where it holds the block.
    Writearound = 3,
    /// Reads are cached; writes go to the origin and remove the block from the cache.
    Readonly = 4,
    /// Nothing new is cached; dirty blocks are still served from the cache and written back.
    Passthrough = 5,
}

names! { Mode, 5 of "mode":
    Writeback = "writeback",
    Writethrough = "writethrough",
    Writearound = "writearound",
    Readonly = "readonly",
    Passthrough = "passthrough",
}

impl Mode {
    /// Whether clean blocks are read from the cache and misses are cached.
    pub(crate) fn caches_reads(self) -> bool {
        self != Mode::Passthrough
    }

    /// Where a write goes that touches no dirty block.
    pub(crate) fn writes(self) -> Writes {
        match self {
            Mode::Writeback => Writes::Log,
            Mode::Writethrough => Writes::LogAndOrigin,
            Mode::Writearound => Writes::LogAndOriginIfCached,
            Mode::Readonly | Mode::Passthrough => Writes::Origin,
        }
    }

    /// The mode of this number, as in the superblock.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Mode> {
        Mode::NAMES
            .iter()
            .map(|(mode, _)| *mode)
            .find(|mode| *mode as u8 == number)
    }
}

/// Where a write goes that touches no dirty block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Into the log; it is dirty then.
    Log,
    /// Into the log and to the origin, before the answer.
    LogAndOrigin,
    /// Likewise if all its blocks are cached, else to the origin alone.
    LogAndOriginIfCached,
    /// To the origin alone.
    Origin,
}

impl Writes {
    /// Whether the origin has a write before its answer, whatever else has.
    pub(crate) fn are_through(self) -> bool {
        self != Writes::Log
    }

    /// Whether blocks that are not cached are let in.
    pub(crate) fn let_in(self) -> bool {
        matches!(self, Writes::Log | Writes::LogAndOrigin)
    }
}
