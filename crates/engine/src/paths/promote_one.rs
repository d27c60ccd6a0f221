//! Promotion of a single block, the shortest way: without a job. A promotion that does not go
//! smoothly goes on in `promote`.

use smallvec::smallvec;

use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot, Stream};
use crate::ids::RecordId;
use crate::interface::{Buf, Device, DeviceError, Memory, Nanos, Operation, VolumeSlot, one_buf};
use crate::jobs::Turn;
use crate::map::locks::Owner;
use crate::parts::Engine;
use crate::paths::promote::promoted_run;
use crate::planted::{self, Bug};
use crate::store::append::{PlacedAppend, run_cost_bytes};
use crate::store::contents::BlockKind;
use crate::store::op::{Op, PlacedRun, PromoteOne, Reader};

impl Engine {
    /// Reads a block that is not cached and that nobody owns into a buffer of its own.
    pub(crate) fn start_promotion_of_one(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        key: BlockKey,
        buf: Buf,
        reader: Reader,
    ) {
        let (offset_bytes, len_bytes) = self.store.origin_range(volume, key, 1);
        let bufs = one_buf(buf.slice(0, len_bytes));
        let promotion = self.begin_promotion_of_one(volume, key, buf, len_bytes as u32);
        self.add_part(reader.request);
        self.note_bypass(reader.request);
        self.foreground_read(now, volume);
        self.store.issue(
            Op::PromoteOneRead(promotion, reader),
            Device::Origin(volume),
            Operation::Read { offset_bytes, bufs },
        );
    }

    /// Takes the block, of which the first bytes are going to be read.
    #[inline(always)]
    pub(super) fn begin_promotion_of_one(
        &mut self,
        volume: VolumeSlot,
        key: BlockKey,
        buf: Buf,
        valid_bytes: u32,
    ) -> PromoteOne {
        let owner = self.store.locks.promotion();
        let locked = self.store.locks.lock_free(key, owner);
        assert!(locked, "I11: the caller saw that nobody owns the block");
        PromoteOne {
            volume,
            key,
            buf,
            valid_bytes,
            owner,
        }
    }

    pub(crate) fn promote_one_read_done(
        &mut self,
        now: Nanos,
        promotion: PromoteOne,
        reader: Reader,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let PromoteOne { volume, key, .. } = promotion;
        self.origin_was_read(now, volume);
        if result.is_err() {
            self.store.stats.origin_read_errors += 1;
            self.end_promotion_of_one(promotion, memory);
            return self.read_again_for(now, volume, key, reader);
        }
        self.promote_what_was_read(now, promotion, reader, memory);
    }

    /// Answers the reader, then writes the block to the cache.
    #[inline(always)]
    pub(super) fn promote_what_was_read(
        &mut self,
        now: Nanos,
        promotion: PromoteOne,
        reader: Reader,
        memory: &mut dyn Memory,
    ) {
        let PromoteOne {
            key,
            buf,
            valid_bytes,
            ..
        } = promotion;
        self.answer_reader(now, reader, buf, memory);
        if valid_bytes < buf.len_bytes {
            memory.bytes_mut(buf)[valid_bytes as usize..].fill(0);
        }
        self.store.stats.promoted_blocks += 1;
        let stream = self.policy.stream_of_promoted(&mut self.store, key);
        let place = if self.store.failed_cache() {
            None
        } else {
            match self.store.reserve_run(stream, 1) {
                None => self.reserve_any(now, key, stream, memory),
                place => place,
            }
        };
        let Some((record, slot)) = place else {
            // Nobody waits for a promotion.
            return self.end_promotion_of_one(promotion, memory);
        };
        let checksum = crc32c(memory.bytes(buf));
        let run = PlacedRun {
            key,
            count: 1,
            record,
            slot,
        };
        self.store.stats.cache_data_written_bytes += u64::from(buf.len_bytes);
        let operation = Operation::Write {
            offset_bytes: self.store.log.block_written_at(slot).0,
            bufs: one_buf(buf),
        };
        self.store.issue(
            Op::PromoteOneWrite(promotion, run, checksum),
            Device::Cache(0),
            operation,
        );
    }

    /// A place for the block where a record or a segment has to be opened first.
    fn reserve_any(
        &mut self,
        now: Nanos,
        key: BlockKey,
        stream: Stream,
        memory: &mut dyn Memory,
    ) -> Option<(RecordId, Slot)> {
        let run = promoted_run(stream, key, 1, Buf::EMPTY, Owner::FastWrite);
        let (record, slot, _) = self.store.reserve(now, &run, memory)?;
        self.store.log.records.at(record).pending += 1;
        Some((record, slot))
    }

    pub(crate) fn promote_one_written(
        &mut self,
        now: Nanos,
        promotion: PromoteOne,
        (run, checksum): (PlacedRun, u32),
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if result.is_err() {
            let run = self.promotion_as_run(promotion, run, checksum);
            self.store.append_data_done(now, run, result, memory);
            return self.tell_appended(now, memory);
        }
        // I11: a write that came in between has taken the block.
        let owned = self.store.locks.owner(run.key) == Some(promotion.owner);
        if owned || planted::is(Bug::PromotionOverwrites) {
            let ends = self.store.publish_run(&run, false, &[checksum], memory);
            let kind = BlockKind {
                dirty: false,
                zero: false,
                retained: false,
            };
            self.store.index_block(run.key, run.slot, checksum, kind);
            if ends {
                self.store.write_header(run.record, memory);
            }
        } else {
            self.store.stats.promotions_overtaken += 1;
            self.store.release(run.record, run_cost_bytes(1), 1);
            self.store.transfer_ended(now, run.record, memory);
        }
        self.end_promotion_of_one(promotion, memory);
    }

    pub(super) fn end_promotion_of_one(&mut self, promotion: PromoteOne, memory: &mut dyn Memory) {
        if let Some(next) = self.store.locks.unlock(promotion.key, promotion.owner) {
            self.jobs.runnable.push_back(Turn::Job(next));
        }
        memory.free(promotion.buf);
    }

    /// Turns the promotion into a run with a job, for a promotion that goes on another way.
    fn promotion_as_run(
        &mut self,
        promotion: PromoteOne,
        run: PlacedRun,
        checksum: u32,
    ) -> PlacedAppend {
        let PromoteOne {
            volume, key, buf, ..
        } = promotion;
        let job = self.begin_promotion(volume, key, 1, buf, None);
        let owner = Owner::Job(job);
        if self.store.locks.owner(key) == Some(promotion.owner) {
            self.store.locks.steal(key, owner);
        }
        self.promote_job(job).awaits(1);
        // The stream is that of the segment, whatever the ghost says by now.
        let stream = self.store.log.stream_of(run.slot);
        PlacedAppend {
            run: promoted_run(stream, key, 1, buf, owner),
            record: run.record,
            slot: run.slot,
            checksums: smallvec![checksum],
            cost_bytes: run_cost_bytes(1),
            attempts: 0,
        }
    }
}
