//! Locks on writes to origins (I11): a block has at most one such write in flight, and they go in
//! the order of their numbers.

use crate::format::BlockKey;
use crate::ids::{JobId, WritebackId};
use crate::map::locks::KeyMap;

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
    writers: KeyMap<OriginWriter>,
    waiting: Vec<JobId>,
    /// A write has ended since those that wait were told.
    has_freed: bool,
}

impl OriginLocks {
    /// Whether nothing is being written to an origin.
    pub(crate) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Whether a write of this block is in flight.
    pub(crate) fn holds(&self, key: BlockKey) -> bool {
        self.writers.contains_key(&key)
    }

    /// A write of this block begins.
    pub(crate) fn lock(&mut self, key: BlockKey, writer: OriginWriter) {
        self.writers.insert(key, writer);
    }

    /// A write of this block has ended, if it is this one's.
    pub(crate) fn unlock(&mut self, key: BlockKey, writer: OriginWriter) {
        if self.writers.get(&key) == Some(&writer) {
            self.writers.remove(&key);
            self.has_freed = true;
        }
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

    #[test]
    fn only_its_writer_unlocks_a_block() {
        let mut locks = OriginLocks::default();
        let key = BlockKey(3);
        locks.lock(key, OriginWriter::WriteBack(WritebackId::new(1)));
        locks.unlock(key, OriginWriter::Client(JobId::new(1)));
        assert!(locks.holds(key));
        locks.wait(JobId::new(9));
        assert!(locks.take_waiting().is_empty(), "nothing has ended");
        locks.unlock(key, OriginWriter::WriteBack(WritebackId::new(1)));
        assert!(locks.is_empty());
        assert_eq!(locks.take_waiting(), [JobId::new(9)]);
        assert!(locks.take_waiting().is_empty());
    }
}
