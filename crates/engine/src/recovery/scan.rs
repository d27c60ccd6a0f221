//! The scan: reads of each segment its summary that counts, or its headers one after the other.

use super::leads::{lead_bytes, read_leads};
use super::numbers::{Numbers, drop_twins};
use super::{Found, FoundList, FoundSegment, RecoveryError};
use crate::format::header::State;
use crate::format::plausible::{Bounds, Kinds};
use crate::format::{
    Header, Link, PAGE_BYTES, SegmentId, SegmentMap, Sequence, Stream, Summary, SummaryKind,
    Superblock,
};
use crate::interface::Storage;
use crate::planted::{self, Bug};
use crate::shm_journal::ReplayedRecord;

pub(super) fn scan(
    device: &mut dyn Storage,
    superblock: &Superblock,
    (map, ids): (&SegmentMap, &[SegmentId]),
    shard: u16,
    journal: Vec<ReplayedRecord>,
    epoch_end: u32,
) -> Result<Found, RecoveryError> {
    let geometry = superblock.geometry;
    let context = Context {
        superblock,
        map,
        shard,
        journal: &journal,
        bounds: Bounds {
            geometry,
            volumes: &superblock.volumes,
            shard,
            epoch_end,
        },
    };
    let mut found = Found {
        summary_slots: vec![None; geometry.segments_per_shard as usize],
        ..Found::default()
    };
    // Of two copies the second attempt asks the other.
    let address = |id: SegmentId, attempt: u8| map.address_at(geometry.slot(id, 0), attempt);
    read_leads(device, &geometry, ids, address, |device, id, lead| {
        found.bytes_read += lead_bytes(&geometry) as u64;
        match lead {
            Some(lead) => scan_segment(device, context, id, lead, &mut found)?,
            None => found
                .unreadable
                .push(format!("segment {} of shard {shard} cannot be read", id.0)),
        }
        Ok(())
    })?;
    look_behind_zeroes(device, context, &mut found)?;
    found
        .segments
        .sort_by_key(|segment| (segment.stream, segment.generation));
    drop_twins(&mut found);
    Ok(found)
}

/// Facts about the shard that is scanned.
#[derive(Clone, Copy)]
struct Context<'a> {
    superblock: &'a Superblock,
    map: &'a SegmentMap,
    shard: u16,
    journal: &'a [ReplayedRecord],
    bounds: Bounds<'a>,
}

impl Context<'_> {
    /// The header at a slot, if there is any. A header with the right checksum that cannot be ours
    /// is damage: nobody knows what it stands for.
    fn header(&self, id: SegmentId, slot: u16, page: &[u8], found: &mut Found) -> Option<Header> {
        let header = Header::decode(self.map.id_in(id), self.shard, id, slot, page)?;
        let Some(fault) = self.bounds.fault_of_header(&header) else {
            return Some(header);
        };
        found.malformed(format!(
            "the record at slot {slot} of segment {} says what none can say: {fault}",
            id.0
        ));
        None
    }

    /// The summary in a slot, likewise, and what it lists.
    fn summary(
        &self,
        id: SegmentId,
        which: u8,
        bytes: &[u8],
        found: &mut Found,
    ) -> Option<(Summary, Kinds)> {
        let summary = Summary::decode(self.map.id_in(id), self.shard, id, which, bytes)?;
        match self.bounds.summary(&summary) {
            Ok(kinds) => Some((summary, kinds)),
            Err(fault) => {
                found.malformed(format!(
                    "a summary of segment {} says what none can say: {fault}",
                    id.0
                ));
                None
            }
        }
    }

    /// The entries of a record that the crash journal alone has, likewise. A record that was still open
    /// has no end.
    fn replayed(&self, replayed: &ReplayedRecord, found: &mut Found) -> Option<FoundList> {
        let record = &replayed.record;
        let first = record.slot.saturating_add(1);
        let all = self.bounds.geometry.slots_per_segment() as u16;
        let end = replayed
            .blocks
            .map_or(all, |blocks| first.saturating_add(blocks).min(all));
        let of = (record.stream, record.generation.epoch);
        match self.bounds.entries(&replayed.entries, of, first..end) {
            Ok(kinds) => Some(FoundList {
                entries: replayed.entries.clone(),
                kinds,
                combined: false,
                replayed: true,
            }),
            Err(fault) => {
                found.malformed(format!(
                    "the crash journal's record at slot {} of segment {} says what none can say: {fault}",
                    record.slot, record.segment.0
                ));
                None
            }
        }
    }
}

fn scan_segment(
    device: &mut dyn Storage,
    context: Context<'_>,
    id: SegmentId,
    lead: &[u8],
    found: &mut Found,
) -> Result<(), RecoveryError> {
    let geometry = context.superblock.geometry;
    let summary_bytes = geometry.summary_bytes() as usize;
    let mut decode = |which: u8| {
        let at = usize::from(which) * summary_bytes;
        context.summary(id, which, &lead[at..at + summary_bytes], found)
    };
    let best = match (decode(0), decode(1)) {
        (Some(first), Some(second)) => Some(if second.0.outranks(&first.0) {
            second
        } else {
            first
        }),
        (first, second) => first.or(second),
    };
    found.summary_slots[id.0 as usize] = best.as_ref().map(|(best, _)| best.which);
    if let Some((best, _)) = &best {
        let keeps_two = context.superblock.keeps_two();
        found.learn_of_summary(&best.state, best.stream, keeps_two);
    }
    let first_slot = geometry.first_slot() as u16;
    let header = context.header(id, first_slot, &lead[lead.len() - PAGE_BYTES..], found);
    let open_generation = header
        .as_ref()
        .map(|header| header.generation)
        .into_iter()
        .chain(
            context
                .journal
                .iter()
                .filter(|replayed| replayed.record.segment == id)
                .map(|replayed| replayed.record.generation),
        )
        .max();
    let summary_generation = best.as_ref().map(|(best, _)| best.generation);
    if let Some(generation) = open_generation
        && summary_generation.is_none_or(|sealed| generation > sealed)
    {
        let summary = best.map(|(best, _)| best.which);
        return scan_records(device, context, id, generation, summary, found);
    }
    let lead_page = &lead[lead.len() - PAGE_BYTES..];
    if header.is_none() && lead_page.iter().any(|byte| *byte != 0) {
        // A first header that was torn, or has rotted: the headers behind it tell which.
        learn_newer(device, context, id, summary_generation, found)?;
    } else if header.is_none()
        && let Some((best, _)) = &best
    {
        found.zeroed.push((id, best.stream, best.generation));
    }
    if let Some((best, kinds)) = best {
        found
            .segments
            .push(from_summary(context.superblock, best, kinds));
    }
    Ok(())
}

/// Learns from the headers of a segment behind the first, of a generation above that of its
/// summary. A segment without a summary is not decided yet, or its contents were voided when damage
/// was accepted: then its promises were taken back.
fn learn_newer(
    device: &mut dyn Storage,
    context: Context<'_>,
    id: SegmentId,
    sealed: Option<Sequence>,
    found: &mut Found,
) -> Result<(), RecoveryError> {
    let second = context.bounds.geometry.first_slot() as u16 + 1;
    let decided_epoch = context.superblock.decided_epoch;
    let newer = |header: &Header| match sealed {
        Some(sealed) => header.generation > sealed,
        None => header.generation.epoch >= decided_epoch,
    };
    learn_beyond(device, context, id, second, newer, found)?;
    Ok(())
}

/// Looks behind a first header that was zeroed, in a segment that had died and may have been opened
/// again. In a segment that is alive none was zeroed: it has no header where recovery wrote it, of
/// `Drop`s alone.
fn look_behind_zeroes(
    device: &mut dyn Storage,
    context: Context<'_>,
    found: &mut Found,
) -> Result<(), RecoveryError> {
    for (id, stream, sealed) in std::mem::take(&mut found.zeroed) {
        if sealed < found.tails[stream as usize] {
            learn_newer(device, context, id, Some(sealed), found)?;
        }
    }
    Ok(())
}

/// The link that was written last, of two that headers of one segment say. It changes when a
/// renewal goes before the segment (see `renew_below`), and only when that is durable. A header may
/// be encoded sooner than a header of an earlier place, whose data took longer.
fn latest(first: Option<Link>, second: Option<Link>) -> Option<Link> {
    first
        .into_iter()
        .chain(second)
        .max_by_key(|link| link.generation)
}

/// I14: records behind one that is missing do not count (I13), but their headers still tell the
/// truth about the shard: they can promise the missing record. Returns the latest of their links.
fn learn_beyond(
    device: &mut dyn Storage,
    context: Context<'_>,
    id: SegmentId,
    from: u16,
    wanted: impl Fn(&Header) -> bool,
    found: &mut Found,
) -> Result<Option<Link>, RecoveryError> {
    let geometry = context.superblock.geometry;
    let block_bytes = geometry.block_bytes as usize;
    let slots = geometry.slots_per_segment() as u16;
    if from >= slots || planted::is(Bug::HoleEndsLog) {
        return Ok(None);
    }
    let mut rest = vec![0u8; usize::from(slots - from) * block_bytes];
    let offset_bytes = context.map.slot_address(geometry.slot(id, from));
    match device.read(offset_bytes, &mut rest) {
        Ok(()) => {}
        Err(crate::interface::DeviceError::Gone) => {
            return Err(crate::interface::DeviceError::Gone.into());
        }
        Err(_) => return Ok(None),
    }
    let mut previous = None;
    found.bytes_read += rest.len() as u64;
    for (slot, block) in (from..).zip(rest.chunks_exact(block_bytes)) {
        let page = &block[block_bytes - PAGE_BYTES..];
        if let Some(header) = context.header(id, slot, page, found)
            && wanted(&header)
        {
            found.learn(&header.state);
            previous = latest(previous, header.state.previous);
        }
    }
    Ok(previous)
}

fn from_summary(superblock: &Superblock, summary: Summary, kinds: Kinds) -> FoundSegment {
    let list = FoundList {
        entries: summary.entries,
        kinds,
        combined: false,
        replayed: false,
    };
    let decided =
        summary.kind != SummaryKind::Seal || summary.generation.epoch < superblock.decided_epoch;
    FoundSegment {
        id: summary.segment,
        stream: summary.stream,
        generation: summary.generation,
        end_slot: summary.end_slot,
        lists: vec![list],
        state: summary.state,
        link: None,
        decided,
        renewed: summary.kind == SummaryKind::Renewal,
        sealed: true,
        unread: false,
        summary: Some(summary.which),
        damage: None,
    }
}

/// Follows the records of a segment that was not sealed, up to the first one missing (I13).
fn scan_records(
    device: &mut dyn Storage,
    context: Context<'_>,
    id: SegmentId,
    generation: Sequence,
    summary: Option<u8>,
    found: &mut Found,
) -> Result<(), RecoveryError> {
    let geometry = context.superblock.geometry;
    let slots = geometry.slots_per_segment() as u16;
    let mut at = geometry.first_slot() as u16;
    let mut page = vec![0u8; PAGE_BYTES];
    let mut segment = FoundSegment {
        id,
        stream: Stream::Write,
        generation,
        end_slot: at,
        lists: Vec::new(),
        state: State::default(),
        link: None,
        decided: generation.epoch < context.superblock.decided_epoch,
        renewed: false,
        sealed: false,
        unread: false,
        summary,
        damage: None,
    };
    let mut records = 0;
    let mut numbers = Numbers::default();
    while at < slots {
        let replayed = context.journal.iter().find(|replayed| {
            (
                replayed.record.segment,
                replayed.record.slot,
                replayed.record.generation,
            ) == (id, at, generation)
        });
        let slot = geometry.slot(id, at);
        let addresses = [0, 1].map(|attempt| context.map.header_address_at(slot, attempt));
        if let Err(error) = device
            .read(addresses[0], &mut page)
            .or_else(|_| device.read(addresses[1], &mut page))
        {
            if error == crate::interface::DeviceError::Gone {
                return Err(error.into());
            }
            if replayed.is_some() {
                // A header that could not be written can often not be read either: the crash
                // journal has kept what it was to say.
                page.fill(0);
            } else {
                segment.damage = Some(format!(
                    "the record at slot {at} of open segment {} cannot be read",
                    id.0
                ));
                break;
            }
        }
        found.bytes_read += PAGE_BYTES as u64;
        let header = context
            .header(id, at, &page, found)
            .filter(|header| header.generation == generation)
            .filter(|header| numbers.take(&header.entries, id, found));
        let blocks = match (header, replayed) {
            (Some(header), _) => {
                // The recovery that decided it has said in summaries what still holds. Promises
                // that were taken back when damage was accepted stay in its headers.
                if !segment.decided || planted::is(Bug::TakenBackHeard) {
                    found.learn(&header.state);
                }
                segment.stream = header.stream;
                let previous = latest(segment.state.previous, header.state.previous);
                segment.state = State {
                    previous,
                    ..header.state
                };
                let list = FoundList::new(header.entries, header.combined, false);
                segment.lists.push(list);
                Some(header.blocks)
            }
            (None, Some(replayed)) => {
                segment.stream = replayed.record.stream;
                let list = context.replayed(replayed, found);
                let fits = |list: &FoundList| numbers.take(&list.entries, id, found);
                segment.lists.extend(list.filter(fits));
                replayed.blocks
            }
            (None, None) if segment.decided => break,
            (None, None) => {
                let same = |header: &Header| header.generation == generation;
                let beyond = learn_beyond(device, context, id, at + 1, same, found)?;
                segment.state.previous = latest(segment.state.previous, beyond);
                break;
            }
        };
        records += 1;
        // A record that was still open has no end; nothing follows it.
        let Some(blocks) = blocks else {
            at = slots;
            break;
        };
        at = at.saturating_add(1).saturating_add(blocks);
    }
    segment.end_slot = at.min(slots);
    if records > 0 || segment.damage.is_some() {
        found.segments.push(segment);
    }
    Ok(())
}
