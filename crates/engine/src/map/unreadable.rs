//! Dirty blocks that cannot be read from the cache device: they stay dirty, and are written back
//! only if somebody has their volume drained and they can be read then.

use crate::format::{BlockKey, Slot};
use crate::map::index::Index;
use crate::map::locks::KeyMap;

/// Reads of a dirty block before it counts as unreadable: a single bad read is not worth the only
/// copy.
const READ_ATTEMPTS: u8 = 5;

/// Dirty blocks that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    blocks: KeyMap<Slot>,
    /// Failed reads of blocks that are tried again.
    tries: KeyMap<(Slot, u8)>,
}

impl Unreadable {
    /// Forgets failed reads of a block that has a new version, even if the new version is in the
    /// same slot.
    #[inline]
    pub(crate) fn replaced(&mut self, key: BlockKey) {
        if !self.tries.is_empty() {
            self.tries.remove(&key);
            self.blocks.remove(&key);
        }
    }

    /// A block could not be read from this slot.
    pub(crate) fn failed(&mut self, key: BlockKey, slot: Slot) {
        let tries = match self.tries.get(&key) {
            Some((bad, tries)) if *bad == slot => tries.saturating_add(1),
            _ => 1,
        };
        self.tries.insert(key, (slot, tries));
        if tries >= READ_ATTEMPTS {
            self.blocks.insert(key, slot);
        }
    }

    /// Whether a read of any block failed that is still there.
    #[inline(always)]
    pub(crate) fn has_failed(&self) -> bool {
        !self.tries.is_empty()
    }

    /// The number of reads of a block that failed, from this slot.
    pub(crate) fn tries(&self, key: BlockKey, slot: Slot) -> u8 {
        match self.tries.get(&key) {
            Some((bad, tries)) if *bad == slot => *tries,
            _ => 0,
        }
    }

    /// These blocks may be tried again as if they had failed once: they are as suspect as before.
    pub(crate) fn try_again(&mut self, first: BlockKey, end: BlockKey) {
        let is_one = |key: &BlockKey| (first..end).contains(key);
        self.blocks.retain(|key, _| !is_one(key));
        for (key, (_, tries)) in &mut self.tries {
            if is_one(key) {
                *tries = 1;
            }
        }
    }

    /// A block was read well from this slot.
    pub(crate) fn read_well(&mut self, key: BlockKey, slot: Slot) {
        if self.tries(key, slot) > 0 {
            self.replaced(key);
        }
    }

    /// Forgets failed reads of these blocks.
    pub(crate) fn forget(&mut self, first: BlockKey, end: BlockKey) {
        let is_other = |key: &BlockKey| !(first..end).contains(key);
        self.tries.retain(|key, _| is_other(key));
        self.blocks.retain(|key, _| is_other(key));
    }

    /// Drops versions that the index no longer names, or that are clean by now.
    pub(crate) fn keep_newest(&mut self, index: &Index) {
        let counts =
            |key: BlockKey, slot: Slot| index.find(key) == Some(slot) && index.flags(slot).dirty();
        self.blocks.retain(|key, slot| counts(*key, *slot));
        self.tries.retain(|key, (slot, _)| counts(*key, *slot));
    }

    /// Whether the block cannot be read from this slot.
    pub(crate) fn holds(&self, key: BlockKey, slot: Slot) -> bool {
        self.blocks.get(&key) == Some(&slot)
    }

    /// Whether there are none. (While the origin fails blocks cannot become clean either, but that
    /// passes; copying on and on until then would wear the cache device out.)
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The number of unreadable blocks, as far as is known.
    pub(crate) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The blocks, and the slot of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockKey, Slot)> {
        self.blocks.iter().map(|(key, slot)| (*key, *slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: BlockKey = BlockKey(7);

    #[test]
    fn a_block_counts_after_five_reads_of_one_slot() {
        let mut unreadable = Unreadable::default();
        for _ in 1..READ_ATTEMPTS {
            unreadable.failed(KEY, Slot(3));
        }
        assert!(!unreadable.holds(KEY, Slot(3)));
        unreadable.failed(KEY, Slot(4));
        assert!(unreadable.is_empty(), "another slot is another version");
        for _ in 1..READ_ATTEMPTS {
            unreadable.failed(KEY, Slot(4));
        }
        assert!(unreadable.holds(KEY, Slot(4)) && !unreadable.holds(KEY, Slot(3)));
    }

    #[test]
    fn a_new_version_is_readable_until_it_is_not() {
        let mut unreadable = Unreadable::default();
        for _ in 0..READ_ATTEMPTS {
            unreadable.failed(KEY, Slot(3));
        }
        unreadable.replaced(KEY);
        assert_eq!(unreadable.len(), 0);
        unreadable.failed(KEY, Slot(3));
        assert!(!unreadable.holds(KEY, Slot(3)), "it is counted anew");
    }

    #[test]
    fn a_block_that_fails_for_years_is_one_that_failed() {
        let mut unreadable = Unreadable::default();
        for _ in 0..1000 {
            unreadable.failed(KEY, Slot(3));
        }
        assert!(unreadable.holds(KEY, Slot(3)));
    }

    #[test]
    fn a_block_that_is_tried_again_is_as_suspect_as_before() {
        let mut unreadable = Unreadable::default();
        for _ in 0..READ_ATTEMPTS {
            unreadable.failed(KEY, Slot(3));
        }
        unreadable.try_again(BlockKey(0), BlockKey(100));
        assert!(!unreadable.holds(KEY, Slot(3)) && unreadable.has_failed());
        unreadable.read_well(KEY, Slot(4));
        assert!(unreadable.has_failed(), "another version");
        unreadable.read_well(KEY, Slot(3));
        assert!(!unreadable.has_failed());
    }
}
