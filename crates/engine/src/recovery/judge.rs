//! Judges uncertain entries: they count if their data is there.
//!
//! | the entry | counts if |
//! |---|---|
//! | from a decided epoch, a verdict or a renewal | always |
//! | known durable | always; data of it that cannot be read is damage, not absence (I14) |
//! | from the crash journal, or from a header of its own after a daemon crash | always: its data was on the device before |
//! | carries no data | its header is there |
//! | any other | the data has the checksum |
//! | any other, and the data cannot be read at all | yes: the reader gets an error, never something old |

use super::{Found, FoundList, RecoveryError};
use crate::checksum::crc32c;
use crate::format::entry::NumberedEntry;
use crate::format::{Entry, EntryList, Geometry, SegmentId, SegmentMap, Superblock};
use crate::interface::{DeviceError, Storage};

/// Removes the entries that do not count, block by block. Returns the number of their blocks.
pub(super) fn judge(
    device: &mut dyn Storage,
    superblock: &Superblock,
    map: &SegmentMap,
    found: &mut Found,
    daemon_crash: bool,
) -> Result<u64, RecoveryError> {
    let mut rejected = 0;
    let mut segments = std::mem::take(&mut found.segments);
    for segment in &mut segments {
        if segment.decided {
            continue;
        }
        let epoch = segment.generation.epoch;
        let is_durable =
            |found: &Found, list: &FoundList| found.is_known_durable(epoch, list.last_number());
        if segment.sealed && segment.lists.iter().all(|list| is_durable(found, list)) {
            // Every later recovery reads the seal as this one does.
            segment.decided = true;
            continue;
        }
        for list in &mut segment.lists {
            if list.replayed || (daemon_crash && !list.combined) {
                continue;
            }
            if is_durable(found, list) {
                continue;
            }
            let mut judged = EntryList::default();
            for entry in list.entries() {
                let last = entry.number + u64::from(entry.entry.count()) - 1;
                let is_data = matches!(entry.entry, Entry::Data { .. });
                if !is_data || found.is_known_durable(epoch, last) {
                    judged.push(entry.number, entry.entry, &entry.checksums());
                } else {
                    let place = (superblock.geometry, map, segment.id);
                    rejected +=
                        judge_data(device, place, entry, &mut judged, &mut found.bytes_read)?;
                }
            }
            *list = list.with(judged);
        }
    }
    found.segments = segments;
    Ok(rejected)
}

/// Reads an entry's blocks and keeps those with the right checksum. Returns the number of the
/// others.
fn judge_data(
    device: &mut dyn Storage,
    (geometry, map, segment): (Geometry, &SegmentMap, SegmentId),
    found: NumberedEntry<'_>,
    judged: &mut EntryList,
    bytes_read: &mut u64,
) -> Result<u64, RecoveryError> {
    let Entry::Data {
        key,
        slot,
        count,
        dirty,
    } = found.entry
    else {
        return Ok(0);
    };
    if u32::from(slot) + u32::from(count) > geometry.slots_per_segment() {
        return Ok(u64::from(count));
    }
    let mut rejected = 0;
    let mut block = vec![0u8; geometry.block_bytes as usize];
    for i in 0..count {
        let place = geometry.slot(segment, slot + i);
        let checksum = found.checksum(i);
        *bytes_read += block.len() as u64;
        // Of two copies one that is there and is wrong says enough: what is not known durable may be
        // on one of them alone.
        let mut sound = None;
        for attempt in 0..2 {
            match device.read(map.address_at(place, attempt), &mut block) {
                Ok(()) => sound = Some(crc32c(&block) == checksum),
                Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
                Err(_) => continue,
            }
            if sound == Some(true) || map.places().is_none() {
                break;
            }
        }
        let sound = sound.unwrap_or(true);
        if sound {
            let key = key.plus(u64::from(i));
            let entry = Entry::Data {
                key,
                slot: slot + i,
                count: 1,
                dirty,
            };
            judged.push(found.number + u64::from(i), entry, &[checksum]);
        } else {
            rejected += 1;
        }
    }
    Ok(rejected)
}
