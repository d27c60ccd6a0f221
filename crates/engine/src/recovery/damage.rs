//! I14: damage is not absence. Finds structures that headers promise and that are not there.

use std::collections::HashMap;

use super::{Found, FoundSegment};
use crate::format::{SegmentId, Sequence, Stream, Superblock};

/// Lists durable structures that are missing or make no sense, in words; empty if all is well.
pub(super) fn damage(found: &Found, superblock: &Superblock) -> Vec<String> {
    let mut lost = found.unreadable.clone();
    let alive = found
        .segments
        .iter()
        .filter(|segment| may_count(found, segment));
    lost.extend(alive.filter_map(|segment| segment.damage.clone()));
    for stream in Stream::ALL {
        stream_damage(found, superblock, stream, &mut lost);
    }
    lost
}

/// Whether a segment is not below its stream's tail (I2). That of a segment of which no record could be
/// read is not known, so it has to be below all: an old copy on a device that was lost, and added
/// again, is no damage.
fn may_count(found: &Found, segment: &FoundSegment) -> bool {
    let is_above = |stream: Stream| segment.generation >= found.tails[stream as usize];
    match segment.lists.is_empty() {
        true => Stream::ALL.into_iter().any(is_above),
        false => is_above(segment.stream),
    }
}

/// The segments of a stream that are not below its tail, oldest first.
struct Alive<'a> {
    segments: Vec<&'a FoundSegment>,
    generations: HashMap<SegmentId, Sequence>,
}

impl Alive<'_> {
    fn of(found: &Found, stream: Stream) -> Alive<'_> {
        let tail = found.tails[stream as usize];
        let alive =
            |segment: &&FoundSegment| segment.stream == stream && segment.generation >= tail;
        let segments: Vec<&FoundSegment> = found.segments.iter().filter(alive).collect();
        assert!(
            segments.is_sorted_by_key(|segment| segment.generation),
            "what is found is in order"
        );
        let generations = segments
            .iter()
            .map(|segment| (segment.id, segment.generation));
        Alive {
            generations: generations.collect(),
            segments,
        }
    }

    fn of_generation(&self, generation: Sequence) -> Option<&FoundSegment> {
        let at = self
            .segments
            .binary_search_by_key(&generation, |segment| segment.generation);
        Some(self.segments[at.ok()?])
    }

    /// Whether a segment is there under a higher generation than this.
    fn is_younger(&self, id: SegmentId, generation: Sequence) -> bool {
        let has = self.generations.get(&id);
        has.is_some_and(|has| *has > generation)
    }
}

/// Follows the chain of a stream's segments from the youngest to the tail. A link to a segment
/// that was durable and is not there, or ends before it should, is damage.
fn stream_damage(found: &Found, superblock: &Superblock, stream: Stream, lost: &mut Vec<String>) {
    let tail = found.tails[stream as usize];
    let durable = found.durable[stream as usize];
    let alive = Alive::of(found, stream);
    let was_durable = |generation: Sequence| {
        generation <= durable.generation || generation.epoch < superblock.decided_epoch
    };
    for segment in &alive.segments {
        if segment.decided && !segment.sealed {
            // I12: an attach since has left it with a summary. Its records say more than was
            // accepted of them.
            lost.push(format!(
                "the summary of segment {} of the {stream:?} stream (generation {}.{}) is missing",
                segment.id.0, segment.generation.epoch, segment.generation.number
            ));
        }
        let Some(link) = segment.state.previous else {
            continue;
        };
        if link.generation < tail || !was_durable(link.generation) {
            continue;
        }
        match alive
            .of_generation(link.generation)
            .filter(|other| other.id == link.segment)
        {
            // The segment was renewed (I19): its old position is empty, its blocks are at the young
            // end.
            None if alive.is_younger(link.segment, link.generation) => {}
            None => lost.push(format!(
                "segment {} of the {stream:?} stream (generation {}.{}) is missing",
                link.segment.0, link.generation.epoch, link.generation.number
            )),
            Some(other)
                if link.generation < durable.generation && other.end_slot < link.end_slot =>
            {
                lost.push(format!(
                    "segment {} of the {stream:?} stream ends at slot {} and not {}",
                    link.segment.0, other.end_slot, link.end_slot
                ))
            }
            Some(_) => {}
        }
    }
    if durable.generation >= tail && durable.generation > Sequence::ZERO {
        match alive.of_generation(durable.generation) {
            // The segment may have been renewed since (I19), under a generation of its own.
            None if alive
                .segments
                .iter()
                .any(|other| other.renewed && other.generation > durable.generation) => {}
            None => lost.push(format!(
                "the {stream:?} stream was durable up to generation {}.{}, which is missing",
                durable.generation.epoch, durable.generation.number
            )),
            Some(segment) if segment.end_slot < durable.end_slot => lost.push(format!(
                "segment {} of the {stream:?} stream was durable up to slot {} and ends at {}",
                segment.id.0, durable.end_slot, segment.end_slot
            )),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::FoundList;

    fn damaged(generation: u64, lists: Vec<FoundList>) -> FoundSegment {
        FoundSegment {
            id: crate::format::SegmentId(3),
            stream: Stream::Write,
            generation: Sequence::new(1, generation),
            end_slot: 4,
            lists,
            state: Default::default(),
            link: None,
            decided: false,
            renewed: false,
            sealed: false,
            unread: false,
            summary: None,
            damage: Some("it cannot be read".to_owned()),
        }
    }

    fn list() -> FoundList {
        FoundList::new(Default::default(), false, false)
    }

    /// Whether damage of a segment with this generation counts below tails of 10 (write), 20 and 30.
    fn counts(generation: u64, lists: Vec<FoundList>) -> bool {
        let tails = [10, 20, 30].map(|number| Sequence::new(1, number));
        let found = Found {
            tails,
            ..Found::default()
        };
        may_count(&found, &damaged(generation, lists))
    }

    #[test]
    fn damage_below_the_tail_of_its_stream_is_none() {
        assert!(counts(10, vec![list()]) && !counts(9, vec![list()]));
    }

    #[test]
    fn a_segment_of_an_unknown_stream_has_to_be_below_all_tails() {
        assert!(counts(10, Vec::new()) && counts(25, Vec::new()));
        assert!(!counts(9, Vec::new()));
    }
}
