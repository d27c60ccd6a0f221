//! The checkpoint of an orderly stop: the index and the state of each segment as they were then, so
//! that the next start need not put them together from all summaries.
//!
//! Parts of a checkpoint lie in free segments, behind the place of the first header, one in each;
//! there nothing is lost, and nobody takes them for a record. The head on the first device says
//! where each shard's first part is. A checkpoint counts in the attach that follows the epoch in which
//! it was written, and in no other: each attach puts its own epoch on record before it writes. It does
//! not if the superblock was written in between.
//!
//! ```text
//! part:    | page (4 KiB): which part of what, and where the next one is | elements …
//! section: the elements of one kind, in as many parts as they take
//! ```

use super::cache_id::CacheId;
use super::codec::{Reader, Writer, checksum};
use super::extents::address;
use super::header::page_checksum;
use super::{FORMAT_VERSION, Geometry, PAGE_BYTES, SegmentId, Sequence, Slot, Stream, Superblock};
use crate::storage::{DeviceError, Storage};

const HEAD_MAGIC: u32 = u32::from_le_bytes(*b"FBCH");
const PART_MAGIC: u32 = u32::from_le_bytes(*b"FBCP");

/// Where the head is on its device, in bytes: between the first two copies of the superblock.
const HEAD_OFFSET_BYTES: u64 = 128 << 10;

/// Bytes of a head before the segments of its shards.
pub const HEAD_FIXED_BYTES: usize = 4 + 2 + 2 + 4 + 16 + 4 + 8 + 2;
/// Bytes that are used of the page of a part.
pub const PART_FIXED_BYTES: usize =
    4 + 2 + 2 + 4 + 16 + 2 + 4 + 4 + 4 * 4 + Stream::COUNT * Sequence::BYTES + 4;

/// Begins a head or a part: both begin alike.
fn begin(magic: u32, id: CacheId, page: &mut [u8]) -> Writer<'_> {
    let mut out = Writer::new(page);
    out.u32(magic);
    out.u16(FORMAT_VERSION);
    out.u16(0);
    out.u32(0); // checksum: see `sum_up`
    out.bytes(&id.0);
    out
}

/// Enters the checksum of all of it.
fn sum_up(id: CacheId, bytes: &mut [u8]) {
    let sum = checksum(id, bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// Reads on behind the beginning. `None` if this begins otherwise, or is not whole.
fn open(magic: u32, id: CacheId, bytes: &[u8]) -> Option<Reader<'_>> {
    let mut input = Reader::new(bytes);
    if input.u32() != magic || input.u16() != FORMAT_VERSION {
        return None;
    }
    input.u16();
    let sum = input.u32();
    let is_whole = input.fixed::<16>() == id.0 && sum == page_checksum(id, bytes, 8);
    is_whole.then_some(input)
}

/// The head of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointHead {
    /// The epoch in which it was written.
    pub epoch: u32,
    /// The sequence of the superblock that was on record then: whoever writes another one without an
    /// attach, to take a volume off, ends it.
    pub sequence: u64,
    /// The segment with the first part of each shard; `None` of a shard that has none.
    pub first_parts: Vec<Option<SegmentId>>,
}

impl CheckpointHead {
    /// A head that names no shard's parts yet.
    #[must_use]
    pub fn new(superblock: &Superblock) -> CheckpointHead {
        CheckpointHead {
            epoch: superblock.epoch,
            sequence: superblock.sequence,
            first_parts: vec![None; usize::from(superblock.geometry.shards)],
        }
    }

    /// Names the segment with the first part of a shard.
    pub fn add(&mut self, shard: u16, first_part: SegmentId) {
        self.first_parts[usize::from(shard)] = Some(first_part);
    }

    /// The number of shards whose parts it names.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.first_parts.iter().flatten().count()
    }

    /// Writes the head, durably. The parts are durable already.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write(
        &self,
        superblock: &Superblock,
        device: &mut dyn Storage,
    ) -> Result<(), DeviceError> {
        let Some(on) = superblock.devices_in_use().next() else {
            return Err(DeviceError::Gone);
        };
        let id = superblock.id;
        let mut page = vec![0; PAGE_BYTES];
        let mut out = begin(HEAD_MAGIC, id, &mut page);
        out.u32(self.epoch);
        out.u64(self.sequence);
        out.u16(self.first_parts.len() as u16);
        assert_eq!(out.position(), HEAD_FIXED_BYTES);
        for segment in &self.first_parts {
            out.u32(segment.map_or(0, |segment| segment.0 + 1));
        }
        sum_up(id, &mut page);
        device.write(address(on.number, HEAD_OFFSET_BYTES), &page)?;
        device.flush()
    }

    /// Reads the head of a cache. `None` if there is none that is whole.
    pub(crate) fn read(
        superblock: &Superblock,
        device: &mut dyn Storage,
    ) -> Option<CheckpointHead> {
        let id = superblock.id;
        let on = superblock.devices_in_use().next()?;
        let mut page = vec![0; PAGE_BYTES];
        let read = device.read(address(on.number, HEAD_OFFSET_BYTES), &mut page);
        read.ok()?;
        let mut input = open(HEAD_MAGIC, id, &page)?;
        let epoch = input.u32();
        let sequence = input.u64();
        let shards = input.u16();
        let first_parts = (0..shards).map(|_| input.u32().checked_sub(1).map(SegmentId));
        let head = CheckpointHead {
            epoch,
            sequence,
            first_parts: first_parts.collect(),
        };
        (!input.overran()).then_some(head)
    }
}

/// The kinds of elements, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Section {
    /// A [`SegmentLine`] for each segment.
    Segments,
    /// Entries of the index that found no bucket: block key (8), slot (4), zero (4).
    Spilled,
    /// The contents of each slot: lower bits of the block key (4), CRC32C (4).
    Contents,
    /// The rest of each slot: higher bits of the block key (1), flags (1).
    Properties,
    /// The buckets of the index's table: eight values of 4 bytes.
    Table,
}

impl Section {
    const ALL: [Section; 5] = [
        Section::Segments,
        Section::Spilled,
        Section::Contents,
        Section::Properties,
        Section::Table,
    ];

    /// Bytes of an element.
    pub(crate) fn element_bytes(self) -> usize {
        match self {
            Section::Segments | Section::Spilled => 16,
            Section::Contents => 8,
            Section::Properties => 2,
            Section::Table => 32,
        }
    }
}

/// Counts that say how a checkpoint is laid out, and the tails that recovery went by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) segments: u32,
    pub(crate) slots: u32,
    pub(crate) buckets: u32,
    pub(crate) spilled: u32,
    pub(crate) tails: [Sequence; Stream::COUNT],
}

/// A part: elements of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) section: Section,
    pub(crate) first: usize,
    pub(crate) elements: usize,
}

impl Part {
    pub(crate) fn payload_bytes(&self) -> usize {
        self.elements * self.section.element_bytes()
    }
}

impl Shape {
    fn elements(&self, section: Section) -> usize {
        let elements = match section {
            Section::Segments => self.segments,
            Section::Spilled => self.spilled,
            Section::Contents | Section::Properties => self.slots,
            Section::Table => self.buckets,
        };
        elements as usize
    }

    /// The parts of a checkpoint of this shape, in order; none if segments are too small for any.
    pub(crate) fn parts(&self, geometry: &Geometry) -> Vec<Part> {
        let capacity_bytes = part_bytes(geometry).saturating_sub(PAGE_BYTES);
        let mut parts = Vec::new();
        if capacity_bytes == 0 {
            return parts;
        }
        for section in Section::ALL {
            let (all, most) = (
                self.elements(section),
                capacity_bytes / section.element_bytes(),
            );
            let firsts = (0..all).step_by(most);
            parts.extend(firsts.map(|first| Part {
                section,
                first,
                elements: most.min(all - first),
            }));
        }
        parts
    }
}

/// The most bytes of a part, with its page.
pub(crate) fn part_bytes(geometry: &Geometry) -> usize {
    let slots = geometry.slots_per_segment() - geometry.first_slot() - 1;
    (slots * geometry.block_bytes) as usize
}

/// The slot where the part in a segment begins: behind that of its first header.
pub(crate) fn part_slot(geometry: &Geometry, segment: SegmentId) -> Slot {
    geometry.slot(segment, geometry.first_slot() as u16 + 1)
}

/// Which part of what something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartPage {
    pub(crate) shard: u16,
    pub(crate) epoch: u32,
    /// Which part, from 0 on.
    pub(crate) number: u32,
    pub(crate) shape: Shape,
    /// The segment that has the next part; its own in the last one.
    pub(crate) next: SegmentId,
}

impl PartPage {
    /// Completes a part: its elements are in `bytes` behind the page.
    pub(crate) fn encode(&self, id: CacheId, bytes: &mut [u8]) {
        let mut out = begin(PART_MAGIC, id, &mut bytes[..PAGE_BYTES]);
        out.u16(self.shard);
        out.u32(self.epoch);
        out.u32(self.number);
        out.u32(self.shape.segments);
        out.u32(self.shape.slots);
        out.u32(self.shape.buckets);
        out.u32(self.shape.spilled);
        for tail in self.shape.tails {
            tail.encode(&mut out);
        }
        out.u32(self.next.0);
        assert_eq!(out.position(), PART_FIXED_BYTES);
        out.zero_rest();
        sum_up(id, bytes);
    }

    /// Reads the page of a part; `bytes` is the whole part. `None` if it is no part, or not whole.
    pub(crate) fn decode(id: CacheId, bytes: &[u8]) -> Option<PartPage> {
        let mut input = open(PART_MAGIC, id, bytes)?;
        let (shard, epoch, number) = (input.u16(), input.u32(), input.u32());
        let mut shape = Shape {
            segments: input.u32(),
            slots: input.u32(),
            buckets: input.u32(),
            spilled: input.u32(),
            ..Shape::default()
        };
        for tail in &mut shape.tails {
            *tail = Sequence::decode(&mut input);
        }
        let next = SegmentId(input.u32());
        (!input.overran()).then_some(PartPage {
            shard,
            epoch,
            number,
            shape,
            next,
        })
    }
}

/// A segment as an orderly stop leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentLine {
    /// Its contents count, if any do; otherwise it is free.
    pub(crate) alive: Option<AliveLine>,
    /// The summary slot that is taken, of a free one too.
    pub(crate) summary: Option<u8>,
}

/// A segment that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AliveLine {
    pub(crate) stream: Stream,
    pub(crate) generation: Sequence,
    /// It has a summary of this generation.
    pub(crate) sealed: bool,
    /// The slot after its last used slot, of one that is sealed.
    pub(crate) end_slot: u16,
}

const ALIVE: u8 = 1;
const SEALED: u8 = 2;

impl SegmentLine {
    pub(crate) fn encode(&self, into: &mut [u8]) {
        let mut out = Writer::new(into);
        let flags = self.alive.map_or(0, |alive| {
            ALIVE | if alive.sealed { SEALED } else { 0 } | (alive.stream as u8) << 4
        });
        out.u8(flags);
        out.u8(self.summary.map_or(0, |which| which + 1));
        out.u16(self.alive.map_or(0, |alive| alive.end_slot));
        let generation = self.alive.map_or(Sequence::ZERO, |alive| alive.generation);
        generation.encode(&mut out);
    }

    /// `None` if it says what no segment is.
    pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentLine> {
        let mut input = Reader::new(bytes);
        let flags = input.u8();
        let summary = match input.u8() {
            0 => None,
            which @ 1..=2 => Some(which - 1),
            _ => return None,
        };
        let end_slot = input.u16();
        let generation = Sequence::decode(&mut input);
        let stream = Stream::from_number(flags >> 4)?;
        let alive = (flags & ALIVE != 0).then_some(AliveLine {
            stream,
            generation,
            sealed: flags & SEALED != 0,
            end_slot,
        });
        Some(SegmentLine { alive, summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CacheId = CacheId([5; 16]);

    #[test]
    fn a_shape_is_divided_into_parts_that_fit_their_places() {
        let geometry = Geometry::for_device(1 << 30, 4096, Some(1), 1).expect("a geometry");
        let shape = Shape {
            segments: geometry.segments_per_shard,
            slots: geometry.slots(),
            buckets: 40_000,
            spilled: 3,
            tails: Default::default(),
        };
        let parts = shape.parts(&geometry);
        let elements = |section| {
            let of_section = parts.iter().filter(|part| part.section == section);
            of_section.map(|part| part.elements).sum::<usize>()
        };
        assert_eq!(elements(Section::Spilled), 3);
        assert_eq!(elements(Section::Contents), geometry.slots() as usize);
        assert_eq!(elements(Section::Table), 40_000);
        assert!(parts.len() > 5, "the contents take several");
        let fits = |part: &Part| PAGE_BYTES + part.payload_bytes() <= part_bytes(&geometry);
        assert!(parts.iter().all(fits));
    }

    #[test]
    fn a_part_that_is_changed_anywhere_is_none() {
        let page = PartPage {
            shard: 3,
            epoch: 7,
            number: 2,
            shape: Shape {
                spilled: 9,
                ..Shape::default()
            },
            next: SegmentId(40),
        };
        let mut bytes = vec![0xa5; PAGE_BYTES + 96];
        page.encode(ID, &mut bytes);
        assert_eq!(PartPage::decode(ID, &bytes), Some(page));
        assert_eq!(PartPage::decode(CacheId([6; 16]), &bytes), None);
        for at in [0, 9, 40, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 95] {
            bytes[at] ^= 1;
            assert_eq!(PartPage::decode(ID, &bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn lines_of_segments_are_read_back() {
        let alive = AliveLine {
            stream: Stream::Main,
            generation: Sequence::new(8, 900),
            sealed: true,
            end_slot: 77,
        };
        for (alive, summary) in [(None, None), (None, Some(1)), (Some(alive), Some(0))] {
            let line = SegmentLine { alive, summary };
            let mut bytes = [0; 16];
            line.encode(&mut bytes);
            assert_eq!(SegmentLine::decode(&bytes), Some(line));
        }
        assert_eq!(SegmentLine::decode(&[0x31; 16]), None);
    }
}
