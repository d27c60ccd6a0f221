//! Contents that no structure of ours has. Checksums keep out rot and the structures of other
//! caches, but nobody who knows the format. So every structure is checked before it is used, and
//! the code behind may rely on it. A structure that fails here is damage (I14), never absence.

use super::entry::KEY_BITS;
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
        self.fault_of_state(header.generation, &header.state)
            .or_else(|| self.fault_of_entries(&header.entries, header.stream, slots))
            .or_else(|| self.fault_of_volumes(&header.entries, header.generation.epoch))
    }

    /// Returns the fault of a summary, if it has any.
    pub(crate) fn fault_of_summary(&self, summary: &Summary) -> Option<&'static str> {
        let slots = self.geometry.first_slot() as u16..summary.end_slot;
        let fits = u32::from(slots.end) <= self.geometry.slots_per_segment();
        if !fits || slots.end < slots.start {
            return Some("an end that is not in its segment");
        }
        self.fault_of_state(summary.generation, &summary.state)
            .or_else(|| self.fault_of_entries(&summary.entries, summary.stream, slots))
            .or_else(|| self.fault_of_volumes(&summary.entries, summary.generation.epoch))
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

    fn fault_of_entries(
        &self,
        entries: &EntryList,
        stream: Stream,
        slots: std::ops::Range<u16>,
    ) -> Option<&'static str> {
        let mut taken = SlotSet::default();
        for entry in entries {
            let Ok(entry) = entry else {
                return Some("malformed entries");
            };
            let last = entry.number + u64::from(entry.entry.count());
            if last - entries.first_number() >= SPREAD {
                return Some("numbers that cannot be together");
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
                        return Some("a block that is not in it");
                    }
                    if !(slot..slot + count).all(|slot| taken.insert(slot)) {
                        return Some("two blocks in one place");
                    }
                    if dirty && stream != Stream::Write && !planted_dirty() {
                        return Some("dirty blocks in a stream that has none");
                    }
                    (key, count)
                }
                Entry::Drop { key, count } => (key, count),
                Entry::Clean { .. } => continue,
            };
            if !self.are_of_shard(key, count) {
                return Some("blocks of another shard");
            }
        }
        None
    }

    /// An origin never shrinks, and a size is on record before a block in it can be cached.
    fn fault_of_volumes(&self, entries: &EntryList, epoch: u32) -> Option<&'static str> {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let is_beyond = |key: BlockKey, count: u16| {
            self.volumes.iter().any(|volume| {
                let end = volume.base.0 + volume.size_bytes.div_ceil(block_bytes);
                let reserved = volume.base.0 + volume.reserved_blocks;
                // A run may go on in the next volume's blocks.
                let (first, after) = (key.0.max(end), (key.0 + u64::from(count)).min(reserved));
                volume.state == VolumeState::Attached
                    && epoch >= volume.valid_from_epoch
                    && first < after
            })
        };
        let mut blocks = entries.iter().filter_map(|entry| match entry.ok()?.entry {
            Entry::Data { key, count, .. } | Entry::Zero { key, count, .. } => Some((key, count)),
            Entry::Clean { .. } | Entry::Drop { .. } => None,
        });
        blocks
            .any(|(key, count)| is_beyond(key, count))
            .then_some("blocks beyond the end of a volume")
    }

    fn are_of_shard(&self, key: BlockKey, count: u16) -> bool {
        let of_shard = |by: u16| self.geometry.shard_of(key.plus(u64::from(by))) == self.shard;
        self.geometry.shards == 1 || (0..count).all(of_shard)
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
        assert_eq!(bounds.fault_of_entries(&entries, Stream::Write, 1..2), None);
        entries.push(2 * SPREAD - 2, drop(5), &[]);
        let fault = bounds.fault_of_entries(&entries, Stream::Write, 1..2);
        assert_eq!(fault, Some("numbers that cannot be together"));
    }
}
