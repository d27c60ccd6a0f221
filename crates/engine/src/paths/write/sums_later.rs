//! Checksums of a long write, made while the device has the data.
//!
//! Only the header of the write needs them, and that is made when the data is on the device. An
//! example: 128 KiB in write-back.
//!
//! 1. The engine issues the write of 32 blocks, without checksums. The driver gives it to the
//!    kernel.
//! 2. The driver calls [`Engine::checksum_long_writes`]: 32 checksums, for 5 to 10 µs, while the
//!    device works.
//! 3. The write has ended. Its entries go into the log, with the checksums. Had the driver not
//!    called, they would be made now.

use crate::checksum::crc32c;
use crate::interface::Memory;
use crate::parts::Engine;
use crate::store::op::{FastWrite, Op};

/// Writes from this length on have their checksums made later, in bytes. Those of shorter ones take
/// less time than it takes to give the kernel one thing more.
pub const CHECKSUMMED_LATER_BYTES: u32 = 32 << 10;

impl Engine {
    /// Makes the checksums of long writes whose transfers are in flight, if they have none yet. For
    /// a driver that has just given such a transfer ([`CHECKSUMMED_LATER_BYTES`]) to the device.
    pub fn checksum_long_writes(&mut self, memory: &dyn Memory) {
        let block_bytes = self.store.block_bytes();
        for op in self.store.operations.iter_mut() {
            if let Op::FastWrite(write) = op {
                write.make_checksums(block_bytes, memory);
            }
        }
    }
}

impl FastWrite {
    /// Makes its checksums if they are still to be made.
    pub(super) fn make_checksums(&mut self, block_bytes: usize, memory: &dyn Memory) {
        if let Some(checksums) = &mut self.checksums
            && checksums.is_empty()
        {
            *checksums = checksums_of(memory.bytes(self.buf), block_bytes);
        }
    }
}

/// The checksum of each block. Boxed twice, as an operation has room for one address.
pub(super) fn checksums_of(data: &[u8], block_bytes: usize) -> Box<Box<[u32]>> {
    Box::new(data.chunks_exact(block_bytes).map(crc32c).collect())
}
