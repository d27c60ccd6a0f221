//! Reading ahead from the cache device. A client that reads in sequence and has one request at a
//! time waits for the device at each, and the device for the client. So the blocks that it will ask
//! for next are read into memory meanwhile, as far as they are cached. Nothing is read from the
//! origin, nor let into the cache, that nobody asked for.
//!
//! A slot is filled once a generation, so a block read ahead from it is the block that a hit would
//! read there, as long as the index names the slot in that generation. That is looked at when a
//! client asks, and no write has to know of blocks read ahead (I1).

use crate::ahead::{AheadRun, LEAST_IN_ROW, MOST_BYTES, MOST_REQUESTS, TIMEOUT};
use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot};
use crate::ids::{AheadId, RequestIndex};
use crate::interface::{Buf, Device, DeviceError, Memory, Nanos, Operation, VolumeSlot, one_buf};
use crate::parts::Engine;
use crate::paths::read::{ReadRun, Reading, hit_of_run};
use crate::planted::{self, Bug};
use crate::store::op::Op;

impl Engine {
    /// Gives back the memory of blocks read ahead, for a caller that has none. Blocks still being
    /// read follow when the device has answered. True if any memory was held.
    pub fn drop_read_ahead(&mut self, memory: &mut dyn Memory) -> bool {
        let held = !self.ahead.is_empty();
        self.ahead.drop_all(memory);
        held
    }

    /// Reads cached blocks of a request for several: from memory if they were read ahead. If such
    /// requests are in sequence, the blocks after these are read ahead.
    pub(super) fn read_hits(
        &mut self,
        now: Nanos,
        reading: &Reading,
        run: ReadRun,
        slot: Slot,
        memory: &mut dyn Memory,
    ) {
        let (index, request) = (reading.index, reading.request);
        let is_first = run.dest.start_sector == request.buf.start_sector;
        let first = run.key;
        let whole = run.skip_bytes == 0
            && run.dest.len_bytes as usize == usize::from(run.count) * self.store.block_bytes();
        let copies = whole && !run.dest.is_of_client();
        let is_ahead = copies && self.serve_ahead(now, index, request.volume, run, slot, memory);
        let from_origin =
            !is_ahead && copies && self.ends_sooner_on_origin(request.volume, &run, slot);
        if from_origin {
            self.read_hit_from_origin(now, index, request.volume, run, slot);
        } else if !is_ahead {
            self.read_hit(now, index, request.volume, run, slot, memory);
        }
        if !whole || !is_first {
            return;
        }
        self.ahead.drop_before(first, memory);
        let blocks = u64::from(request.len_bytes) / self.store.block_bytes() as u64;
        let end = first.plus(blocks);
        if !self.ahead.is_next(first, end) {
            return self.ahead.drop_all(memory);
        }
        // With more than one request in progress the client keeps the device busy itself. Past the
        // cache, clean blocks there serve nobody.
        let in_progress = self.requests.len() + self.jobs.hits_alone;
        let is_due = self.ahead.in_row >= LEAST_IN_ROW && in_progress <= 1;
        if is_due && !reading.passthrough && !from_origin {
            self.read_ahead(now, end, blocks, memory);
        }
    }

    /// Answers a part of a request with blocks read ahead. False if they are not the versions
    /// cached now.
    fn serve_ahead(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        run: ReadRun,
        slot: Slot,
        memory: &mut dyn Memory,
    ) -> bool {
        let ahead = &mut self.ahead;
        let of_key = |id: &AheadId| ahead.runs.get(*id).map(|run| run.key);
        let at = ahead
            .wanted
            .iter()
            .position(|id| of_key(id) == Some(run.key));
        let Some(at) = at else {
            return false;
        };
        let id = ahead.wanted[at];
        let held = ahead.runs.at(id);
        let is_same = held.slot == slot
            && held.generation == self.store.log.segment_of(slot).generation
            || planted::is(Bug::AheadServedStale);
        if !is_same || held.count != run.count {
            return false;
        }
        ahead.wanted.remove(at);
        let read = hit_of_run(request, volume, &run, slot);
        let is_read = held.is_read;
        if is_read {
            memory.copy(held.buf, run.dest);
            ahead.forget(id, memory);
        } else {
            held.reader = Some(read);
        }
        self.store.stats.blocks_served_ahead += u64::from(run.count);
        self.count_read_hits(now, run.key, run.count, slot);
        if !is_read {
            self.add_part(request);
        }
        true
    }

    /// Reads the blocks of the next requests, of so many blocks each, from `next` on.
    fn read_ahead(&mut self, now: Nanos, next: BlockKey, blocks: u64, memory: &mut dyn Memory) {
        let block_bytes = self.store.block_bytes();
        // Whole requests: a run serves one that asks for just its blocks.
        let fit = MOST_BYTES / (blocks * block_bytes as u64);
        let due = u64::from(self.ahead.in_row - LEAST_IN_ROW + 1);
        let end = next.plus(due.min(MOST_REQUESTS).min(fit) * blocks);
        let mut key = self.ahead.planned.max(next);
        while key < end {
            let Some(slot) = self.store.index.find(key) else {
                break;
            };
            // Cut as the request will be.
            let request_end = next.plus(((key.0 - next.0) / blocks + 1) * blocks);
            let mut count: u16 = 1;
            while key.0 + u64::from(count) < request_end.0
                && self.continues(
                    Some(slot),
                    self.store.index.find(key.plus(u64::from(count))),
                    count,
                )
            {
                count += 1;
            }
            if !self.store.index.flags(slot).zero() {
                let Some(buf) = memory.alloc(usize::from(count) * block_bytes) else {
                    break;
                };
                self.start_reading_ahead(now, key, count, slot, buf);
            }
            key = key.plus(u64::from(count));
        }
        self.ahead.planned = key;
    }

    fn start_reading_ahead(&mut self, now: Nanos, key: BlockKey, count: u16, slot: Slot, buf: Buf) {
        self.ahead.expires = Some(Nanos(now.0 + TIMEOUT.0));
        let segment = self.store.log.segment_of(slot);
        segment.pins += 1;
        let id = self.ahead.runs.insert(AheadRun {
            key,
            count,
            slot,
            generation: segment.generation,
            buf,
            is_read: false,
            is_dropped: false,
            reader: None,
        });
        self.ahead.wanted.push_back(id);
        self.store.stats.blocks_read_ahead += u64::from(count);
        let offset_bytes = self.store.log.map.slot_address(slot);
        self.store.issue(
            Op::ReadAhead(id),
            Device::Cache(0),
            Operation::Read {
                offset_bytes,
                bufs: one_buf(buf),
            },
        );
    }

    pub(crate) fn read_ahead_done(
        &mut self,
        now: Nanos,
        id: AheadId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let run = self.ahead.runs.at(id);
        let (slot, buf, is_dropped) = (run.slot, run.buf, run.is_dropped);
        let reader = run.reader.take();
        self.store.unpin(slot);
        let is_whole = result.is_ok() && self.is_what_is_stored(slot, memory.bytes(buf));
        let Some(mut read) = reader else {
            if is_whole && !is_dropped {
                self.ahead.runs.at(id).is_read = true;
                return;
            }
            self.ahead.wanted.retain(|wanted| *wanted != id);
            return self.ahead.forget(id, memory);
        };
        if is_whole {
            // The buffer is given back with the answer.
            self.ahead.runs.remove(id);
            read.bounce = Some((buf, 0));
            return self.deliver_hit(now, read, memory);
        }
        // The read has its own tries, and its own ways if they fail.
        self.ahead.forget(id, memory);
        self.start_hit_read(read);
    }

    pub(super) fn is_what_is_stored(&self, slot: Slot, bytes: &[u8]) -> bool {
        let mut blocks = bytes.chunks_exact(self.store.block_bytes()).zip(slot.0..);
        blocks.all(|(block, slot)| crc32c(block) == self.store.index.checksum(Slot(slot)))
    }
}
