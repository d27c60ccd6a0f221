//! Appending a single block to an open record that has room: what `append` does for pieces of any
//! kind, without a piece. Most appends are of this kind, and their cost is the engine's cost.

use crate::format::{BlockEntry, Slot, Stream};
use crate::interface::Memory;
use crate::store::Store;
use crate::store::append::run_cost_bytes;
use crate::store::log::Claim;
use crate::store::op::Placed;

/// Bytes of entries set aside for the block until it is published.
pub(crate) const COST_BYTES: usize = run_cost_bytes(1);

impl Store {
    /// A slot in the open record of a stream, if there is one with room for a block. The record
    /// waits for the block from then on.
    pub(crate) fn reserve_one(&mut self, stream: Stream) -> Option<(u32, Slot)> {
        let log = &mut self.log;
        if log.free.len() < Claim::Client.leaves() {
            return None;
        }
        let id = log.streams[stream as usize].open?;
        let slots = log.geometry.slots_per_segment() as u16;
        let filling = log.segments[id.0 as usize].filling.as_deref_mut()?;
        let name = filling.record?;
        let record = log.records.at(name);
        let has_room = filling.next_slot < slots
            && filling.room_bytes() >= COST_BYTES
            && record.has_room(COST_BYTES);
        if !has_room {
            return None;
        }
        if let Some(page) = &mut record.ring {
            page.reserve(1);
        }
        let slot = log.geometry.slot(id, filling.next_slot);
        filling.next_slot += 1;
        filling.reserved_bytes += COST_BYTES;
        record.blocks += 1;
        record.reserved_bytes += COST_BYTES;
        record.pending += 1;
        Some((name, slot))
    }

    /// Gives a block its number and adds it to its record, the segment's summary and the ring.
    /// Returns whether the record's header can go out.
    pub(crate) fn publish_one(
        &mut self,
        placed: &Placed,
        dirty: bool,
        memory: &mut dyn Memory,
    ) -> bool {
        let log = &mut self.log;
        let number = log.next_number;
        log.next_number += 1;
        let in_segment = log.geometry.slot_in_segment(placed.slot);
        let entry = BlockEntry::new(placed.key, in_segment, dirty);
        let record = log.records.at(placed.record);
        record.reserved_bytes -= COST_BYTES;
        record.pending -= 1;
        record.entries.push_block(number, entry, placed.checksum);
        if let Some(page) = &mut record.ring {
            page.release(1);
            let ring = memory.ring_mut(log.shard);
            page.push_head(ring, number, entry.head(), &[placed.checksum]);
        }
        let (segment, ends) = (record.segment, record.pending == 0 && record.closing);
        let filling = log.filling(segment);
        filling.reserved_bytes -= COST_BYTES;
        filling.entries.push_block(number, entry, placed.checksum);
        ends
    }
}
