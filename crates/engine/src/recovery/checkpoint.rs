//! A start from the checkpoint of an orderly stop: the index and the sealed segments as it says, and
//! a scan of the few segments that were open. An example:
//!
//! 1. The daemon stops in order in epoch 7, and writes the checkpoint of a shard with 900 segments.
//! 2. The next attach puts epoch 8 on record. The head is of epoch 7, so it counts.
//! 3. Two segments were open. They are scanned, with the youngest of each stream: their headers say
//!    the tails that the checkpoint says, and nothing in them is missing.
//! 4. Verdicts are written of the two that were open, as after any start.
//! 5. A crash follows. The next attach puts epoch 9 on record: the head is too old, and all
//!    summaries are read.
//!
//! Whatever is not as it should be makes the start read all summaries, which are as they were (I29).

use std::collections::BTreeSet;

use super::damage::damage;
use super::judge::judge;
use super::rebuild::{Rebuilt, log_of};
use super::scan::scan;
use super::{FoundSegment, Put, RecoveryError};
use crate::format::checkpoint::{
    AliveLine, CheckpointHead, Part, PartPage, Section, SegmentLine, Shape, part_bytes, part_slot,
};
use crate::format::header::State;
use crate::format::{PAGE_BYTES, SegmentId, SegmentMap, Sequence, Stream, Superblock};
use crate::interface::{DeviceError, Storage};
use crate::map::index::Index;
use crate::planted::{self, Bug};
use crate::store::log::{Log, SegmentState, WANTED_FREE};

/// Where the checkpoint of a shard begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstPart {
    epoch: u32,
    segment: SegmentId,
}

/// Reads where the checkpoint of each shard begins, of a cache whose superblock carries the new epoch;
/// nothing if it has none that counts.
pub(super) fn first_parts(
    device: &mut dyn Storage,
    superblock: &Superblock,
) -> Vec<Option<FirstPart>> {
    let keeps_one = superblock.copies < 2 && superblock.clean_from.is_empty();
    let is_whole = superblock.devices_out().next().is_none();
    if !keeps_one || !is_whole {
        return Vec::new();
    }
    let head = CheckpointHead::read(superblock, device);
    let is_last = |head: &CheckpointHead| {
        // An attach has written its superblock once by now.
        let is_of_this = head.epoch.checked_add(1) == Some(superblock.epoch)
            && head.sequence.checked_add(1) == Some(superblock.sequence)
            && head.epoch == superblock.decided_epoch;
        is_of_this || planted::is(Bug::OldCheckpoint)
    };
    let Some(head) = head.filter(is_last) else {
        return Vec::new();
    };
    let first_part = |segment: SegmentId| FirstPart {
        epoch: head.epoch,
        segment,
    };
    let first_parts = head.first_parts.iter();
    first_parts.map(|segment| segment.map(first_part)).collect()
}

/// Puts a shard together as its checkpoint says. `None` if all summaries have to be read.
///
/// # Errors
/// Only that the device is gone.
pub(super) fn recover(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    first: FirstPart,
) -> Result<Option<Put>, RecoveryError> {
    let map = superblock.segment_map(shard);
    let mut parts = Parts {
        device,
        superblock,
        map: &map,
        buffer: vec![0; PAGE_BYTES + part_bytes(&superblock.geometry)],
        bytes_read: 0,
    };
    let Some(read) = parts.read_all(shard, first)? else {
        return Ok(None);
    };
    let bytes_read = parts.bytes_read;
    let Contents {
        tails,
        lines,
        index,
    } = read;
    if !are_plausible(superblock, &map, &tails, &lines) {
        return Ok(None);
    }
    let ids = to_scan(&lines);
    let epoch_end = superblock.epoch;
    let mut found = scan(
        device,
        superblock,
        (&map, &ids),
        shard,
        Vec::new(),
        epoch_end,
    )?;
    let rejected = judge(device, superblock, &map, &mut found, false)?;
    let as_said = |segment: &FoundSegment| {
        let alive = lines[segment.id.0 as usize].alive;
        alive.is_some_and(|alive| is_same(segment, &alive))
    };
    let is_sound = rejected == 0
        && found.tails == tails
        && found.segments.len() == ids.len()
        && found.segments.iter().all(as_said);
    // Segments that were open get a verdict at the next attach, which alone tells an old checkpoint.
    if !is_sound && !planted::is(Bug::OldCheckpoint) {
        return Ok(None);
    }
    for (id, line) in (0..).map(SegmentId).zip(&lines) {
        found.summary_slots[id.0 as usize] = line.summary;
        if let Some(alive) = line.alive.filter(|_| ids.binary_search(&id).is_err()) {
            found.segments.push(unread(id, alive, line.summary));
        }
    }
    let in_order = |segment: &FoundSegment| (segment.stream, segment.generation);
    found.segments.sort_by_key(in_order);
    found.bytes_read += bytes_read;
    if !damage(&found, superblock).is_empty() {
        return Ok(None);
    }
    let log = log_of(superblock, shard, map, &mut found, &index);
    let put = Put {
        rejected_blocks: rejected,
        rebuilt: Rebuilt {
            log,
            index,
            missing_drops: Vec::new(),
        },
        found,
        lost: Vec::new(),
    };
    Ok(has_its_blocks(&put.rebuilt.log).then_some(put))
}

/// The contents of a checkpoint.
struct Contents {
    tails: [Sequence; Stream::COUNT],
    lines: Vec<SegmentLine>,
    index: Index,
}

/// Reads parts.
struct Parts<'a> {
    device: &'a mut dyn Storage,
    superblock: &'a Superblock,
    map: &'a SegmentMap,
    buffer: Vec<u8>,
    bytes_read: u64,
}

impl Parts<'_> {
    /// `None` if a part is not there, or is not of this checkpoint.
    fn read_all(
        &mut self,
        shard: u16,
        first: FirstPart,
    ) -> Result<Option<Contents>, RecoveryError> {
        let geometry = self.superblock.geometry;
        let mut index = Index::new(geometry.slots());
        let mut shape = Shape {
            segments: geometry.segments_per_shard,
            slots: index.slots(),
            buckets: index.buckets(),
            // The first part is of segments, and says these.
            spilled: 0,
            tails: Default::default(),
        };
        let mut lines = Vec::new();
        let mut parts = shape.parts(&geometry);
        let mut place = first.segment;
        let mut number = 0;
        while let Some(part) = parts.get(number).copied() {
            let Some((page, payload)) = self.read(place, &part)? else {
                return Ok(None);
            };
            if number == 0 && page.shape.spilled <= shape.slots {
                (shape.spilled, shape.tails) = (page.shape.spilled, page.shape.tails);
                parts = shape.parts(&geometry);
            }
            let expected = PartPage {
                shard,
                epoch: first.epoch,
                number: number as u32,
                shape,
                next: page.next,
            };
            if page != expected || take(&part, payload, &mut lines, &mut index).is_none() {
                return Ok(None);
            }
            place = page.next;
            number += 1;
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let tails = shape.tails;
        Ok(index.is_consistent().then_some(Contents {
            tails,
            lines,
            index,
        }))
    }

    fn read(
        &mut self,
        place: SegmentId,
        part: &Part,
    ) -> Result<Option<(PartPage, &[u8])>, RecoveryError> {
        let geometry = self.superblock.geometry;
        if place.0 >= geometry.segments_per_shard || !self.map.has(place) {
            return Ok(None);
        }
        let used_bytes = PAGE_BYTES + part.payload_bytes();
        // A device reads straight into memory that is aligned.
        let skipped = self.buffer.as_ptr().align_offset(PAGE_BYTES) % PAGE_BYTES;
        let bytes = &mut self.buffer[skipped..][..used_bytes.next_multiple_of(PAGE_BYTES)];
        let address = self.map.slot_address(part_slot(&geometry, place));
        match self.device.read(address, bytes) {
            Ok(()) => {}
            Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
            Err(_) => return Ok(None),
        }
        self.bytes_read += bytes.len() as u64;
        let page = PartPage::decode(self.superblock.id, bytes);
        let payload = &self.buffer[skipped..][PAGE_BYTES..used_bytes];
        Ok(page.map(|page| (page, payload)))
    }
}

fn take(
    part: &Part,
    payload: &[u8],
    lines: &mut Vec<SegmentLine>,
    index: &mut Index,
) -> Option<()> {
    if part.section != Section::Segments {
        return index.import(part, payload);
    }
    for line in payload.chunks_exact(part.section.element_bytes()) {
        lines.push(SegmentLine::decode(line)?);
    }
    Some(())
}

/// Whether a cache can have such segments: a checksum keeps out rot, and not what a program with a
/// mistake wrote.
fn are_plausible(
    superblock: &Superblock,
    map: &SegmentMap,
    tails: &[Sequence; Stream::COUNT],
    lines: &[SegmentLine],
) -> bool {
    let slots = superblock.geometry.slots_per_segment();
    let fits = |id: SegmentId, alive: &AliveLine| {
        let generation = alive.generation;
        map.has(id)
            && generation >= tails[alive.stream as usize]
            && generation.epoch < superblock.epoch
            && generation.number < Sequence::NUMBER_END
            && u32::from(alive.end_slot) <= slots
    };
    let of_ids = || (0..).map(SegmentId).zip(lines);
    let free = of_ids().filter(|(id, line)| line.alive.is_none() && map.has(*id));
    free.count() >= WANTED_FREE
        && of_ids().all(|(id, line)| line.alive.is_none_or(|alive| fits(id, &alive)))
}

/// Whether blocks are where they can be: none in a free segment, dirty ones in the write stream alone.
fn has_its_blocks(log: &Log) -> bool {
    log.segments.iter().all(|segment| match segment.state {
        SegmentState::Sealed => segment.dirty == 0 || segment.stream == Stream::Write,
        _ => segment.live == 0,
    })
}

/// Segments that have no summary yet, and the youngest of each stream: what their headers and summaries
/// say of the shard is what all say. In order.
fn to_scan(lines: &[SegmentLine]) -> Vec<SegmentId> {
    let alive = (0..).map(SegmentId).zip(lines);
    let alive = alive.filter_map(|(id, line)| Some((id, line.alive?)));
    let mut ids = BTreeSet::new();
    let mut youngest = [None; Stream::COUNT];
    for (id, alive) in alive {
        if !alive.sealed {
            ids.insert(id);
        }
        let youngest = &mut youngest[alive.stream as usize];
        *youngest = (*youngest).max(Some((alive.generation, id)));
    }
    ids.extend(youngest.into_iter().flatten().map(|(_, id)| id));
    ids.into_iter().collect()
}

fn is_same(segment: &FoundSegment, alive: &AliveLine) -> bool {
    segment.stream == alive.stream
        && segment.generation == alive.generation
        && segment.sealed == alive.sealed
        && (!alive.sealed || segment.end_slot == alive.end_slot)
}

/// A sealed segment whose summary is not read.
fn unread(id: SegmentId, alive: AliveLine, summary: Option<u8>) -> FoundSegment {
    FoundSegment {
        id,
        stream: alive.stream,
        generation: alive.generation,
        end_slot: alive.end_slot,
        lists: Vec::new(),
        state: State::default(),
        link: None,
        decided: true,
        renewed: false,
        sealed: true,
        unread: true,
        summary,
        damage: None,
    }
}
