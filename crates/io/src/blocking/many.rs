//! Many reads of one device in flight at once, as recovery wants them.

use std::io;
use std::os::fd::AsRawFd;

use forebay_engine::{DeviceError, ReadAt};
use io_uring::{IoUring, opcode, types};

use super::widen;
use crate::device::{RealDevice, device_error};
use crate::map::{Map, PAGE_BYTES};

const DEPTH: usize = 64;
/// Size of each read's aligned buffer, in bytes; longer reads are cut.
const PIECE_BYTES: usize = 256 << 10;
/// Room in a piece for the alignment of both its ends.
const PIECE_DATA_BYTES: usize = PIECE_BYTES - 2 * PAGE_BYTES;

/// A part of one of the reads.
#[derive(Clone, Copy, Debug)]
struct ReadSlice {
    read: usize,
    start: usize,
    len_bytes: usize,
}

/// A ring and its buffers, used for nothing else.
pub(super) struct ManyReads {
    ring: IoUring,
    buffers: Map,
}

impl std::fmt::Debug for ManyReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManyReads").finish_non_exhaustive()
    }
}

impl ManyReads {
    pub(super) fn new() -> io::Result<ManyReads> {
        let ring = IoUring::new(DEPTH as u32)?;
        Ok(ManyReads {
            ring,
            buffers: Map::anonymous(DEPTH * PIECE_BYTES)?,
        })
    }

    /// Reads everything; each read has its own result.
    pub(super) fn read(
        &mut self,
        device: &RealDevice,
        alignment: usize,
        reads: &mut [ReadAt<'_>],
    ) -> Vec<Result<(), DeviceError>> {
        let mut results = Vec::with_capacity(reads.len());
        for read in reads.iter() {
            let end = read.offset_bytes.checked_add(read.into.len() as u64);
            let inside = end.is_some_and(|end| end <= device.size_bytes());
            results.push(if inside { Ok(()) } else { Err(DeviceError::Io) });
        }
        let lengths: Vec<usize> = reads.iter().map(|read| read.into.len()).collect();
        let failed = results.clone();
        let mut to_do = lengths
            .iter()
            .enumerate()
            .filter(|(read, _)| failed[*read].is_ok())
            .flat_map(|(read, len)| {
                (0..*len).step_by(PIECE_DATA_BYTES).map(move |start| {
                    let len_bytes = PIECE_DATA_BYTES.min(len - start);
                    ReadSlice {
                        read,
                        start,
                        len_bytes,
                    }
                })
            });
        let mut again: Vec<ReadSlice> = Vec::new();
        let mut slots = [None::<ReadSlice>; DEPTH];
        let mut in_flight = 0;
        loop {
            for (slot, place) in slots.iter_mut().enumerate() {
                if place.is_some() {
                    continue;
                }
                let Some(piece) = again.pop().or_else(|| to_do.next()) else {
                    break;
                };
                if self.submit(
                    device,
                    alignment,
                    slot,
                    piece,
                    reads[piece.read].offset_bytes,
                ) {
                    *place = Some(piece);
                    in_flight += 1;
                } else {
                    again.push(piece);
                    break;
                }
            }
            if in_flight == 0 {
                return results;
            }
            self.wait();
            while let Some(entry) = self.ring.completion().next() {
                let slot = entry.user_data() as usize;
                let Some(piece) = slots.get_mut(slot).and_then(Option::take) else {
                    continue;
                };
                in_flight -= 1;
                let offset_bytes = reads[piece.read].offset_bytes + piece.start as u64;
                let wide = widen(offset_bytes, piece.len_bytes, alignment);
                let got = match entry.result() {
                    result if result >= 0 => (result as usize).saturating_sub(wide.before),
                    result if result == -libc::EINTR || result == -libc::EAGAIN => {
                        again.push(piece);
                        continue;
                    }
                    result => {
                        results[piece.read] = Err(device_error(-result));
                        continue;
                    }
                };
                let got = got.min(piece.len_bytes);
                if got == 0 {
                    results[piece.read] = Err(DeviceError::Io);
                    continue;
                }
                let from = self.buffers.part(slot * PIECE_BYTES + wide.before, got);
                // SAFETY: the slot's read has completed, so these bytes are initialised and ours
                // alone; the slice does not reach into the slots the kernel still writes to.
                let data = unsafe { std::slice::from_raw_parts(from.as_ptr(), got) };
                reads[piece.read].into[piece.start..piece.start + got].copy_from_slice(data);
                if got < piece.len_bytes {
                    let (start, len_bytes) = (piece.start + got, piece.len_bytes - got);
                    again.push(ReadSlice {
                        start,
                        len_bytes,
                        ..piece
                    });
                }
            }
        }
    }

    fn submit(
        &mut self,
        device: &RealDevice,
        alignment: usize,
        slot: usize,
        piece: ReadSlice,
        read_offset_bytes: u64,
    ) -> bool {
        let offset_bytes = read_offset_bytes + piece.start as u64;
        let wide = widen(offset_bytes, piece.len_bytes, alignment);
        let buffer = self.buffers.part(slot * PIECE_BYTES, wide.len_bytes);
        let descriptor = types::Fd(device.file().as_raw_fd());
        let entry = opcode::Read::new(descriptor, buffer.as_ptr(), wide.len_bytes as u32)
            .offset(wide.offset_bytes)
            .build()
            .user_data(slot as u64);
        // SAFETY: the slot's buffer is used by this read alone until it completes, and `read`
        // does not return before that.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Waits for a completion. An error here is passing (a signal, a lack of memory) or a bug,
    /// and leaving with reads in flight is no option: so it is asked again, without haste.
    fn wait(&mut self) {
        if let Err(error) = self.ring.submit_and_wait(1)
            && error.kind() != io::ErrorKind::Interrupted
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
