//! Requests that bypassed the cache, and why.

use crate::interface::{Nanos, VolumeSlot};
use crate::settings::names;

/// Reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Why a request or block bypassed the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BypassReason {
    /// Part of a sequential stream longer than the cut-off.
    Sequential,
    /// A write of 1 MiB or more, by itself or in sequence, while dirty data is at its high mark.
    DirtyLimit,
    /// The volume's mode.
    Mode,
    /// Not wanted often enough.
    Admission,
    /// Another operation owned the block.
    Busy,
    /// Written to the origin since its last flush (I6).
    Unflushed,
    /// No free segment: reclaim was behind.
    NoRoom,
    /// No buffer.
    NoMemory,
    /// The cache device failed.
    Failed,
    /// The cache device took too long.
    Congested,
    /// As much as agreed was written to the cache device.
    WriteBudget,
    /// Zeroes of more than the log takes in one request.
    Size,
    /// The volume has its share of the cache.
    Share,
    /// A long write ends sooner on the origin than on the cache device.
    OriginSooner,
}

names! { BypassReason, 14 of "reason":
    Sequential = "sequential",
    DirtyLimit = "dirty-limit",
    Mode = "mode",
    Admission = "admission",
    Busy = "busy",
    Unflushed = "unflushed",
    NoRoom = "no-room",
    NoMemory = "no-memory",
    Failed = "cache-failed",
    Congested = "congested",
    WriteBudget = "write-budget",
    Size = "size",
    Share = "share",
    OriginSooner = "origin-sooner",
}

/// A request, or a part of it, that bypassed the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bypassed {
    /// Of which volume.
    pub volume: VolumeSlot,
    /// Where on it, in bytes.
    pub offset_bytes: u64,
    /// Length, in bytes.
    pub len_bytes: u64,
    /// Whether it was written.
    pub write: bool,
    /// When, on the driver's clock.
    pub at: Nanos,
}

/// Blocks that bypassed the cache, by reason.
#[derive(Clone, Debug, Default)]
pub struct Bypasses {
    blocks: [[u64; BypassReason::NAMES.len()]; 2],
    last: [Option<Bypassed>; BypassReason::NAMES.len()],
}

impl Bypasses {
    pub(crate) fn count(&mut self, reason: BypassReason, blocks: u64, what: Bypassed) {
        if blocks == 0 {
            return;
        }
        let direction = if what.write {
            Direction::Write
        } else {
            Direction::Read
        };
        self.blocks[direction as usize][reason as usize] += blocks;
        self.last[reason as usize] = Some(what);
    }

    /// Blocks read bypassing the cache for this reason.
    #[must_use]
    pub fn read_blocks(&self, reason: BypassReason) -> u64 {
        self.blocks[Direction::Read as usize][reason as usize]
    }

    /// Blocks written, zeroed or discarded bypassing the cache for this reason.
    #[must_use]
    pub fn written_blocks(&self, reason: BypassReason) -> u64 {
        self.blocks[Direction::Write as usize][reason as usize]
    }

    /// The last time for this reason.
    #[must_use]
    pub fn last(&self, reason: BypassReason) -> Option<Bypassed> {
        self.last[reason as usize]
    }
}
