//! The division of a cache device, and the names of its parts.

use super::PAGE_BYTES;
use super::codec::{Reader, Writer};
use super::entry::{CHECKSUM_BYTES, HEAD_BYTES, KEY_BITS};

/// A block of an origin device, numbered across the whole cache: each volume has a range of keys
/// of its own that is never given to another (I16). 40 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

impl BlockKey {
    /// The key after the highest: 4 PiB of origins at blocks of 4 KiB.
    pub const END: u64 = 1 << KEY_BITS;

    /// The key `by` blocks further.
    #[must_use]
    pub fn plus(self, by: u64) -> BlockKey {
        BlockKey(self.0 + by)
    }
}

/// A segment of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// A block-sized place on the cache device, numbered within the shard:
/// `segment * slots_per_segment + slot in the segment`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The number of slots of a segment, by which slots are divided for each block that is touched. A
/// product with the inverse takes its place there: it is exact for all numbers of 32 bits (Lemire,
/// Kaser, Kurz 2019, "Faster remainder by direct computation"), in a fifth of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotsPerSegment {
    slots: u32,
    /// 2^64 divided by it, and one more.
    inverse: u64,
}

impl SlotsPerSegment {
    /// # Panics
    /// If a segment has fewer than two slots: its summaries alone take those.
    pub(crate) fn of(geometry: &Geometry) -> SlotsPerSegment {
        let slots = geometry.slots_per_segment();
        assert!(slots > 1, "a segment has room for its summaries");
        SlotsPerSegment {
            slots,
            inverse: u64::MAX / u64::from(slots) + 1,
        }
    }

    /// The segment that a slot is in.
    #[inline(always)]
    pub(crate) fn segment_of(self, slot: Slot) -> SegmentId {
        SegmentId(((u128::from(self.inverse) * u128::from(slot.0)) >> 64) as u32)
    }

    /// The place of a slot in its segment.
    #[inline(always)]
    pub(crate) fn slot_in_segment(self, slot: Slot) -> u16 {
        let before = self.segment_of(slot).0.wrapping_mul(self.slots);
        slot.0.wrapping_sub(before) as u16
    }

    /// The slot at this place of a segment.
    #[inline(always)]
    pub(crate) fn slot(self, segment: SegmentId, in_segment: u16) -> Slot {
        Slot(segment.0 * self.slots + u32::from(in_segment))
    }

    /// The number itself.
    #[inline(always)]
    pub(crate) fn get(self) -> u32 {
        self.slots
    }
}

/// Why a cache cannot have this shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Block size out of range.
    #[error("block size {0} is not a power of two from 4096 to 65536 bytes")]
    BlockSize(u32),
    /// Too small for its shards.
    #[error(
        "{available_bytes} bytes are too few for {shards} shard(s): at least {needed_bytes} are needed"
    )]
    TooSmall {
        /// The bytes that there are.
        available_bytes: u64,
        /// The number of shards asked for.
        shards: u16,
        /// The bytes that it would take.
        needed_bytes: u64,
    },
    /// The fields of a superblock contradict each other.
    #[error("no cache can have this shape: {0}")]
    Impossible(&'static str),
}

/// The shape of a cache. All but the number of segments is fixed at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The mapping unit, in bytes: 4096 to 65536.
    pub block_bytes: u32,
    /// The unit of allocation and reclaim, in bytes.
    pub segment_bytes: u32,
    /// The number of shards, each with an engine of its own.
    pub shards: u16,
    /// The id after the highest of a segment: the number of segments of each shard, if no ids are
    /// left out in between (see [`super::Extents`]).
    pub segments_per_shard: u32,
    /// Blocks go to shards by regions of this size, in bytes.
    pub region_bytes: u32,
}

/// Where the segments begin on a cache device, in bytes; the superblock copies lie before it.
pub const DATA_OFFSET_BYTES: u64 = 1 << 20;
const MIN_SEGMENT_BYTES: u64 = 128 << 10;
const MAX_SEGMENT_BYTES: u64 = 2 << 20;
/// The least a shard makes sense with; smaller ones are refused at creation.
pub const MIN_SEGMENTS: u32 = 64;
/// The least the protocol can work with (a segment for each stream, room to reclaim); only
/// simulations go this low.
pub const MIN_SEGMENTS_FORMAT: u32 = 12;
const DEFAULT_REGION_BYTES: u32 = 8 << 20;
const ONE_SHARD_BELOW_BYTES: u64 = 16 << 30;

impl Geometry {
    /// The shape for a cache device of `size_bytes`: segments of a 512th of a shard, clamped to 128
    /// KiB to 2 MiB (more from 16 TiB a shard on, to bound their number); a single shard below 16
    /// GiB, else `cores` up to 8.
    ///
    /// # Errors
    /// If the block size is out of range or the device too small.
    pub fn for_device(
        size_bytes: u64,
        block_bytes: u32,
        shards: Option<u16>,
        cores: u16,
    ) -> Result<Geometry, GeometryError> {
        if !block_bytes.is_power_of_two() || !(4096..=65536).contains(&block_bytes) {
            return Err(GeometryError::BlockSize(block_bytes));
        }
        let available_bytes = size_bytes.saturating_sub(DATA_OFFSET_BYTES);
        let default = if available_bytes < ONE_SHARD_BELOW_BYTES {
            1
        } else {
            cores.clamp(1, 8)
        };
        let shards = shards.unwrap_or(default).max(1);
        let shard_bytes = available_bytes / u64::from(shards);
        // Large blocks need larger segments to keep the share of headers and summaries small.
        let floor = MIN_SEGMENT_BYTES.max(u64::from(block_bytes) * 32);
        let ceiling = MAX_SEGMENT_BYTES.max(u64::from(block_bytes) * 256);
        let wanted = (shard_bytes / 512).next_power_of_two() / 2;
        let mut segment_bytes = wanted.clamp(floor, ceiling);
        while shard_bytes / segment_bytes > 1 << 23 && segment_bytes / u64::from(block_bytes) < 4096
        {
            segment_bytes *= 2;
        }
        let segments = shard_bytes / segment_bytes;
        if segments < u64::from(MIN_SEGMENTS) {
            return Err(GeometryError::TooSmall {
                available_bytes: size_bytes,
                shards,
                needed_bytes: DATA_OFFSET_BYTES
                    + u64::from(shards) * u64::from(MIN_SEGMENTS) * floor,
            });
        }
        let geometry = Geometry {
            block_bytes,
            segment_bytes: segment_bytes as u32,
            shards,
            segments_per_shard: segments.min(u64::from(u32::MAX)) as u32,
            region_bytes: DEFAULT_REGION_BYTES.max(block_bytes),
        };
        geometry.validate()?;
        Ok(geometry)
    }

    /// Checks that the fields make a cache this code can run.
    ///
    /// # Errors
    /// Says which field cannot be.
    pub fn validate(&self) -> Result<(), GeometryError> {
        if !self.block_bytes.is_power_of_two() || !(4096..=65536).contains(&self.block_bytes) {
            return Err(GeometryError::BlockSize(self.block_bytes));
        }
        let impossible = |what| Err(GeometryError::Impossible(what));
        if !self.segment_bytes.is_multiple_of(self.block_bytes) {
            return impossible("a segment is not a whole number of blocks");
        }
        if !(8..=4096).contains(&self.slots_per_segment()) {
            return impossible("a segment has fewer than 8 or more than 4096 blocks");
        }
        if self.first_slot() + 2 > self.slots_per_segment() {
            return impossible("a segment has no room beside its summaries");
        }
        if self.shards == 0 || self.shards > 256 {
            return impossible("not 1 to 256 shards");
        }
        if self.segments_per_shard < MIN_SEGMENTS_FORMAT {
            return impossible("too few segments");
        }
        let slots = u64::from(self.segments_per_shard) * u64::from(self.slots_per_segment());
        if slots >= u64::from(u32::MAX) {
            return impossible("too many blocks in a shard");
        }
        if self.region_bytes == 0 || !self.region_bytes.is_multiple_of(self.block_bytes) {
            return impossible("a region is not a whole number of blocks");
        }
        Ok(())
    }

    /// The bytes a device must have for a new cache of this shape.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        DATA_OFFSET_BYTES + u64::from(self.segments_per_shard) * self.row_bytes()
    }

    /// The bytes of one segment of each shard.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.shards) * u64::from(self.segment_bytes)
    }

    /// Blocks in a segment, those under the summaries included.
    #[must_use]
    pub fn slots_per_segment(&self) -> u32 {
        self.segment_bytes / self.block_bytes
    }

    /// Blocks in a shard, all included.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.segments_per_shard * self.slots_per_segment()
    }

    /// Bytes of one of a segment's two summary slots. An entry and a checksum for each block
    /// fit, with a quarter to spare for entries without blocks; a segment whose entries need
    /// more counts as full.
    #[must_use]
    pub fn summary_bytes(&self) -> u32 {
        let slots = self.slots_per_segment();
        let entries = slots * (HEAD_BYTES + CHECKSUM_BYTES) as u32 * 5 / 4;
        (super::summary::FIXED_BYTES as u32 + entries).next_multiple_of(PAGE_BYTES as u32)
    }

    /// Bytes of entries that fit a summary.
    #[must_use]
    pub fn summary_entry_bytes(&self) -> usize {
        self.summary_bytes() as usize - super::summary::FIXED_BYTES
    }

    /// The first slot of a segment that records may use.
    #[must_use]
    pub fn first_slot(&self) -> u32 {
        (2 * self.summary_bytes()).div_ceil(self.block_bytes)
    }

    /// The segment a slot is in.
    #[must_use]
    pub fn segment_of(&self, slot: Slot) -> SegmentId {
        SegmentId(slot.0 / self.slots_per_segment())
    }

    /// A slot's place in its segment.
    #[must_use]
    pub fn slot_in_segment(&self, slot: Slot) -> u16 {
        (slot.0 % self.slots_per_segment()) as u16
    }

    /// The slot at this place of a segment.
    #[inline]
    #[must_use]
    pub fn slot(&self, segment: SegmentId, in_segment: u16) -> Slot {
        Slot(segment.0 * self.slots_per_segment() + u32::from(in_segment))
    }

    /// Which shard holds a block.
    #[must_use]
    pub fn shard_of(&self, key: BlockKey) -> u16 {
        let region = key.0 / u64::from(self.region_bytes / self.block_bytes);
        (region % u64::from(self.shards)) as u16
    }

    /// Cuts a range of a volume whose first block is `base` into pieces of at most `max_bytes`
    /// that lie in one shard each: `(shard, offset_bytes, len_bytes)`.
    pub fn split(
        &self,
        base: BlockKey,
        offset_bytes: u64,
        len_bytes: u64,
        max_bytes: u32,
    ) -> impl Iterator<Item = (u16, u64, u32)> + use<> {
        let geometry = *self;
        let end = offset_bytes + len_bytes;
        let mut at = offset_bytes;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let shard = geometry.shard_of(base.plus(at / u64::from(geometry.block_bytes)));
            let mut stop = end.min(at + u64::from(max_bytes));
            if geometry.shards > 1 {
                // `base` is a multiple of the region, so regions of keys are regions of offsets.
                let region = u64::from(geometry.region_bytes);
                stop = stop.min((at / region + 1) * region);
            }
            let piece = (shard, at, (stop - at) as u32);
            at = stop;
            Some(piece)
        })
    }

    /// Bytes in a superblock.
    pub(crate) const BYTES: usize = 18;

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.block_bytes);
        out.u32(self.segment_bytes);
        out.u16(self.shards);
        out.u32(self.segments_per_shard);
        out.u32(self.region_bytes);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Geometry {
        Geometry {
            block_bytes: input.u32(),
            segment_bytes: input.u32(),
            shards: input.u16(),
            segments_per_shard: input.u32(),
            region_bytes: input.u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_follow_the_device() {
        let small = Geometry::for_device(64 << 20, 4096, None, 8).unwrap();
        assert_eq!((small.shards, small.segment_bytes), (1, 128 << 10));
        let medium = Geometry::for_device(4 << 30, 4096, None, 8).unwrap();
        assert_eq!((medium.shards, medium.segment_bytes), (1, 2 << 20));
        let large = Geometry::for_device(512 << 30, 4096, None, 8).unwrap();
        assert_eq!((large.shards, large.segment_bytes), (8, 2 << 20));
        assert_eq!(large.first_slot(), 4);
        assert!(large.device_bytes() <= 512 << 30);
    }

    #[test]
    fn a_product_with_the_inverse_is_the_quotient() {
        for segment_kib in [64, 128, 136, 1000, 2048, 2052, 4092, 1 << 20] {
            let geometry = Geometry {
                segment_bytes: segment_kib << 10,
                ..Geometry::for_device(1 << 30, 4096, None, 1).unwrap()
            };
            let size = SlotsPerSegment::of(&geometry);
            let slots = geometry.slots_per_segment();
            let last = u32::MAX / slots;
            for segment in [0, 1, 2, 1000, last / 2, last - 1] {
                for in_segment in [0, 1, slots - 1] {
                    let slot = Slot(segment * slots + in_segment);
                    assert_eq!(size.segment_of(slot), SegmentId(slot.0 / slots));
                    assert_eq!(size.slot_in_segment(slot), (slot.0 % slots) as u16);
                }
            }
        }
    }

    #[test]
    fn too_small_says_how_much_is_needed() {
        let Err(GeometryError::TooSmall { needed_bytes, .. }) =
            Geometry::for_device(4 << 20, 4096, None, 1)
        else {
            panic!("a cache of 4 MiB is too small");
        };
        assert!(Geometry::for_device(needed_bytes, 4096, None, 1).is_ok());
        assert!(Geometry::for_device(needed_bytes - 1, 4096, None, 1).is_err());
    }

    #[test]
    fn large_blocks_keep_their_share_of_metadata() {
        for block_bytes in [4096, 8192, 16384, 32768, 65536] {
            let geometry = Geometry::for_device(64 << 30, block_bytes, None, 4).unwrap();
            assert!(
                geometry.first_slot() * 50 <= geometry.slots_per_segment(),
                "{geometry:?}"
            );
        }
    }

    #[test]
    fn pieces_cover_the_range_and_stay_in_their_shard() {
        let geometry = Geometry {
            shards: 3,
            ..Geometry::for_device(64 << 30, 4096, Some(3), 4).unwrap()
        };
        let base = BlockKey(u64::from(geometry.region_bytes / geometry.block_bytes) * 7);
        let (offset, len) = (5_000_192, 40_000_000);
        let mut at = offset;
        for (shard, offset_bytes, len_bytes) in geometry.split(base, offset, len, 1 << 20) {
            assert_eq!(offset_bytes, at);
            let last = base.plus((at + u64::from(len_bytes) - 1) / 4096);
            assert_eq!(shard, geometry.shard_of(last));
            at += u64::from(len_bytes);
        }
        assert_eq!(at, offset + len);
    }
}
