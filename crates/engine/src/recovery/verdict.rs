//! Verdicts (I12): recovery writes its decisions down, for each segment in which there was anything
//! to decide, and completes the `Drop`s that a crash cut off (I3). Both are durable before the
//! shard serves. An example:
//!
//! 1. A power cut leaves segment 3 open. Numbers up to 39 are known durable.
//! 2. The header at slot 8 is whole. It lists number 40 (block 70 in slot 9) and number 41 (block
//!    71 in slot 10).
//! 3. Slot 9 has the checksum of number 40, which counts. Slot 10 does not have that of number 41,
//!    which is rejected.
//! 4. The header at slot 11 is torn: the segment ends there.
//! 5. The verdict lists number 40 alone, with end slot 11. It goes to the summary slot that does
//!    not count, and is made durable.
//! 6. The shard serves block 70 from slot 9, and block 71 as it was before number 41.
//! 7. The next attach goes by the verdict: its generation is that of the headers. A late copy of
//!    the header at slot 11 changes nothing.
//!
//! A seal whose entries are all known durable leaves nothing to decide, nor does a segment that a
//! checkpoint knows (I29). So a start writes little, however much was sealed since the last one.
//!
//! Verdicts also carry the tails that recovery goes by. Where there is nothing to decide, a verdict
//! is written for their sake alone (I8): the header that said them may belong to a record that does
//! not count, and segments below them are used again.

use super::{ById, Found, FoundList, FoundSegment, MissingDrop, RecoveryError};
use crate::format::header::State;
use crate::format::plausible::SPREAD;
use crate::format::{
    BlockKey, DurablePosition, Entry, EntryList, Sequence, Stream, Summary, SummaryKind,
};
use crate::interface::Storage;
use crate::planted::{self, Bug};
use crate::store::log::{Log, SegmentState};

pub(super) fn write(
    device: &mut dyn Storage,
    found: &mut Found,
    log: &mut Log,
    missing: &[MissingDrop],
) -> Result<(), RecoveryError> {
    // Verdicts promise only what was promised before (I14): a crash can leave some of them and not
    // others, and with power gone what only the crash journal held is gone too.
    log.durable = found.durable;
    let drops = add_drops(found, log, missing);
    let found = &*found;
    let by_id = found.by_id();
    let mut to_decide: Vec<_> = found
        .segments
        .iter()
        .filter(|segment| needs_verdict(found, &by_id, segment))
        .collect();
    // Of two devices one can be lost: what says the tail of the write stream is on both (I28).
    let says = |segment: &&FoundSegment| {
        !segment.unread && (!log.keeps_two() || log.is_on_two(segment.id))
    };
    let are_tails_unsaid = found.summary_tails != found.tails && !to_decide.iter().any(says);
    if are_tails_unsaid && !planted::is(Bug::TailsUnsaid) {
        match found.segments.iter().rev().find(says) {
            Some(last) => to_decide.push(last),
            None if to_decide.is_empty() || log.free.len() > 0 => {
                write_drops(device, log, Stream::Write, &[])?;
            }
            None => {}
        }
    }
    for segment in to_decide {
        if planted::is(Bug::NoVerdict) {
            continue;
        }
        write_verdict(device, log, segment)?;
    }
    for (stream, keys) in Stream::ALL.into_iter().zip(drops) {
        let per_segment = log.geometry.summary_entry_bytes() / EntryList::cost_bytes(0);
        for keys in keys.chunks(per_segment) {
            write_drops(device, log, stream, keys)?;
        }
    }
    for stream in Stream::ALL {
        if let Some(youngest) = log.streams[stream as usize].order.back() {
            let youngest = &log.segments[youngest.0 as usize];
            log.durable[stream as usize] = DurablePosition {
                generation: youngest.generation,
                end_slot: youngest.end_slot,
            };
        }
    }
    log.durable_number = log.next_number - 1;
    Ok(())
}

fn needs_verdict(found: &Found, by_id: &ById<'_>, segment: &FoundSegment) -> bool {
    !segment.decided
        || !segment.sealed
        || found.promised_too_much
        || link_dangles(found, by_id, segment)
}

/// True if a summary names a segment before it that is not there, or ends sooner. Three things
/// leave such a link: a recovery that had the crash journal wrote it and was cut short before the
/// other segment's verdict was durable; a renewal followed a segment of which a crash left less or
/// nothing; or an administrator accepted the damage. The summary is written again, or the next
/// attach would take the link for damage.
fn link_dangles(found: &Found, by_id: &ById<'_>, segment: &FoundSegment) -> bool {
    let Some(link) = segment.state.previous else {
        return false;
    };
    if planted::is(Bug::LinkLeft) {
        return false;
    }
    let stream = segment.stream;
    let there = by_id.get(&link.segment).is_some_and(|other| {
        let reaches = other.generation > link.generation
            || (other.generation == link.generation && other.end_slot >= link.end_slot);
        other.stream == stream && reaches
    });
    link.generation >= found.tails[stream as usize] && !there
}

/// Adds the `Drop`s of each stream to the entries of its youngest segment, as many as fit its
/// summary: a cache without a free segment must be recoverable. Returns the others.
fn add_drops(
    found: &mut Found,
    log: &Log,
    missing: &[MissingDrop],
) -> [Vec<BlockKey>; Stream::COUNT] {
    let mut drops: [Vec<BlockKey>; Stream::COUNT] = Default::default();
    for drop in missing {
        drops[drop.stream as usize].push(drop.key);
    }
    // They count in the epoch of their segment, where nothing else may have their numbers.
    let ends = found.segments.iter().map(FoundSegment::end_number);
    let mut number = ends.max().unwrap_or(0).max(1);
    for segment in &mut found.segments {
        let drops = &mut drops[segment.stream as usize];
        let youngest = log.streams[segment.stream as usize].order.back() == Some(&segment.id);
        if !youngest || drops.is_empty() {
            continue;
        }
        let here = drops.len().min(room_for_drops(log, segment));
        let first = segment.entries().map(|entry| entry.number).min();
        let end = number + drops.len() as u64;
        let is_far = end - first.unwrap_or(number) >= SPREAD || end > Sequence::NUMBER_END;
        if here == 0 || is_far {
            continue;
        }
        let mut entries = EntryList::default();
        push_drops(
            &mut number,
            &drops.split_off(drops.len() - here),
            &mut entries,
        );
        segment.lists.push(FoundList::new(entries, false, false));
        segment.decided = false;
    }
    drops
}

/// The number of `Drop`s that fit the summary of a segment beside its entries.
fn room_for_drops(log: &Log, found: &FoundSegment) -> usize {
    let used_bytes: usize = found
        .entries()
        .map(|entry| EntryList::cost_bytes(entry.checksums().len()))
        .sum();
    log.geometry
        .summary_entry_bytes()
        .saturating_sub(used_bytes)
        / EntryList::cost_bytes(0)
}

fn write_verdict(
    device: &mut dyn Storage,
    log: &mut Log,
    found: &FoundSegment,
) -> Result<(), RecoveryError> {
    let which = other_slot(found.summary);
    let summary = restated(found, log, which, log.tails);
    if summary.encoded_bytes() > log.geometry.summary_bytes() as usize {
        return Err(RecoveryError::Malformed(
            "an open segment names more than a sealed one can",
        ));
    }
    put(device, log, &summary)?;
    log.segment(found.id).summary = Some(which);
    Ok(())
}

/// The summary slot that does not count (I19.4).
pub(super) fn other_slot(counts: Option<u8>) -> u8 {
    counts.map_or(0, |counts| 1 - counts)
}

/// A summary of exactly the entries accepted of a segment, carrying these tails.
pub(super) fn restated(
    found: &FoundSegment,
    log: &Log,
    which: u8,
    tails: [Sequence; Stream::COUNT],
) -> Summary {
    assert!(!found.unread, "a segment is restated from its entries");
    let mut entries = EntryList::default();
    let mut last_number = found.generation.number;
    // A record that was closed late can hold higher numbers than one behind it.
    let mut accepted: Vec<_> = found.entries().collect();
    accepted.sort_by_key(|entry| entry.number);
    for entry in accepted {
        entries.push(entry.number, entry.entry, &entry.checksums());
        last_number = last_number.max(entry.number + u64::from(entry.entry.count()) - 1);
    }
    Summary {
        shard: log.shard,
        segment: found.id,
        which,
        // A renewal stays one: another reads differently who was there before it.
        kind: if found.renewed {
            SummaryKind::Renewal
        } else {
            SummaryKind::Verdict
        },
        stream: found.stream,
        generation: found.generation,
        end_slot: found.end_slot,
        last_number,
        state: State {
            known_durable: Sequence::new(log.epoch, 0),
            tails,
            durable: log.durable,
            previous: found.link,
        },
        entries,
    }
}

/// A segment of nothing but `Drop`s, sealed from the start.
fn write_drops(
    device: &mut dyn Storage,
    log: &mut Log,
    stream: Stream,
    keys: &[BlockKey],
) -> Result<(), RecoveryError> {
    if log.free.len() == 0 {
        return Err(RecoveryError::Full);
    }
    let segment = log.take_free(stream);
    let previous = log.link_to_youngest(stream);
    let generation = Sequence::new(log.epoch, log.next_number);
    log.next_number += 1;
    let mut entries = EntryList::default();
    push_drops(&mut log.next_number, keys, &mut entries);
    let end_slot = log.geometry.first_slot() as u16;
    let which = other_slot(log.segment(segment).summary);
    let summary = Summary {
        shard: log.shard,
        segment,
        which,
        kind: SummaryKind::Verdict,
        stream,
        generation,
        end_slot,
        last_number: log.next_number - 1,
        state: State {
            known_durable: Sequence::new(log.epoch, 0),
            tails: log.tails,
            durable: log.durable,
            previous,
        },
        entries,
    };
    put(device, log, &summary)?;
    let slots = log.geometry.slots_per_segment() as u16;
    let state = log.segment(segment);
    state.state = SegmentState::Sealed;
    state.stream = stream;
    state.generation = generation;
    state.end_slot = end_slot;
    state.durable_slots = slots;
    state.summary = Some(which);
    log.streams[stream as usize].order.push_back(segment);
    Ok(())
}

fn push_drops(number: &mut u64, keys: &[BlockKey], entries: &mut EntryList) {
    for key in keys {
        let drop = Entry::Drop {
            key: *key,
            count: 1,
        };
        entries.push(*number, drop, &[]);
        *number += 1;
    }
}

pub(super) fn put(
    device: &mut dyn Storage,
    log: &Log,
    summary: &Summary,
) -> Result<(), RecoveryError> {
    let mut bytes = vec![0u8; summary.encoded_bytes()];
    assert!(
        bytes.len() <= log.geometry.summary_bytes() as usize,
        "a segment's entries fit its summary"
    );
    summary.encode(log.map.id_in(summary.segment), &mut bytes);
    let (first, second) = log.summary_written_at(summary.segment, summary.which);
    device.write(first, &bytes)?;
    if let Some(second) = second {
        device.write(second, &bytes)?;
    }
    Ok(())
}
