//! The arrays of an index as bytes, for the checkpoint of an orderly stop (`format::checkpoint`).

use super::{Content, Index, KeyMap, LIVE, Property, SlotFlags};
use crate::format::checkpoint::{Part, Section};
use crate::format::{BlockKey, Slot};

impl Index {
    /// Buckets of the table.
    pub(crate) fn buckets(&self) -> u32 {
        self.table.len() as u32
    }

    /// Entries that found no bucket.
    pub(crate) fn spilled(&self) -> u32 {
        self.spilled.len() as u32
    }

    /// Writes the elements of a part.
    ///
    /// # Panics
    /// If the part is of segments, which the index does not know.
    pub(crate) fn export(&self, part: &Part, into: &mut [u8]) {
        let range = part.first..part.first + part.elements;
        let elements = into.chunks_exact_mut(part.section.element_bytes());
        match part.section {
            Section::Segments => unreachable!("the index has no segments"),
            Section::Spilled => {
                let mut spilled: Vec<_> = self.spilled.iter().collect();
                spilled.sort_unstable();
                for (into, (key, slot)) in elements.zip(&spilled[range]) {
                    into[..8].copy_from_slice(&key.0.to_le_bytes());
                    into[8..12].copy_from_slice(&slot.0.to_le_bytes());
                }
            }
            Section::Contents => {
                for (into, of) in elements.zip(&self.contents[range]) {
                    into[..4].copy_from_slice(&of.key_low.to_le_bytes());
                    into[4..].copy_from_slice(&of.checksum.to_le_bytes());
                }
            }
            Section::Properties => {
                for (into, of) in elements.zip(&self.properties[range]) {
                    into.copy_from_slice(&[of.key_high, of.flags.0]);
                }
            }
            Section::Table => {
                let (values, _) = into.as_chunks_mut();
                for (into, value) in values.iter_mut().zip(self.table[range].as_flattened()) {
                    *into = value.to_le_bytes();
                }
            }
        }
    }

    /// Takes the elements of a part over that [`Index::export`] wrote of an index with as many slots.
    /// `None` if they are none of such an index.
    pub(crate) fn import(&mut self, part: &Part, bytes: &[u8]) -> Option<()> {
        let range = part.first..part.first + part.elements;
        let elements = bytes.chunks_exact(part.section.element_bytes());
        match part.section {
            Section::Segments => return None,
            Section::Spilled => {
                for of in elements {
                    let key = BlockKey(u64::from_le_bytes(of[..8].try_into().ok()?));
                    let slot = Slot(u32::from_le_bytes(of[8..12].try_into().ok()?));
                    let is_new = self.spilled.insert(key, slot).is_none();
                    if slot.0 >= self.slots() || !is_new {
                        return None;
                    }
                }
            }
            Section::Contents => {
                let (elements, _) = bytes.as_chunks();
                for (content, of) in self.contents.get_mut(range)?.iter_mut().zip(elements) {
                    let of = u64::from_le_bytes(*of);
                    *content = Content {
                        key_low: of as u32,
                        checksum: (of >> 32) as u32,
                    };
                }
            }
            Section::Properties => {
                let mut live = 0u32;
                let (elements, _) = bytes.as_chunks();
                for (property, of) in self.properties.get_mut(range)?.iter_mut().zip(elements) {
                    let [key_high, flags] = *of;
                    *property = Property {
                        key_high,
                        flags: SlotFlags(flags),
                    };
                    live = live.wrapping_add(u32::from(flags / LIVE));
                }
                self.live += live;
            }
            Section::Table => {
                let (mask, slots) = (self.slot_mask, self.slots());
                let mut highest = 0;
                let values = self.table.get_mut(range)?.as_flattened_mut().iter_mut();
                let (bytes, _) = bytes.as_chunks();
                for (value, of) in values.zip(bytes) {
                    *value = u32::from_le_bytes(*of);
                    highest = highest.max(*value & mask);
                }
                if highest > slots {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Whether slots and table have as many blocks, after the last part.
    pub(crate) fn is_consistent(&self) -> bool {
        let values = self.table.as_flattened().iter();
        // Without checks for overflow, which it cannot, the compiler counts many at a time.
        let named = values.fold(self.spilled(), |all, value| {
            all.wrapping_add(u32::from(*value != 0))
        });
        named == self.live
    }

    /// The blocks that are cached: key, slot, checksum, flags. For comparisons.
    pub(crate) fn cached(&self) -> KeyMap<(Slot, u32, SlotFlags)> {
        let slots = (0..self.slots()).map(Slot);
        let live = slots.filter(|slot| self.flags(*slot).live());
        let of = |slot| (slot, self.checksum(slot), self.flags(slot));
        live.map(|slot| (self.key(slot), of(slot))).collect()
    }
}
