//! Segments on two devices (I28): where each of them is, and the same contents in both places.
//!
//! The contents of a place say which segment they are of. So recovery looks into every place, and believes
//! of two occupants the one that was opened later: the other was dead before its place was lent.
//! What a crash left different in two places is made the same before anything is decided. An example:
//!
//! 1. Segment 5 is in its own place and in that of segment 90. A power cut leaves the header at slot
//!    8 in the one, that at slot 8 and at slot 20 in the other, and block 21 in the first alone.
//! 2. Segment 90's place names segment 5, with the same generation: it is the second copy.
//! 3. The header at slot 20 is copied to the first place, and block 21 to the second.
//! 4. Both are flushed. The scan reads segment 5 from either, and verdicts go to both.

use std::collections::{BTreeMap, BTreeSet};

use super::leads::read_leads;
use super::{Found, RecoveryError};
use crate::checksum::crc32c;
use crate::format::entry::NumberedEntry;
use crate::format::header::State;
use crate::format::{
    Entry, Geometry, Header, PAGE_BYTES, Places, SegmentId, SegmentMap, Sequence, Stream, Summary,
    Superblock,
};
use crate::interface::{DeviceError, Storage};
use crate::planted::{self, Bug};
use crate::shm_journal::ReplayedRecord;
use crate::store::durability::raise;
use crate::store::log::Log;

/// Reads of a page of a copy before its contents count as gone.
const READ_ATTEMPTS: u32 = 3;

/// The occupant of a place, as its beginning tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Occupant {
    segment: SegmentId,
    generation: Sequence,
    /// Of the summary of this generation, if it has one.
    summary: Option<u32>,
}

/// Facts about the shard whose places are looked into.
struct Look<'a> {
    superblock: &'a Superblock,
    map: &'a SegmentMap,
    shard: u16,
    /// Up to where the write stream is known durable.
    durable: [Sequence; Stream::COUNT],
    /// The highest tails that are said.
    tails: [Sequence; Stream::COUNT],
}

/// Finds where each segment is, and makes two copies alike if `write`. Returns the segments that may
/// be somewhere: all but those whose place is on a device that is out or holds another segment.
pub(super) fn find(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    journal: &[ReplayedRecord],
    map: &mut SegmentMap,
    write: bool,
) -> Result<Vec<SegmentId>, RecoveryError> {
    let all = || (0..superblock.geometry.segments_per_shard).map(SegmentId);
    if map.places().is_none() {
        return Ok(all().filter(|id| map.has(*id)).collect());
    }
    let mut look = Look {
        superblock,
        map,
        shard,
        durable: [Sequence::ZERO; Stream::COUNT],
        tails: [Sequence::ZERO; Stream::COUNT],
    };
    let mut occupants = look.occupants(device)?;
    look.add_journal(&mut occupants, journal);
    // A place is lent while its own segment holds nothing. Where that is alive in another place, a
    // device has sent another segment's write here.
    let tail = look.tails[Stream::Write as usize];
    let away = occupants
        .iter()
        .filter(|(place, occupant)| occupant.segment != **place && occupant.generation >= tail);
    let alive: BTreeSet<SegmentId> = away.map(|(_, occupant)| occupant.segment).collect();
    let in_own_place = |id: SegmentId| look.is_there(id) && !occupants.contains_key(&id);
    let mut somewhere: BTreeSet<SegmentId> = all().filter(|id| in_own_place(*id)).collect();
    occupants.retain(|place, occupant| *place == occupant.segment || !alive.contains(place));
    somewhere.extend(occupants.values().map(|occupant| occupant.segment));
    let mut by_segment: BTreeMap<SegmentId, Vec<(SegmentId, Occupant)>> = BTreeMap::new();
    for (place, occupant) in occupants {
        let places = by_segment.entry(occupant.segment).or_default();
        places.push((place, occupant));
    }
    let mut places = Places::own(superblock.geometry.segments_per_shard);
    let mut merged = false;
    for (segment, mut copies) in by_segment {
        // The newest first, and of those the own place.
        copies.sort_by_key(|(place, copy)| (std::cmp::Reverse(copy.generation), *place != segment));
        let (home, first) = copies[0];
        copies.retain(|(_, copy)| copy.generation == first.generation);
        let is_elsewhere = |place: SegmentId| look.map.device_of(place) != look.map.device_of(home);
        let second = copies.iter().find(|(place, _)| is_elsewhere(*place));
        let Some((other, second)) = second else {
            places.set(segment, home, None);
            continue;
        };
        // A write that a device sent to another place makes a third, which may lack all the rest. So
        // may what a lost device had that was added again while the same daemon ran.
        let is_doubtful = copies.len() > 2 || look.was_added_in(first.generation, &copies);
        let differ = is_doubtful || first != *second || look.may_differ(first.generation);
        if differ && write && !planted::is(Bug::CopiesDiffer) {
            merged |= look.merge(device, segment, first.generation, [home, *other])?;
        }
        let counts = !differ || write;
        places.set(segment, home, counts.then_some(*other));
    }
    if merged {
        device.flush()?;
    }
    map.keep_places(places);
    Ok(somewhere.into_iter().collect())
}

/// Has a second copy of each segment that a power cut left on one device: nothing that it lost there
/// was known durable, but from now on it is. The verdicts that follow go to both, and name blocks of
/// both: after a power cut the second may be all that has the verdict.
pub(super) fn copy_single(
    device: &mut dyn Storage,
    found: &Found,
    log: &mut Log,
    decided_epoch: u32,
) -> Result<(), RecoveryError> {
    if !log.keeps_two() {
        return Ok(());
    }
    let mut copied = false;
    for segment in &found.segments {
        let id = segment.id;
        let known_durable = found.durable[Stream::Write as usize].generation;
        // A recovery that was cut short may have decided it on one device alone.
        let is_uncertain =
            segment.generation.epoch >= decided_epoch && segment.generation >= known_durable;
        if segment.stream != Stream::Write || !is_uncertain || log.is_on_two(id) {
            continue;
        }
        let Some(home) = log.map.places().map(|places| places.home(id)) else {
            continue;
        };
        let Some(second) = log.free.take_for_second(home) else {
            continue;
        };
        let image = image(device, &log.geometry, log.map.place_address(home))?;
        device.write(log.map.place_address(second), &image)?;
        log.lend_from(id, home, second);
        copied = true;
    }
    if copied {
        device.flush()?;
    }
    Ok(())
}

impl Look<'_> {
    /// The occupant of each place that has one.
    fn occupants(
        &mut self,
        device: &mut dyn Storage,
    ) -> Result<BTreeMap<SegmentId, Occupant>, RecoveryError> {
        let (geometry, map) = (&self.superblock.geometry, self.map);
        let ids = (0..geometry.segments_per_shard).map(SegmentId);
        let ids: Vec<SegmentId> = ids.filter(|id| self.is_there(*id)).collect();
        let mut occupants = BTreeMap::new();
        let address = |place: SegmentId, _| map.place_address(place);
        read_leads(device, geometry, &ids, address, |_, place, lead| {
            // The scan says what cannot be read.
            let occupant = lead.and_then(|lead| self.occupant(place, lead));
            occupants.extend(occupant.map(|found| (place, found)));
            Ok(())
        })?;
        Ok(occupants)
    }

    /// Segments that the crash journal alone knows are where it says, whatever was there before.
    fn add_journal(
        &self,
        occupants: &mut BTreeMap<SegmentId, Occupant>,
        journal: &[ReplayedRecord],
    ) {
        for replayed in journal {
            let opened = Occupant {
                segment: replayed.record.segment,
                generation: replayed.record.generation,
                summary: None,
            };
            let places = std::iter::once(opened.segment).chain(replayed.record.second);
            for place in places.filter(|place| self.is_there(*place)) {
                let known = occupants.entry(place).or_insert(opened);
                if known.generation < opened.generation {
                    *known = opened;
                }
            }
        }
    }

    fn is_there(&self, id: SegmentId) -> bool {
        self.map.has(id) && self.superblock.has_device(self.map.device_of(id))
    }

    /// The segment that was opened last of those that the beginning of a place names.
    fn occupant(&mut self, place: SegmentId, lead: &[u8]) -> Option<Occupant> {
        let summary_bytes = self.superblock.geometry.summary_bytes() as usize;
        let mut latest: Option<Occupant> = None;
        let mut take = |found: Occupant| {
            // A summary comes before a header of its own generation.
            if latest.is_none_or(|known| known.generation < found.generation) {
                latest = Some(found);
            }
        };
        let mut best: Option<Summary> = None;
        for which in 0..2u8 {
            let bytes = &lead[usize::from(which) * summary_bytes..][..summary_bytes];
            let summary = self.summary(bytes, which);
            let is_here = |summary: &Summary| self.can_hold(place, summary.generation);
            if let Some(summary) = summary.filter(is_here) {
                self.learn(&summary.state);
                if best.as_ref().is_none_or(|best| summary.outranks(best)) {
                    best = Some(summary);
                }
            }
        }
        if let Some(best) = &best {
            let at = usize::from(best.which) * summary_bytes;
            take(Occupant {
                segment: best.segment,
                generation: best.generation,
                summary: Some(crc32c(&lead[at..at + best.encoded_bytes()])),
            });
        }
        let slot = self.superblock.geometry.first_slot() as u16;
        let header = self.header(&lead[lead.len() - PAGE_BYTES..], slot);
        let is_here = |header: &Header| self.can_hold(place, header.generation);
        if let Some(header) = header.filter(is_here) {
            self.learn(&header.state);
            take(Occupant {
                segment: header.segment,
                generation: header.generation,
                summary: None,
            });
        }
        latest
    }

    fn learn(&mut self, state: &State) {
        raise(&mut self.durable, state.durable.map(|at| at.generation));
        raise(&mut self.tails, state.tails);
    }

    /// A summary, of whichever segment.
    fn summary(&self, bytes: &[u8], which: u8) -> Option<Summary> {
        let segment = self.known(Summary::segment_in(bytes)?)?;
        Summary::decode(self.map.id_in(segment), self.shard, segment, which, bytes)
    }

    /// A header, of whichever segment.
    fn header(&self, page: &[u8], slot: u16) -> Option<Header> {
        let segment = self.known(Header::segment_in(page)?)?;
        Header::decode(self.map.id_in(segment), self.shard, segment, slot, page)
    }

    /// Whether what was opened with this number can be in a place: not if the device was lost since,
    /// and came back. A start without it may have decided that it does not count.
    fn can_hold(&self, place: SegmentId, generation: Sequence) -> bool {
        planted::is(Bug::LentBeforeBelieved) || generation.epoch >= self.map.since_epoch(place)
    }

    /// Whether a place of these copies was added in the epoch in which their segment was opened.
    fn was_added_in(&self, generation: Sequence, copies: &[(SegmentId, Occupant)]) -> bool {
        let mut places = copies.iter().map(|(place, _)| self.map.since_epoch(*place));
        places.any(|since| since > 0 && since == generation.epoch)
    }

    fn known(&self, segment: SegmentId) -> Option<SegmentId> {
        let is_one = segment.0 < self.superblock.geometry.segments_per_shard;
        (is_one && self.map.has(segment)).then_some(segment)
    }

    /// Whether a crash may have left two copies of a segment of this generation different.
    fn may_differ(&self, generation: Sequence) -> bool {
        generation.epoch >= self.superblock.decided_epoch
            && generation >= self.durable[Stream::Write as usize]
    }

    /// Has each of two places what the other lacks. Returns whether anything was written.
    fn merge(
        &self,
        device: &mut dyn Storage,
        segment: SegmentId,
        generation: Sequence,
        places: [SegmentId; 2],
    ) -> Result<bool, RecoveryError> {
        let addresses = places.map(|place| self.map.place_address(place));
        let images = [
            image(device, &self.superblock.geometry, addresses[0])?,
            image(device, &self.superblock.geometry, addresses[1])?,
        ];
        let pieces = Merge {
            look: self,
            segment,
            generation,
            images: &images,
        }
        .pieces();
        let mut merged = false;
        for Piece { from, start, len } in pieces {
            let (right, wrong) = (&images[from], &images[1 - from]);
            let part = start..start + len;
            if right[part.clone()] == wrong[part.clone()] {
                continue;
            }
            device.write(addresses[1 - from] + start as u64, &right[part])?;
            merged = true;
        }
        Ok(merged)
    }
}

/// All of a place. What cannot be read is zeroes, which nothing takes for anything.
fn image(
    device: &mut dyn Storage,
    geometry: &Geometry,
    address: u64,
) -> Result<Vec<u8>, RecoveryError> {
    let mut image = vec![0; geometry.segment_bytes as usize];
    match device.read(address, &mut image) {
        Ok(()) => return Ok(image),
        Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
        Err(_) => {}
    }
    let page_addresses = (address..).step_by(PAGE_BYTES);
    for (page, address) in image.chunks_exact_mut(PAGE_BYTES).zip(page_addresses) {
        for _ in 0..READ_ATTEMPTS {
            match device.read(address, page) {
                Ok(()) => break,
                Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
                Err(_) => page.fill(0),
            }
        }
    }
    Ok(image)
}

/// A part of a segment that one of two copies has for certain.
struct Piece {
    from: usize,
    start: usize,
    len: usize,
}

/// Two copies of one segment.
struct Merge<'a> {
    look: &'a Look<'a>,
    segment: SegmentId,
    generation: Sequence,
    images: &'a [Vec<u8>; 2],
}

impl Merge<'_> {
    /// Structures and blocks that one of the copies has and the other may not have. Blocks that
    /// nothing on the devices names stay as they are: the crash journal may name them, and then both
    /// copies have them.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut best: Option<Summary> = None;
        for which in 0..2 {
            let Some((from, summary)) = self.summary(which) else {
                continue;
            };
            pieces.push(Piece {
                from,
                start: self.look.map.summary_offset(which) as usize,
                len: summary.encoded_bytes(),
            });
            if best.as_ref().is_none_or(|best| summary.outranks(best)) {
                best = Some(summary);
            }
        }
        for entry in best.iter().flat_map(|best| &best.entries) {
            self.add_blocks(entry.ok(), &mut pieces);
        }
        let geometry = &self.look.superblock.geometry;
        for slot in geometry.first_slot() as u16..geometry.slots_per_segment() as u16 {
            let Some((from, header)) = self.header(slot) else {
                continue;
            };
            pieces.push(Piece {
                from,
                start: self.look.map.header_offset(slot) as usize,
                len: PAGE_BYTES,
            });
            for entry in &header.entries {
                self.add_blocks(entry.ok(), &mut pieces);
            }
        }
        pieces
    }

    /// The summary in a slot, of this generation, that counts, and which copy has it.
    fn summary(&self, which: u8) -> Option<(usize, Summary)> {
        let start = self.look.map.summary_offset(which) as usize;
        let len = self.look.superblock.geometry.summary_bytes() as usize;
        let [first, second] = [0, 1].map(|from| {
            let summary = self
                .look
                .summary(&self.images[from][start..start + len], which)?;
            let is_its = (summary.segment, summary.generation) == (self.segment, self.generation);
            is_its.then_some((from, summary))
        });
        match (first, second) {
            (Some(first), Some(second)) if second.1.outranks(&first.1) => Some(second),
            (first, second) => first.or(second),
        }
    }

    /// The header at a slot, and which copy has it.
    fn header(&self, slot: u16) -> Option<(usize, Header)> {
        let start = self.look.map.header_offset(slot) as usize;
        (0..2).find_map(|from| {
            let page = &self.images[from][start..start + PAGE_BYTES];
            let header = self.look.header(page, slot)?;
            let is_its = header.segment == self.segment && header.generation == self.generation;
            is_its.then_some((from, header))
        })
    }

    /// Adds the blocks of an entry that one of the copies has.
    fn add_blocks(&self, entry: Option<NumberedEntry<'_>>, pieces: &mut Vec<Piece>) {
        let Some(entry) = entry else { return };
        let Entry::Data { slot, count, .. } = entry.entry else {
            return;
        };
        let geometry = &self.look.superblock.geometry;
        if u32::from(slot) + u32::from(count) > geometry.slots_per_segment() {
            return;
        }
        let len = geometry.block_bytes as usize;
        for i in 0..count {
            let start = self.look.map.block_offset(slot + i) as usize;
            let is_sound =
                |from: &usize| crc32c(&self.images[*from][start..start + len]) == entry.checksum(i);
            pieces.extend((0..2).find(is_sound).map(|from| Piece { from, start, len }));
        }
    }
}
