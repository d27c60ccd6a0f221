//! Which uncertain entries count: those whose data is there.
//!
//! | the entry | counts if |
//! |---|---|
//! | from a decided epoch, a verdict or a renewal | always |
//! | known durable | always; what cannot be read of it is damage, not absence (I14) |
//! | from the ring, or from a header of its own after a daemon crash | always: its data was on the device before |
//! | carries no data | its header is there |
//! | any other | the data has the checksum |
//! | any other, and the data cannot be read at all | yes: the reader gets an error, never something old |

use super::{Found, FoundEntry, RecoveryError};
use crate::format::{Entry, SegmentId, Superblock};
use crate::interface::{DeviceError, Storage};

/// Removes the entries that do not count, block by block. Returns how many blocks those were.
pub(super) fn judge(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
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
        let mut judged = Vec::with_capacity(segment.entries.len());
        for entry in std::mem::take(&mut segment.entries) {
            let last = entry.number + u64::from(entry.entry.count()) - 1;
            let certain = found.is_known_durable(epoch, last)
                || entry.replayed
                || (daemon_crash && !entry.combined)
                || !matches!(entry.entry, Entry::Data { .. });
            if certain {
                judged.push(entry);
            } else {
                rejected += judge_data(
                    device,
                    superblock,
                    shard,
                    segment.id,
                    &entry,
                    &mut judged,
                    &mut found.bytes_read,
                )?;
            }
        }
        segment.entries = judged;
    }
    found.segments = segments;
    Ok(rejected)
}

/// Reads an entry's blocks and keeps those with the right checksum.
fn judge_data(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    segment: SegmentId,
    entry: &FoundEntry,
    judged: &mut Vec<FoundEntry>,
    bytes_read: &mut u64,
) -> Result<u64, RecoveryError> {
    let Entry::Data {
        key,
        slot,
        count,
        dirty,
    } = entry.entry
    else {
        return Ok(0);
    };
    let geometry = superblock.geometry;
    let block_bytes = geometry.block_bytes as usize;
    if u32::from(slot) + u32::from(count) > geometry.slots_per_segment() {
        return Ok(u64::from(count));
    }
    let mut rejected = 0;
    let mut block = vec![0u8; block_bytes];
    for i in 0..count {
        let offset_bytes = geometry.slot_offset(shard, geometry.slot(segment, slot + i));
        let checksum = entry.checksums[usize::from(i)];
        *bytes_read += block_bytes as u64;
        let sound = match device
            .read(offset_bytes, &mut block)
            .or_else(|_| device.read(offset_bytes, &mut block))
        {
            Ok(()) => crc32c::crc32c(&block) == checksum,
            Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
            Err(_) => true,
        };
        if sound {
            judged.push(FoundEntry {
                number: entry.number + u64::from(i),
                entry: Entry::Data {
                    key: key.plus(u64::from(i)),
                    slot: slot + i,
                    count: 1,
                    dirty,
                },
                checksums: vec![checksum],
                combined: entry.combined,
                replayed: false,
            });
        } else {
            rejected += 1;
        }
    }
    Ok(rejected)
}
