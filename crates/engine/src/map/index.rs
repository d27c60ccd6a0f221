//! The index: the slot of each block, and the properties of each slot.
//!
//! Two structures share the 16 bytes a cached block may cost. Arrays by slot hold the block's key
//! (5 bytes), its CRC32C (4) and flags (1), those together that are looked at together; an
//! open-addressed table finds the slot of a key in 32
//! bits an entry, of which those the slot number does not need carry a tag, so that a probe of the
//! wrong entry seldom touches the arrays. A key has two buckets of eight places, one cache line
//! each at most, and goes to the emptier (Azar, Broder, Karlin, Upfal 1994), after a crash to the first
//! that has room (`recovery/newest.rs`); when both are full
//! an entry moves to its other bucket (cuckoo hashing with buckets; Dietzfelbinger, Weidling
//! 2007). So the table can be nine tenths full and still no operation walks far; the few entries for
//! which there is no room even so are in a map. All else is allocated once; nothing pauses.
//!
//! An evicted block keeps its entry until its segment is used again. Its slot is not live, so the
//! block is not cached; but its copy on the device is known (see `departed`).

mod image;

use std::ops::Range;

use wide::{CmpEq, i32x8};

use crate::format::{BlockKey, Slot, Stream};
use crate::map::locks::KeyMap;

/// Slots that are counted at a time.
const COUNTED: usize = 1 << 16;

/// Places in a bucket of the table.
const BUCKET: usize = 8;

const DIRTY: u8 = 1;
const HITS_SHIFT: u8 = 1;
const HITS_MASK: u8 = 0b11 << HITS_SHIFT;
const SHADOW_SHIFT: u8 = 3;
const SHADOW_MASK: u8 = 0b111 << SHADOW_SHIFT;
const ZERO: u8 = 1 << 6;
const LIVE: u8 = 1 << 7;

/// The second bucket comes from the high bits of the hash's lower half; the tag, which is the high
/// bits of an entry, takes others.
const TAG_ROTATION: u32 = 16;

/// The highest count of hits a slot remembers.
pub(crate) const MAX_HITS: u8 = 3;

/// Properties of a live slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotFlags(u8);

impl SlotFlags {
    /// Flags of a block that is live, with these properties and no hits.
    #[must_use]
    pub(crate) fn new(dirty: bool, zero: bool, shadows: u8) -> SlotFlags {
        SlotFlags(
            LIVE | if dirty { DIRTY } else { 0 }
                | if zero { ZERO } else { 0 }
                | (shadows << SHADOW_SHIFT & SHADOW_MASK),
        )
    }

    /// Returns these flags with `hits` as the count of hits.
    #[must_use]
    pub(crate) fn with_hits(self, hits: u8) -> SlotFlags {
        SlotFlags(self.0 & !HITS_MASK | hits.min(MAX_HITS) << HITS_SHIFT)
    }

    /// The origin may hold something older.
    #[must_use]
    pub(crate) fn dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// The block is all zeroes and nothing is stored in its slot.
    #[must_use]
    pub(crate) fn zero(self) -> bool {
        self.0 & ZERO != 0
    }

    /// The index names this slot.
    #[must_use]
    pub(crate) fn live(self) -> bool {
        self.0 & LIVE != 0
    }

    /// The number of hits, up to [`MAX_HITS`].
    #[must_use]
    pub(crate) fn hits(self) -> u8 {
        (self.0 & HITS_MASK) >> HITS_SHIFT
    }

    /// The streams in which an older entry of the block may survive (I3), as a mask.
    #[must_use]
    pub(crate) fn shadows(self) -> u8 {
        (self.0 & SHADOW_MASK) >> SHADOW_SHIFT
    }
}

/// The contents of a slot, but for its [`Property`]: together they would be padded by two bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    key_low: u32,
    checksum: u32,
}

/// The rest of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Property {
    key_high: u8,
    flags: SlotFlags,
}

/// The index of one shard.
#[derive(Debug)]
pub(crate) struct Index {
    contents: Box<[Content]>,
    properties: Box<[Property]>,
    table: Box<[[u32; BUCKET]]>,
    /// Entries for which no bucket could make room: 1 in 10,000 when the table is full, 1 in 5,000 after
    /// a crash, thousands in a large cache.
    spilled: KeyMap<Slot>,
    /// The bits of an entry that are the slot number; the rest is the tag.
    slot_mask: u32,
    live: u32,
}

impl Index {
    /// An empty index for this many slots.
    #[must_use]
    pub(crate) fn new(slots: u32) -> Index {
        let slots_usize = slots as usize;
        let buckets = Index::buckets_for(slots);
        Index {
            contents: vec![Content::default(); slots_usize].into(),
            properties: vec![Property::default(); slots_usize].into(),
            table: vec![[0; BUCKET]; buckets].into(),
            spilled: KeyMap::default(),
            slot_mask: u32::MAX
                .checked_shr((slots + 1).leading_zeros())
                .unwrap_or(0),
            live: 0,
        }
    }

    /// Buckets for this many slots. Headers, summaries and free segments take slots that are never
    /// live, so the table is nine tenths full at most.
    pub(crate) fn buckets_for(slots: u32) -> usize {
        (slots as usize * 12 / 11).div_ceil(BUCKET) + 2
    }

    /// Makes room for more slots. All entries get new places, in the order of the table: a
    /// bucket's number is its key's hash, scaled, so that the new table is filled nearly in order
    /// too.
    pub(crate) fn grow(&mut self, slots: u32) {
        let old = std::mem::replace(self, Index::new(slots));
        let kept = old.contents.len();
        self.contents[..kept].copy_from_slice(&old.contents);
        self.properties[..kept].copy_from_slice(&old.properties);
        self.live = old.live;
        for (bucket, values) in old.table.iter().enumerate() {
            for value in values.iter().filter(|value| **value != 0) {
                let slot = old.slot_of(*value);
                let key = self.key(slot);
                let hash = hash(key);
                let value = self.value(self.tag(hash), slot);
                let same_home = usize::from(old.homes(hash)[0] != bucket);
                match self.free_place(self.homes(hash)[same_home]) {
                    Some((bucket, at)) => self.table[bucket][at] = value,
                    None => self.place(key, hash, value, slot),
                }
            }
        }
        for (key, slot) in old.spilled {
            let hash = hash(key);
            self.place(key, hash, self.value(self.tag(hash), slot), slot);
        }
    }

    /// The number of blocks that are cached.
    #[must_use]
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// The slot that holds the newest version of a cached block.
    #[inline]
    #[must_use]
    pub(crate) fn find(&self, key: BlockKey) -> Option<Slot> {
        self.named(key).filter(|slot| self.flags(*slot).live())
    }

    /// The slot that holds the newest version of a block, or did when that was evicted, if it is
    /// not live.
    #[inline]
    #[must_use]
    pub(crate) fn named(&self, key: BlockKey) -> Option<Slot> {
        let hash = hash(key);
        match self.place_of(key, hash) {
            Some((bucket, at)) => Some(self.slot_of(self.table[bucket][at])),
            None if self.spilled.is_empty() => None,
            None => self.find_spilled(key),
        }
    }

    /// Where in the table a key is.
    #[inline(always)]
    fn place_of(&self, key: BlockKey, hash: u64) -> Option<(usize, usize)> {
        let wanted = self.tag(hash);
        for bucket in self.homes(hash) {
            let entries = &self.table[bucket];
            let mut places = matching(entries, wanted, !self.slot_mask);
            while places != 0 {
                let at = places.trailing_zeros() as usize % BUCKET;
                if self.holds(entries[at], key) {
                    return Some((bucket, at));
                }
                places &= places - 1;
            }
        }
        None
    }

    /// Whether an entry names a slot with this key; an empty one names none.
    #[inline]
    fn holds(&self, value: u32, key: BlockKey) -> bool {
        let at = (value & self.slot_mask).wrapping_sub(1) as usize;
        let same_low = (self.contents.get(at)).is_some_and(|of| of.key_low == key.0 as u32);
        same_low && self.properties[at].key_high == (key.0 >> 32) as u8
    }

    /// The numbers of live blocks and of dirty ones among them, in `len` slots from this one on: a
    /// segment's, of which there are fewer than 4096.
    pub(crate) fn counts(&self, first: Slot, len: usize) -> (u32, u32) {
        let slots = &self.properties[first.0 as usize..][..len];
        // Without checks for overflow the compiler counts many at a time.
        let (live, dirty) = slots.iter().fold((0u16, 0u16), |(live, dirty), slot| {
            let is_live = u16::from(slot.flags.0 / LIVE);
            let is_dirty = is_live & u16::from(slot.flags.0 & DIRTY);
            (live.wrapping_add(is_live), dirty.wrapping_add(is_dirty))
        });
        (u32::from(live), u32::from(dirty))
    }

    /// The numbers of cached blocks with keys in a range, and of dirty ones among them.
    pub(crate) fn counts_of(&self, keys: Range<BlockKey>) -> (u64, u64) {
        let (mut cached, mut dirty) = (0, 0);
        let (first, end) = (keys.start.0, keys.end.0);
        if first >= end {
            return (0, 0);
        }
        // Keys of which the higher bits are alike: numbers of 32 bits are compared many at a time.
        for high in first >> 32..=(end - 1) >> 32 {
            let low = |key: u64| key.clamp(high << 32, (high << 32) + u64::from(u32::MAX)) as u32;
            let (first, last) = (low(first), low(end - 1));
            let slots = self
                .contents
                .chunks(COUNTED)
                .zip(self.properties.chunks(COUNTED));
            for (contents, properties) in slots {
                let slots = contents.iter().zip(properties);
                let counts = slots.fold((0u32, 0u32), |(cached, dirty), (content, of)| {
                    let is_in = u32::from(content.key_low.wrapping_sub(first) <= last - first);
                    let is_cached =
                        is_in & u32::from(of.key_high == high as u8) & u32::from(of.flags.0 / LIVE);
                    let is_dirty = is_cached & u32::from(of.flags.0 & DIRTY);
                    (cached.wrapping_add(is_cached), dirty.wrapping_add(is_dirty))
                });
                cached += u64::from(counts.0);
                dirty += u64::from(counts.1);
            }
        }
        (cached, dirty)
    }

    /// The number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.contents.len() as u32
    }

    /// The key last stored at a slot.
    #[inline]
    #[must_use]
    pub(crate) fn key(&self, slot: Slot) -> BlockKey {
        let at = slot.0 as usize;
        let (low, high) = (self.contents[at].key_low, self.properties[at].key_high);
        BlockKey(u64::from(low) | u64::from(high) << 32)
    }

    /// The flags of a slot; not live if the index does not name it.
    #[inline]
    #[must_use]
    pub(crate) fn flags(&self, slot: Slot) -> SlotFlags {
        self.properties[slot.0 as usize].flags
    }

    #[inline]
    fn flags_mut(&mut self, slot: Slot) -> &mut SlotFlags {
        &mut self.properties[slot.0 as usize].flags
    }

    /// The CRC32C of the block in a slot.
    #[inline]
    #[must_use]
    pub(crate) fn checksum(&self, slot: Slot) -> u32 {
        self.contents[slot.0 as usize].checksum
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn hit(&mut self, slot: Slot) {
        let flags = self.flags_mut(slot);
        if flags.hits() < MAX_HITS {
            *flags = SlotFlags(flags.0 + (1 << HITS_SHIFT));
        }
    }

    /// Sets the count of hits.
    pub(crate) fn set_hits(&mut self, slot: Slot, hits: u8) {
        let flags = self.flags_mut(slot);
        *flags = flags.with_hits(hits);
    }

    /// The block's newest version is durable on the origin.
    ///
    /// # Panics
    /// If the slot is not live and dirty.
    pub(crate) fn set_clean(&mut self, slot: Slot) {
        let flags = self.flags_mut(slot);
        assert!(
            flags.live() && flags.dirty(),
            "only a dirty block becomes clean"
        );
        *flags = SlotFlags(flags.0 & !DIRTY);
    }

    /// Adds streams to the shadows of a live slot.
    pub(crate) fn add_shadows(&mut self, slot: Slot, shadows: u8) {
        let flags = self.flags_mut(slot);
        *flags = SlotFlags(flags.0 | (shadows << SHADOW_SHIFT & SHADOW_MASK));
    }

    /// Names `slot` as the newest version of `key`. Returns the slot that was it before, which is
    /// then no longer live.
    ///
    /// # Panics
    /// If `slot` is live already.
    #[cfg(test)]
    pub(crate) fn insert(
        &mut self,
        key: BlockKey,
        slot: Slot,
        checksum: u32,
        flags: SlotFlags,
    ) -> Option<Slot> {
        let old = self.put(key, slot, checksum);
        self.set_flags(slot, flags);
        old.and_then(|(slot, flags)| flags.live().then_some(slot))
    }

    /// Says what is in a slot, which nothing names yet: [`Index::name_first`] or [`Index::clear`] must
    /// follow.
    ///
    /// # Panics
    /// If `slot` is live already.
    #[inline]
    pub(crate) fn fill_unnamed(
        &mut self,
        key: BlockKey,
        slot: Slot,
        checksum: u32,
        flags: SlotFlags,
    ) {
        self.fill(key, slot, checksum);
        self.set_flags(slot, flags);
    }

    /// Names a slot that is filled, with a key of which [`Index::named`] knows nothing, in the first
    /// bucket of the key. The last place of a bucket is left for keys whose second bucket it is: false
    /// if there is no other, and [`Index::name_second`] must follow.
    #[inline]
    pub(crate) fn name_first(&mut self, key: BlockKey, slot: Slot) -> bool {
        let hash = hash(key);
        let [bucket, _] = self.homes(hash);
        let free = matching(&self.table[bucket], 0, u32::MAX);
        if free.count_ones() < 2 {
            return false;
        }
        self.table[bucket][free.trailing_zeros() as usize] = self.value(self.tag(hash), slot);
        self.live += 1;
        true
    }

    /// Names such a slot after all that find a place in the first bucket of their key.
    pub(crate) fn name_second(&mut self, key: BlockKey, slot: Slot) {
        let hash = hash(key);
        let homes = self.homes(hash);
        let [first, second] = homes;
        let found = self.free_place(second).or_else(|| self.free_place(first));
        match found.or_else(|| self.make_room(homes)) {
            Some((bucket, at)) => self.table[bucket][at] = self.value(self.tag(hash), slot),
            None => self.spill(key, slot),
        }
        self.live += 1;
    }

    /// A slot that is filled, and not named, is not live after all.
    #[inline]
    pub(crate) fn clear(&mut self, slot: Slot) {
        *self.flags_mut(slot) = SlotFlags::default();
    }

    /// Names `slot` as the newest version of `key`. Returns the slot that was it before, which is then
    /// no longer live, and its flags, from which the caller makes the new ones; they must follow at once
    /// ([`Index::set_flags`]). If those are not of a live slot, the block had been evicted from it.
    ///
    /// # Panics
    /// If `slot` is live already.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        key: BlockKey,
        slot: Slot,
        checksum: u32,
    ) -> Option<(Slot, SlotFlags)> {
        self.fill(key, slot, checksum);
        let hash = hash(key);
        let value = self.value(self.tag(hash), slot);
        if let Some((bucket, at)) = self.place_of(key, hash) {
            let old = self.slot_of(self.table[bucket][at]);
            self.table[bucket][at] = value;
            return self.leave(old);
        }
        if !self.spilled.is_empty()
            && let Some(old) = self.replace_spilled(key, slot)
        {
            return self.leave(old);
        }
        self.live += 1;
        self.place(key, hash, value, slot);
        None
    }

    /// Says what is in a slot from now on.
    #[inline(always)]
    fn fill(&mut self, key: BlockKey, slot: Slot, checksum: u32) {
        let at = slot.0 as usize;
        let property = &mut self.properties[at];
        assert!(!property.flags.live(), "a slot is filled once a generation");
        property.key_high = (key.0 >> 32) as u8;
        self.contents[at] = Content {
            key_low: key.0 as u32,
            checksum,
        };
    }

    /// Clears the slot that an entry named before, and returns it with its flags.
    #[inline]
    fn leave(&mut self, old: Slot) -> Option<(Slot, SlotFlags)> {
        let flags = std::mem::take(self.flags_mut(old));
        self.live += u32::from(!flags.live());
        Some((old, flags))
    }

    /// Enters a key that is not in the table.
    #[inline(always)]
    fn place(&mut self, key: BlockKey, hash: u64, value: u32, slot: Slot) {
        let homes = self.homes(hash);
        let free = homes.map(|bucket| matching(&self.table[bucket], 0, u32::MAX));
        let second = usize::from(free[0].count_ones() < free[1].count_ones());
        let found = match free[second] {
            0 => self.make_room(homes),
            places => Some((homes[second], places.trailing_zeros() as usize)),
        };
        match found {
            Some((bucket, at)) => self.table[bucket][at] = value,
            None => self.spill(key, slot),
        }
    }

    // Out of the way of the table's own paths, which are counted in instructions.

    #[cold]
    fn find_spilled(&self, key: BlockKey) -> Option<Slot> {
        self.spilled.get(&key).copied()
    }

    #[cold]
    fn replace_spilled(&mut self, key: BlockKey, slot: Slot) -> Option<Slot> {
        let spilled = self.spilled.get_mut(&key)?;
        Some(std::mem::replace(spilled, slot))
    }

    #[cold]
    fn spill(&mut self, key: BlockKey, slot: Slot) {
        self.spilled.insert(key, slot);
    }

    #[cold]
    fn take_spilled(&mut self, key: BlockKey) -> Option<Slot> {
        self.spilled.remove(&key)
    }

    #[inline]
    fn free_place(&self, bucket: usize) -> Option<(usize, usize)> {
        position(&self.table[bucket], 0).map(|at| (bucket, at))
    }

    /// Moves an entry of one of two full buckets to its other bucket.
    fn make_room(&mut self, full: [usize; 2]) -> Option<(usize, usize)> {
        for bucket in full {
            for at in 0..BUCKET {
                let value = self.table[bucket][at];
                let [first, second] = self.homes(hash(self.key(self.slot_of(value))));
                let other = if first == bucket { second } else { first };
                if let Some((other, free)) = self.free_place(other) {
                    self.table[other][free] = value;
                    self.table[bucket][at] = 0;
                    return Some((bucket, at));
                }
            }
        }
        None
    }

    /// Sets the flags of a slot that was just filled.
    ///
    /// # Panics
    /// If the flags are not those of a live slot.
    pub(crate) fn set_flags(&mut self, slot: Slot, flags: SlotFlags) {
        assert!(flags.live(), "what is inserted is live");
        *self.flags_mut(slot) = flags;
    }

    /// Forgets a block, whether cached or evicted. Returns its slot and flags, if it was cached.
    pub(crate) fn remove(&mut self, key: BlockKey) -> Option<(Slot, SlotFlags)> {
        let slot = match self.place_of(key, hash(key)) {
            Some((bucket, at)) => {
                let value = std::mem::take(&mut self.table[bucket][at]);
                self.slot_of(value)
            }
            None => self.take_spilled(key)?,
        };
        let flags = std::mem::take(self.flags_mut(slot));
        if !flags.live() {
            return None;
        }
        self.live -= 1;
        Some((slot, flags))
    }

    /// The block whose newest version is at this slot is not cached any more.
    ///
    /// # Panics
    /// If the slot is not live.
    pub(crate) fn evict(&mut self, slot: Slot) {
        let flags = self.flags_mut(slot);
        assert!(flags.live(), "only what is cached is evicted");
        *flags = SlotFlags(flags.0 & ZERO);
        self.live -= 1;
    }

    /// Hides the contents of an evicted block's slot from reads.
    pub(crate) fn hide_evicted(&mut self, slot: Slot) {
        let flags = self.flags_mut(slot);
        assert!(!flags.live(), "what is cached is not hidden");
        *flags = SlotFlags(ZERO);
    }

    /// The slot is going to be filled anew: if a block was evicted from it, nothing names it any
    /// more.
    pub(crate) fn forget_evicted(&mut self, slot: Slot) {
        if self.flags(slot).live() {
            return;
        }
        let key = self.key(slot);
        let hash = hash(key);
        let value = self.value(self.tag(hash), slot);
        for bucket in self.homes(hash) {
            if let Some(at) = position(&self.table[bucket], value) {
                self.table[bucket][at] = 0;
                return;
            }
        }
        if self.find_spilled(key) == Some(slot) {
            self.take_spilled(key);
        }
    }

    /// The two buckets of a key: each from one half of its hash, by multiply-shift (Lemire 2019,
    /// "Fast random integer generation in an interval"), so that the table needs no power of two.
    #[inline]
    fn homes(&self, hash: u64) -> [usize; 2] {
        let buckets = self.table.len() as u64;
        // Two factors below 2^32: nothing wraps.
        [
            ((hash >> 32).wrapping_mul(buckets) >> 32) as usize,
            ((hash & 0xffff_ffff).wrapping_mul(buckets) >> 32) as usize,
        ]
    }

    /// The tag of a hash, in its place in an entry.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash as u32).rotate_left(TAG_ROTATION) & !self.slot_mask
    }

    #[inline]
    fn value(&self, tag: u32, slot: Slot) -> u32 {
        tag | (slot.0 + 1)
    }

    #[inline]
    fn slot_of(&self, value: u32) -> Slot {
        Slot((value & self.slot_mask) - 1)
    }
}

/// The places of a bucket whose entries have the bits of `mask` as in `wanted`, a bit each. All
/// places are compared at once, in two vectors on any processor of 64 bits.
#[inline(always)]
fn matching(entries: &[u32; BUCKET], wanted: u32, mask: u32) -> u8 {
    let splat = |value: u32| i32x8::splat(value.cast_signed());
    let entries = i32x8::new(entries.map(u32::cast_signed));
    let differ = (entries ^ splat(wanted)) & splat(mask);
    differ.cmp_eq(i32x8::ZERO).move_mask() as u8
}

/// Where in a bucket an entry is.
#[inline]
fn position(entries: &[u32; BUCKET], wanted: u32) -> Option<usize> {
    let places = matching(entries, wanted, u32::MAX);
    (places != 0).then_some(places.trailing_zeros() as usize)
}

/// The streams other than `own` that `flags` says hold shadows.
#[must_use]
pub(crate) fn foreign_shadows(flags: SlotFlags, own: Stream) -> u8 {
    flags.shadows() & !own.bit()
}

/// Mixes a key (finalizer of SplitMix64, Steele, Lea and Flood 2014).
#[inline]
pub(crate) fn hash(key: BlockKey) -> u64 {
    let mut x = key.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Scales a hash to a number below `end`, in the order of hashes, as the first bucket of a key is.
#[inline]
pub(crate) fn scaled(hash: u64, end: usize) -> usize {
    ((u128::from(hash) * end as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in proptest::collection::vec((0u64..60, any::<bool>()), 1..400)) {
            let mut index = Index::new(64);
            let mut map: HashMap<u64, u32> = HashMap::new();
            let mut free: Vec<u32> = (0..64).rev().collect();
            for (key, insert) in steps {
                if insert {
                    let slot = free.pop().unwrap();
                    let old = index.insert(BlockKey(key), Slot(slot), key as u32, SlotFlags::new(false, false, 0));
                    let expected = map.insert(key, slot);
                    prop_assert_eq!(old, expected.map(Slot));
                    free.extend(expected);
                } else {
                    let removed = index.remove(BlockKey(key)).map(|(slot, _)| slot.0);
                    prop_assert_eq!(removed, map.remove(&key));
                    free.extend(removed);
                }
                for key in 0..60 {
                    prop_assert_eq!(index.find(BlockKey(key)), map.get(&key).map(|slot| Slot(*slot)));
                }
                prop_assert_eq!(index.len() as usize, map.len());
            }
        }
    }

    /// Too few buckets for the keys put in, so that many spill, as happens rarely in a large cache.
    #[test]
    fn what_found_no_bucket_is_found_replaced_and_removed_like_the_rest() {
        let slots = 1000;
        let mut index = Index::new(2 * slots);
        index.table = vec![[0; BUCKET]; slots as usize / BUCKET / 2].into();
        let clean = SlotFlags::new(false, false, 0);
        for slot in 0..slots {
            assert_eq!(
                index.insert(BlockKey(u64::from(slot)), Slot(slot), slot, clean),
                None
            );
        }
        assert!(index.spilled.len() >= 500, "{}", index.spilled.len());
        for key in 0..slots {
            let old = index.insert(BlockKey(u64::from(key)), Slot(slots + key), key, clean);
            assert_eq!(old, Some(Slot(key)));
            assert_eq!(
                index.find(BlockKey(u64::from(key))),
                Some(Slot(slots + key))
            );
        }
        assert_eq!(index.find(BlockKey(u64::from(slots))), None);
        assert_eq!(index.len(), slots);
        for key in 0..slots {
            let block = BlockKey(u64::from(key));
            if key % 2 == 0 {
                index.evict(Slot(slots + key));
                assert_eq!(index.find(block), None);
                assert_eq!(index.named(block), Some(Slot(slots + key)));
                index.forget_evicted(Slot(slots + key));
            } else {
                assert!(index.remove(block).is_some());
            }
            assert_eq!(index.named(block), None);
        }
        assert_eq!((index.len(), index.spilled.len()), (0, 0));
    }

    #[test]
    fn an_evicted_block_is_not_cached_and_still_known() {
        let mut index = Index::new(8);
        let clean = SlotFlags::new(false, false, 0);
        let [first, second, third] = [1, 2, 3].map(BlockKey);
        for (slot, key) in (0..).map(Slot).zip([first, second, third]) {
            index.insert(key, slot, slot.0 + 70, clean);
            index.evict(slot);
        }
        assert_eq!(index.len(), 0);
        assert_eq!(
            (index.find(first), index.named(first)),
            (None, Some(Slot(0)))
        );
        assert_eq!(index.checksum(Slot(0)), 70);
        assert_eq!(index.insert(first, Slot(5), 75, clean), None, "it is new");
        assert_eq!((index.find(first), index.len()), (Some(Slot(5)), 1));
        assert_eq!(index.remove(second), None);
        assert_eq!((index.named(second), index.len()), (None, 1));
        for slot in (0..8).map(Slot) {
            index.forget_evicted(slot);
        }
        assert_eq!(index.named(third), None);
        assert_eq!(index.find(first), Some(Slot(5)), "what is cached stays");
    }

    #[test]
    fn a_grown_index_finds_what_it_held_and_takes_more() {
        let (before, after) = (10_000, 40_000);
        let mut index = Index::new(before);
        let flags = SlotFlags::new(true, false, 5);
        for slot in 0..before {
            index.insert(BlockKey(u64::from(slot) * 977), Slot(slot), slot, flags);
        }
        index.remove(BlockKey(977));
        index.grow(after);
        for slot in before..after {
            index.insert(BlockKey(u64::from(slot) * 977), Slot(slot), slot, flags);
        }
        assert_eq!(index.len(), after - 1);
        for slot in (0..after).filter(|slot| *slot != 1) {
            assert_eq!(
                index.find(BlockKey(u64::from(slot) * 977)),
                Some(Slot(slot))
            );
            assert_eq!(index.checksum(Slot(slot)), slot);
            assert_eq!(index.flags(Slot(slot)), flags);
        }
        assert_eq!(index.find(BlockKey(977)), None);
    }

    #[test]
    fn blocks_of_a_range_of_keys_are_counted() {
        let mut index = Index::new(60);
        let keys = |at: u32| BlockKey((1 << 32) - 20 + u64::from(at));
        for at in 0..40 {
            let flags = SlotFlags::new(at % 3 == 0, false, 0);
            index.insert(keys(at), Slot(at), at, flags);
        }
        index.remove(keys(21));
        let of = |range: Range<u32>| index.counts_of(keys(range.start)..keys(range.end));
        assert_eq!(of(0..40), (39, 13), "on both sides of 2^32");
        assert_eq!(of(18..24), (5, 1));
        assert_eq!(of(1..2), (1, 0));
        assert_eq!(of(5..5), (0, 0));
        assert_eq!(index.counts(Slot(20), 4), (3, 0));
        assert_eq!(index.counts(Slot(0), 60), (39, 13));
    }

    #[test]
    fn a_full_index_finds_everything() {
        let slots = 100_000;
        let mut index = Index::new(slots);
        for slot in 0..slots {
            index.insert(
                BlockKey(u64::from(slot) * 977),
                Slot(slot),
                slot,
                SlotFlags::new(true, false, 0),
            );
        }
        all_are_found_and_go(index, 10);
    }

    #[test]
    fn so_does_one_that_is_filled_by_first_buckets_and_then_by_second_ones() {
        let slots = 100_000;
        let mut index = Index::new(slots);
        let flags = SlotFlags::new(true, false, 0);
        let keys = (0..slots).map(|slot| (BlockKey(u64::from(slot) * 977), Slot(slot)));
        keys.clone()
            .for_each(|(key, slot)| index.fill_unnamed(key, slot, slot.0, flags));
        let moved: Vec<_> = keys
            .filter(|(key, slot)| !index.name_first(*key, *slot))
            .collect();
        assert!(moved.len() > 10_000, "{} of {slots}", moved.len());
        for (key, slot) in moved {
            index.name_second(key, slot);
        }
        all_are_found_and_go(index, 40);
    }

    fn all_are_found_and_go(mut index: Index, most_spilled: usize) {
        let slots = index.slots();
        for slot in 0..slots {
            assert_eq!(
                index.find(BlockKey(u64::from(slot) * 977)),
                Some(Slot(slot))
            );
            assert_eq!(index.checksum(Slot(slot)), slot);
        }
        assert_eq!(index.find(BlockKey(976)), None);
        assert!(
            index.spilled.len() < most_spilled,
            "{} entries found no bucket",
            index.spilled.len()
        );
        for slot in 0..slots {
            let removed = index.remove(BlockKey(u64::from(slot) * 977));
            assert_eq!(removed.map(|(slot, _)| slot), Some(Slot(slot)));
        }
        assert_eq!(index.len(), 0);
    }
}
