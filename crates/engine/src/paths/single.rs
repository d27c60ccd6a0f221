//! The shortest way of a write: one whole block that nobody owns, into an open record that has
//! room, in write-back mode. It makes no job and no request state; whatever is not as simple as
//! that, then or later, goes through `quick`.

use smallvec::smallvec;

use crate::append::{BlockKind, PlacedPiece};
use crate::engine::{Engine, Op};
use crate::format::{BlockEntry, BlockKey, EntryList, Slot, Stream};
use crate::interface::{
    Ack, Buf, Bufs, Device, DeviceError, Memory, Nanos, Operation, Request, RequestId, RequestKind,
    VolumeSlot,
};
use crate::locks::NO_JOB;
use crate::log::{Claim, SegmentState};
use crate::paths::quick::quick_piece;

/// Bytes of entries set aside for the block; as much as a piece of one block sets aside.
const COST_BYTES: usize = EntryList::cost_bytes(1);

/// The write of one block on its way into the log.
#[derive(Debug)]
pub(crate) struct SingleWrite {
    id: RequestId,
    started: Nanos,
    key: BlockKey,
    buf: Buf,
    record: u32,
    slot: Slot,
    checksum: u32,
    volume: VolumeSlot,
}

impl Engine {
    /// Logs a write that is to be logged in write-back mode, if it is as simple as can be.
    /// Returns whether it was.
    pub(crate) fn write_single(
        &mut self,
        now: Nanos,
        request: &Request,
        memory: &mut dyn Memory,
    ) -> bool {
        let block_bytes = self.block_bytes();
        if request.len_bytes as usize != block_bytes
            || !request.offset_bytes.is_multiple_of(block_bytes as u64)
            || request.kind != (RequestKind::Write { fua: false })
            || self.combines()
            || !self.throttle.is_empty()
            || self.dirty_is_high()
        {
            return false;
        }
        let key = self.key_at(request.volume, request.offset_bytes);
        if !self.locks.lock_free(key, NO_JOB) {
            return false;
        }
        let Some((record, slot)) = self.reserve_one(Stream::Write) else {
            self.locks.unlock(key, NO_JOB);
            return false;
        };
        self.singles_in_flight += 1;
        self.stats.cache_data_written_bytes += u64::from(request.len_bytes);
        let write = SingleWrite {
            id: request.id,
            started: now,
            key,
            buf: request.buf,
            record,
            slot,
            checksum: crc32c::crc32c(memory.bytes(request.buf)),
            volume: request.volume,
        };
        let operation = Operation::Write {
            offset_bytes: self.log.geometry.slot_offset(self.log.shard, slot),
            bufs: Bufs::from_slice(&[request.buf]),
        };
        self.issue(Op::SingleWrite(write), Device::Cache(0), operation);
        true
    }

    /// A slot in the open record of a stream, if there is one with room for a block.
    fn reserve_one(&mut self, stream: Stream) -> Option<(u32, Slot)> {
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

    pub(crate) fn single_done(
        &mut self,
        now: Nanos,
        write: SingleWrite,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.singles_in_flight -= 1;
        let segment = self.log.geometry.segment_of(write.slot);
        let too_late = self.log.segment(segment).state != SegmentState::Open
            && self.block_comes_too_late(write.key, segment);
        if result.is_err() || too_late {
            let placed = self.as_piece(&write);
            return self.append_data_done(now, placed, result, memory);
        }
        let SingleWrite {
            key,
            slot,
            checksum,
            ..
        } = write;
        let ends = self.publish_single(&write, memory);
        let kind = BlockKind {
            dirty: true,
            zero: false,
            retained: false,
        };
        let hit = self.index_block(key, slot, checksum, kind);
        self.stats.write_blocks_hit += u64::from(hit);
        self.stats.write_blocks_missed += u64::from(!hit);
        if ends {
            self.write_header(write.record, memory);
        }
        if let Some(next) = self.locks.unlock(key, NO_JOB) {
            self.runnable.push_back(next.0);
        }
        self.acks.push_back(Ack {
            id: write.id,
            result: Ok(()),
        });
        self.stats.write_latency.record(now.since(write.started));
    }

    /// Gives the block its number and adds it to its record, the segment's summary and the ring.
    /// Returns whether the record's header can go out.
    fn publish_single(&mut self, write: &SingleWrite, memory: &mut dyn Memory) -> bool {
        let log = &mut self.log;
        let number = log.next_number;
        log.next_number += 1;
        let in_segment = log.geometry.slot_in_segment(write.slot);
        let entry = BlockEntry::new(write.key, in_segment, true);
        let record = log.records.at(write.record);
        record.reserved_bytes -= COST_BYTES;
        record.pending -= 1;
        record.entries.push_block(number, entry, write.checksum);
        if let Some(page) = &mut record.ring {
            page.release(1);
            let ring = memory.ring_mut(log.shard);
            page.push_head(ring, number, entry.head(), &[write.checksum]);
        }
        let (segment, ends) = (record.segment, record.pending == 0 && record.closing);
        let filling = log.filling(segment);
        filling.reserved_bytes -= COST_BYTES;
        filling.entries.push_block(number, entry, write.checksum);
        ends
    }

    /// The same write as a piece with a job and a request, for what goes another way.
    fn as_piece(&mut self, write: &SingleWrite) -> PlacedPiece {
        let block_bytes = self.block_bytes() as u32;
        let volume = self.volume(write.volume);
        let blocks = write.key.0 - volume.config.base.0;
        let name = self.begin_request(
            write.started,
            Request {
                id: write.id,
                volume: write.volume,
                kind: RequestKind::Write { fua: false },
                offset_bytes: blocks * u64::from(block_bytes),
                len_bytes: block_bytes,
                buf: write.buf,
            },
        );
        let owner = self.begin_quick(name, write.key, 1);
        self.locks.steal(write.key, owner);
        PlacedPiece {
            piece: quick_piece(write.key, 1, write.buf, owner),
            record: write.record,
            slot: write.slot,
            checksums: smallvec![write.checksum],
            cost_bytes: COST_BYTES,
            attempts: 0,
        }
    }
}
