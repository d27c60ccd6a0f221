//! Records of the log: opened with their first block, closed when full or wanted, complete when
//! their header is on the device, and only in their segment's order (I13).

use crate::format::{EntryList, Header, PAGE_BYTES, SegmentId, Slot, Stream};
use crate::ids::RecordId;
use crate::interface::{Buf, Bufs, Device, DeviceError, Memory, Nanos, Operation};
use crate::planted::{self, Bug};
use crate::shm_journal::{JournalPage, JournalRecord};
use crate::store::Store;
use crate::store::append::{ATTEMPTS, SPARE_PAGES};
use crate::store::log::{Claim, Record, SegmentState};
use crate::store::op::Op;

impl Store {
    /// The record of a stream that takes appends, opening record and segment as needed, with
    /// room for a record of at least `blocks` blocks if it has to be opened.
    pub(super) fn open_record(
        &mut self,
        now: Nanos,
        stream: Stream,
        blocks: u16,
        entry_bytes: usize,
        claim: Claim,
        memory: &mut dyn Memory,
    ) -> Option<RecordId> {
        loop {
            if self.log.free.len() < claim.leaves() {
                return None;
            }
            let Some(segment) = self.log.streams[stream as usize].open else {
                if self.log.free.len() <= claim.leaves() {
                    return None;
                }
                let opened = self.log.open_segment(stream, now);
                self.forget_evicted(opened);
                if let Some(lent) = self.log.second_of(opened) {
                    self.forget_evicted(lent);
                }
                continue;
            };
            if let Some(record) = self.log.filling(segment).record {
                return Some(record);
            }
            let slots = self.log.geometry.slots_per_segment() as u16;
            let filling = self.log.filling(segment);
            if filling.next_slot + 1 + blocks > slots || filling.room_bytes() < entry_bytes {
                self.fill_segment(now, segment, memory);
                continue;
            }
            let slot = filling.next_slot;
            let page = self.log.journal_pages.pop()?;
            self.log.filling(segment).next_slot += 1;
            self.log.journal_uses += 1;
            let generation = self.log.segment(segment).generation;
            let second = self.log.second_of(segment);
            let journal = JournalPage::begin(
                memory.journal_mut(self.log.shard),
                page,
                self.log.journal_uses,
                JournalRecord {
                    segment,
                    slot,
                    stream,
                    generation,
                    second,
                },
            );
            let record = self.log.records.insert(Record {
                segment,
                slot,
                stream,
                entries: EntryList::with_capacity(1024),
                reserved_bytes: 0,
                blocks: 0,
                pending: 0,
                closing: false,
                complete: false,
                opened_at: now,
                journal: Some(journal),
                header: None,
                combined: Vec::new(),
                attempts: 0,
                awaited: false,
                tails: self.log.tails,
            });
            self.note_open_record(now);
            let filling = self.log.filling(segment);
            filling.record = Some(record);
            filling.outstanding.push_back(record);
            return Some(record);
        }
    }

    /// An empty record in the segment that a stream has open, if it has a slot left that a client
    /// may take.
    pub(crate) fn spare_record(
        &mut self,
        now: Nanos,
        stream: Stream,
        memory: &mut dyn Memory,
    ) -> Option<RecordId> {
        let segment = self.log.streams[stream as usize].open?;
        let slots = self.log.geometry.slots_per_segment() as u16;
        let filling = self.log.filling(segment);
        if filling.record.is_none() && filling.next_slot >= slots {
            return None;
        }
        self.open_record(now, stream, 0, 0, Claim::Client, memory)
    }

    /// Ends the appends of a stream's open segment if it has no slot left.
    pub(crate) fn seal_if_full(&mut self, now: Nanos, stream: Stream, memory: &mut dyn Memory) {
        let slots = self.log.geometry.slots_per_segment() as u16;
        if let Some(segment) = self.log.streams[stream as usize].open {
            let filling = self.log.filling(segment);
            if filling.record.is_none() && filling.next_slot >= slots {
                self.fill_segment(now, segment, memory);
            }
        }
    }

    /// Ends a segment's appends; it is sealed when its last record is complete.
    pub(crate) fn fill_segment(&mut self, now: Nanos, id: SegmentId, memory: &mut dyn Memory) {
        let filling = self.log.filling(id);
        let end_slot = filling.next_slot;
        let record = filling.record;
        let segment = self.log.segment(id);
        assert_eq!(segment.state, SegmentState::Open);
        segment.state = SegmentState::Filled;
        segment.end_slot = end_slot;
        let stream = segment.stream;
        self.log.streams[stream as usize].open = None;
        if let Some(record) = record {
            self.close_record(now, record, memory);
        }
        self.seal_if_complete(id, memory);
    }

    /// Ends a record's appends; its header goes out when its data is on the device.
    pub(crate) fn close_record(&mut self, _now: Nanos, id: RecordId, memory: &mut dyn Memory) {
        let shard = self.log.shard;
        let record = self.log.records.at(id);
        assert!(!record.closing, "a record is closed once");
        record.closing = true;
        let (segment, blocks) = (record.segment, record.blocks);
        if let Some(page) = &record.journal {
            page.close(memory.journal_mut(shard), blocks);
        }
        let ready = record.pending == 0;
        self.log.filling(segment).record = None;
        if ready {
            self.write_header(id, memory);
        }
    }

    pub(crate) fn transfer_ended(&mut self, _now: Nanos, id: RecordId, memory: &mut dyn Memory) {
        let record = self.log.records.at(id);
        record.pending -= 1;
        if record.pending == 0 && record.closing {
            self.write_header(id, memory);
        }
    }

    /// Writes a closed record's header, with the data of its combined runs behind it.
    pub(crate) fn write_header(&mut self, id: RecordId, memory: &mut dyn Memory) {
        let page = memory.alloc(PAGE_BYTES);
        let Some(page) = page.or_else(|| self.spare_pages.pop()) else {
            self.waiting.headers.push(id);
            return;
        };
        self.encode_header(id, page, memory);
        self.log.records.at(id).header = Some(page);
        self.issue_header(id);
    }

    fn encode_header(&mut self, id: RecordId, page: Buf, memory: &mut dyn Memory) {
        let shard = self.log.shard;
        let segment = self.log.records.at(id).segment;
        let cache_id = self.log.map.id_in(segment);
        let state = self.state_in(segment);
        let generation = self.log.segment(segment).generation;
        let record = self.log.records.at(id);
        let entries = std::mem::take(&mut record.entries);
        let header = Header {
            shard,
            segment,
            slot: record.slot,
            stream: record.stream,
            generation,
            blocks: record.blocks,
            combined: !record.combined.is_empty(),
            state,
            entries,
        };
        header.encode(cache_id, memory.bytes_mut(page));
        record.entries = header.entries;
        record.tails = state.tails;
        let stream = record.stream;
        self.newest_encoded_tails(stream, state.tails);
        self.durable_is_said();
    }

    fn issue_header(&mut self, id: RecordId) {
        let record = self.log.records.at(id);
        let (segment, slot) = (record.segment, record.slot);
        let mut bufs = Bufs::new();
        bufs.push(record.header.expect("the header is encoded"));
        let mut data_bytes = 0;
        for placed in record.combined.iter().filter(|placed| !placed.run.zero) {
            data_bytes += u64::from(placed.run.buf.len_bytes);
            bufs.push(placed.run.buf);
        }
        self.stats.cache_data_written_bytes += data_bytes;
        self.stats.cache_metadata_written_bytes += PAGE_BYTES as u64;
        let places = self.log.header_written_at(segment, slot);
        self.issue(
            Op::Header(id),
            Device::Cache(0),
            Operation::write_at(places, bufs),
        );
    }

    pub(crate) fn header_done(
        &mut self,
        now: Nanos,
        id: RecordId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if result.is_err() {
            self.stats.cache_write_errors += 1;
            let record = self.log.records.at(id);
            record.attempts += 1;
            if record.attempts < ATTEMPTS && !self.failed_cache() {
                return self.issue_header(id);
            }
            // The header's buffer is given back; its journal page stays, it is the only copy.
            if let Some(page) = self.log.records.at(id).header.take() {
                self.free_page(page, memory);
            }
            self.fail_cache("headers cannot be written to the cache device");
            self.fail_combined(id);
            // Complete records behind it never count either (I13).
            for other in self.log.records.ids() {
                if self
                    .log
                    .records
                    .get(other)
                    .is_some_and(|record| record.complete)
                {
                    self.fail_combined(other);
                }
            }
            return;
        }
        let shard = self.log.shard;
        let record = self.log.records.at(id);
        record.complete = true;
        let segment = record.segment;
        let page = record.header.take();
        if let Some(journal) = record.journal.take() {
            let page = journal.end(memory.journal_mut(shard));
            self.log.journal_pages.push(page);
        }
        if let Some(page) = page {
            self.free_page(page, memory);
        }
        if self.failed_cache() {
            self.fail_combined(id);
        }
        self.complete_in_order(now, segment);
        self.seal_if_complete(segment, memory);
    }

    /// Gives a header's page back, first to the spare ones.
    fn free_page(&mut self, page: Buf, memory: &mut dyn Memory) {
        if self.spare_pages.len() < SPARE_PAGES {
            self.spare_pages.push(page);
        } else {
            memory.free(page);
        }
    }

    /// Ends records whose predecessors in the segment have all ended (I13).
    fn complete_in_order(&mut self, now: Nanos, segment: SegmentId) {
        loop {
            let filling = self.log.filling(segment);
            let Some(&front) = filling.outstanding.front() else {
                break;
            };
            if !self.log.records.at(front).complete {
                break;
            }
            self.log.filling(segment).outstanding.pop_front();
            if self.failed_cache() && !planted::is(Bug::LateRecordCounts) {
                // I22: the record of what is newer in the cache was made without these.
                self.fail_combined(front);
            }
            let record = self.log.records.remove(front).expect("listed");
            self.log.filling(segment).complete_slots = record.slot + 1 + record.blocks;
            self.unflushed_segment(segment);
            self.newest_complete_tails(record.stream, record.tails);
            if record.awaited {
                self.awaited_record_done(now);
            }
            for placed in record.combined {
                let count = placed.run.keys.len();
                for i in 0..count {
                    let checksum = placed.checksums.get(usize::from(i)).copied().unwrap_or(0);
                    self.numbered.remove(&placed.run.keys.get(i));
                    self.index_block(
                        placed.run.keys.get(i),
                        Slot(placed.slot.0 + u32::from(i)),
                        checksum,
                        placed.run.kind(placed.run.dirty),
                    );
                }
                self.append_done(&placed.run);
            }
        }
    }
}
