//! I14: accepted damage stays accepted. A segment that could not be read today may be readable
//! tomorrow, and then holds blocks that the origin has overtaken in between. So before a damaged
//! shard is served, whatever was not found is made absent for good.

use super::{Found, RecoveryError};
use crate::format::{DurablePosition, SegmentId, SegmentMap, Sequence, Stream, Superblock};
use crate::interface::Storage;

/// Overwrites the summaries and the first header of every segment that was not found; without
/// those a scan finds nothing in it. Durable with the verdicts.
pub(super) fn void(
    device: &mut dyn Storage,
    superblock: &Superblock,
    map: &SegmentMap,
    found: &mut Found,
) -> Result<(), RecoveryError> {
    let geometry = superblock.geometry;
    let mut is_there = vec![false; geometry.segments_per_shard as usize];
    for segment in &found.segments {
        is_there[segment.id.0 as usize] = true;
        if let Some(places) = map.places() {
            let others = std::iter::once(places.home(segment.id)).chain(places.second(segment.id));
            others.for_each(|place| is_there[place.0 as usize] = true);
        }
    }
    let zeroes = vec![0; super::leads::lead_bytes(&geometry)];
    let missing = (0..geometry.segments_per_shard).filter(|id| !is_there[*id as usize]);
    let is_device_there = |id: SegmentId| superblock.has_device(map.device_of(id));
    for id in missing.filter(|id| map.has(SegmentId(*id)) && is_device_there(SegmentId(*id))) {
        device.write(map.place_address(SegmentId(id)), &zeroes)?;
        found.summary_slots[id as usize] = None;
    }
    Ok(())
}

/// Takes back promises of segments and slots that are not there, or the next attach would miss them
/// again: every summary is written anew, with promises that are kept.
pub(super) fn take_promises_back(found: &mut Found) {
    found.promised_too_much = true;
    for stream in Stream::ALL {
        let promised = found.durable[stream as usize];
        if promised.generation == Sequence::ZERO {
            continue;
        }
        let alive = || found.segments.iter().filter(|at| at.stream == stream);
        let is_later = |generation: Sequence| generation > promised.generation;
        if alive().any(|segment| segment.renewed && is_later(segment.generation)) {
            // The promised segment may be that renewed.
            continue;
        }
        let last = alive()
            .filter(|segment| !is_later(segment.generation))
            .max_by_key(|segment| segment.generation);
        found.durable[stream as usize] =
            last.map_or(DurablePosition::default(), |last| DurablePosition {
                generation: last.generation,
                end_slot: if last.generation == promised.generation {
                    promised.end_slot.min(last.end_slot)
                } else {
                    0
                },
            });
    }
}
