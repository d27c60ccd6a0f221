//! The blocks that an entry lists, one by one.

use crate::format::entry::NumberedEntry;
use crate::format::{BlockKey, Entry, Geometry, SegmentId, Slot};
use crate::map::index::SlotFlags;

/// A block, as an entry lists it.
pub(super) struct FoundBlock {
    pub(super) key: BlockKey,
    pub(super) slot: Slot,
    pub(super) number: u64,
    pub(super) checksum: u32,
    /// Without shadows.
    pub(super) flags: SlotFlags,
}

/// Calls `take` with every block of an entry, which has none if it is no version.
#[inline]
pub(super) fn each_block(
    geometry: Geometry,
    segment: SegmentId,
    found: &NumberedEntry<'_>,
    mut take: impl FnMut(FoundBlock),
) {
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
        Entry::Clean { .. } | Entry::Drop { .. } => return,
    };
    if u32::from(slot) + u32::from(count) > geometry.slots_per_segment() {
        return;
    }
    let first = geometry.slot(segment, slot);
    for i in 0..count {
        take(FoundBlock {
            key: key.plus(u64::from(i)),
            slot: Slot(first.0 + u32::from(i)),
            number: found.number + u64::from(i),
            checksum: if zero { 0 } else { found.checksum(i) },
            flags: SlotFlags::new(dirty, zero, 0),
        });
    }
}
