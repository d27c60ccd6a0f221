//! Writing the checkpoint of an orderly stop (`format::checkpoint`, I29). Nothing depends on it: a start
//! that finds none, or none that is whole, reads the summaries.

use crate::format::checkpoint::{
    AliveLine, Part, PartPage, Section, SegmentLine, Shape, part_bytes, part_slot,
};
use crate::format::{Geometry, PAGE_BYTES, SegmentId, Slot, Stream};
use crate::map::index::Index;
use crate::store::Store;
use crate::store::log::{Segment, SegmentState, WANTED_FREE};

/// A checkpoint that is being written.
#[derive(Debug)]
pub struct Checkpoint {
    shape: Shape,
    parts: Vec<Part>,
    /// A free segment for each part.
    places: Vec<SegmentId>,
}

impl Checkpoint {
    /// The number of parts.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The segment that has the first part.
    #[must_use]
    pub fn first_place(&self) -> SegmentId {
        self.places[0]
    }
}

/// Slots from which on a shard keeps segments free for its checkpoint: 8 GiB in blocks of 4 KiB. All
/// summaries of a smaller one are read in half a second.
pub const CHECKPOINT_LEAST_SLOTS: u32 = 1 << 21;

/// Segments that a shard keeps free for its checkpoint, about: one in 270.
pub(crate) fn segments_for_checkpoint(geometry: &Geometry) -> usize {
    if geometry.slots() < CHECKPOINT_LEAST_SLOTS {
        return 0;
    }
    let shape = Shape {
        segments: geometry.segments_per_shard,
        slots: geometry.slots(),
        buckets: Index::buckets_for(geometry.slots()) as u32,
        // A part of the few that find no bucket.
        spilled: 1,
        ..Shape::default()
    };
    shape.parts(geometry).len()
}

impl Store {
    fn shape(&self) -> Shape {
        Shape {
            segments: self.log.geometry.segments_per_shard,
            slots: self.index.slots(),
            buckets: self.index.buckets(),
            spilled: self.index.spilled(),
            tails: self.log.tails,
        }
    }

    /// Begins the checkpoint of a shard that is at rest. `None` if it cannot have one: dirty data is
    /// on two devices, the cache failed, hints wait for room in the log, its tails are not on record,
    /// it has shrunk since its start, or too few segments are free. `geometry` is on record.
    pub(crate) fn begin_checkpoint(&mut self, geometry: &Geometry) -> Option<Checkpoint> {
        let is_plain = self.log.map.places().is_none() && !self.log.keeps_two();
        let is_said = (Stream::ALL.into_iter())
            .all(|stream| self.durable_tail(stream) == self.log.tails[stream as usize]);
        let has_its_size = self.index.slots() == geometry.slots()
            && self.log.geometry.segments_per_shard == geometry.segments_per_shard;
        if !is_plain
            || !is_said
            || !has_its_size
            || self.failed_cache()
            || !self.waiting.cleans.is_empty()
        {
            return None;
        }
        self.forget_all_evicted();
        let shape = self.shape();
        let parts = shape.parts(&self.log.geometry);
        let mut places = self.log.free.in_order();
        places.truncate(parts.len());
        // With fewer free segments a start moves tails, for which it wants summaries.
        let has_room = places.len() == parts.len() && self.log.free.len() >= WANTED_FREE;
        (has_room && !parts.is_empty()).then_some(Checkpoint {
            shape,
            parts,
            places,
        })
    }

    /// Evicted blocks may be in free segments, which are overwritten.
    fn forget_all_evicted(&mut self) {
        let geometry = self.log.geometry;
        for (id, segment) in (0..).map(SegmentId).zip(&mut self.log.segments) {
            if std::mem::take(&mut segment.evicted) {
                let slots = geometry.first_slot() as u16..geometry.slots_per_segment() as u16;
                let slots = slots.map(|at| geometry.slot(id, at));
                slots.for_each(|slot: Slot| self.index.forget_evicted(slot));
            }
        }
    }

    /// A part, and the address where it belongs.
    pub(crate) fn checkpoint_part(&self, checkpoint: &Checkpoint, number: usize) -> (u64, Vec<u8>) {
        let geometry = self.log.geometry;
        let part = &checkpoint.parts[number];
        let used_bytes = PAGE_BYTES + part.payload_bytes();
        let mut bytes = vec![0; used_bytes.next_multiple_of(PAGE_BYTES)];
        assert!(
            bytes.len() <= part_bytes(&geometry),
            "a part fits its place"
        );
        let payload = &mut bytes[PAGE_BYTES..used_bytes];
        match part.section {
            Section::Segments => self.export_segments(part, payload),
            _ => self.index.export(part, payload),
        }
        let places = &checkpoint.places;
        let page = PartPage {
            shard: self.log.shard,
            epoch: self.log.epoch,
            number: number as u32,
            shape: checkpoint.shape,
            next: places[(number + 1).min(places.len() - 1)],
        };
        page.encode(self.log.id, &mut bytes);
        let place = part_slot(&geometry, places[number]);
        (self.log.map.slot_address(place), bytes)
    }

    fn export_segments(&self, part: &Part, into: &mut [u8]) {
        let segments = &self.log.segments[part.first..part.first + part.elements];
        let lines = into.chunks_exact_mut(Section::Segments.element_bytes());
        for (into, segment) in lines.zip(segments) {
            let line = SegmentLine {
                alive: self.alive(segment),
                summary: segment.summary,
            };
            line.encode(into);
        }
    }

    /// A segment as recovery would find it.
    fn alive(&self, segment: &Segment) -> Option<AliveLine> {
        let first_slot = self.log.geometry.first_slot() as u16;
        let filling = segment.filling.as_ref();
        let has_no_record = filling.is_some_and(|filling| filling.next_slot == first_slot);
        let sealed = match segment.state {
            SegmentState::Free
            | SegmentState::BelowTail
            | SegmentState::Removed
            | SegmentState::Absent
            | SegmentState::Lent => return None,
            // Nothing tells of one that was opened and has no record.
            SegmentState::Open | SegmentState::Filled if has_no_record => return None,
            SegmentState::Open | SegmentState::Filled => false,
            SegmentState::Sealed | SegmentState::Emptying | SegmentState::Waiting => true,
        };
        let tail = self.log.tails[segment.stream as usize];
        (segment.generation >= tail).then_some(AliveLine {
            stream: segment.stream,
            generation: segment.generation,
            sealed,
            end_slot: segment.end_slot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a 64th, and a shard would do without (see `Log::reckon_usable`).
    #[test]
    fn a_checkpoint_takes_a_small_part_of_any_shard() {
        for gib in [1u64, 9, 64, 1024, 8192] {
            for block_bytes in [4096, 16_384, 65_536] {
                let geometry = Geometry::for_device(gib << 30, block_bytes, Some(1), 1);
                let Ok(geometry) = geometry else { continue };
                let wanted = segments_for_checkpoint(&geometry);
                let is_large = geometry.slots() >= CHECKPOINT_LEAST_SLOTS;
                assert_eq!(wanted > 0, is_large, "{gib} GiB of {block_bytes}");
                assert!(
                    wanted * 200 <= geometry.segments_per_shard as usize,
                    "{gib} GiB of {block_bytes}: {wanted}"
                );
            }
        }
    }
}
