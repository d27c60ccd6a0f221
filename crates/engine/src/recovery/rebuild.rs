//! The newest accepted version of each block (I1), and where older ones survive (I3).

use super::{Found, FoundSegment, MissingDrop, RecoveryError};
use crate::format::{BlockKey, Entry, Geometry, SegmentMap, Sequence, Slot, Stream, Superblock};
use crate::map::index::{Index, SlotFlags};
use crate::map::locks::{KeyMap, KeySet};
use crate::planted::{self, Bug};
use crate::store::log::{Log, SegmentState};

pub(super) struct Rebuilt {
    pub(super) log: Log,
    pub(super) index: Index,
    pub(super) missing_drops: Vec<MissingDrop>,
}

/// A place in history in one word: epochs are ranked, so that 16 bits are enough for them.
type Rank = u64;

struct Ranks {
    epochs: Vec<u32>,
}

impl Ranks {
    fn new(found: &Found) -> Result<Ranks, RecoveryError> {
        let mut epochs: Vec<u32> = found
            .segments
            .iter()
            .map(|segment| segment.generation.epoch)
            .collect();
        epochs.sort_unstable();
        epochs.dedup();
        if epochs.len() >= 1 << 16 {
            return Err(RecoveryError::Malformed(
                "it has segments of more than 65535 attaches",
            ));
        }
        Ok(Ranks { epochs })
    }

    fn rank(&self, epoch: u32, number: u64) -> Rank {
        assert!(number < Sequence::NUMBER_END, "a number fits 48 bits");
        let place = self.epochs.partition_point(|known| *known < epoch) as u64;
        place << 48 | number
    }
}

pub(super) fn rebuild(
    superblock: &Superblock,
    shard: u16,
    map: SegmentMap,
    found: &mut Found,
) -> Result<Rebuilt, RecoveryError> {
    let geometry = superblock.geometry;
    let mut log = Log::new(superblock, shard);
    log.map = map;
    log.tails = found.tails;
    let ranks = Ranks::new(found)?;
    let drops = newest_drops(geometry, found, &ranks);
    let mut index = Index::new(geometry.slots());
    let mut streams = vec![Stream::Write; geometry.segments_per_shard as usize];
    for segment in &found.segments {
        streams[segment.id.0 as usize] = segment.stream;
    }
    let mut versions: Vec<Rank> = vec![0; geometry.slots() as usize];
    // Dropped versions that still survive: they need a `Drop` in their own stream.
    let mut shadowed: Vec<(BlockKey, Stream, Rank)> = Vec::new();
    for segment in &found.segments {
        for (key, slot, number, flags, checksum) in blocks(geometry, segment) {
            if !superblock.accepts(key, segment.generation.epoch) {
                continue;
            }
            let rank = ranks.rank(segment.generation.epoch, number);
            let dropped = drops
                .get(&key)
                .is_some_and(|drops| drops.iter().any(|drop| *drop > rank));
            if dropped {
                shadowed.push((key, segment.stream, rank));
                continue;
            }
            match index.find(key) {
                Some(newer)
                    if (versions[newer.0 as usize] > rank) != planted::is(Bug::OldestWins) =>
                {
                    index.add_shadows(newer, segment.stream.bit())
                }
                Some(older) => {
                    let old_stream = streams[geometry.segment_of(older).0 as usize];
                    let shadows = index.flags(older).shadows() | old_stream.bit();
                    let (dirty, zero) = (flags.dirty(), flags.zero());
                    index.insert(key, slot, checksum, SlotFlags::new(dirty, zero, shadows));
                    versions[slot.0 as usize] = rank;
                }
                None => {
                    index.insert(key, slot, checksum, flags);
                    versions[slot.0 as usize] = rank;
                }
            }
        }
    }
    let missing_drops = note_dropped(&mut index, &drops, shadowed);
    apply_cleans(geometry, found, &mut index);
    fill_log(&mut log, found, &index, geometry);
    log.stripe_free();
    Ok(Rebuilt {
        log,
        index,
        missing_drops,
    })
}

/// The newest `Drop` of each block in each stream.
fn newest_drops(geometry: Geometry, found: &Found, ranks: &Ranks) -> KeyMap<[Rank; Stream::COUNT]> {
    let mut drops: KeyMap<[Rank; Stream::COUNT]> = KeyMap::default();
    let only = keys_if_drops_abound(geometry, found);
    for segment in &found.segments {
        for entry in segment.entries() {
            let Entry::Drop { key, count } = entry.entry else {
                continue;
            };
            for i in 0..u64::from(count) {
                let is_needed = |only: &KeySet| only.contains(&key.plus(i));
                if !only.as_ref().is_none_or(is_needed) {
                    continue;
                }
                let rank = ranks.rank(segment.generation.epoch, entry.number + i);
                let newest = &mut drops.entry(key.plus(i)).or_default()[segment.stream as usize];
                *newest = (*newest).max(rank);
            }
        }
    }
    drops
}

/// Eight bytes can drop 256 blocks. Where more are dropped than a shard can hold, only those that
/// it holds are of interest, so that memory is bounded whatever the device says.
fn keys_if_drops_abound(geometry: Geometry, found: &Found) -> Option<KeySet> {
    let segments = found.segments.iter();
    let dropped = segments
        .flat_map(FoundSegment::entries)
        .filter(|entry| matches!(entry.entry, Entry::Drop { .. }))
        .map(|entry| u64::from(entry.entry.count()));
    if dropped.sum::<u64>() <= u64::from(geometry.slots()) {
        return None;
    }
    let segments = found.segments.iter();
    let keys = segments.flat_map(|segment| blocks(geometry, segment));
    Some(keys.map(|(key, ..)| key).collect())
}

/// Every block version of a segment: key, slot, number, flags without shadows, checksum.
fn blocks(
    geometry: Geometry,
    segment: &FoundSegment,
) -> impl Iterator<Item = (BlockKey, Slot, u64, SlotFlags, u32)> {
    segment.entries().flat_map(move |found| {
        let (key, slot, count, dirty, zero) = match found.entry {
            Entry::Data {
                key,
                slot,
                count,
                dirty,
            } => (key, slot, count, dirty, false),
            Entry::Zero {
                key,
                slot,
                count,
                dirty,
            } => (key, slot, count, dirty, true),
            Entry::Clean { .. } | Entry::Drop { .. } => (BlockKey(0), 0, 0, false, false),
        };
        let fits = u32::from(slot) + u32::from(count) <= geometry.slots_per_segment();
        let count = if fits { count } else { 0 };
        (0..count).map(move |i| {
            let checksum = if zero { 0 } else { found.checksum(i) };
            let slot = geometry.slot(segment.id, slot + i);
            (
                key.plus(u64::from(i)),
                slot,
                found.number + u64::from(i),
                SlotFlags::new(dirty, zero, 0),
                checksum,
            )
        })
    })
}

/// Dropped versions that survive are shadows of cached versions, or want a `Drop` in their own
/// stream if a crash came between the `Drop`s of several streams.
fn note_dropped(
    index: &mut Index,
    drops: &KeyMap<[Rank; Stream::COUNT]>,
    shadowed: Vec<(BlockKey, Stream, Rank)>,
) -> Vec<MissingDrop> {
    let mut missing = Vec::new();
    for (key, stream, rank) in shadowed {
        let own_drop = drops.get(&key).map_or(0, |drops| drops[stream as usize]);
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
        for entry in segment.entries() {
            let Entry::Clean {
                segment: target,
                slot,
                count,
            } = entry.entry
            else {
                continue;
            };
            let at = Sequence::new(segment.generation.epoch, entry.number);
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
        let mut live = 0;
        let mut dirty = 0;
        for at in geometry.first_slot() as u16..geometry.slots_per_segment() as u16 {
            let flags = index.flags(geometry.slot(id, at));
            live += u32::from(flags.live());
            dirty += u32::from(flags.live() && flags.dirty());
        }
        let segment = log.segment(id);
        (segment.live, segment.dirty) = (live, dirty);
        if segment.state == SegmentState::Free {
            log.free.push_back(id);
        }
    }
}
