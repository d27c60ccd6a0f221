//! Contents that no structure of ours has. Checksums keep out rot and the structures of other
//! caches, but nobody who knows the format. So every structure is checked before it is used, and
//! the code behind may rely on it. A structure that fails here is damage (I14), never absence.

use super::entry::{KEY_BITS, NumberedEntry};
use super::geometry::{BlockKey, Geometry};
use super::header::State;
use super::{Entry, EntryList, Header, Sequence, Stream, Summary, VolumeRecord, VolumeState};

/// The most by which numbers in one segment differ: a list jumps over no more at once.
pub(crate) const SPREAD: u64 = 1 << KEY_BITS;
/// The epoch after the highest: a cache can be attached so often.
pub(crate) const EPOCH_END: u32 = 1 << 31;

/// Bounds of the contents of a structure of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) geometry: Geometry,
    pub(crate) volumes: &'a [VolumeRecord],
    pub(crate) shard: u16,
    /// The epoch after the highest in which anything can have been written.
    pub(crate) epoch_end: u32,
}

impl Bounds<'_> {
    /// Returns the fault of a header, if it has any.
    pub(crate) fn fault_of_header(&self, header: &Header) -> Option<&'static str> {
        let end = u32::from(header.slot) + 1 + u32::from(header.blocks);
        if end > self.geometry.slots_per_segment() {
            return Some("a record that is longer than its segment");
        }
        let slots = header.slot + 1..end as u16;
        let of = (header.stream, header.generation.epoch);
        self.fault_of_state(header.generation, &header.state)
            .or_else(|| self.entries(&header.entries, of, slots).err())
    }

    /// Checks a summary, and tells what kinds of entries it lists.
    ///
    /// # Errors
    /// Its fault, if it has any.
    pub(crate) fn summary(&self, summary: &Summary) -> Result<Kinds, &'static str> {
        let slots = self.geometry.first_slot() as u16..summary.end_slot;
        let fits = u32::from(slots.end) <= self.geometry.slots_per_segment();
        if !fits || slots.end < slots.start {
            return Err("an end that is not in its segment");
        }
        let of = (summary.stream, summary.generation.epoch);
        match self.fault_of_state(summary.generation, &summary.state) {
            Some(fault) => Err(fault),
            None => self.entries(&summary.entries, of, slots),
        }
    }

    fn fault_of_state(&self, generation: Sequence, state: &State) -> Option<&'static str> {
        let durable = state.durable.iter().map(|position| position.generation);
        let link = state.previous.iter().map(|link| link.generation);
        let mut all = state.tails.into_iter().chain(durable).chain(link);
        let is_known = |at: Sequence| at.epoch < self.epoch_end && at.number < Sequence::NUMBER_END;
        if !is_known(generation) || !is_known(state.known_durable) || !all.all(is_known) {
            return Some("an epoch or a number that was never given");
        }
        let mut ends = state.durable.iter().map(|position| position.end_slot);
        let slots = self.geometry.slots_per_segment();
        if !ends.all(|end| u32::from(end) <= slots) {
            return Some("a durable position that is in no segment");
        }
        None
    }

    /// Checks a list of a stream and an epoch whose blocks are in these slots, and tells what kinds of
    /// entries it has. One pass does both: a cache of 64 GiB has sixteen million entries.
    ///
    /// # Errors
    /// Its fault, if it has any.
    pub(crate) fn entries(
        &self,
        entries: &EntryList,
        (stream, epoch): (Stream, u32),
        slots: std::ops::Range<u16>,
    ) -> Result<Kinds, &'static str> {
        let mut taken = SlotSet::default();
        let mut kinds = Kinds::default();
        for entry in entries {
            let Ok(entry) = entry else {
                return Err("malformed entries");
            };
            kinds.add(&entry);
            if kinds.end_number - entries.first_number() >= SPREAD {
                return Err("numbers that cannot be together");
            }
            let (key, count) = match entry.entry {
                Entry::Data {
                    key,
                    slot,
                    count,
                    dirty,
                }
                | Entry::Zero {
                    key,
                    slot,
                    count,
                    dirty,
                } => {
                    if slot < slots.start || slot + count > slots.end {
                        return Err("a block that is not in it");
                    }
                    if !(slot..slot + count).all(|slot| taken.insert(slot)) {
                        return Err("two blocks in one place");
                    }
                    if dirty && stream != Stream::Write && !planted_dirty() {
                        return Err("dirty blocks in a stream that has none");
                    }
                    if self.are_beyond_volumes(key, count, epoch) {
                        return Err("blocks beyond the end of a volume");
                    }
                    (key, count)
                }
                Entry::Drop { key, count } => (key, count),
                Entry::Clean { .. } => continue,
            };
            if !self.are_of_shard(key, count) {
                return Err("blocks of another shard");
            }
        }
        Ok(kinds)
    }

    /// An origin never shrinks, and a size is on record before a block in it can be cached.
    fn are_beyond_volumes(&self, key: BlockKey, count: u16, epoch: u32) -> bool {
        let block_bytes = u64::from(self.geometry.block_bytes);
        self.volumes.iter().any(|volume| {
            let end = volume.base.0 + volume.size_bytes.div_ceil(block_bytes);
            let reserved = volume.base.0 + volume.reserved_blocks;
            // A run may go on in the next volume's blocks.
            let (first, after) = (key.0.max(end), (key.0 + u64::from(count)).min(reserved));
            volume.state == VolumeState::Attached
                && epoch >= volume.valid_from_epoch
                && first < after
        })
    }

    fn are_of_shard(&self, key: BlockKey, count: u16) -> bool {
        let of_shard = |by: u16| self.geometry.shard_of(key.plus(u64::from(by))) == self.shard;
        self.geometry.shards == 1 || (0..count).all(of_shard)
    }
}

/// Kinds of entries that a list has, so that passes over it that find nothing are saved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    /// Blocks that are dropped, each as often as it is.
    pub(crate) dropped: u64,
    pub(crate) has_cleans: bool,
    /// The number after that of its last block; 0 if it is empty.
    pub(crate) end_number: u64,
}

impl Kinds {
    /// Of a list; entries that make no sense are left out.
    pub(crate) fn of(entries: &EntryList) -> Kinds {
        let mut kinds = Kinds::default();
        let entries = entries.iter().filter_map(Result::ok);
        entries.for_each(|entry| kinds.add(&entry));
        kinds
    }

    #[inline]
    fn add(&mut self, entry: &NumberedEntry<'_>) {
        if let Entry::Drop { count, .. } = entry.entry {
            self.dropped += u64::from(count);
        }
        self.has_cleans |= matches!(entry.entry, Entry::Clean { .. });
        self.end_number = entry.number + u64::from(entry.entry.count());
    }
}

/// With this bug planted, a fault is to be found by the data served.
fn planted_dirty() -> bool {
    crate::planted::is(crate::planted::Bug::DirtyInMain)
}

/// Slots of a segment.
struct SlotSet([u64; 64]);

impl Default for SlotSet {
    fn default() -> SlotSet {
        SlotSet([0; 64])
    }
}

impl SlotSet {
    /// Whether it was not in it before. Slots are below 4096.
    fn insert(&mut self, slot: u16) -> bool {
        let word = &mut self.0[usize::from(slot / 64)];
        let bit = 1 << (slot % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by fuzzing (segments, seed 142222): two jumps in a row, each of which a list can make,
    /// were one that it cannot when the summary was written again.
    #[test]
    fn numbers_of_a_list_lie_together_however_many_jumps_there_are() {
        let geometry = Geometry::for_device(64 << 20, 4096, Some(1), 1).expect("a geometry");
        let bounds = Bounds {
            geometry,
            volumes: &[],
            shard: 0,
            epoch_end: 2,
        };
        let drop = |key| Entry::Drop {
            key: BlockKey(key),
            count: 1,
        };
        let mut entries = EntryList::default();
        entries.push(1, drop(1), &[]);
        entries.push(SPREAD - 1, drop(3), &[]);
        let fault = |entries: &EntryList| bounds.entries(entries, (Stream::Write, 1), 1..2).err();
        assert_eq!(fault(&entries), None);
        entries.push(2 * SPREAD - 2, drop(5), &[]);
        assert_eq!(fault(&entries), Some("numbers that cannot be together"));
    }
}
