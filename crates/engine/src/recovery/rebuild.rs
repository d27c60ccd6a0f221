//! The newest accepted version of each block (I1), and where older ones survive (I3).

use super::{Found, FoundSegment, MissingDrop, RecoveryError};
use crate::format::{BlockKey, Entry, Geometry, SegmentMap, Sequence, Slot, Stream, Superblock};
use crate::map::index::{Index, SlotFlags, hash};
use crate::map::locks::{KeyMap, KeySet};
use crate::planted::{self, Bug};
use crate::store::log::{Log, SegmentState};

/// Blocks whose places in the index are fetched from memory at once.
const NEAR: usize = u32::BITS as usize;

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
    let ranks = Ranks::new(found)?;
    let drops = Drops::new(geometry, found, &ranks);
    let mut newest = Newest::new(geometry, found);
    // Dropped versions that still survive: they need a `Drop` in their own stream.
    let mut shadowed: Vec<(BlockKey, Stream, Rank)> = Vec::new();
    let mut accepted = Vec::new();
    for segment in &found.segments {
        let epoch = segment.generation.epoch;
        accepted.clear();
        each_version(geometry, segment, |version| {
            if superblock.accepts(version.key, epoch) {
                accepted.push(version);
            }
        });
        for near in accepted.chunks(NEAR) {
            let keys = near.iter().map(|version| version.key);
            newest.index.touch(keys.clone());
            let hashes = drops.hashes_of(keys);
            for (at, version) in near.iter().enumerate() {
                let rank = ranks.rank(epoch, version.number);
                let may_be_dropped = hashes >> at & 1 != 0;
                let is_dropped = || drops.newest_of(version.key) > Some(rank);
                if may_be_dropped && is_dropped() {
                    shadowed.push((version.key, segment.stream, rank));
                } else {
                    newest.enter(version, segment.stream, rank);
                }
            }
        }
    }
    let mut index = newest.index;
    let missing_drops = note_dropped(&mut index, &drops, shadowed);
    apply_cleans(geometry, found, &mut index);
    Ok(Rebuilt {
        log: log_of(superblock, shard, map, found, &index),
        index,
        missing_drops,
    })
}

/// The newest version of each block so far.
struct Newest {
    geometry: Geometry,
    index: Index,
    /// By slot.
    ranks: Vec<Rank>,
    /// By segment.
    streams: Vec<Stream>,
}

impl Newest {
    fn new(geometry: Geometry, found: &Found) -> Newest {
        let mut streams = vec![Stream::Write; geometry.segments_per_shard as usize];
        for segment in &found.segments {
            streams[segment.id.0 as usize] = segment.stream;
        }
        Newest {
            geometry,
            index: Index::new(geometry.slots()),
            ranks: vec![0; geometry.slots() as usize],
            streams,
        }
    }

    /// Enters a version, if none is newer. Of two the older one is a shadow of the other.
    #[inline]
    fn enter(&mut self, version: &Version, stream: Stream, rank: Rank) {
        let Version {
            key,
            slot,
            checksum,
            flags,
            ..
        } = *version;
        let Some(known) = self.index.find(key) else {
            self.index.insert_new(key, slot, checksum, flags);
            self.ranks[slot.0 as usize] = rank;
            return;
        };
        if (self.ranks[known.0 as usize] > rank) != planted::is(Bug::OldestWins) {
            return self.index.add_shadows(known, stream.bit());
        }
        let of_known = self.streams[self.geometry.segment_of(known).0 as usize];
        let shadows = self.index.flags(known).shadows() | of_known.bit();
        let flags = SlotFlags::new(flags.dirty(), flags.zero(), shadows);
        self.index.insert(key, slot, checksum, flags);
        self.ranks[slot.0 as usize] = rank;
    }
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

/// The newest `Drop` of each block in each stream.
struct Drops {
    newest: KeyMap<[Rank; Stream::COUNT]>,
    /// A bit is set for each dropped key, by its hash. Few of a cache's blocks were dropped, and the
    /// map is too large for the processor's caches.
    hashes: Vec<u64>,
}

/// Bits for each dropped key: one in so many of the others is looked up in vain.
const BITS_PER_DROP: usize = 16;

impl Drops {
    fn new(geometry: Geometry, found: &Found, ranks: &Ranks) -> Drops {
        let mut newest: KeyMap<[Rank; Stream::COUNT]> = KeyMap::default();
        let only = keys_if_drops_abound(geometry, found);
        for segment in &found.segments {
            for (key, count, number) in segment.drops() {
                for i in 0..u64::from(count) {
                    let is_needed = |only: &KeySet| only.contains(&key.plus(i));
                    if !only.as_ref().is_none_or(is_needed) {
                        continue;
                    }
                    let rank = ranks.rank(segment.generation.epoch, number + i);
                    let newest =
                        &mut newest.entry(key.plus(i)).or_default()[segment.stream as usize];
                    *newest = (*newest).max(rank);
                }
            }
        }
        let words = (newest.len() * BITS_PER_DROP / 64 + 1).next_power_of_two();
        let mut hashes = vec![0; words];
        for key in newest.keys() {
            let (word, bit) = place_in(&hashes, *key);
            hashes[word] |= bit;
        }
        Drops { newest, hashes }
    }

    /// For each of at most 32 keys a bit, the first one's lowest: 0 if nothing drops it. The words are
    /// all fetched at once (see [`NEAR`]).
    fn hashes_of(&self, keys: impl Iterator<Item = BlockKey>) -> u32 {
        let bits = keys.enumerate().map(|(at, key)| {
            let (word, bit) = place_in(&self.hashes, key);
            u32::from(self.hashes[word] & bit != 0) << at
        });
        bits.fold(0, |all, bit| all | bit)
    }

    /// The newest `Drop` of a block in any stream.
    fn newest_of(&self, key: BlockKey) -> Option<Rank> {
        self.newest.get(&key)?.iter().copied().max()
    }

    /// The newest `Drop` of a block in one stream; 0 if there is none.
    fn newest_in(&self, stream: Stream, key: BlockKey) -> Rank {
        let newest = self.newest.get(&key);
        newest.map_or(0, |newest| newest[stream as usize])
    }
}

/// Where the bit of a key is: which word, and a word with that bit alone.
fn place_in(words: &[u64], key: BlockKey) -> (usize, u64) {
    let hash = hash(key) as usize;
    (hash / 64 % words.len(), 1 << (hash % 64))
}

/// Eight bytes can drop 256 blocks. Where more are dropped than a shard can hold, only those that
/// it holds are of interest, so that memory is bounded whatever the device says.
fn keys_if_drops_abound(geometry: Geometry, found: &Found) -> Option<KeySet> {
    let segments = found.segments.iter();
    let dropped = segments
        .flat_map(FoundSegment::drops)
        .map(|(_, count, _)| u64::from(count));
    if dropped.sum::<u64>() <= u64::from(geometry.slots()) {
        return None;
    }
    let mut keys = KeySet::default();
    for segment in &found.segments {
        each_version(geometry, segment, |version| {
            keys.insert(version.key);
        });
    }
    Some(keys)
}

/// A version of a block, as an entry lists it.
#[derive(Clone, Copy)]
struct Version {
    key: BlockKey,
    slot: Slot,
    number: u64,
    checksum: u32,
    /// Without shadows.
    flags: SlotFlags,
}

/// Calls `take` with every block version of a segment.
fn each_version(geometry: Geometry, segment: &FoundSegment, mut take: impl FnMut(Version)) {
    for found in segment.entries() {
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
            Entry::Clean { .. } | Entry::Drop { .. } => continue,
        };
        if u32::from(slot) + u32::from(count) > geometry.slots_per_segment() {
            continue;
        }
        for i in 0..count {
            take(Version {
                key: key.plus(u64::from(i)),
                slot: geometry.slot(segment.id, slot + i),
                number: found.number + u64::from(i),
                checksum: if zero { 0 } else { found.checksum(i) },
                flags: SlotFlags::new(dirty, zero, 0),
            });
        }
    }
}

/// Dropped versions that survive are shadows of cached versions, or want a `Drop` in their own
/// stream if a crash came between the `Drop`s of several streams.
fn note_dropped(
    index: &mut Index,
    drops: &Drops,
    shadowed: Vec<(BlockKey, Stream, Rank)>,
) -> Vec<MissingDrop> {
    let mut missing = Vec::new();
    for (key, stream, rank) in shadowed {
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
