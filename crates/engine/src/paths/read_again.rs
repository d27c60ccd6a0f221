//! Reads of the origin that must be made again: their promotion could not be read, or they may have
//! brought contents that the origin went back to.

use crate::format::BlockKey;
use crate::interface::{Buf, Failure, Memory, Nanos, VolumeSlot};
use crate::parts::Engine;
use crate::paths::promote::promotes_from;
use crate::paths::read::ReadRun;
use crate::planted::{self, Bug};
use crate::store::op::{MissRead, Op, Reader};

impl Engine {
    /// The range that was to be promoted can be larger than the range the reader asked for: the
    /// reader's range alone is read again, so that a bad sector beside it is no error for the
    /// reader.
    pub(super) fn read_again_for(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        key: BlockKey,
        reader: Reader,
    ) {
        if reader.dest == Buf::EMPTY {
            return self.finish_part(now, reader.request, Ok(()));
        }
        self.start_miss_read(
            now,
            MissRead {
                volume,
                key,
                reader,
            },
        );
    }

    /// I10: a flush of this origin failed, and it may have gone back to older contents. A read that
    /// is on its way there can bring these, although the block was written again, and acknowledged,
    /// since the read began: the cache has it then, and the read is older than anything a client
    /// may see (I1). Nobody knows which contents it brings, so its answer does not count.
    pub(crate) fn doubt_reads(&mut self, volume: VolumeSlot) {
        if planted::is(Bug::DoubtsForgotten) {
            return;
        }
        let jobs = &self.jobs.table;
        let concerns = |op: &Op| match op {
            Op::MissRead(read) => read.volume == volume,
            Op::PromoteOneRead(promotion, _) => promotion.volume == volume,
            Op::PromoteRead(job) => promotes_from(jobs, *job) == volume,
            _ => false,
        };
        let operations = &mut self.store.operations;
        operations.change(concerns, |op| Op::DoubtfulRead(Box::new(op)));
    }

    /// A read whose answer does not count has ended: its blocks are read from where they are now.
    pub(crate) fn doubtful_read_done(&mut self, now: Nanos, read: Op, memory: &mut dyn Memory) {
        let (volume, key, reader) = match read {
            Op::MissRead(read) => (read.volume, read.key, read.reader),
            Op::PromoteOneRead(promotion, reader) => {
                let (volume, key) = (promotion.volume, promotion.key);
                self.end_promotion_of_one(promotion, memory);
                (volume, key, reader)
            }
            Op::PromoteRead(job) => self.cancel_promotion(job),
            other => unreachable!("{other:?} is no read of an origin"),
        };
        self.origin_was_read(now, volume);
        if reader.dest.is_of_client() {
            return self.finish_part(now, reader.request, Err(Failure::NotStraight));
        }
        self.read_where_it_is(now, volume, key, reader, memory);
        self.finish_part(now, reader.request, Ok(()));
    }

    pub(super) fn read_where_it_is(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        mut key: BlockKey,
        reader: Reader,
        memory: &mut dyn Memory,
    ) {
        let passthrough = self.bypasses_reads(volume);
        let block_bytes = self.store.block_bytes();
        let total_bytes = reader.dest.len_bytes as usize;
        let mut skip_bytes = reader.skip_bytes as usize;
        let mut at_bytes = 0;
        while at_bytes < total_bytes {
            let len_bytes = (block_bytes - skip_bytes).min(total_bytes - at_bytes);
            let run = ReadRun {
                key,
                count: 1,
                skip_bytes,
                dest: reader.dest.slice(at_bytes, len_bytes),
            };
            if self.is_newest(key, memory) {
                // The block was written meanwhile, and is in the memory buffer and perhaps nowhere
                // else.
                self.buffer.copy_out(key, skip_bytes, run.dest, memory);
            } else if let Some(slot) = self.servable_slot(key, passthrough, || false) {
                self.read_hit(now, reader.request, volume, run, slot, memory);
            } else {
                self.read_origin(now, reader.request, volume, run);
            }
            at_bytes += len_bytes;
            key = key.plus(1);
            skip_bytes = 0;
        }
    }
}
