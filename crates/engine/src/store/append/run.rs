//! Appending blocks in a row to an open record with room for all of them: the work of `append` for
//! pieces of any kind, without a piece. Most appends are of this kind, and their cost is the
//! engine's cost.

use crate::format::{RunEntry, Slot, Stream};
use crate::ids::RecordId;
use crate::interface::Memory;
use crate::store::Store;
use crate::store::append::run_cost_bytes;
use crate::store::log::Claim;
use crate::store::op::PlacedRun;

impl Store {
    /// Slots in the open record of a stream, if there is one with room for so many blocks. The
    /// record waits for the blocks from then on.
    #[inline(always)]
    pub(crate) fn reserve_run(&mut self, stream: Stream, count: u16) -> Option<(RecordId, Slot)> {
        let cost_bytes = run_cost_bytes(usize::from(count));
        let log = &mut self.log;
        if log.free.len() < Claim::Client.leaves() {
            return None;
        }
        let id = log.streams[stream as usize].open?;
        let per_segment = log.per_segment();
        let filling = log.segments[id.0 as usize].filling.as_deref_mut()?;
        let record_id = filling.record?;
        let record = log.records.at(record_id);
        let has_room = u32::from(filling.next_slot + count) <= per_segment.get()
            && filling.room_bytes() >= cost_bytes
            && record.has_room(usize::from(count), cost_bytes);
        if !has_room {
            return None;
        }
        if let Some(page) = &mut record.journal {
            page.reserve(usize::from(count));
        }
        let slot = per_segment.slot(id, filling.next_slot);
        filling.next_slot += count;
        filling.reserved_bytes += cost_bytes;
        record.blocks += count;
        record.reserved_bytes += cost_bytes;
        record.pending += 1;
        Some((record_id, slot))
    }

    /// Gives blocks their numbers and adds them to their record, the segment's summary and the
    /// crash journal. Returns whether the record's header can go out.
    #[inline(always)]
    pub(crate) fn publish_run(
        &mut self,
        run: &PlacedRun,
        dirty: bool,
        checksums: &[u32],
        memory: &mut dyn Memory,
    ) -> bool {
        // Most runs are of one block: compiled by itself, it takes a tenth of the instructions
        // less.
        match checksums {
            [checksum] => self.publish_blocks(run, dirty, &[*checksum], memory),
            _ => self.publish_blocks(run, dirty, checksums, memory),
        }
    }

    #[inline(always)]
    fn publish_blocks(
        &mut self,
        run: &PlacedRun,
        dirty: bool,
        checksums: &[u32],
        memory: &mut dyn Memory,
    ) -> bool {
        let count = checksums.len() as u16;
        let cost_bytes = run_cost_bytes(checksums.len());
        let log = &mut self.log;
        let number = log.next_number;
        log.next_number += u64::from(count);
        let in_segment = log.per_segment().slot_in_segment(run.slot);
        let entry = RunEntry::new(run.key, in_segment, count, dirty);
        let record = log.records.at(run.record);
        record.reserved_bytes -= cost_bytes;
        record.pending -= 1;
        record.entries.push_run(number, entry, checksums);
        if let Some(page) = &mut record.journal {
            page.release(checksums.len());
            let journal = memory.journal_mut(log.shard);
            page.push_head(journal, number, entry.head(), checksums);
        }
        let (segment, ends) = (record.segment, record.pending == 0 && record.closing);
        let filling = log.filling(segment);
        filling.reserved_bytes -= cost_bytes;
        filling.entries.push_run(number, entry, checksums);
        ends
    }
}
