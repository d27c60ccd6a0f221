//! Reads of dirty data from the cache device, for write-back.
//!
//! A run is up to a megabyte, and dozens are under way to give the origin something to choose
//! from. Read all at once they stand before every request of a client for as long as the device
//! takes for all of them, although the origin takes much longer to write one. So beside clients
//! they are read piece by piece, one at a time: a client's request waits for one piece at most,
//! and as each of them waits for one, the length of a piece is write-back's share of the device.
//! It grows with dirty data, so that a long write has most of the device for itself at first and
//! comes down to what the origin takes as room runs out, not all at once.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::buffer::MemoryBuffer;
use crate::checksum::crc32c;
use crate::format::Slot;
use crate::ids::WritebackId;
use crate::interface::{Buf, Device, DeviceError, Memory, Nanos, Operation, one_buf};
use crate::origin::Origin;
use crate::origin::idle_cache;
use crate::origin::writeback::CACHE_FOREGROUND;
use crate::store::Store;
use crate::store::device_times::LONG_BYTES;
use crate::store::log::Version;
use crate::store::op::{Op, ReadPart};

/// Bytes of a piece beside clients: at the low mark of dirty data, and three quarters of the way to
/// the high one.
const PIECE_BYTES: (usize, usize) = (32 << 10, 128 << 10);

/// Consecutive slots that are to be read for a run. Their segment is pinned, so that they still
/// mean the same when their turn has come.
#[derive(Clone, Copy, Debug)]
struct SlotRun {
    job: WritebackId,
    /// The place of its first block in the run, and the number of its blocks.
    first: u16,
    count: u16,
    slot: Slot,
    buf: Buf,
}

/// Runs that wait, and how many are being read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: VecDeque<SlotRun>,
    in_flight: u32,
    /// No piece is read before, beside clients that leave the cache device idle.
    next_piece: Nanos,
}

/// The blocks of a piece of so many bytes.
fn blocks_of(bytes: usize, store: &Store) -> u16 {
    (bytes / store.block_bytes()).max(1) as u16
}

impl Reads {
    /// When the next piece may be read, if one waits for that.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (self.in_flight == 0 && !self.waiting.is_empty()).then_some(self.next_piece)
    }
}

impl Origin {
    /// Has the blocks of a run read into its buffer: blocks that the memory buffer still has are
    /// copied, the rest is queued.
    pub(crate) fn read_run(
        &mut self,
        store: &mut Store,
        buffer: &MemoryBuffer,
        id: WritebackId,
        slots: &[Slot],
        memory: &mut dyn Memory,
    ) {
        let job = self.writeback_job(id);
        let (key, buf) = (job.key, job.buf.expect("data is to be read"));
        let block_bytes = store.block_bytes();
        let mut first = 0;
        while first < slots.len() {
            let slot = slots[first];
            let place = buf.slice(first * block_bytes, block_bytes);
            if buffer.copy_from_buffer(store, key.plus(first as u64), slot, place, memory) {
                first += 1;
                continue;
            }
            let segment = store.log.geometry.segment_of(slot);
            // Of two copies, that of a block that could not be read is tried by itself.
            let is_on_two = store.log.is_on_two(segment);
            let tries = |at: usize| {
                let key = key.plus((first + at) as u64);
                store.unreadable.tries(key, slots[first + at])
            };
            let follows = |(at, other): &(usize, &Slot)| {
                other.0 == slot.0 + *at as u32
                    && store.log.geometry.segment_of(**other) == segment
                    && (!is_on_two || *at == 0 || tries(0) + tries(*at) == 0)
            };
            let rest = slots[first..].iter().enumerate();
            let count = rest.take_while(follows).count();
            self.writeback_job(id).reads += 1;
            store.log.segment_of(slot).pins += 1;
            self.writeback.reads.waiting.push_back(SlotRun {
                job: id,
                first: first as u16,
                count: count as u16,
                slot,
                buf: buf.slice(first * block_bytes, count * block_bytes),
            });
            first += count;
        }
    }

    /// Starts the reads whose turn has come. A read is always in flight while any waits, and its
    /// end starts the next, but for the pauses beside clients that leave the device idle.
    pub(crate) fn start_reads(&mut self, store: &mut Store, now: Nanos) {
        if self.writeback.reads.waiting.is_empty() {
            return;
        }
        let longest = if self.reads_in_pieces(store, now) {
            if now < self.writeback.reads.next_piece {
                return;
            }
            self.writeback.reads.next_piece = now.after(idle_cache::PIECE_EVERY);
            Some(blocks_of(idle_cache::piece_bytes(store), store))
        } else {
            self.longest_piece(store, now)
        };
        while longest.is_none() || self.writeback.reads.in_flight == 0 {
            let Some(mut piece) = self.writeback.reads.waiting.pop_front() else {
                return;
            };
            if let Some(longest) = longest.filter(|longest| *longest < piece.count) {
                let rest = self.cut_piece(store, &mut piece, longest);
                self.writeback.reads.waiting.push_front(rest);
            }
            self.writeback.reads.in_flight += 1;
            let op = Op::WritebackRead(ReadPart {
                job: piece.job,
                first: piece.first,
                count: piece.count,
            });
            let key = self
                .writeback_job(piece.job)
                .key
                .plus(u64::from(piece.first));
            let tries = store.unreadable.tries(key, piece.slot);
            let offset_bytes = store.log.map.address_at(piece.slot, tries);
            let bufs = one_buf(piece.buf);
            self.idle_cache.reads(piece.buf.len_bytes);
            store.issue(op, Device::Cache(0), Operation::Read { offset_bytes, bufs });
        }
    }

    /// The number of blocks read at a time, with reads one after the other. `None` if the origin
    /// comes first: no client is there, or clients will soon have to wait for it.
    fn longest_piece(&self, store: &Store, now: Nanos) -> Option<u16> {
        let (low, high) = (
            store.dirty_share(store.settings.dirty_low_percent),
            store.dirty_marks().high,
        );
        let end = low + high.saturating_sub(low) / 4 * 3;
        let dirty = store.present_dirty();
        if dirty >= end || !self.writeback.has_clients(now, CACHE_FOREGROUND) {
            return None;
        }
        let growth = PIECE_BYTES.1 - PIECE_BYTES.0;
        let over = dirty.saturating_sub(low) as usize;
        let bytes = PIECE_BYTES.0 + growth * over / (end - low).max(1) as usize;
        // Long reads alone tell the device's rate, and whether it is idle beside such a client.
        let rate_is_wanted =
            self.writeback.cache_is_in_use(now) && !store.operations.times.cache_rate_is_fresh();
        let least = if rate_is_wanted { LONG_BYTES } else { 0 };
        Some(blocks_of(bytes.max(least as usize), store))
    }

    /// Leaves a piece so many blocks; the answer is the rest of it.
    fn cut_piece(&mut self, store: &mut Store, piece: &mut SlotRun, count: u16) -> SlotRun {
        let at_bytes = usize::from(count) * store.block_bytes();
        let rest = SlotRun {
            job: piece.job,
            first: piece.first + count,
            count: piece.count - count,
            slot: Slot(piece.slot.0 + u32::from(count)),
            buf: piece
                .buf
                .slice(at_bytes, piece.buf.len_bytes as usize - at_bytes),
        };
        piece.count = count;
        piece.buf = piece.buf.slice(0, at_bytes);
        self.writeback_job(piece.job).reads += 1;
        store.log.segment_of(piece.slot).pins += 1;
        rest
    }

    pub(crate) fn writeback_read_done(
        &mut self,
        store: &mut Store,
        now: Nanos,
        part: ReadPart<WritebackId>,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let ReadPart {
            job: id,
            first,
            count,
        } = part;
        let block_bytes = store.block_bytes();
        self.writeback.reads.in_flight -= 1;
        if result.is_err() && count > 1 {
            return self.take_piece_apart(store, now, id, first, count);
        }
        self.start_reads(store, now);
        let job = self.writeback_job(id);
        job.reads -= 1;
        let buf = job.buf.expect("data was read");
        let versions: SmallVec<[Version; 32]> =
            job.versions[usize::from(first)..usize::from(first + count)].into();
        store.log.segment_of(versions[0].slot).pins -= 1;
        store.stats.cache_read_errors += u64::from(result.is_err());
        for (i, version) in versions.iter().enumerate() {
            let at = usize::from(first) + i;
            let block = memory.bytes(buf.slice(at * block_bytes, block_bytes));
            if result.is_err() || crc32c(block) != store.index.checksum(version.slot) {
                store.stats.checksum_errors += u64::from(result.is_ok());
                self.writeback_job(id).unreadable.push(at as u16);
            }
        }
        if self.writeback_job(id).reads > 0 {
            return;
        }
        if self.writeback_job(id).unreadable.is_empty() {
            self.write_run(store, now, id);
        } else {
            self.take_as_unreadable(store, now, id, memory);
        }
    }

    /// Reads each block of a failed transfer by itself before anything is concluded (I23): a single
    /// bad sector is enough to fail it.
    fn take_piece_apart(
        &mut self,
        store: &mut Store,
        now: Nanos,
        id: WritebackId,
        first: u16,
        count: u16,
    ) {
        let block_bytes = store.block_bytes();
        let job = self.writeback_job(id);
        let buf = job.buf.expect("data was read");
        let slot = job.versions[usize::from(first)].slot;
        job.reads += u32::from(count) - 1;
        store.log.segment_of(slot).pins += u32::from(count) - 1;
        store.stats.cache_read_errors += 1;
        for i in 0..count {
            let at_bytes = usize::from(first + i) * block_bytes;
            self.writeback.reads.waiting.push_back(SlotRun {
                job: id,
                first: first + i,
                count: 1,
                slot: Slot(slot.0 + u32::from(i)),
                buf: buf.slice(at_bytes, block_bytes),
            });
        }
        self.start_reads(store, now);
    }

    /// Blocks that cannot be read stay dirty; the rest of the run is written back by a later
    /// sweep.
    fn take_as_unreadable(
        &mut self,
        store: &mut Store,
        now: Nanos,
        id: WritebackId,
        memory: &mut dyn Memory,
    ) {
        let job = self.writeback_job(id);
        let (first, versions, bad) = (job.key, job.versions.clone(), job.unreadable.clone());
        for at in bad {
            let (key, slot) = (first.plus(u64::from(at)), versions[usize::from(at)].slot);
            store.unreadable.failed(key, slot);
        }
        self.end_writeback(store, now, id, memory);
    }
}
