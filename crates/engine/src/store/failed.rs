//! A cache that failed (I15, I22): the reason, the blocks on record as newer in it than on the
//! origins, and the writes that failed but may be in its log.

use crate::format::{BlockKey, DurablePosition, Stream};
use crate::ids::RequestIndex;
use crate::interface::VolumeSlot;
use crate::map::locks::KeyMap;
use crate::planted::{self, Bug};
use crate::store::Store;

/// A range of a volume that is newer in the cache than on its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsaved {
    /// Of which volume.
    pub volume: VolumeSlot,
    /// From where on, in bytes.
    pub offset_bytes: u64,
    /// Length, in bytes.
    pub len_bytes: u64,
    /// True if the memory buffer holds the range. The next start replays it by itself; the log may
    /// hold something older.
    pub in_memory: bool,
}

/// The durable positions of a shard whose cache was abandoned, on record outside the cache. A later
/// attach notices when the cache lacks some of them (I14). An older image of a device, put in its
/// place, would have the blocks that are listed, but older contents of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The shard.
    pub shard: u16,
    /// Of each stream, up to where.
    pub durable: [DurablePosition; Stream::COUNT],
}

/// Why and how far the cache failed.
#[derive(Debug)]
pub(crate) struct FailedCache {
    pub(crate) reason: &'static str,
    /// "Abandoned at this epoch" is durable outside the cache device (I15).
    pub(crate) recorded: bool,
    /// Blocks on record as newer in the cache than on their origins.
    pub(crate) listed: Listed,
    /// Blocks that the last report lists as newer in the cache. The report is not on record yet.
    pub(crate) reported: Listed,
    /// Blocks of writes that failed and may be in the log all the same.
    pub(crate) landed: KeyMap<()>,
    /// Requests to flush a volume that wait for that list to be empty.
    pub(crate) flushes: Vec<(RequestIndex, VolumeSlot)>,
}

/// Blocks in ranges: `(first, end)`, sorted, none meeting another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) ranges: Vec<(BlockKey, BlockKey)>,
    /// Somebody waits for the list to get shorter.
    pub(crate) revision_wanted: bool,
}

impl Listed {
    pub(crate) fn of(keys: Vec<BlockKey>) -> Listed {
        Listed {
            ranges: ranges_of(keys),
            ..Listed::default()
        }
    }

    /// The number of blocks that are listed.
    pub(crate) fn blocks(&self) -> u64 {
        let lengths = self.ranges.iter().map(|(first, end)| end.0 - first.0);
        lengths.sum()
    }

    /// Whether a block from `first` to before `end` is listed.
    pub(crate) fn meets(&self, first: BlockKey, end: BlockKey) -> bool {
        let after = self.ranges.partition_point(|(_, stop)| *stop <= first);
        let next = self.ranges.get(after);
        next.is_some_and(|(start, _)| *start < end)
    }
}

pub(crate) fn ranges_of(mut keys: Vec<BlockKey>) -> Vec<(BlockKey, BlockKey)> {
    keys.sort_unstable();
    keys.dedup();
    let mut ranges: Vec<(BlockKey, BlockKey)> = Vec::new();
    for key in keys {
        match ranges.last_mut() {
            Some((_, end)) if *end == key => *end = key.plus(1),
            _ => ranges.push((key, key.plus(1))),
        }
    }
    ranges
}

impl Store {
    /// The epoch at which the cache is abandoned, until that is on record (I15).
    #[must_use]
    pub(crate) fn wants_record(&self) -> Option<u32> {
        let failed = self.failed.as_ref();
        failed
            .filter(|failed| !failed.recorded)
            .map(|_| self.log.epoch)
    }

    /// The abandonment is on record, with the list that was reported last.
    pub(crate) fn failure_recorded(&mut self) {
        self.stirred = true;
        if let Some(failed) = &mut self.failed {
            failed.recorded = true;
            failed.listed = std::mem::take(&mut failed.reported);
        }
    }

    #[inline]
    pub(crate) fn failed_cache(&self) -> bool {
        self.failed.is_some()
    }

    /// The cache device can no longer be relied on.
    pub(crate) fn fail_cache(&mut self, reason: &'static str) {
        self.failed.get_or_insert_with(|| FailedCache {
            reason,
            recorded: false,
            listed: Listed::default(),
            reported: Listed::default(),
            landed: KeyMap::default(),
            flushes: Vec::new(),
        });
    }

    /// A write of this block failed, and recovery may find it in the log all the same.
    pub(crate) fn may_have_landed(&mut self, key: BlockKey) {
        if let Some(failed) = &mut self.failed {
            failed.landed.insert(key, ());
        }
    }

    /// Whether blocks that are to be written to the origin are on record as newer in the cache:
    /// then the record has to change first.
    pub(crate) fn is_listed(&mut self, first: BlockKey, end: BlockKey) -> bool {
        let Some(failed) = &mut self.failed else {
            return false;
        };
        let meets = failed.listed.meets(first, end) && !planted::is(Bug::ListIgnored);
        failed.listed.revision_wanted |= meets;
        meets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_what_they_hold_and_no_neighbour() {
        let listed = Listed::of([3, 4, 5, 9].map(BlockKey).to_vec());
        assert_eq!((listed.ranges.len(), listed.blocks()), (2, 4));
        let meets = |first, end| listed.meets(BlockKey(first), BlockKey(end));
        assert!(meets(5, 6) && meets(0, 4) && meets(9, 12) && meets(0, 100));
        assert!(!meets(0, 3) && !meets(6, 9) && !meets(10, 12));
    }
}
