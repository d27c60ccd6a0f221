//! Writes whose data travels with their header, in one transfer: `commit = write`, and clients
//! that flush after each write.

use crate::format::{Slot, Stream};
use crate::ids::RecordId;
use crate::interface::{Memory, Nanos};
use crate::store::Store;
use crate::store::append::{AppendRun, PlacedAppend};

impl Store {
    /// Sends out the writes that arrived together, header and data in one transfer.
    pub(crate) fn flush_combined(&mut self, now: Nanos, memory: &mut dyn Memory) {
        let mut current: Option<RecordId> = None;
        let mut ends_in_zeroes = false;
        while let Some(run) = self.waiting.combined.pop_front() {
            if self.failed_cache() {
                self.append_failed(&run);
                continue;
            }
            // The data follows its header without a gap: a record that has blocks from before, or
            // slots of zeroes at its end, takes no data of this kind.
            if current.is_none() || (ends_in_zeroes && !run.zero) {
                self.close_record_with_blocks(now, memory);
            }
            let Some((record, slot, granted)) = self.reserve(now, &run, memory) else {
                self.waiting.combined.push_front(run);
                break;
            };
            ends_in_zeroes = run.zero;
            current = Some(record);
            let (placed, rest) = self.place(run, record, slot, granted, memory);
            self.number_combined(placed);
            if let Some(rest) = rest {
                self.waiting.combined.push_front(rest);
            }
        }
        if current.is_some() {
            self.close_record_with_blocks(now, memory);
        }
    }

    fn close_record_with_blocks(&mut self, now: Nanos, memory: &mut dyn Memory) {
        let open = self.log.streams[Stream::Write as usize].open;
        if let Some(record) = open.and_then(|segment| self.log.filling(segment).record)
            && self.log.records.at(record).blocks > 0
        {
            self.close_record(now, record, memory);
        }
    }

    /// Gives a combined run its numbers before it is written; its blocks are owned, so nothing
    /// else of them is published until it is done.
    fn number_combined(&mut self, placed: PlacedAppend) {
        self.release(placed.record, placed.cost_bytes, placed.run.keys.len());
        let count = placed.run.keys.len();
        for i in 0..count {
            assert!(
                self.may_publish(&placed.run, i),
                "I11: a write owns its blocks"
            );
            self.numbered.insert(placed.run.keys.get(i), ());
        }
        let mut at = 0;
        while at < count {
            let len = (count - at).min(crate::format::entry::MAX_COUNT);
            let slot = Slot(placed.slot.0 + u32::from(at));
            let entry = {
                let AppendRun {
                    zero, dirty, keys, ..
                } = &placed.run;
                self.data_entry(*zero, *dirty, keys.get(at), slot, len)
            };
            let checks = if placed.run.zero {
                &[][..]
            } else {
                &placed.checksums[usize::from(at)..usize::from(at + len)]
            };
            let number = self.log.next_number;
            self.log.next_number += u64::from(len);
            let record = self.log.records.at(placed.record);
            record.entries.push(number, entry, checks);
            let segment = record.segment;
            self.log
                .filling(segment)
                .entries
                .push(number, entry, checks);
            at += len;
        }
        self.log.records.at(placed.record).combined.push(placed);
    }

    /// The blocks that travelled with a record's header are not in the log.
    pub(super) fn fail_combined(&mut self, record: RecordId) {
        for placed in std::mem::take(&mut self.log.records.at(record).combined) {
            for i in 0..placed.run.keys.len() {
                let key = placed.run.keys.get(i);
                self.numbered.remove(&key);
                self.may_have_landed(key);
            }
            self.append_failed(&placed.run);
        }
    }
}
