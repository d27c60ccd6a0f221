//! The beginnings of segments, which are read of all of them: summaries and first headers.

use super::RecoveryError;
use crate::format::{Geometry, SegmentId};
use crate::interface::{DeviceError, ReadAt, Storage};

/// Segments whose beginnings are read at a time.
const BATCH: usize = 128;

/// Bytes from the start of a segment to the end of its first header.
pub(super) fn lead_bytes(geometry: &Geometry) -> usize {
    ((geometry.first_slot() + 1) * geometry.block_bytes) as usize
}

/// Reads the beginning of each of these segments. `address` says where it is at the first attempt
/// (0), and at a second one: a passing error must not cost a segment. `take` gets them in order;
/// `None` of one that cannot be read.
pub(super) fn read_leads(
    device: &mut dyn Storage,
    geometry: &Geometry,
    ids: &[SegmentId],
    address: impl Fn(SegmentId, u8) -> u64,
    mut take: impl FnMut(&mut dyn Storage, SegmentId, Option<&[u8]>) -> Result<(), RecoveryError>,
) -> Result<(), RecoveryError> {
    let lead_bytes = lead_bytes(geometry);
    // Once for all: memory that is new costs as much as what is read into it.
    let mut leads = vec![0u8; lead_bytes * ids.len().min(BATCH)];
    for ids in ids.chunks(BATCH) {
        let mut reads: Vec<ReadAt<'_>> = leads
            .chunks_exact_mut(lead_bytes)
            .zip(ids)
            .map(|(into, id)| ReadAt {
                offset_bytes: address(*id, 0),
                into,
            })
            .collect();
        let results = device.read_many(&mut reads);
        for ((lead, id), result) in leads.chunks_exact_mut(lead_bytes).zip(ids).zip(results) {
            let found = match result.or_else(|_| device.read(address(*id, 1), lead)) {
                Ok(()) => Some(&*lead),
                Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
                Err(_) => None,
            };
            take(device, *id, found)?;
        }
    }
    Ok(())
}
