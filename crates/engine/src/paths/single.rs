//! The shortest way of a write: one whole block that nobody owns, into an open record that has
//! room, in write-back mode. It makes no job and no request state; whatever is not as simple as
//! that, then or later, goes through `quick`.

use smallvec::smallvec;

use crate::buffer::MemoryBuffer;
use crate::bypass::Direction;
use crate::engine::Engine;
use crate::format::Stream;
use crate::interface::{
    Ack, Device, DeviceError, Memory, Nanos, Operation, Request, RequestKind, one_buf,
};
use crate::map::locks::NO_JOB;
use crate::paths::quick::quick_piece;
use crate::store::append::PlacedPiece;
use crate::store::append::one::COST_BYTES;
use crate::store::contents::BlockKind;
use crate::store::op::{Op, Placed, SingleWrite};

impl Engine {
    /// Logs a write that is to be logged in write-back mode, if it is as simple as can be.
    /// Returns whether it was.
    pub(crate) fn write_single(
        &mut self,
        now: Nanos,
        request: &Request,
        memory: &mut dyn Memory,
    ) -> bool {
        let block_bytes = self.store.block_bytes();
        if request.len_bytes as usize != block_bytes
            || !request.offset_bytes.is_multiple_of(block_bytes as u64)
            || request.kind != (RequestKind::Write { fua: false })
            || self.store.combines()
            || !self.origin.throttle.is_empty()
            || self.store.dirty_is_high()
        {
            return false;
        }
        let key = self.store.key_at(request.volume, request.offset_bytes);
        if !self.store.locks.lock_free(key, NO_JOB) {
            return false;
        }
        let Some((record, slot)) = self.store.reserve_one(Stream::Write) else {
            self.store.locks.unlock(key, NO_JOB);
            return false;
        };
        self.singles_in_flight += 1;
        self.store.stats.cache_data_written_bytes += u64::from(request.len_bytes);
        let write = SingleWrite {
            id: request.id,
            volume: request.volume,
            started: now,
            buf: request.buf,
            placed: Placed {
                key,
                record,
                slot,
                checksum: crc32c::crc32c(memory.bytes(request.buf)),
            },
        };
        let operation = Operation::Write {
            offset_bytes: self.store.log.map.slot_address(slot),
            bufs: one_buf(request.buf),
        };
        self.store
            .issue_quietly(Op::SingleWrite(write), Device::Cache(0), operation);
        true
    }

    // By itself: within `complete` its registers are saved for every read too.
    #[inline(never)]
    pub(crate) fn single_done(
        &mut self,
        now: Nanos,
        write: SingleWrite,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.singles_in_flight -= 1;
        let Placed {
            key,
            record,
            slot,
            checksum,
        } = write.placed;
        if result.is_err() || self.store.locks.was_copied(key) {
            return self.single_as_piece_done(now, &write, result, memory);
        }
        let ends = self.store.publish_one(&write.placed, true, memory);
        let kind = BlockKind {
            dirty: true,
            zero: false,
            retained: false,
        };
        self.policy.note_use(key);
        let hit = self.store.index_block(key, slot, checksum, kind);
        self.store.stats.write_blocks_hit += u64::from(hit);
        self.store.stats.write_blocks_missed += u64::from(!hit);
        if ends {
            self.store.stir();
            self.store.write_header(record, memory);
        }
        if let Some(next) = self.store.locks.unlock(key, NO_JOB) {
            self.store.stir();
            self.runnable.push_back(next.0);
        }
        if let Some(part) = MemoryBuffer::part_of(write.id) {
            self.store.stir();
            return self.buffer_request_ended(part, Ok(()));
        }
        self.acks.push_back(Ack {
            id: write.id,
            result: Ok(()),
            around: false,
        });
        let took = now.since(write.started);
        self.store.stats.write_latency.record(took);
        if self.policy.gate.watches {
            self.policy.gate.answered(Direction::Write, now, took);
        }
    }

    /// The same of one that failed, or that is too late where it is if its segment is full.
    #[cold]
    fn single_as_piece_done(
        &mut self,
        now: Nanos,
        write: &SingleWrite,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.stir();
        self.store.stats.single_writes_requeued += 1;
        let placed = self.write_as_piece(write);
        self.store.append_data_done(now, placed, result, memory);
        self.tell_appended(now, memory);
    }

    /// The same write as a piece with a job and a request, for what goes another way.
    fn write_as_piece(&mut self, write: &SingleWrite) -> PlacedPiece {
        let Placed {
            key,
            record,
            slot,
            checksum,
        } = write.placed;
        let block_bytes = self.store.block_bytes() as u32;
        let blocks = key.0 - self.store.volume(write.volume).config.base.0;
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
        let owner = self.begin_quick(write.started, name, key, 1);
        self.store.locks.steal(key, owner);
        PlacedPiece {
            piece: quick_piece(key, 1, write.buf, owner),
            record,
            slot,
            checksums: smallvec![checksum],
            cost_bytes: COST_BYTES,
            attempts: 0,
        }
    }
}
