//! Entries: the lines of a record or a summary, each naming an event of a run of blocks.
//!
//! An entry is 8 bytes, a `Data` entry 4 more for each block's CRC32C:
//!
//! | bits | field |
//! |---|---|
//! | 0-2 | kind |
//! | 3 | dirty |
//! | 4-11 | count - 1 |
//! | 12-23 | slot in the segment |
//! | 24-63 | block key, or segment, or how many numbers are skipped |
//!
//! Entries number themselves: the list's owner says the first number, each entry takes as many
//! as it names blocks, and a `Skip` jumps over numbers that went to other streams. So the order of
//! any two entries of a shard is known at 12 bytes a block.

use super::Sequence;
use super::geometry::{BlockKey, SegmentId};

/// Bytes of an entry's head.
pub const HEAD_BYTES: usize = 8;
/// Bytes of one block's checksum behind the head of a `Data` entry.
pub const CHECKSUM_BYTES: usize = 4;
/// The most blocks one entry can name.
pub const MAX_COUNT: u16 = 256;
/// Bits of a slot in its segment.
const SLOT_BITS: u32 = 12;
/// Bits of a block key.
pub const KEY_BITS: u32 = 40;

/// An entry: the event of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `count` blocks from `key` on are at `slot` and the slots after it.
    Data {
        /// First block.
        key: BlockKey,
        /// Its slot in the segment.
        slot: u16,
        /// The number of blocks, 1 to 256.
        count: u16,
        /// Whether the origin may hold something older.
        dirty: bool,
    },
    /// `count` blocks from `key` on are zeroes. They take slots, but nothing is written to them.
    Zero {
        /// First block.
        key: BlockKey,
        /// Its slot in the segment.
        slot: u16,
        /// The number of blocks, 1 to 256.
        count: u16,
        /// Whether the origin may hold something older.
        dirty: bool,
    },
    /// The versions at these slots are durable on the origin. The version is that whose segment was
    /// open or sealed at the entry's own number: slots are written once a generation.
    Clean {
        /// Which segment.
        segment: SegmentId,
        /// First slot.
        slot: u16,
        /// The number of blocks, 1 to 256.
        count: u16,
    },
    /// `count` blocks from `key` on are no longer cached.
    Drop {
        /// First block.
        key: BlockKey,
        /// The number of blocks, 1 to 256.
        count: u16,
    },
}

impl Entry {
    /// The number of blocks it names, and so of the numbers it takes.
    #[must_use]
    pub fn count(self) -> u16 {
        match self {
            Entry::Data { count, .. }
            | Entry::Zero { count, .. }
            | Entry::Clean { count, .. }
            | Entry::Drop { count, .. } => count,
        }
    }

    /// Whether its last block has a key and a slot that an entry of its own could name.
    #[inline(always)]
    fn is_in_range(self) -> bool {
        let last = self.count() - 1;
        if last == 0 {
            // An entry has no more bits for them.
            return true;
        }
        let key_fits = |key: BlockKey| key.0 + u64::from(last) < BlockKey::END;
        let slot_fits = |slot: u16| slot + last < 1 << SLOT_BITS;
        match self {
            Entry::Data { key, slot, .. } | Entry::Zero { key, slot, .. } => {
                key_fits(key) && slot_fits(slot)
            }
            Entry::Clean { slot, .. } => slot_fits(slot),
            Entry::Drop { key, .. } => key_fits(key),
        }
    }

    /// Returns this entry with another count.
    fn with_count(mut self, new: u16) -> Entry {
        match &mut self {
            Entry::Data { count, .. }
            | Entry::Zero { count, .. }
            | Entry::Clean { count, .. }
            | Entry::Drop { count, .. } => *count = new,
        }
        self
    }

    /// The entry of `new` blocks that would go on where this one ends.
    fn followed_by(self, new: u16) -> Entry {
        let by = self.count();
        let mut next = self.with_count(new);
        match &mut next {
            Entry::Data { key, slot, .. } | Entry::Zero { key, slot, .. } => {
                *key = key.plus(u64::from(by));
                *slot += by;
            }
            Entry::Clean { slot, .. } => *slot += by,
            Entry::Drop { key, .. } => *key = key.plus(u64::from(by)),
        }
        next
    }

    /// The head of the entry of one block that would continue this one; 0, which is no head, if
    /// none can.
    fn next_head(self) -> u64 {
        let next = self.followed_by(1);
        let fits = match next {
            Entry::Data { key, slot, .. } | Entry::Zero { key, slot, .. } => {
                slot < 1 << SLOT_BITS && key.0 < 1 << KEY_BITS
            }
            Entry::Clean { slot, .. } => slot < 1 << SLOT_BITS,
            Entry::Drop { key, .. } => key.0 < 1 << KEY_BITS,
        };
        if fits { next.head() } else { 0 }
    }

    pub(crate) fn head(self) -> u64 {
        let (kind, dirty, count, slot, high) = match self {
            Entry::Data {
                key,
                slot,
                count,
                dirty,
            } => (KIND_DATA, dirty, count, slot, key.0),
            Entry::Zero {
                key,
                slot,
                count,
                dirty,
            } => (KIND_ZERO, dirty, count, slot, key.0),
            Entry::Clean {
                segment,
                slot,
                count,
            } => (KIND_CLEAN, false, count, slot, u64::from(segment.0)),
            Entry::Drop { key, count } => (KIND_DROP, false, count, 0, key.0),
        };
        assert!(
            (1..=MAX_COUNT).contains(&count),
            "an entry names 1 to 256 blocks"
        );
        assert!(
            slot < 1 << SLOT_BITS && high < 1 << KEY_BITS,
            "entry fields fit"
        );
        kind | u64::from(dirty) << 3
            | u64::from(count - 1) << 4
            | u64::from(slot) << 12
            | high << 24
    }
}

/// A `Data` entry, encoded once for all the lists it goes into.
#[derive(Clone, Copy, Debug)]
pub struct RunEntry {
    head: u64,
    count: u16,
    /// The entry of one block that would continue it.
    next: u64,
}

impl RunEntry {
    /// Blocks from `key` on, at this slot of their segment and the slots after it.
    ///
    /// # Panics
    /// If key, slot or count do not fit an entry.
    #[inline]
    #[must_use]
    pub fn new(key: BlockKey, slot: u16, count: u16, dirty: bool) -> RunEntry {
        let entry = Entry::Data {
            key,
            slot,
            count,
            dirty,
        };
        let head = entry.head();
        // As `next_head` has it, without taking the entry apart again.
        let blocks = u64::from(count);
        let fits = slot + count < 1 << SLOT_BITS && key.0 + blocks < 1 << KEY_BITS;
        let next = if fits {
            (head & !COUNT_MASK) + (blocks << 12) + (blocks << 24)
        } else {
            0
        };
        RunEntry { head, count, next }
    }

    /// The encoded head.
    #[must_use]
    pub fn head(self) -> u64 {
        self.head
    }

    fn entry(self) -> Entry {
        match decode_head(self.head) {
            Some(Decoded::Entry(entry)) => entry,
            _ => unreachable!("encoded by this type"),
        }
    }
}

/// The bits of a head that say how many blocks there are.
const COUNT_MASK: u64 = 0xff << 4;
const KIND_DATA: u64 = 1;
const KIND_ZERO: u64 = 2;
const KIND_CLEAN: u64 = 3;
const KIND_DROP: u64 = 4;
const KIND_SKIP: u64 = 5;

/// A list of entries in the encoding of the device, built up or read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryList {
    bytes: Vec<u8>,
    /// Where the head of the last entry is and which entry of one block would continue it, for
    /// merging; only while building.
    last: Option<(usize, u64)>,
    first_number: u64,
    next_number: u64,
}

impl EntryList {
    /// An empty list that never reallocates below `capacity_bytes`.
    #[must_use]
    pub fn with_capacity(capacity_bytes: usize) -> EntryList {
        EntryList {
            bytes: Vec::with_capacity(capacity_bytes),
            ..EntryList::default()
        }
    }

    /// A list as read from a device; its entries are checked as they are iterated.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], first_number: u64) -> EntryList {
        EntryList {
            bytes: bytes.to_vec(),
            last: None,
            first_number,
            next_number: first_number,
        }
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The number of the first entry.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        self.first_number
    }

    /// Forgets the entries and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = None;
    }

    /// The most bytes `push` of an entry with this many checksums can add.
    #[must_use]
    pub const fn cost_bytes(checksums: usize) -> usize {
        // A skip may come before the entry.
        2 * HEAD_BYTES + checksums * CHECKSUM_BYTES
    }

    /// Adds an entry whose first block has `number`, greater than any added so far. Runs that
    /// continue the last entry are merged into it.
    ///
    /// # Panics
    /// If numbers do not increase or the checksums do not fit the entry.
    pub fn push(&mut self, number: u64, entry: Entry, checksums: &[u32]) {
        let wanted = if matches!(entry, Entry::Data { .. }) {
            usize::from(entry.count())
        } else {
            0
        };
        assert_eq!(
            checksums.len(),
            wanted,
            "one checksum for each block of data"
        );
        if self.bytes.is_empty() {
            self.first_number = number;
            self.next_number = number;
        }
        assert!(number >= self.next_number, "numbers increase");
        if number > self.next_number {
            let skip = number - self.next_number;
            assert!(skip < 1 << KEY_BITS, "a skip fits its entry");
            self.bytes
                .extend_from_slice(&(KIND_SKIP | skip << 24).to_le_bytes());
            self.last = None;
            self.next_number = number;
        }
        if !self.merge(entry) {
            self.last = Some((self.bytes.len(), entry.next_head()));
            self.bytes.extend_from_slice(&entry.head().to_le_bytes());
        }
        for checksum in checksums {
            self.bytes.extend_from_slice(&checksum.to_le_bytes());
        }
        self.next_number += u64::from(entry.count());
    }

    /// [`EntryList::push`] for blocks of data.
    ///
    /// # Panics
    /// As [`EntryList::push`].
    #[inline(always)]
    pub fn push_run(&mut self, number: u64, entry: RunEntry, checksums: &[u32]) {
        let RunEntry { head, count, next } = entry;
        let first = head & !COUNT_MASK;
        let continues = self.last.is_none_or(|(_, wanted)| wanted == first);
        if number != self.next_number || continues {
            return self.push(number, entry.entry(), checksums);
        }
        assert_eq!(
            checksums.len(),
            usize::from(count),
            "one checksum for each block of data"
        );
        self.last = Some((self.bytes.len(), next));
        match checksums {
            [checksum] => {
                let mut bytes = [0; HEAD_BYTES + CHECKSUM_BYTES];
                bytes[..HEAD_BYTES].copy_from_slice(&head.to_le_bytes());
                bytes[HEAD_BYTES..].copy_from_slice(&checksum.to_le_bytes());
                self.bytes.extend_from_slice(&bytes);
            }
            _ => {
                self.bytes.extend_from_slice(&head.to_le_bytes());
                for checksum in checksums {
                    self.bytes.extend_from_slice(&checksum.to_le_bytes());
                }
            }
        }
        self.next_number += u64::from(count);
    }

    /// Lengthens the last entry by `entry` if that continues it.
    fn merge(&mut self, entry: Entry) -> bool {
        let Some((at, wanted)) = self.last else {
            return false;
        };
        if entry.with_count(1).head() != wanted {
            return false;
        }
        let place = &mut self.bytes[at..at + HEAD_BYTES];
        let head = u64::from_le_bytes(place.try_into().expect("eight bytes"));
        let Some(Decoded::Entry(last)) = decode_head(head) else {
            unreachable!("a list holds what was pushed");
        };
        let total = last.count() + entry.count();
        if total > MAX_COUNT {
            return false;
        }
        let merged = last.with_count(total);
        place.copy_from_slice(&merged.head().to_le_bytes());
        self.last = Some((at, merged.next_head()));
        true
    }

    /// The entries with the number of their first block and their checksums. Ends with an error
    /// at the first byte that is no entry.
    #[must_use]
    pub fn iter(&self) -> EntryIter<'_> {
        EntryIter {
            bytes: &self.bytes,
            number: self.first_number,
        }
    }
}

impl<'a> IntoIterator for &'a EntryList {
    type Item = Result<NumberedEntry<'a>, MalformedEntry>;
    type IntoIter = EntryIter<'a>;

    fn into_iter(self) -> EntryIter<'a> {
        self.iter()
    }
}

/// An entry with its place in the shard's history.
#[derive(Clone, Copy, Debug)]
pub struct NumberedEntry<'a> {
    /// The number of its first block; block `i` has `number + i`.
    pub number: u64,
    /// The entry.
    pub entry: Entry,
    checksums: &'a [u8],
}

impl NumberedEntry<'_> {
    /// The CRC32C of every block of a `Data` entry, of none otherwise.
    #[must_use]
    pub fn checksums(&self) -> Vec<u32> {
        (0..self.checksums.len() / CHECKSUM_BYTES)
            .map(|index| self.checksum(index as u16))
            .collect()
    }

    /// The CRC32C of block `index` of a `Data` entry.
    ///
    /// # Panics
    /// If the entry is not `Data` or has fewer blocks.
    #[must_use]
    pub fn checksum(&self, index: u16) -> u32 {
        let at = usize::from(index) * CHECKSUM_BYTES;
        let bytes = &self.checksums[at..at + CHECKSUM_BYTES];
        u32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }
}

/// Bytes that are no entry where one should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed entry")]
pub struct MalformedEntry;

/// Iterates over encoded entries.
#[derive(Clone, Debug)]
pub struct EntryIter<'a> {
    bytes: &'a [u8],
    number: u64,
}

impl<'a> Iterator for EntryIter<'a> {
    type Item = Result<NumberedEntry<'a>, MalformedEntry>;

    // Recovery goes through millions of entries.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.bytes.is_empty() {
                return None;
            }
            let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else {
                return self.malformed();
            };
            let entry = match decode_head(u64::from_le_bytes(*head)) {
                Some(Decoded::Entry(entry)) => entry,
                Some(Decoded::Skip(by)) if self.number < Sequence::NUMBER_END => {
                    self.bytes = rest;
                    self.number += by;
                    continue;
                }
                Some(Decoded::Skip(_)) | None => return self.malformed(),
            };
            let end = self.number.saturating_add(u64::from(entry.count()));
            if end > Sequence::NUMBER_END || !entry.is_in_range() {
                return self.malformed();
            }
            let checksum_bytes = match entry {
                Entry::Data { count, .. } => usize::from(count) * CHECKSUM_BYTES,
                _ => 0,
            };
            if rest.len() < checksum_bytes {
                return self.malformed();
            }
            let (checksums, rest) = rest.split_at(checksum_bytes);
            let number = self.number;
            self.number += u64::from(entry.count());
            self.bytes = rest;
            return Some(Ok(NumberedEntry {
                number,
                entry,
                checksums,
            }));
        }
    }
}

impl<'a> EntryIter<'a> {
    fn malformed(&mut self) -> Option<Result<NumberedEntry<'a>, MalformedEntry>> {
        self.bytes = &[];
        Some(Err(MalformedEntry))
    }
}

enum Decoded {
    Entry(Entry),
    Skip(u64),
}

#[inline]
fn decode_head(head: u64) -> Option<Decoded> {
    let dirty = head & 8 != 0;
    let count = ((head >> 4) & 0xff) as u16 + 1;
    let slot = ((head >> 12) & 0xfff) as u16;
    let high = head >> 24;
    let key = BlockKey(high);
    Some(Decoded::Entry(match head & 7 {
        KIND_DATA => Entry::Data {
            key,
            slot,
            count,
            dirty,
        },
        KIND_ZERO => Entry::Zero {
            key,
            slot,
            count,
            dirty,
        },
        KIND_CLEAN => Entry::Clean {
            segment: SegmentId(u32::try_from(high).ok()?),
            slot,
            count,
        },
        KIND_DROP => Entry::Drop { key, count },
        KIND_SKIP => return Some(Decoded::Skip(high)),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries() -> impl Strategy<Value = (u64, Entry)> {
        let key = 0u64..1 << 30;
        let any = prop_oneof![
            (key.clone(), 0u16..4000, 1u16..=4, any::<bool>()).prop_map(
                |(key, slot, count, dirty)| {
                    Entry::Data {
                        key: BlockKey(key),
                        slot,
                        count,
                        dirty,
                    }
                }
            ),
            (key.clone(), 0u16..3841, 1u16..=256, any::<bool>()).prop_map(
                |(key, slot, count, dirty)| {
                    Entry::Zero {
                        key: BlockKey(key),
                        slot,
                        count,
                        dirty,
                    }
                }
            ),
            (0u32..1 << 20, 0u16..3841, 1u16..=256).prop_map(|(segment, slot, count)| {
                Entry::Clean {
                    segment: SegmentId(segment),
                    slot,
                    count,
                }
            }),
            (key, 1u16..=256).prop_map(|(key, count)| Entry::Drop {
                key: BlockKey(key),
                count
            }),
        ];
        (0u64..3, any)
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_read_back(list in proptest::collection::vec(entries(), 0..40)) {
            let mut encoded = EntryList::default();
            let mut number = 7;
            let mut expected = Vec::new();
            for (gap, entry) in list {
                number += gap;
                let checksums: Vec<u32> = match entry {
                    Entry::Data { count, .. } => (0..u32::from(count)).map(|i| i * 77 + number as u32).collect(),
                    _ => Vec::new(),
                };
                encoded.push(number, entry, &checksums);
                for i in 0..entry.count() {
                    expected.push((number + u64::from(i), single(entry, i), checksums.get(usize::from(i)).copied()));
                }
                number += u64::from(entry.count());
            }
            let read = EntryList::from_bytes(encoded.as_bytes(), encoded.first_number());
            let mut found = Vec::new();
            for entry in &read {
                let entry = entry.unwrap();
                for i in 0..entry.entry.count() {
                    let checksum = matches!(entry.entry, Entry::Data { .. }).then(|| entry.checksum(i));
                    found.push((entry.number + u64::from(i), single(entry.entry, i), checksum));
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let list = EntryList::from_bytes(&bytes, 0);
            prop_assert!(list.iter().count() <= 26);
        }
    }

    fn single(entry: Entry, index: u16) -> Entry {
        let offset = u64::from(index);
        match entry {
            Entry::Data {
                key, slot, dirty, ..
            } => Entry::Data {
                key: BlockKey(key.0 + offset),
                slot: slot + index,
                count: 1,
                dirty,
            },
            Entry::Zero {
                key, slot, dirty, ..
            } => Entry::Zero {
                key: BlockKey(key.0 + offset),
                slot: slot + index,
                count: 1,
                dirty,
            },
            Entry::Clean { segment, slot, .. } => Entry::Clean {
                segment,
                slot: slot + index,
                count: 1,
            },
            Entry::Drop { key, .. } => Entry::Drop {
                key: BlockKey(key.0 + offset),
                count: 1,
            },
        }
    }

    #[test]
    fn what_no_entry_can_name_is_malformed() {
        let heads = [
            // The last block of a run has no key, no slot.
            KIND_DATA | 1 << 4 | (BlockKey::END - 1) << 24,
            KIND_ZERO | 255 << 4 | 0xf80 << 12,
            KIND_CLEAN | 255 << 4 | 0xf80 << 12,
            KIND_DROP | 255 << 4 | (BlockKey::END - 1) << 24,
        ];
        for head in heads {
            let mut bytes = head.to_le_bytes().to_vec();
            bytes.extend([0; 2 * CHECKSUM_BYTES]);
            let list = EntryList::from_bytes(&bytes[..], 1);
            assert!(
                list.iter().next().is_some_and(|entry| entry.is_err()),
                "{head:#x}"
            );
        }
        let skip = (KIND_SKIP | (BlockKey::END - 1) << 24).to_le_bytes();
        let drop = (KIND_DROP | 1 << 24).to_le_bytes();
        for first_number in [Sequence::NUMBER_END - 1, u64::MAX] {
            let list = EntryList::from_bytes(&[skip, skip, drop].concat(), first_number);
            assert!(list.iter().any(|entry| entry.is_err()), "{first_number}");
        }
    }

    #[test]
    fn a_sequential_run_is_one_entry() {
        let mut list = EntryList::default();
        for i in 0..256u64 {
            let entry = Entry::Data {
                key: BlockKey(1000 + i),
                slot: i as u16,
                count: 1,
                dirty: true,
            };
            list.push(10 + i, entry, &[i as u32]);
        }
        assert_eq!(list.as_bytes().len(), HEAD_BYTES + 256 * CHECKSUM_BYTES);
    }
}
