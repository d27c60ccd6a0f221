//! Room after many crashes (I18). Every life opens segments and every crash ends them nearly
//! empty; where none is left free and none is open, no header can make a tail durable that would
//! free one. So where free segments are short, recovery moves the tails itself: past the segments
//! at the front of each stream that hold nothing any more, or, where even the reserve of reclaim
//! is gone, only clean blocks of which no older entry survives elsewhere.
//!
//! The new tails are written when the verdicts are durable and not before: a tail that survives a
//! crash without them would void entries that only the crash journal held. They go into a later
//! summary of a segment that stays, in the slot that does not count.

use super::verdict::{other_slot, put, restated};
use super::{Found, FoundSegment, RecoveryError};
use crate::format::{SegmentId, Sequence, Slot, Stream, Summary, Superblock};
use crate::interface::Storage;
use crate::map::index::{Index, foreign_shadows};
use crate::store::log::{Log, RECLAIM_RESERVE, SegmentState, WANTED_FREE};

/// Tails that are to move when the verdicts are durable.
#[derive(Debug)]
pub(crate) struct TailMove {
    passed: Vec<SegmentId>,
    tails: [Sequence; Stream::COUNT],
    carrier: Summary,
}

/// Plans the segments that the tails pass, and takes their clean blocks out of the index.
pub(super) fn plan(
    superblock: &Superblock,
    found: &Found,
    log: &mut Log,
    index: &mut Index,
) -> Option<TailMove> {
    if log.free.len() >= WANTED_FREE {
        return None;
    }
    let mut passed = Vec::new();
    let mut fronts = [0; Stream::COUNT];
    while log.free.len() + passed.len() < WANTED_FREE {
        let scarce = log.free.len() + passed.len() < RECLAIM_RESERVE;
        let lengths: usize = log.streams.iter().map(|stream| stream.order.len()).sum();
        // A segment stays, to carry the tails.
        if passed.len() + 1 >= lengths {
            break;
        }
        let front = |stream: Stream| {
            log.streams[stream as usize]
                .order
                .get(fronts[stream as usize])
                .copied()
        };
        let next = Stream::ALL
            .into_iter()
            .filter_map(|stream| Some((stream, front(stream)?)))
            .find(|(stream, id)| {
                is_empty(log, index, *id) || (scarce && may_go(log, index, *stream, *id))
            });
        let Some((stream, id)) = next else { break };
        for slot in slots(log, id) {
            if index.flags(slot).live() {
                index.remove(index.key(slot));
            }
        }
        log.segment(id).live = 0;
        fronts[stream as usize] += 1;
        passed.push(id);
    }
    if passed.is_empty() {
        return None;
    }
    let mut tails = log.tails;
    for stream in Stream::ALL {
        let at = fronts[stream as usize];
        if at > 0 {
            let next = log.streams[stream as usize].order.get(at);
            tails[stream as usize] = match next {
                Some(next) => log.segments[next.0 as usize].generation,
                None => Sequence::new(superblock.epoch, log.next_number),
            };
        }
    }
    // I28: the write stream's tail is on two devices.
    let says = |segment: &&FoundSegment| {
        !segment.unread
            && !passed.contains(&segment.id)
            && (!log.keeps_two() || log.is_on_two(segment.id))
    };
    let carrier = found.segments.iter().find(says)?;
    let which = other_slot(log.segments[carrier.id.0 as usize].summary);
    let carrier = restated(carrier, log, which, tails);
    Some(TailMove {
        passed,
        tails,
        carrier,
    })
}

fn slots(log: &Log, id: SegmentId) -> impl Iterator<Item = Slot> + use<> {
    let geometry = log.geometry;
    (geometry.first_slot() as u16..geometry.slots_per_segment() as u16)
        .map(move |at| geometry.slot(id, at))
}

fn is_empty(log: &Log, index: &Index, id: SegmentId) -> bool {
    slots(log, id).all(|slot| !index.flags(slot).live())
}

/// True if no block of a segment is needed: the origin has them all, and no older entry of them
/// would come back.
fn may_go(log: &Log, index: &Index, stream: Stream, id: SegmentId) -> bool {
    slots(log, id).all(|slot| {
        let flags = index.flags(slot);
        !flags.live() || (!flags.dirty() && foreign_shadows(flags, stream) == 0)
    })
}

impl TailMove {
    /// Writes the tails; they count after the next flush.
    pub(crate) fn write(&self, device: &mut dyn Storage, log: &Log) -> Result<(), RecoveryError> {
        put(device, log, &self.carrier)
    }

    /// The tails are durable: the segments below them are free.
    pub(crate) fn finish(self, log: &mut Log) {
        log.tails = self.tails;
        log.segment(self.carrier.segment).summary = Some(self.carrier.which);
        for stream in &mut log.streams {
            stream.order.retain(|id| !self.passed.contains(id));
        }
        for id in self.passed {
            for place in log.places_of(id) {
                let (summary, lost) = (log.segment(place).summary, log.segment(place).lost);
                *log.segment(place) = crate::store::log::Segment::fresh(true);
                let segment = log.segment(place);
                // Its summary slots keep their contents until they are written again.
                (segment.summary, segment.lost) = (summary, lost);
                if lost {
                    segment.state = SegmentState::Removed;
                } else {
                    segment.state = SegmentState::Free;
                    log.free.push_back(place);
                }
            }
            log.lend(id, None);
        }
    }
}
