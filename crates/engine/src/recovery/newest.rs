//! The newest version of each block, of all that recovery found (I1).
//!
//! A cache of 64 GiB has sixteen million versions. Its table of blocks is far larger than the
//! processor's caches, so to look each version up costs waits for memory, more of them the larger the
//! cache is. So versions are partitioned by their keys' hashes first (radix partitioning; Manegold,
//! Boncz, Kersten 2002, "Optimizing main-memory join on modern hardware"). An example, with two parts:
//!
//! 1. Segment 3 lists block 70 in slot 9 and block 71 in slot 10; segment 5 lists block 70 in slot 40.
//! 2. All three slots get their keys, checksums and flags, one segment after the other.
//! 3. The hashes of the two blocks begin with 0 and 1. Part 0 lists slots 9 and 40, part 1 lists
//!    slot 10.
//! 4. In part 0 slot 40 has the higher number: it is named in the table, with the stream of slot 9 as a
//!    shadow (I3), and slot 9 is cleared.
//! 5. Part 1 follows, and its slot 10 is named.

use super::Found;
use super::blocks::FoundBlock;
use super::drops::Drops;
use super::rank::Rank;
use crate::format::{BlockKey, Geometry, Slot, Stream, Superblock};
use crate::map::index::{Index, hash, scaled};
use crate::planted::{self, Bug};

/// Versions of a part: with the table of their keys 2 MiB.
const PART_VERSIONS: usize = 1 << 16;
/// The most parts: above 64 million versions parts get larger. All grow at once, and the processor's
/// caches hold the ends of so many.
const MAX_PARTS: usize = 1 << 10;

/// A version that a `Drop` in some stream dropped and that still survives.
pub(super) struct Shadowed {
    pub(super) key: BlockKey,
    pub(super) stream: Stream,
    pub(super) rank: Rank,
}

/// Block and slot of a version: the bytes of a key of 40 bits and of a slot.
#[derive(Clone, Copy)]
struct Listed([u8; 9]);

impl Listed {
    fn new(key: BlockKey, slot: Slot) -> Listed {
        let both = u128::from(key.0) << 32 | u128::from(slot.0);
        let mut bytes = [0; 9];
        bytes.copy_from_slice(&both.to_le_bytes()[..9]);
        Listed(bytes)
    }

    fn both(self) -> (BlockKey, Slot) {
        let [a, b, c, d, rest @ ..] = self.0;
        let [e, f, g, h, i] = rest;
        let key = u64::from_le_bytes([e, f, g, h, i, 0, 0, 0]);
        (BlockKey(key), Slot(u32::from_le_bytes([a, b, c, d])))
    }
}

/// All versions, until [`Newest::settle`] tells which count.
pub(super) struct Newest {
    geometry: Geometry,
    seed: u64,
    index: Index,
    /// By slot.
    ranks: Vec<Rank>,
    /// By segment.
    streams: Vec<Stream>,
    parts: Vec<Vec<Listed>>,
    /// Versions that count and found no room in their first bucket, by their second one.
    moved: Vec<Vec<Listed>>,
}

impl Newest {
    /// Of the segments found, without their versions.
    pub(super) fn new(superblock: &Superblock, found: &Found) -> Newest {
        let geometry = superblock.geometry;
        let mut streams = vec![Stream::Write; geometry.segments_per_shard as usize];
        for segment in &found.segments {
            streams[segment.id.0 as usize] = segment.stream;
        }
        let versions = found.segments.len() * geometry.slots_per_segment() as usize;
        let parts = (versions / PART_VERSIONS).clamp(1, MAX_PARTS);
        let [seed @ .., _, _, _, _, _, _, _, _] = superblock.id.0;
        let seed = u64::from_le_bytes(seed);
        Newest::in_parts(parts, versions, (geometry, seed), streams)
    }

    fn in_parts(
        parts: usize,
        versions: usize,
        (geometry, seed): (Geometry, u64),
        streams: Vec<Stream>,
    ) -> Newest {
        // Hashes share versions out evenly; a part that gets more grows.
        let room = versions / parts + versions / parts / 16;
        Newest {
            geometry,
            seed,
            index: Index::new(geometry.slots()),
            ranks: vec![0; geometry.slots() as usize],
            streams,
            parts: (0..parts).map(|_| Vec::with_capacity(room)).collect(),
            moved: vec![Vec::new(); parts],
        }
    }

    /// Adds a version.
    ///
    /// # Panics
    /// If one was added in its slot before.
    #[inline]
    pub(super) fn add(&mut self, version: &FoundBlock, rank: Rank) {
        let FoundBlock {
            key,
            slot,
            checksum,
            flags,
            ..
        } = *version;
        self.index.fill_unnamed(key, slot, checksum, flags);
        self.ranks[slot.0 as usize] = rank;
        let part = scaled(hash(key), self.parts.len());
        self.parts[part].push(Listed::new(key, slot));
    }

    /// Names the newest version of each block that is not dropped, and clears the slots of all others.
    /// Of two the older one is a shadow of the other.
    pub(super) fn settle(mut self, drops: &Drops) -> (Index, Vec<Shadowed>) {
        let mut shadowed = Vec::new();
        let mut keys = Keys::new(self.seed);
        for part in std::mem::take(&mut self.parts) {
            keys.clear(part.len());
            for (key, slot) in part.iter().map(|listed| listed.both()) {
                self.settle_version(key, slot, drops, &mut keys, &mut shadowed);
            }
            for (key, slot) in &keys.newest {
                self.name(*key, *slot);
            }
        }
        for (key, slot) in self.moved.iter().flatten().map(|listed| listed.both()) {
            self.index.name_second(key, slot);
        }
        (self.index, shadowed)
    }

    /// Names a slot in the first bucket of its key, which is in the part's stretch of the table; the
    /// second may be anywhere.
    #[inline]
    fn name(&mut self, key: BlockKey, slot: Slot) {
        if !self.index.name_first(key, slot) {
            let second = scaled(hash(key).rotate_left(32), self.moved.len());
            self.moved[second].push(Listed::new(key, slot));
        }
    }

    #[inline]
    fn settle_version(
        &mut self,
        key: BlockKey,
        slot: Slot,
        drops: &Drops,
        keys: &mut Keys,
        shadowed: &mut Vec<Shadowed>,
    ) {
        let hash = hash(key);
        if drops.may_drop(hash) {
            let rank = self.ranks[slot.0 as usize];
            if drops.newest_of(key) > Some(rank) {
                let stream = self.stream_of(slot);
                shadowed.push(Shadowed { key, stream, rank });
                self.index.clear(slot);
                return;
            }
        }
        let Some(known) = keys.find_or_add(key, slot, hash) else {
            return;
        };
        let rank = |slot: Slot| self.ranks[slot.0 as usize];
        let is_older = (rank(*known) > rank(slot)) != planted::is(Bug::OldestWins);
        let (newer, older) = match is_older {
            true => (*known, slot),
            false => (slot, *known),
        };
        *known = newer;
        let shadows = self.index.flags(older).shadows() | self.stream_of(older).bit();
        self.index.add_shadows(newer, shadows);
        self.index.clear(older);
    }

    fn stream_of(&self, slot: Slot) -> Stream {
        self.streams[self.geometry.segment_of(slot).0 as usize]
    }
}

/// The blocks of a part, each with the slot of its newest version so far.
struct Keys {
    newest: Vec<(BlockKey, Slot)>,
    /// By hash, with open addresses: a place in `newest` plus one, or 0.
    places: Vec<u32>,
    /// An odd number that clients do not know: they choose the keys, and hashes of the index are known
    /// to all (multiply-shift; Dietzfelbinger and others 1997, "A reliable randomized algorithm for the
    /// closest-pair problem").
    factor: u64,
}

impl Keys {
    fn new(seed: u64) -> Keys {
        Keys {
            newest: Vec::new(),
            places: Vec::new(),
            // Also of a seed whose bits repeat.
            factor: hash(BlockKey(seed)) | 1,
        }
    }

    /// Forgets all, and makes room for so many.
    fn clear(&mut self, most: usize) {
        self.newest.clear();
        self.places.clear();
        self.places.resize((most * 2).next_power_of_two(), 0);
    }

    /// The slot of a block that is there, or `None` if it was added.
    #[inline]
    fn find_or_add(&mut self, key: BlockKey, slot: Slot, hash: u64) -> Option<&mut Slot> {
        let mask = self.places.len() - 1;
        let mut at = scaled(hash.wrapping_mul(self.factor), self.places.len());
        loop {
            match self.places[at] {
                0 => {
                    self.newest.push((key, slot));
                    self.places[at] = self.newest.len() as u32;
                    return None;
                }
                place if self.newest[place as usize - 1].0 == key => {
                    return Some(&mut self.newest[place as usize - 1].1);
                }
                _ => at = (at + 1) & mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::index::SlotFlags;
    use crate::recovery::drops::Collected;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PARTS: usize = 7;

    fn geometry() -> Geometry {
        Geometry::for_device(64 << 20, 4096, Some(1), 1).expect("a geometry")
    }

    fn stream_of(segment: usize) -> Stream {
        Stream::ALL[segment % Stream::COUNT]
    }

    proptest! {
        /// Each version is of a block, with a rank, and dropped at another one; slots are given in order.
        #[test]
        fn the_newest_version_counts_that_is_not_dropped(
            versions in proptest::collection::vec((0u64..300, 1u64..1000), 1..900),
            dropped in proptest::collection::vec((0u64..300, 1u64..1000), 0..200),
        ) {
            let geometry = geometry();
            let segments = geometry.segments_per_shard as usize;
            let streams: Vec<Stream> = (0..segments).map(stream_of).collect();
            let mut newest = Newest::in_parts(PARTS, versions.len(), (geometry, 0x1234_5678), streams);
            let mut drops = Collected::new(geometry, &Found::default());
            let mut last_drop = BTreeMap::new();
            for (key, at) in dropped {
                drops.add(Stream::Main, BlockKey(key), at * 1000 + 999);
                let last = last_drop.entry(key).or_insert(0);
                *last = at.max(*last);
            }
            // By block: rank, slot and stream of each version.
            let mut expected: BTreeMap<u64, Vec<(u64, Slot, Stream)>> = BTreeMap::new();
            let mut hidden = 0;
            for (slot, (key, at)) in (1u32..).zip(versions) {
                // No two are alike.
                let rank = at * 1000 + u64::from(slot);
                let slot = Slot(slot);
                let flags = SlotFlags::new(slot.0.is_multiple_of(2), false, 0);
                let key_of = BlockKey(key);
                let block = FoundBlock { key: key_of, slot, number: 0, checksum: slot.0, flags };
                newest.add(&block, rank);
                let stream = stream_of(geometry.segment_of(slot).0 as usize);
                if last_drop.get(&key).is_some_and(|last| last * 1000 + 999 > rank) {
                    hidden += 1;
                } else {
                    expected.entry(key).or_default().push((rank, slot, stream));
                }
            }
            let (index, shadowed) = newest.settle(&drops.all());
            prop_assert_eq!(shadowed.len(), hidden);
            prop_assert_eq!(index.len() as usize, expected.len());
            let live = (0..index.slots()).filter(|slot| index.flags(Slot(*slot)).live()).count();
            prop_assert_eq!(live, expected.len());
            for key in 0..300 {
                let found = index.find(BlockKey(key));
                let Some(of_key) = expected.get_mut(&key) else {
                    prop_assert_eq!(found, None);
                    continue;
                };
                of_key.sort_unstable_by_key(|(rank, ..)| *rank);
                let (_, slot, _) = of_key.pop().unwrap();
                let shadows = of_key.iter().fold(0, |all, (.., stream)| all | stream.bit());
                prop_assert_eq!(found, Some(slot));
                prop_assert_eq!(index.checksum(slot), slot.0);
                prop_assert_eq!(index.flags(slot), SlotFlags::new(slot.0.is_multiple_of(2), false, shadows));
            }
        }
    }

    #[test]
    fn a_version_is_listed_in_nine_bytes() {
        let last = (BlockKey(BlockKey::END - 1), Slot(u32::MAX - 1));
        assert_eq!(Listed::new(last.0, last.1).both(), last);
        assert_eq!(size_of::<Listed>(), 9);
    }
}
