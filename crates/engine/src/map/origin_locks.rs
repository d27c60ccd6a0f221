//! Locks on writes to origins (I11): a block has at most one such write in flight, and they go in
//! the order of their numbers.

use crate::format::BlockKey;
use crate::ids::{JobId, WritebackId};
use crate::map::ranges::Ranges;

/// The writer whose write of a block to the origin is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginWriter {
    /// A client's write, by its job.
    Client(JobId),
    /// Write-back, by its run.
    WriteBack(WritebackId),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OriginLocks {
    /// A request locks its blocks as one.
    locked: Ranges<OriginWriter>,
    waiting: Vec<JobId>,
    /// A write has ended since those that wait were told.
    has_freed: bool,
}

impl OriginLocks {
    /// Whether a write of this block is in flight.
    pub(crate) fn holds(&self, key: BlockKey) -> bool {
        self.locked.hold(key)
    }

    /// Whether a write of one of the blocks from `first` to before `end` is in flight.
    pub(crate) fn holds_any(&self, first: BlockKey, end: BlockKey) -> bool {
        self.locked.hold_any(first, end)
    }

    /// A write of the blocks from `first` to before `end` begins.
    ///
    /// # Panics
    /// If a write of one of them is in flight.
    pub(crate) fn lock(&mut self, first: BlockKey, end: BlockKey, writer: OriginWriter) {
        self.locked.add(first, end, writer);
    }

    /// The writes of this writer between `first` and `end` have ended.
    pub(crate) fn unlock(&mut self, first: BlockKey, end: BlockKey, writer: OriginWriter) {
        self.has_freed |= (self.locked).remove_where(first, end, |of| *of == writer);
    }

    /// A client's write waits for another one's end.
    pub(crate) fn wait(&mut self, job: JobId) {
        self.waiting.push(job);
    }

    /// The writes that waited and are to look again, if a write has ended since this was asked last.
    pub(crate) fn take_waiting(&mut self) -> Vec<JobId> {
        if std::mem::take(&mut self.has_freed) {
            std::mem::take(&mut self.waiting)
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::SlabId;

    fn writers() -> (OriginWriter, OriginWriter) {
        let write_back = OriginWriter::WriteBack(WritebackId::new(1));
        (OriginWriter::Client(JobId::new(1)), write_back)
    }

    #[test]
    fn only_its_writer_unlocks_a_block() {
        let mut locks = OriginLocks::default();
        let (first, second) = writers();
        let [key, next] = [3, 4].map(BlockKey);
        locks.lock(key, next, second);
        locks.unlock(key, next, first);
        assert!(locks.holds(key));
        locks.wait(JobId::new(9));
        assert!(locks.take_waiting().is_empty(), "nothing has ended");
        locks.unlock(key, next, second);
        assert!(!locks.holds(key));
        assert_eq!(locks.take_waiting(), [JobId::new(9)]);
        assert!(locks.take_waiting().is_empty());
    }

    #[test]
    fn blocks_in_a_row_are_locked_as_one() {
        let mut locks = OriginLocks::default();
        let (first, second) = writers();
        let [a, b, c, d, e] = [10, 20, 30, 40, 50].map(BlockKey);
        locks.lock(c, d, first);
        locks.lock(a, b, first);
        locks.lock(b, c, second);
        for (from, end, held) in [
            (BlockKey(0), a, false),
            (BlockKey(9), BlockKey(11), true),
            (BlockKey(29), BlockKey(31), true),
            (BlockKey(39), e, true),
            (d, e, false),
        ] {
            assert_eq!(locks.holds_any(from, end), held, "{from:?} to {end:?}");
        }
        // Those of a writer lie on both sides of another's.
        locks.unlock(a, d, first);
        assert!(!locks.holds(a) && !locks.holds(BlockKey(39)));
        assert!(locks.holds(b) && locks.holds(BlockKey(29)));
    }

    #[test]
    #[should_panic(expected = "I11")]
    fn a_block_is_not_locked_twice() {
        let mut locks = OriginLocks::default();
        let (first, second) = writers();
        locks.lock(BlockKey(3), BlockKey(9), first);
        locks.lock(BlockKey(8), BlockKey(10), second);
    }
}
