//! Blocks that are being read ahead, or were (see `read_ahead`).

use std::collections::VecDeque;

use crate::format::{BlockKey, Sequence, Slot};
use crate::ids::AheadId;
use crate::interface::{Buf, Memory, Nanos};
use crate::slab::Slab;
use crate::store::op::HitRead;

/// Requests that began where the one before ended, before anything is read ahead.
pub(crate) const LEAST_IN_ROW: u8 = 2;
/// The most requests read ahead: a further one for each that came in sequence.
pub(crate) const MOST_REQUESTS: u64 = 4;
/// The most that is read ahead, in bytes.
pub(crate) const MOST_BYTES: u64 = 512 << 10;
/// Time after which blocks that nobody asked for are dropped: they hold memory.
pub(crate) const TIMEOUT: Nanos = Nanos(50_000_000);

/// Consecutive slots that are being read ahead, or were.
#[derive(Debug)]
pub(crate) struct AheadRun {
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    pub(crate) slot: Slot,
    /// Of the slots' segment when they were read.
    pub(crate) generation: Sequence,
    pub(crate) buf: Buf,
    /// True if the run is in memory.
    pub(crate) is_read: bool,
    /// Nobody will ask for it.
    pub(crate) is_dropped: bool,
    /// A read that asked for it while it was being read.
    pub(crate) reader: Option<HitRead>,
}

/// The stream of a shard that is read ahead: there is one.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Where the last request ended.
    pub(crate) next: Option<BlockKey>,
    pub(crate) in_row: u8,
    /// Everything before is read ahead, as far as it was cached.
    pub(crate) planned: BlockKey,
    pub(crate) runs: Slab<AheadId, AheadRun>,
    /// Runs that can be asked for, in order.
    pub(crate) wanted: VecDeque<AheadId>,
    pub(crate) expires: Option<Nanos>,
}

impl ReadAhead {
    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// When runs not asked for are dropped.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.expires
    }

    /// Drops runs not asked for.
    pub(crate) fn drop_all(&mut self, memory: &mut dyn Memory) {
        self.expires = None;
        self.planned = BlockKey::default();
        self.drop_before(BlockKey(BlockKey::END), memory);
    }

    /// Drops runs that the stream has passed without asking: they were written since.
    pub(crate) fn drop_before(&mut self, key: BlockKey, memory: &mut dyn Memory) {
        while let Some(&id) = self.wanted.front() {
            let run = self.runs.at(id);
            if run.key >= key {
                return;
            }
            self.wanted.pop_front();
            if run.is_read {
                self.forget(id, memory);
            } else {
                run.is_dropped = true;
            }
        }
    }

    pub(crate) fn forget(&mut self, id: AheadId, memory: &mut dyn Memory) {
        if let Some(run) = self.runs.remove(id) {
            memory.free(run.buf);
        }
    }

    /// Whether a request goes on where the one before ended.
    pub(crate) fn is_next(&mut self, first: BlockKey, end: BlockKey) -> bool {
        let follows = self.next == Some(first);
        self.in_row = if follows {
            self.in_row.saturating_add(1)
        } else {
            0
        };
        self.next = Some(end);
        follows
    }
}
