//! Appending to the log: from blocks in memory to slots, records, headers and seals.
//!
//! Data goes to its slot at once. The entry gets its number when the data is on the device, and
//! reaches the device in the header of its record later. So a header never promises data that is
//! still in flight. An example with `commit = flush`:
//!
//! 1. A write of block 70 finds a record open in segment 3: its header slot is 8.
//! 2. Block 70 gets the next slot, 9. The data is written there at once.
//! 3. The data is on the device. The entry "block 70 in slot 9" gets number 41, in the record, the
//!    crash journal and the segment's summary. The index names slot 9, and the write is acknowledged.
//! 4. The record is full, or a flush closes it. When no data of it is in flight, the header is
//!    written to slot 8.
//! 5. The header is on the device. The record is complete when all earlier records of segment 3 are
//!    (I13).
//! 6. A device flush begins and succeeds: number 41 is durable.
//!
//! With `commit = write`, and for a client that flushes after each write, header and data are one
//! transfer instead. Writes that arrive together share it.

mod combined;
mod records;
mod run;
mod seals;

use smallvec::SmallVec;

use crate::checksum::crc32c;
use crate::format::entry::{CHECKSUM_BYTES, HEAD_BYTES};
use crate::format::header::ENTRY_BYTES;
use crate::format::{BlockKey, Entry, EntryList, Slot, Stream};
use crate::ids::RecordId;
use crate::interface::{Buf, Device, DeviceError, Failure, Memory, Nanos, Operation, one_buf};
use crate::map::locks::Owner;
use crate::planted::{self, Bug};
use crate::store::Store;
use crate::store::contents::BlockKind;
use crate::store::log::{Claim, SegmentState};
use crate::store::op::Op;

/// Tries of a transfer to the cache device before the device counts as failed. Each try puts the
/// same bytes in the same place, so that a try that landed after all does no harm (I10).
pub(crate) const ATTEMPTS: u8 = 3;

/// Pages kept for headers alone. Holders of memory can wait for a header, so no header may wait for
/// memory.
pub(crate) const SPARE_PAGES: usize = 4;

/// The blocks of a run.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// Consecutive blocks.
    Run(BlockKey, u16),
    /// Blocks in any order.
    List(Vec<BlockKey>),
}

/// [`Keys::cost_bytes`] of consecutive blocks.
pub(crate) const fn run_cost_bytes(blocks: usize) -> usize {
    2 * HEAD_BYTES + blocks * (CHECKSUM_BYTES + HEAD_BYTES / 2)
}

impl Keys {
    pub(crate) fn len(&self) -> u16 {
        match self {
            Keys::Run(_, count) => *count,
            Keys::List(keys) => keys.len() as u16,
        }
    }

    pub(crate) fn get(&self, index: u16) -> BlockKey {
        match self {
            Keys::Run(key, _) => key.plus(u64::from(index)),
            Keys::List(keys) => keys[usize::from(index)],
        }
    }

    fn split_off(&mut self, at: u16) -> Keys {
        match self {
            Keys::Run(key, count) => {
                let rest = Keys::Run(key.plus(u64::from(at)), *count - at);
                *count = at;
                rest
            }
            Keys::List(keys) => Keys::List(keys.split_off(usize::from(at))),
        }
    }

    /// The most bytes of entries these blocks can need. Runs can be torn apart where a block was
    /// taken over by a write.
    fn cost_bytes(&self, blocks: u16) -> usize {
        let blocks = usize::from(blocks);
        match self {
            Keys::Run(..) => run_cost_bytes(blocks),
            Keys::List(_) => 2 * HEAD_BYTES + blocks * (CHECKSUM_BYTES + HEAD_BYTES),
        }
    }

    fn blocks_for(&self, bytes: usize) -> u16 {
        let each = self.cost_bytes(1) - 2 * HEAD_BYTES;
        (bytes.saturating_sub(2 * HEAD_BYTES) / each).min(usize::from(u16::MAX)) as u16
    }
}

/// Blocks to be appended, and their owner.
#[derive(Clone, Debug)]
pub(crate) struct AppendRun {
    pub(crate) stream: Stream,
    pub(crate) keys: Keys,
    /// The blocks, or [`Buf::EMPTY`] for zeroes.
    pub(crate) buf: Buf,
    pub(crate) dirty: bool,
    pub(crate) zero: bool,
    /// The owner of the blocks, which hears of the end.
    pub(crate) owner: Owner,
    /// Whether reclaim's reserve may be used.
    pub(crate) reclaim: bool,
    /// For retained blocks: the slot and checksum of the copy that was read. It is published
    /// only while the index still names that copy (I11).
    pub(crate) copies: Option<Vec<(Slot, u32)>>,
    /// Places tried.
    pub(crate) places: u8,
}

impl AppendRun {
    fn kind(&self, dirty: bool) -> BlockKind {
        BlockKind {
            dirty,
            zero: self.zero,
            retained: self.reclaim,
        }
    }

    /// Cuts the run after `blocks` blocks and returns the rest.
    fn split_off(&mut self, blocks: u16, block_bytes: usize) -> AppendRun {
        let keys = self.keys.split_off(blocks);
        let copies = self
            .copies
            .as_mut()
            .map(|copies| copies.split_off(usize::from(blocks)));
        let mut rest = AppendRun {
            keys,
            copies,
            buf: Buf::EMPTY,
            ..*self
        };
        if !self.zero {
            let kept_bytes = usize::from(blocks) * block_bytes;
            rest.buf = self
                .buf
                .slice(kept_bytes, self.buf.len_bytes as usize - kept_bytes);
            self.buf = self.buf.slice(0, kept_bytes);
        }
        rest
    }
}

/// The end of an append, for the owner of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) owner: Owner,
    pub(crate) blocks: u16,
    pub(crate) result: Result<(), Failure>,
}

/// A run that has its slots.
#[derive(Clone, Debug)]
pub(crate) struct PlacedAppend {
    pub(crate) run: AppendRun,
    pub(crate) record: RecordId,
    pub(crate) slot: Slot,
    pub(crate) checksums: SmallVec<[u32; 4]>,
    /// Bytes of entries set aside for it until it is published.
    pub(crate) cost_bytes: usize,
    pub(crate) attempts: u8,
}

impl Store {
    /// Appends a run, now or as soon as there is room. The owner hears of the end in one or more
    /// parts ([`Appended`]).
    pub(crate) fn append(&mut self, now: Nanos, run: AppendRun, memory: &mut dyn Memory) {
        assert!(
            !run.dirty || run.stream == Stream::Write,
            "I17: dirty lives in write"
        );
        if self.failed_cache() {
            return self.append_failed(&run);
        }
        if run.stream == Stream::Write && !run.reclaim && self.combines() {
            self.waiting.combined.push_back(run);
        } else {
            self.append_rest(now, run, memory);
        }
    }

    /// Whether header and data of a write go out together.
    pub(crate) fn combines(&self) -> bool {
        self.settings.commit == crate::settings::Commit::Write || self.sync_writer.is_one()
    }

    fn append_rest(&mut self, now: Nanos, run: AppendRun, memory: &mut dyn Memory) {
        let mut next = Some(run);
        while let Some(run) = next {
            let Some((record, slot, granted)) = self.reserve(now, &run, memory) else {
                if !run.dirty {
                    // Nobody waits for a promotion or a copy of what the origin has; its buffer,
                    // or the segment it is copied from, may be what others wait for.
                    return self.append_failed(&run);
                }
                self.waiting.runs.push_back(run);
                return;
            };
            let (placed, rest) = self.place(run, record, slot, granted, memory);
            next = rest;
            self.log.records.at(record).pending += 1;
            if placed.run.zero {
                self.publish_placed(now, placed, memory);
            } else {
                self.write_run(placed);
            }
        }
    }

    /// Gives the first `granted` blocks of a run their slots; returns the rest of it.
    fn place(
        &mut self,
        mut run: AppendRun,
        record: RecordId,
        slot: Slot,
        granted: u16,
        memory: &mut dyn Memory,
    ) -> (PlacedAppend, Option<AppendRun>) {
        let block_bytes = self.block_bytes();
        let rest = (granted < run.keys.len()).then(|| run.split_off(granted, block_bytes));
        let mut checksums = SmallVec::new();
        if let Some(copies) = &run.copies {
            checksums.extend(copies.iter().map(|(_, checksum)| *checksum));
        } else if !run.zero {
            let blocks = memory.bytes(run.buf).chunks_exact(block_bytes);
            checksums.extend(blocks.map(crc32c));
        }
        let cost_bytes = run.keys.cost_bytes(granted);
        (
            PlacedAppend {
                run,
                record,
                slot,
                checksums,
                cost_bytes,
                attempts: 0,
            },
            rest,
        )
    }

    fn write_run(&mut self, placed: PlacedAppend) {
        let places = self.log.block_written_at(placed.slot);
        self.stats.cache_data_written_bytes += u64::from(placed.run.buf.len_bytes);
        let operation = Operation::write_at(places, one_buf(placed.run.buf));
        self.issue(
            Op::AppendData(Box::new(placed)),
            Device::Cache(0),
            operation,
        );
    }

    pub(crate) fn append_data_done(
        &mut self,
        now: Nanos,
        mut placed: PlacedAppend,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if result.is_ok() {
            return self.publish_placed(now, placed, memory);
        }
        self.stats.cache_write_errors += 1;
        placed.attempts += 1;
        if placed.attempts < ATTEMPTS && !self.failed_cache() {
            return self.write_run(placed);
        }
        // Nothing names these slots yet: their record goes on without them.
        let record = placed.record;
        self.release(record, placed.cost_bytes, placed.run.keys.len());
        let mut run = placed.run;
        run.places += 1;
        self.transfer_ended(now, record, memory);
        if run.places < ATTEMPTS && !self.failed_cache() {
            self.append_rest(now, run, memory);
        } else {
            self.fail_cache("writes to the cache device fail");
            self.append_failed(&run);
        }
    }

    /// Publishes a run whose data is on the device: each block that its owner still owns gets
    /// its number and its place in the index (I11).
    fn publish_placed(&mut self, now: Nanos, placed: PlacedAppend, memory: &mut dyn Memory) {
        let PlacedAppend {
            run,
            record,
            slot,
            checksums,
            cost_bytes,
            ..
        } = placed;
        self.release(record, cost_bytes, run.keys.len());
        if self.comes_too_late(&run, record) {
            self.forget_copies(&run);
            self.transfer_ended(now, record, memory);
            return self.append_rest(now, run, memory);
        }
        let count = run.keys.len();
        // Nobody takes blocks from a write; promotions and copies may have lost some.
        let owned = run.dirty && run.copies.is_none();
        let mut at = 0;
        while at < count {
            if !owned && !self.may_publish(&run, at) {
                self.stats.promotions_overtaken += u64::from(run.copies.is_none());
                at += 1;
                continue;
            }
            let dirty = self.is_still_dirty(&run, at);
            let mut len = 1;
            while at + len < count
                && len < crate::format::entry::MAX_COUNT
                && run.keys.get(at + len).0 == run.keys.get(at).0 + u64::from(len)
                && (owned || self.may_publish(&run, at + len))
                && dirty == self.is_still_dirty(&run, at + len)
            {
                len += 1;
            }
            let first = Slot(slot.0 + u32::from(at));
            let checks = if run.zero {
                &[][..]
            } else {
                &checksums[usize::from(at)..usize::from(at + len)]
            };
            let entry = self.data_entry(run.zero, dirty, run.keys.get(at), first, len);
            self.publish(record, entry, checks, memory);
            for i in 0..len {
                let checksum = checks.get(usize::from(i)).copied().unwrap_or(0);
                self.index_block(
                    run.keys.get(at + i),
                    Slot(first.0 + u32::from(i)),
                    checksum,
                    run.kind(dirty),
                );
                if run.copies.is_some() && run.stream == Stream::Write {
                    self.locks.note_copied(run.keys.get(at + i));
                }
            }
            at += len;
        }
        self.transfer_ended(now, record, memory);
        self.append_done(&run);
    }

    /// I2: within a stream older entries go first, so the newest entry of a block may not get into
    /// a segment below an older entry of it. An entry can try to when its data takes long: its
    /// segment is full, and the next segment has taken a copy of the version it replaces.
    ///
    /// Only reclaim publishes a block that somebody else owns, and only the write stream takes
    /// copies of blocks that a write can be under way to. Promotions are of blocks that are not
    /// cached, and a copy that another overtook is not published. No weaker condition may count:
    /// writes that fill each other's segments would be written again and again, for ever.
    fn comes_too_late(&self, run: &AppendRun, record: RecordId) -> bool {
        let was_copied = run.stream == Stream::Write
            && run.copies.is_none()
            && (0..run.keys.len()).any(|at| self.locks.was_copied(run.keys.get(at)));
        if !was_copied {
            return false;
        }
        let id = self.log.records.get(record).expect("in progress").segment;
        self.log.segments[id.0 as usize].state != SegmentState::Open
    }

    fn forget_copies(&mut self, run: &AppendRun) {
        for at in 0..run.keys.len() {
            self.locks.forget_copied(run.keys.get(at));
        }
    }

    fn may_publish(&self, run: &AppendRun, index: u16) -> bool {
        let key = run.keys.get(index);
        match &run.copies {
            Some(copies) => {
                self.index.find(key) == Some(copies[usize::from(index)].0)
                    && !self.numbered.contains_key(&key)
            }
            None => {
                self.locks.owner(key) == Some(run.owner) || planted::is(Bug::PromotionOverwrites)
            }
        }
    }

    /// A copy of a dirty block is of a clean one if write-back was done with it in the meantime.
    /// Indexed as dirty it would contradict those that have seen it clean since (I5).
    fn is_still_dirty(&self, run: &AppendRun, index: u16) -> bool {
        let copied = run.copies.as_ref();
        let cleaned = |copies: &Vec<(Slot, u32)>| {
            let (slot, _) = copies[usize::from(index)];
            !self.index.flags(slot).dirty()
        };
        run.dirty && !copied.is_some_and(cleaned)
    }

    fn data_entry(&self, zero: bool, dirty: bool, key: BlockKey, slot: Slot, count: u16) -> Entry {
        let slot = self.log.per_segment().slot_in_segment(slot);
        if zero {
            Entry::Zero {
                key,
                slot,
                count,
                dirty,
            }
        } else {
            Entry::Data {
                key,
                slot,
                count,
                dirty,
            }
        }
    }

    /// Gives an entry its number and adds it to its record, to the segment's summary and to the
    /// crash journal, in that order complete before anyone is told.
    fn publish(
        &mut self,
        record: RecordId,
        entry: Entry,
        checksums: &[u32],
        memory: &mut dyn Memory,
    ) {
        let number = self.log.next_number;
        self.log.next_number += u64::from(entry.count());
        let shard = self.log.shard;
        let record = self.log.records.at(record);
        record.entries.push(number, entry, checksums);
        if let Some(page) = &mut record.journal {
            page.push(memory.journal_mut(shard), number, entry, checksums);
        }
        let segment = record.segment;
        self.log
            .filling(segment)
            .entries
            .push(number, entry, checksums);
    }

    /// Logs an entry that carries no blocks. The caller has made room with
    /// [`Engine::ensure_entry_room`].
    pub(crate) fn log_entry(&mut self, stream: Stream, entry: Entry, memory: &mut dyn Memory) {
        let segment = self.log.streams[stream as usize]
            .open
            .expect("room was made");
        let record = self.log.filling(segment).record.expect("room was made");
        self.publish(record, entry, &[], memory);
    }

    /// Logs a `Drop` of a block in every stream of a mask, or in none if one has no room (I3).
    pub(crate) fn log_drops(
        &mut self,
        now: Nanos,
        key: BlockKey,
        streams: u8,
        claim: Claim,
        memory: &mut dyn Memory,
    ) -> bool {
        if streams == 0 {
            return true;
        }
        let wanted = Stream::ALL
            .into_iter()
            .filter(|stream| streams & stream.bit() != 0);
        for stream in wanted.clone() {
            if !self.ensure_entry_room(now, stream, 1, claim, memory) {
                return false;
            }
        }
        for stream in wanted {
            self.log_entry(stream, Entry::Drop { key, count: 1 }, memory);
        }
        true
    }

    /// Makes sure that `entries` entries without blocks fit the open record of a stream.
    pub(crate) fn ensure_entry_room(
        &mut self,
        now: Nanos,
        stream: Stream,
        entries: usize,
        claim: Claim,
        memory: &mut dyn Memory,
    ) -> bool {
        let cost = entries * EntryList::cost_bytes(0);
        assert!(
            cost <= ENTRY_BYTES / 2,
            "asked for a record's worth at most"
        );
        loop {
            let Some(record) = self.open_record(now, stream, 0, cost, claim, memory) else {
                return false;
            };
            let has_journal_room = {
                let record = self.log.records.get(record).expect("open");
                record
                    .journal
                    .as_ref()
                    .is_none_or(|page| page.has_room(entries, 0))
            };
            if self.entry_room(record) >= cost && has_journal_room {
                return true;
            }
            self.close_record(now, record, memory);
        }
    }

    /// Bytes of entries that the record, its segment's summary and its journal page can still take.
    fn entry_room(&mut self, record: RecordId) -> usize {
        let record = self.log.records.at(record);
        let (segment, used) = (
            record.segment,
            record.entries.as_bytes().len() + record.reserved_bytes,
        );
        ENTRY_BYTES
            .saturating_sub(used)
            .min(self.log.filling(segment).room_bytes())
    }

    /// Ends the setting aside of bytes for a run: it is published, or will not be.
    pub(crate) fn release(&mut self, record: RecordId, cost_bytes: usize, blocks: u16) {
        let record = self.log.records.at(record);
        record.reserved_bytes -= cost_bytes;
        if let Some(page) = &mut record.journal {
            page.release(usize::from(blocks));
        }
        let segment = record.segment;
        self.log.filling(segment).reserved_bytes -= cost_bytes;
    }

    /// Finds slots for the first blocks of a run: record, first slot and how many.
    pub(crate) fn reserve(
        &mut self,
        now: Nanos,
        run: &AppendRun,
        memory: &mut dyn Memory,
    ) -> Option<(RecordId, Slot, u16)> {
        loop {
            let record = self.open_record(
                now,
                run.stream,
                1,
                run.keys.cost_bytes(1),
                Claim::of(run.reclaim),
                memory,
            )?;
            let room = self.entry_room(record);
            let slots = self.log.geometry.slots_per_segment() as u16;
            let segment = self.log.records.at(record).segment;
            let next_slot = self.log.filling(segment).next_slot;
            let mut granted = run
                .keys
                .len()
                .min(slots - next_slot)
                .min(run.keys.blocks_for(room));
            if let Some(page) = &self.log.records.at(record).journal {
                let blocks = usize::from(granted);
                granted = blocks.min(page.blocks_that_fit()) as u16;
            }
            if granted == 0 {
                self.close_record(now, record, memory);
                continue;
            }
            if let Some(page) = &mut self.log.records.at(record).journal {
                page.reserve(usize::from(granted));
            }
            let cost = run.keys.cost_bytes(granted);
            let filling = self.log.filling(segment);
            filling.next_slot += granted;
            filling.reserved_bytes += cost;
            let record_state = self.log.records.at(record);
            record_state.blocks += granted;
            record_state.reserved_bytes += cost;
            return Some((record, self.log.geometry.slot(segment, next_slot), granted));
        }
    }

    /// Notes for the owner of a run that it is in the log, as far as it was still owned.
    fn append_done(&mut self, run: &AppendRun) {
        self.note_ended(run, Ok(()));
    }

    /// Notes for the owner of a run that it cannot be appended.
    fn append_failed(&mut self, run: &AppendRun) {
        self.note_ended(run, Err(Failure::Io));
    }

    fn note_ended(&mut self, run: &AppendRun, result: Result<(), Failure>) {
        self.waiting.ended.push_back(Appended {
            owner: run.owner,
            blocks: run.keys.len(),
            result,
        });
    }

    /// Places the runs that waited for room, in order.
    pub(crate) fn retry_backlog(&mut self, now: Nanos, memory: &mut dyn Memory) {
        for _ in 0..self.waiting.runs.len() {
            let Some(run) = self.waiting.runs.pop_front() else {
                break;
            };
            if self.failed_cache() {
                self.append_failed(&run);
            } else {
                self.append_rest(now, run, memory);
            }
        }
        for id in std::mem::take(&mut self.waiting.headers) {
            self.write_header(id, memory);
        }
        for id in std::mem::take(&mut self.waiting.seals) {
            self.write_seal(id, memory);
        }
    }
}
