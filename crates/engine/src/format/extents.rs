//! Where segments are. A cache begins with one extent and can be given others, on the same device
//! or on others, and lose them again; the segments of a shard are those of all of them, each with
//! an id that stays.
//!
//! An address is a place on any of the cache's devices: the device's number in the highest byte,
//! the offset on it below. On the first device an address is the offset itself.

use super::cache_id::CacheId;
use super::codec::{Reader, Writer};
use super::geometry::{
    DATA_OFFSET_BYTES, Geometry, GeometryError, MIN_SEGMENTS_FORMAT, SlotsPerSegment,
};
use super::{PAGE_BYTES, Places, SegmentId, Slot};

/// The most extents a cache can have.
pub const MAX_EXTENTS: usize = 64;
/// The most devices a cache can have.
pub const MAX_DEVICES: usize = 16;
const DEVICE_SHIFT: u32 = 56;
/// The address of a segment that is in no extent.
const NOWHERE: u64 = u64::MAX;

/// A device and the offset on it of an address, in bytes.
#[must_use]
pub fn place_of(address: u64) -> (u8, u64) {
    (
        (address >> DEVICE_SHIFT) as u8,
        address & ((1 << DEVICE_SHIFT) - 1),
    )
}

/// The address of an offset on a device.
#[must_use]
pub fn address(device: u8, offset_bytes: u64) -> u64 {
    assert!(offset_bytes < 1 << DEVICE_SHIFT, "an offset on a device");
    u64::from(device) << DEVICE_SHIFT | offset_bytes
}

/// A part of a cache device that holds segments, the same number for each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Never given twice in a cache; 0 for the one it was created with.
    pub serial: u32,
    /// Which of the cache's devices it is on.
    pub device: u8,
    /// Whether the shards' segments alternate, so that the extent can lose its end. Otherwise
    /// each shard's lie together.
    pub alternates: bool,
    /// Where it starts on its device, in bytes.
    pub start_bytes: u64,
    /// The id of its first segment in each shard.
    pub first_segment: u32,
    /// The number of segments that each shard has in it.
    pub segments: u32,
    /// The cache's epoch when it was added, if the cache kept two copies of dirty data before: of
    /// earlier epochs nothing is in it. Its bytes can be those of a device that was lost (I28).
    pub since_epoch: u32,
}

impl Extent {
    pub(crate) const BYTES: usize = 4 + 1 + 1 + 2 + 8 + 4 + 4;

    /// The id after that of its last segment.
    #[must_use]
    pub fn end_segment(&self) -> u32 {
        self.first_segment + self.segments
    }

    /// Where it ends on its device, in bytes.
    #[must_use]
    pub fn end_bytes(&self, geometry: &Geometry) -> u64 {
        self.start_bytes + u64::from(self.segments) * geometry.row_bytes()
    }

    /// The part of it from a segment on; none if it does not reach as far. Of an extent whose
    /// shards lie apart there is no part.
    fn from(&self, segment: u32, geometry: &Geometry) -> Option<Extent> {
        let skipped = segment.saturating_sub(self.first_segment);
        (skipped < self.segments).then(|| Extent {
            start_bytes: self.start_bytes + u64::from(skipped) * geometry.row_bytes(),
            first_segment: self.first_segment + skipped,
            segments: self.segments - skipped,
            ..*self
        })
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.serial);
        out.u8(self.device);
        out.u8(u8::from(self.alternates));
        out.u16(0);
        out.u64(self.start_bytes);
        out.u32(self.first_segment);
        out.u32(self.segments);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Extent {
        let serial = input.u32();
        let device = input.u8();
        let alternates = input.u8() != 0;
        input.u16();
        Extent {
            serial,
            device,
            alternates,
            start_bytes: input.u64(),
            first_segment: input.u32(),
            segments: input.u32(),
            since_epoch: 0,
        }
    }
}

/// The extents of a cache, by their segments' ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// The extents of a new cache. Where there are several shards their segments alternate.
    #[must_use]
    pub fn of_new(geometry: &Geometry) -> Extents {
        let mut extents = Extents::of_version_1(geometry);
        extents.0[0].alternates = geometry.shards > 1;
        extents
    }

    /// The extents of a cache whose superblock does not list them.
    #[must_use]
    pub fn of_version_1(geometry: &Geometry) -> Extents {
        Extents(vec![Extent {
            serial: 0,
            device: 0,
            alternates: false,
            start_bytes: DATA_OFFSET_BYTES,
            first_segment: 0,
            segments: geometry.segments_per_shard,
            since_epoch: 0,
        }])
    }

    /// The extents that a superblock lists, if they can be.
    ///
    /// # Errors
    /// If they cannot be.
    pub fn listed(extents: Vec<Extent>, geometry: &Geometry) -> Result<Extents, GeometryError> {
        let impossible = |what| Err(GeometryError::Impossible(what));
        let mut end = 0;
        for (at, extent) in extents.iter().enumerate() {
            if extent.segments == 0
                || extent.first_segment < end
                || extent.segments > geometry.segments_per_shard
                || extent.first_segment > geometry.segments_per_shard - extent.segments
            {
                return impossible("extents share segments, or have none");
            }
            end = extent.end_segment();
            let aligned = extent.start_bytes.is_multiple_of(PAGE_BYTES as u64);
            if !aligned
                || extent.start_bytes < DATA_OFFSET_BYTES
                || extent.start_bytes >= 1 << (DEVICE_SHIFT - 1)
                || usize::from(extent.device) >= MAX_DEVICES
            {
                return impossible("an extent lies where none can be");
            }
            let overlaps = |other: &Extent| {
                other.device == extent.device
                    && other.start_bytes < extent.end_bytes(geometry)
                    && extent.start_bytes < other.end_bytes(geometry)
            };
            if extents[..at].iter().any(overlaps) {
                return impossible("extents overlap");
            }
        }
        let segments: u32 = extents.iter().map(|extent| extent.segments).sum();
        if segments < MIN_SEGMENTS_FORMAT {
            return impossible("too few segments");
        }
        if end != geometry.segments_per_shard {
            return impossible("the extents do not end where the segments do");
        }
        Ok(Extents(extents))
    }

    /// The extents, by the ids of their segments.
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.iter()
    }

    /// Notes of the extents with a serial from which epoch on something is in them.
    pub(super) fn note_since(&mut self, serial: u32, epoch: u32) {
        for extent in self.0.iter_mut().filter(|extent| extent.serial == serial) {
            extent.since_epoch = epoch;
        }
    }

    /// The number of segments of each shard.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.0.iter().map(|extent| extent.segments).sum()
    }

    /// The id after the highest of a segment.
    #[must_use]
    pub fn end_segment(&self) -> u32 {
        self.0.last().map_or(0, Extent::end_segment)
    }

    /// Where the last of them ends on a device, in bytes; where the first can start if there is
    /// none.
    #[must_use]
    pub fn end_bytes(&self, device: u8, geometry: &Geometry) -> u64 {
        let on_it = self.0.iter().filter(|extent| extent.device == device);
        let ends = on_it.map(|extent| extent.end_bytes(geometry));
        ends.max().unwrap_or(DATA_OFFSET_BYTES)
    }

    /// Adds a stretch of a device: in the ids that others left, as far as there are such, and
    /// behind the last.
    pub(crate) fn add(&mut self, stretch: Extent, geometry: &Geometry) {
        assert!(stretch.alternates, "what is added can be cut");
        let mut rest = Some(Extent {
            first_segment: 0,
            ..stretch
        });
        for ids in self.unused_ids() {
            let Some(piece) = rest else { break };
            let segments = piece.segments.min(ids.end - ids.start);
            rest = piece.from(piece.first_segment + segments, geometry);
            self.0.push(Extent {
                first_segment: ids.start,
                segments,
                ..piece
            });
        }
        self.0.sort_by_key(|extent| extent.first_segment);
    }

    /// The ids between extents, and those behind the last.
    fn unused_ids(&self) -> Vec<std::ops::Range<u32>> {
        let mut unused = Vec::new();
        let mut end = 0;
        for extent in &self.0 {
            unused.push(end..extent.first_segment);
            end = extent.end_segment();
        }
        unused.push(end..u32::MAX);
        unused.retain(|ids| !ids.is_empty());
        unused
    }

    /// The ids of the segments on a device that lie at `from_bytes` or beyond, if they can be
    /// taken away.
    ///
    /// # Errors
    /// If that would cut an extent that cannot be cut.
    pub fn beyond(
        &self,
        device: u8,
        from_bytes: u64,
        geometry: &Geometry,
    ) -> Result<Vec<std::ops::Range<u32>>, Uncuttable> {
        let mut beyond = Vec::new();
        for extent in self.0.iter().filter(|extent| extent.device == device) {
            if extent.end_bytes(geometry) <= from_bytes {
                continue;
            }
            if extent.start_bytes >= from_bytes {
                beyond.push(extent.first_segment..extent.end_segment());
                continue;
            }
            if !extent.alternates && geometry.shards > 1 {
                return Err(Uncuttable);
            }
            let stay = ((from_bytes - extent.start_bytes) / geometry.row_bytes()) as u32;
            beyond.push(extent.first_segment + stay..extent.end_segment());
        }
        Ok(beyond)
    }

    /// The extents that remain without some segments.
    #[must_use]
    pub(crate) fn without(&self, gone: &[std::ops::Range<u32>], geometry: &Geometry) -> Extents {
        let mut left = self.0.clone();
        for gone in gone {
            let mut next = Vec::new();
            for extent in left {
                if gone.end <= extent.first_segment || extent.end_segment() <= gone.start {
                    next.push(extent);
                    continue;
                }
                if gone.start > extent.first_segment {
                    next.push(Extent {
                        segments: gone.start - extent.first_segment,
                        ..extent
                    });
                }
                next.extend(extent.from(gone.end, geometry));
            }
            left = next;
        }
        Extents(left)
    }
}

/// An extent whose shards lie one behind the other cannot lose its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cache was made by an earlier forebay, with each shard's segments together: it can grow, but what it began with can only leave whole"
)]
pub struct Uncuttable;

/// Where the segments of one shard are, and whose they are.
#[derive(Clone, Debug)]
pub(crate) struct SegmentMap {
    id: CacheId,
    block_bytes: u32,
    per_segment: SlotsPerSegment,
    summary_bytes: u32,
    /// The slots of the first extent, if they lie one behind the other: the way of most requests.
    near_slots: u32,
    near_start: u64,
    /// The extent with segment 0.
    first: Stretch,
    others: Vec<Stretch>,
    /// The address of each segment's own place, or [`NOWHERE`]: 8 bytes a segment, and no search for
    /// each request. Empty where `near_slots` are all.
    starts: Vec<u64>,
    /// Of a cache that keeps two copies of dirty data, or did.
    places: Option<Box<Places>>,
}

/// The segments of one shard in one extent.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    first_slot: u32,
    end_slot: u32,
    /// Its identity, with which the checksums in it begin.
    id: CacheId,
    /// The extent's ([`Extent::since_epoch`]).
    since_epoch: u32,
    /// The address of its first slot.
    start: u64,
    /// Bytes between the end of one segment and the start of the next.
    gap_bytes: u64,
}

impl SegmentMap {
    pub(crate) fn new(
        id: CacheId,
        shard: u16,
        geometry: &Geometry,
        extents: &Extents,
    ) -> SegmentMap {
        let slots_per_segment = geometry.slots_per_segment();
        let segment_bytes = u64::from(geometry.segment_bytes);
        let stretch = |extent: &Extent| {
            let (before, gap) = if extent.alternates {
                (1, u64::from(geometry.shards) - 1)
            } else {
                (u64::from(extent.segments), 0)
            };
            let offset_bytes = extent.start_bytes + u64::from(shard) * before * segment_bytes;
            Stretch {
                first_slot: extent.first_segment * slots_per_segment,
                end_slot: extent.end_segment() * slots_per_segment,
                id: id.of_extent(extent.serial),
                since_epoch: extent.since_epoch,
                start: address(extent.device, offset_bytes),
                gap_bytes: gap * segment_bytes,
            }
        };
        let mut stretches: Vec<Stretch> = extents.iter().map(stretch).collect();
        let first = match stretches.first() {
            Some(first) if first.first_slot == 0 => stretches.remove(0),
            _ => Stretch::default(),
        };
        let near_slots = match first.gap_bytes {
            0 => first.end_slot,
            _ => 0,
        };
        let is_all_near = stretches.is_empty() && near_slots == first.end_slot;
        let mut map = SegmentMap {
            id,
            block_bytes: geometry.block_bytes,
            per_segment: SlotsPerSegment::of(geometry),
            summary_bytes: geometry.summary_bytes(),
            near_slots,
            near_start: first.start,
            first,
            others: stretches,
            starts: Vec::new(),
            places: None,
        };
        if !is_all_near {
            map.note_starts();
        }
        map
    }

    fn note_starts(&mut self) {
        let last = self.others.last().unwrap_or(&self.first);
        let segments = last.end_slot / self.per_segment.get();
        let start_of = |id| {
            let slot = self.slot(SegmentId(id));
            let stretch = self.stretch_of(slot);
            stretch.map_or(NOWHERE, |stretch| self.address_in(stretch, slot))
        };
        self.starts = (0..segments).map(start_of).collect();
    }

    /// Has segments in places of others too.
    pub(crate) fn keep_places(&mut self, places: Places) {
        // The short way knows own places alone.
        self.near_slots = 0;
        if self.starts.is_empty() {
            self.note_starts();
        }
        self.places = Some(Box::new(places));
    }

    /// Where segments are besides their own places, if any can be.
    pub(crate) fn places(&self) -> Option<&Places> {
        self.places.as_deref()
    }

    /// Likewise, to change.
    pub(crate) fn places_mut(&mut self) -> Option<&mut Places> {
        self.places.as_deref_mut()
    }

    /// Where a block is to be read: an address.
    #[inline(always)]
    pub(crate) fn slot_address(&self, slot: Slot) -> u64 {
        match self.near_address(slot) {
            Some(address) => address,
            None => self.far_address(slot),
        }
    }

    /// Where a block is that is in the first extent and in its segment's own place, which takes no
    /// look at either: an address.
    #[inline(always)]
    pub(crate) fn near_address(&self, slot: Slot) -> Option<u64> {
        let offset_bytes = u64::from(slot.0) * u64::from(self.block_bytes);
        (slot.0 < self.near_slots).then_some(self.near_start + offset_bytes)
    }

    fn address_in(&self, stretch: &Stretch, slot: Slot) -> u64 {
        let at = slot.0 - stretch.first_slot;
        stretch.start
            + u64::from(at) * u64::from(self.block_bytes)
            + u64::from(self.per_segment.segment_of(Slot(at)).0) * stretch.gap_bytes
    }

    #[inline(never)]
    fn far_address(&self, slot: Slot) -> u64 {
        self.address_at(slot, 0)
    }

    /// Where a block is to be read after so many attempts that failed: an address. Two copies take
    /// turns.
    pub(crate) fn address_at(&self, slot: Slot, attempt: u8) -> u64 {
        let Some(places) = &self.places else {
            return self.own_address(slot);
        };
        let segment = self.per_segment.segment_of(slot);
        let in_segment = self.per_segment.slot_in_segment(slot);
        let place = places.to_read(segment, in_segment, attempt);
        self.place_address(place) + self.block_offset(in_segment)
    }

    /// Where a block is to be read, and where else it is.
    #[inline]
    pub(crate) fn addresses_at(&self, slot: Slot) -> (u64, Option<u64>) {
        let Some(places) = &self.places else {
            return (self.own_address(slot), None);
        };
        let segment = self.per_segment.segment_of(slot);
        let in_segment = self.per_segment.slot_in_segment(slot);
        let (place, other) = places.both_to_read(segment, in_segment);
        let offset_bytes = self.block_offset(in_segment);
        let address = |place| self.place_address(place) + offset_bytes;
        (address(place), other.map(address))
    }

    fn own_address(&self, slot: Slot) -> u64 {
        let segment = self.per_segment.segment_of(slot);
        self.place_address(segment) + self.block_offset(self.per_segment.slot_in_segment(slot))
    }

    /// The device of a segment's own place.
    pub(crate) fn device_of(&self, segment: SegmentId) -> u8 {
        let stretch = self.stretch_of(self.slot(segment));
        stretch.map_or(0, |stretch| place_of(stretch.start).0)
    }

    /// The epoch in which the own place of a segment was added ([`Extent::since_epoch`]).
    pub(crate) fn since_epoch(&self, segment: SegmentId) -> u32 {
        let stretch = self.stretch_of(self.slot(segment));
        stretch.map_or(0, |stretch| stretch.since_epoch)
    }

    /// Where a segment is written from `offset_bytes` of it on: an address, and a second one where
    /// there are two copies.
    pub(crate) fn written_at(&self, segment: SegmentId, offset_bytes: u64) -> (u64, Option<u64>) {
        let of_place = |place: SegmentId| self.place_address(place) + offset_bytes;
        match &self.places {
            None => (of_place(segment), None),
            Some(places) => (
                of_place(places.home(segment)),
                places.second(segment).map(of_place),
            ),
        }
    }

    /// Where the header of a record begins in its segment, in bytes.
    pub(crate) fn header_offset(&self, in_segment: u16) -> u64 {
        (u64::from(in_segment) + 1) * u64::from(self.block_bytes) - PAGE_BYTES as u64
    }

    /// Where a summary slot begins in its segment, in bytes.
    pub(crate) fn summary_offset(&self, which: u8) -> u64 {
        u64::from(which) * u64::from(self.summary_bytes)
    }

    /// Where a block begins in its segment, in bytes.
    pub(crate) fn block_offset(&self, in_segment: u16) -> u64 {
        u64::from(in_segment) * u64::from(self.block_bytes)
    }

    fn stretch_of(&self, slot: Slot) -> Option<&Stretch> {
        if slot.0 < self.first.end_slot {
            return Some(&self.first);
        }
        let at = self
            .others
            .partition_point(|stretch| stretch.end_slot <= slot.0);
        self.others
            .get(at)
            .filter(|stretch| stretch.first_slot <= slot.0)
    }

    fn slot(&self, segment: SegmentId) -> Slot {
        self.per_segment.slot(segment, 0)
    }

    /// Whether a segment is in any extent.
    pub(crate) fn has(&self, segment: SegmentId) -> bool {
        self.stretch_of(self.slot(segment)).is_some()
    }

    /// The identity of the cache in the headers and summaries of a segment.
    #[inline(always)]
    pub(crate) fn id_in(&self, segment: SegmentId) -> CacheId {
        if self.others.is_empty() {
            return self.first.id;
        }
        self.far_id(segment)
    }

    #[cold]
    fn far_id(&self, segment: SegmentId) -> CacheId {
        let stretch = self.stretch_of(self.slot(segment));
        stretch.map_or(self.id, |stretch| stretch.id)
    }

    /// Where a segment's own place starts: an address.
    #[inline]
    pub(crate) fn place_address(&self, segment: SegmentId) -> u64 {
        let start = match self.starts.get(segment.0 as usize) {
            Some(start) => *start,
            None => (self.near_address(self.slot(segment))).unwrap_or(NOWHERE),
        };
        assert_ne!(start, NOWHERE, "segment {} is in no extent", segment.0);
        start
    }

    /// Where the header of a record is whose first slot is `slot`, to be read after so many attempts
    /// that failed: its last 4 KiB, so that header and blocks are one contiguous write at every block
    /// size.
    pub(crate) fn header_address_at(&self, slot: Slot, attempt: u8) -> u64 {
        self.address_at(slot, attempt) + u64::from(self.block_bytes) - PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(shards: u16, segments_per_shard: u32) -> Geometry {
        Geometry {
            shards,
            segments_per_shard,
            ..Geometry::for_device(1 << 30, 4096, Some(shards), 1).unwrap()
        }
    }

    fn stretch(serial: u32, device: u8, start_bytes: u64, segments: u32) -> Extent {
        Extent {
            serial,
            device,
            alternates: true,
            start_bytes,
            first_segment: 0,
            segments,
            since_epoch: 0,
        }
    }

    /// Every segment of every shard, where it is: no two in one place.
    fn places(extents: &Extents, geometry: &Geometry) -> Vec<u64> {
        let mut places = Vec::new();
        for shard in 0..geometry.shards {
            let map = SegmentMap::new(CacheId([7; 16]), shard, geometry, extents);
            let ids = (0..extents.end_segment()).map(SegmentId);
            places.extend(
                ids.filter(|id| map.has(*id))
                    .map(|id| map.place_address(id)),
            );
        }
        places.sort_unstable();
        places
    }

    fn check(extents: &Extents, geometry: &Geometry) {
        let places = places(extents, geometry);
        let segments = u64::from(extents.segments()) * u64::from(geometry.shards);
        assert_eq!(places.len() as u64, segments);
        for pair in places.windows(2) {
            assert!(
                pair[1] - pair[0] >= u64::from(geometry.segment_bytes),
                "{pair:?}"
            );
        }
        let geometry = Geometry {
            segments_per_shard: extents.end_segment(),
            ..*geometry
        };
        assert_eq!(
            Extents::listed(extents.0.clone(), &geometry).as_ref(),
            Ok(extents)
        );
    }

    #[test]
    fn a_cache_of_version_1_stays_where_it_is() {
        let geometry = geometry(3, 64);
        let extents = Extents::of_version_1(&geometry);
        let map = SegmentMap::new(CacheId([7; 16]), 2, &geometry, &extents);
        let segment_bytes = u64::from(geometry.segment_bytes);
        assert_eq!(
            map.place_address(SegmentId(5)),
            DATA_OFFSET_BYTES + (2 * 64 + 5) * segment_bytes
        );
        assert_eq!(map.id_in(SegmentId(5)), CacheId([7; 16]));
        check(&extents, &geometry);
    }

    #[test]
    fn extents_come_and_go_and_no_two_segments_share_a_place() {
        for shards in [1, 3] {
            let geometry = geometry(shards, 64);
            let mut extents = Extents::of_new(&geometry);
            let end = extents.end_bytes(0, &geometry);
            extents.add(stretch(1, 0, end, 10), &geometry);
            extents.add(stretch(2, 1, DATA_OFFSET_BYTES, 30), &geometry);
            assert_eq!((extents.segments(), extents.end_segment()), (104, 104));
            check(&extents, &geometry);
            let gone = extents.beyond(0, 0, &geometry).unwrap();
            let left = extents.without(&gone, &geometry);
            assert_eq!((left.segments(), left.end_segment()), (30, 104));
            check(&left, &geometry);
            // The ids that became free are given first, the rest behind the last.
            let mut again = left.clone();
            again.add(stretch(3, 2, DATA_OFFSET_BYTES, 80), &geometry);
            assert_eq!((again.segments(), again.end_segment()), (110, 110));
            check(&again, &geometry);
        }
    }

    #[test]
    fn the_end_of_a_device_can_leave() {
        let geometry = geometry(3, 64);
        let extents = Extents::of_new(&geometry);
        let row = 3 * u64::from(geometry.segment_bytes);
        let gone = extents.beyond(0, DATA_OFFSET_BYTES + row * 40 + 1, &geometry);
        assert_eq!(gone.as_ref().map(|gone| gone[0].clone()), Ok(40..64));
        let left = extents.without(&gone.unwrap(), &geometry);
        assert_eq!(left.end_bytes(0, &geometry), DATA_OFFSET_BYTES + row * 40);
        check(&left, &geometry);
        let apart = Extents::of_version_1(&geometry);
        assert_eq!(
            apart.beyond(0, DATA_OFFSET_BYTES + row, &geometry),
            Err(Uncuttable)
        );
        assert!(apart.beyond(0, 0, &geometry).is_ok(), "whole it can leave");
    }

    #[test]
    fn extents_of_one_place_have_different_identities() {
        let geometry = geometry(1, 64);
        let mut extents = Extents::of_new(&geometry);
        let end = extents.end_bytes(0, &geometry);
        extents.add(stretch(1, 0, end, 10), &geometry);
        let map = SegmentMap::new(CacheId([7; 16]), 0, &geometry, &extents);
        assert_eq!(map.id_in(SegmentId(63)), CacheId([7; 16]));
        assert_ne!(map.id_in(SegmentId(64)), CacheId([7; 16]));
    }
}
