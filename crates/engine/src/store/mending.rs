//! Blocks that one of two devices gave wrong or not at all are written there again, from the other's
//! copy (I23, I28). A device that fails that write too is lost.

use crate::format::Slot;
use crate::interface::{Buf, Device, Memory, Operation, one_buf};
use crate::store::Store;
use crate::store::op::Op;

impl Store {
    /// Blocks in a row from `slot` on were read well at this attempt, and not at the one before.
    /// Without memory they are left as they are: the next read that fails tries again.
    pub(crate) fn mend(&mut self, slot: Slot, attempt: u8, from: Buf, memory: &mut dyn Memory) {
        let segment = self.log.per_segment().segment_of(slot);
        if attempt == 0 || !self.log.is_on_two(segment) || self.failed_cache() {
            return;
        }
        let Some(buf) = memory.alloc(from.len_bytes as usize) else {
            return;
        };
        memory.copy(from, buf);
        self.stats.mended_blocks += u64::from(from.len_bytes) / self.block_bytes() as u64;
        self.log.segment(segment).pins += 1;
        let operation = Operation::Write {
            offset_bytes: self.log.map.address_at(slot, attempt - 1),
            bufs: one_buf(buf),
        };
        self.issue(Op::Mend { slot, buf }, Device::Cache(0), operation);
    }

    /// The write has ended, well or not.
    pub(crate) fn mended(&mut self, slot: Slot, buf: Buf, memory: &mut dyn Memory) {
        memory.free(buf);
        self.unpin(slot);
    }
}
