//! Reads of blocks that were evicted, from where they were.
//!
//! A segment that was emptied is not used again at once: its tail has to become durable, and some
//! segments are always kept free (I18). Until it is opened again, blocks evicted from it can be
//! read there, and are brought in anew as if they came from the origin. So segments kept free for
//! appends still serve reads.
//!
//! The block read there is clean and the newest version: it was when it was evicted, and any change
//! since takes its entry out of the index or gives it another slot, as if it were cached. The
//! segment is not pinned, since appends must not wait for a read. A segment that was opened
//! meanwhile has another generation, and the origin is read instead.

use crate::bypass::BypassReason;
use crate::checksum::crc32c;
use crate::format::Slot;
use crate::ids::RequestIndex;
use crate::interface::{Device, DeviceError, Memory, Nanos, Operation, VolumeSlot, one_buf};
use crate::parts::Engine;
use crate::paths::read::ReadRun;
use crate::planted::{self, Bug};
use crate::store::op::{Op, VictimRead};

impl Engine {
    /// Reads an evicted block where it was, to answer the reader and then cache it again.
    // Out of the way of hits, which are counted in instructions.
    #[cold]
    pub(super) fn read_victim(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        block: ReadRun,
        slot: Slot,
        memory: &mut dyn Memory,
    ) {
        let key = block.key;
        if let Some(reason) = self.read_bypass(now, volume, key, 1, false) {
            return self.bypass_read(now, request, volume, block, reason);
        }
        let Some(buf) = memory.alloc(self.store.block_bytes()) else {
            return self.bypass_read(now, request, volume, block, BypassReason::NoMemory);
        };
        self.count_hits_elsewhere(now, 1);
        self.store.stats.victim_reads += 1;
        self.add_part(request);
        let read = VictimRead {
            promotion: self.begin_promotion_of_one(volume, key, buf, buf.len_bytes),
            reader: block.reader(request),
            slot,
            checksum: self.store.index.checksum(slot),
            generation: self.store.log.segment_of(slot).generation,
        };
        let operation = Operation::Read {
            offset_bytes: self.store.log.map.slot_address(slot),
            bufs: one_buf(buf),
        };
        self.store
            .issue(Op::VictimRead(Box::new(read)), Device::Cache(0), operation);
    }

    // Out of the way of promotions from the origin, which are counted in instructions.
    #[cold]
    pub(crate) fn victim_read_done(
        &mut self,
        now: Nanos,
        read: VictimRead,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let VictimRead {
            promotion, reader, ..
        } = read;
        if self.is_what_was_there(&read, result, memory) {
            return self.promote_what_was_read(now, promotion, reader, memory);
        }
        let (volume, key) = (promotion.volume, promotion.key);
        self.end_promotion_of_one(promotion, memory);
        self.read_again_for(now, volume, key, reader);
    }

    /// True if a victim read brought the block. The checksum alone would keep wrong contents out:
    /// contents that have it are the block, up to a collision of CRC-32C, wherever they were read.
    /// If the block was written since, the promotion has lost it, and only a reader who asked
    /// before is answered. Reuse of the segment is looked at first: after it a wrong checksum is no
    /// error of the device. Otherwise an error would be counted, and the block hidden if it was
    /// evicted from the same slot once more.
    ///
    /// With the right checksum the two checks differ in a single case: the device read the block
    /// before the segment was used again, and ended the read after that. The origin is read then,
    /// and has the same contents: the block was clean when it was evicted, and nobody wrote it
    /// since or else the answer may be either.
    fn is_what_was_there(
        &mut self,
        read: &VictimRead,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) -> bool {
        let slot = read.slot;
        let segment = self.store.log.segment_of(slot);
        // I8: discarded or taken away meanwhile, its contents say nothing of the device either.
        let is_used_again = segment.generation != read.generation || !segment.evicted;
        if is_used_again && !planted::is(Bug::LateAnyway) {
            return false;
        }
        match result {
            Ok(()) if crc32c(memory.bytes(read.promotion.buf)) == read.checksum => {
                return true;
            }
            Ok(()) => self.store.stats.checksum_errors += 1,
            Err(_) => self.store.stats.cache_read_errors += 1,
        }
        if self.store.evicted_slot(read.promotion.key) == Some(slot) {
            self.store.index.hide_evicted(slot);
        }
        false
    }
}
