//! The newest accepted version of each block (I1), and where older ones survive (I3).

use super::blocks::each_block;
use super::drops::{Collected, Drops};
use super::newest::{Newest, Shadowed};
use super::rank::Ranks;
use super::{Found, MissingDrop, RecoveryError};
use crate::format::{Entry, Geometry, SegmentMap, Sequence, Stream, Superblock};
use crate::map::index::Index;
use crate::store::log::{Log, SegmentState};

pub(super) struct Rebuilt {
    pub(super) log: Log,
    pub(super) index: Index,
    pub(super) missing_drops: Vec<MissingDrop>,
}

pub(super) fn rebuild(
    superblock: &Superblock,
    shard: u16,
    map: SegmentMap,
    found: &mut Found,
) -> Result<Rebuilt, RecoveryError> {
    let geometry = superblock.geometry;
    let ranks = Ranks::new(found)?;
    let mut drops = Collected::new(geometry, found);
    let mut newest = Newest::new(superblock, found);
    for segment in &found.segments {
        let epoch = segment.generation.epoch;
        let rank = ranks.of_epoch(epoch);
        for entry in segment.entries() {
            if let Entry::Drop { key, count } = entry.entry {
                for i in 0..u64::from(count) {
                    drops.add(segment.stream, key.plus(i), rank(entry.number + i));
                }
            }
            each_block(geometry, segment.id, &entry, |block| {
                if superblock.accepts(block.key, epoch) {
                    newest.add(&block, rank(block.number));
                }
            });
        }
    }
    let drops = drops.all();
    let (mut index, shadowed) = newest.settle(&drops);
    let missing_drops = note_dropped(&mut index, &drops, shadowed);
    apply_cleans(geometry, found, &mut index);
    Ok(Rebuilt {
        log: log_of(superblock, shard, map, found, &index),
        index,
        missing_drops,
    })
}

/// The log of a shard that has these segments and blocks.
pub(super) fn log_of(
    superblock: &Superblock,
    shard: u16,
    map: SegmentMap,
    found: &mut Found,
    index: &Index,
) -> Log {
    let mut log = Log::new(superblock, shard);
    log.map = map;
    log.tails = found.tails;
    fill_log(&mut log, found, index, superblock.geometry);
    log.stripe_free();
    log
}

/// Dropped versions that survive are shadows of cached versions, or want a `Drop` in their own
/// stream if a crash came between the `Drop`s of several streams.
fn note_dropped(index: &mut Index, drops: &Drops, shadowed: Vec<Shadowed>) -> Vec<MissingDrop> {
    let mut missing = Vec::new();
    for Shadowed { key, stream, rank } in shadowed {
        let own_drop = drops.newest_in(stream, key);
        match index.find(key) {
            Some(slot) => index.add_shadows(slot, stream.bit()),
            None if own_drop < rank => missing.push(MissingDrop { stream, key }),
            None => {}
        }
    }
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// I6: a `Clean` names the version that was in the slot at its own number.
fn apply_cleans(geometry: Geometry, found: &Found, index: &mut Index) {
    let mut generations: Vec<Option<Sequence>> = vec![None; geometry.segments_per_shard as usize];
    for segment in &found.segments {
        generations[segment.id.0 as usize] = Some(segment.generation);
    }
    for segment in &found.segments {
        for (target, slot, count, number) in segment.cleans() {
            let at = Sequence::new(segment.generation.epoch, number);
            let Some(Some(generation)) = generations.get(target.0 as usize) else {
                continue;
            };
            if *generation > at || u32::from(slot) + u32::from(count) > geometry.slots_per_segment()
            {
                continue;
            }
            for i in 0..count {
                let slot = geometry.slot(target, slot + i);
                let flags = index.flags(slot);
                if flags.live() && flags.dirty() {
                    index.set_clean(slot);
                }
            }
        }
    }
}

fn fill_log(log: &mut Log, found: &mut Found, index: &Index, geometry: Geometry) {
    for (segment, summary) in log.segments.iter_mut().zip(&found.summary_slots) {
        segment.summary = *summary;
    }
    // Sorted by stream and generation already: the order of each stream.
    let mut undecided = [false; Stream::COUNT];
    for found in &mut found.segments {
        // The link it was opened with may name a segment that never became durable. Where that
        // one ends is being decided now: another crash can leave this verdict and not the other,
        // which a later recovery then decides anew, perhaps without the crash journal.
        found.link = log.link_to_youngest(found.stream);
        if let Some(link) = &mut found.link
            && undecided[found.stream as usize]
        {
            link.end_slot = 0;
        }
        undecided[found.stream as usize] = !found.decided || !found.sealed;
        let segment = log.segment(found.id);
        segment.state = SegmentState::Sealed;
        segment.stream = found.stream;
        segment.generation = found.generation;
        segment.end_slot = found.end_slot;
        segment.durable_slots = geometry.slots_per_segment() as u16;
        log.streams[found.stream as usize].order.push_back(found.id);
    }
    log.take_back_places();
    for id in 0..geometry.segments_per_shard {
        let id = crate::format::SegmentId(id);
        let slots = geometry.first_slot()..geometry.slots_per_segment();
        let (live, dirty) = index.counts(geometry.slot(id, slots.start as u16), slots.len());
        let segment = log.segment(id);
        (segment.live, segment.dirty) = (live, dirty);
        if segment.state == SegmentState::Free {
            log.free.push_back(id);
        }
    }
}
