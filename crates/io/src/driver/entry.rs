//! Operations as the ring wants them.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use io_uring::{opcode, squeue, types};

use super::work::{Task, Work};
use crate::map::Map;
use crate::uring::{FileTarget, Uring, with_target};

/// The most the kernel takes in one vector.
const MAX_VECTOR: usize = 1024;
/// The most one transfer carries, in bytes; the rest is submitted when it is done. The kernel's
/// own limit is just below 2 GiB.
const MAX_TRANSFER_BYTES: usize = 1 << 30;
/// From linux/blkdev.h: `_IO(0x12, 0)`, discard by io_uring (Linux 6.12).
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// The part of a read or write that is still to do.
pub(super) fn transfer(ring: &Uring, target: FileTarget, work: &mut Work) -> squeue::Entry {
    if let [buf] = work.bufs.as_slice()
        && let Some((number, at_bytes)) = buf.in_client()
    {
        return transfer_straight(target, work, number as u16, at_bytes);
    }
    gather(ring, work);
    let offset_bytes = work.offset_bytes + work.done_bytes;
    let write = work.task == Task::Write;
    if let [only] = work.vector.as_slice() {
        let (pointer, len_bytes) = (only.iov_base.cast::<u8>(), only.iov_len as u32);
        let fixed =
            NonNull::new(pointer).and_then(|pointer| ring.fixed_buffer(pointer, only.iov_len));
        return with_target!(target, file => match (write, fixed) {
            (false, Some(index)) => opcode::ReadFixed::new(file, pointer, len_bytes, index)
                .offset(offset_bytes).build(),
            (true, Some(index)) => opcode::WriteFixed::new(file, pointer, len_bytes, index)
                .offset(offset_bytes).build(),
            (false, None) => opcode::Read::new(file, pointer, len_bytes)
                .offset(offset_bytes).build(),
            (true, None) => opcode::Write::new(file, pointer, len_bytes)
                .offset(offset_bytes).build(),
        });
    }
    let (vector, count) = (work.vector.as_ptr(), work.vector.len() as u32);
    with_target!(target, file => if write {
        opcode::Writev::new(file, vector, count).offset(offset_bytes).build()
    } else {
        opcode::Readv::new(file, vector, count).offset(offset_bytes).build()
    })
}

/// The part of a transfer to or from a client's memory that is still to do. The kernel counts
/// addresses from where that memory begins.
fn transfer_straight(target: FileTarget, work: &Work, number: u16, at_bytes: u32) -> squeue::Entry {
    let left_bytes = (work.len_bytes - work.done_bytes) as u32;
    let at = std::ptr::without_provenance_mut(at_bytes as usize + work.done_bytes as usize);
    let offset_bytes = work.offset_bytes + work.done_bytes;
    with_target!(target, file => if work.task == Task::Write {
        opcode::WriteFixed::new(file, at, left_bytes, number).offset(offset_bytes).build()
    } else {
        opcode::ReadFixed::new(file, at, left_bytes, number).offset(offset_bytes).build()
    })
}

/// Carries out the part of a read or write that is still to do, and returns what a completion
/// would say. For files in memory: the ring would give each transfer to a thread of the kernel's,
/// since such files cannot say whether they would block, and the change of threads costs more
/// than the transfer.
pub(super) fn transfer_now(ring: &Uring, file: BorrowedFd<'_>, work: &mut Work) -> i32 {
    gather(ring, work);
    let offset_bytes = (work.offset_bytes + work.done_bytes) as libc::off_t;
    let (vector, count) = (work.vector.as_ptr(), work.vector.len() as libc::c_int);
    // SAFETY: the descriptor is open, and the vector names memory of the ring's pool that is the
    // driver's until the operation's answer.
    let result = unsafe {
        if work.task == Task::Write {
            libc::pwritev(file.as_raw_fd(), vector, count, offset_bytes)
        } else {
            libc::preadv(file.as_raw_fd(), vector, count, offset_bytes)
        }
    };
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return -errno.unwrap_or(libc::EIO);
    }
    // At most MAX_TRANSFER_BYTES.
    result as i32
}

/// Lists the memory of what is still to do, neighbours joined.
fn gather(ring: &Uring, work: &mut Work) {
    let mut skip_bytes = work.done_bytes as usize;
    let mut room_bytes = MAX_TRANSFER_BYTES;
    work.vector.clear();
    for buf in &work.bufs {
        let len_bytes = buf.len_bytes as usize;
        if skip_bytes >= len_bytes {
            skip_bytes -= len_bytes;
            continue;
        }
        // The skip is inside this buffer, as just checked.
        let base = ring
            .memory()
            .pointer(*buf)
            .as_ptr()
            .wrapping_add(skip_bytes);
        let piece_bytes = (len_bytes - skip_bytes).min(room_bytes);
        skip_bytes = 0;
        if piece_bytes == 0 {
            break;
        }
        let full = work.vector.len() == MAX_VECTOR;
        match work.vector.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base => {
                last.iov_len += piece_bytes;
            }
            _ if full => break,
            _ => work.vector.push(libc::iovec {
                iov_base: base.cast(),
                iov_len: piece_bytes,
            }),
        }
        room_bytes -= piece_bytes;
    }
}

pub(super) fn flush(target: FileTarget) -> squeue::Entry {
    with_target!(target, file => opcode::Fsync::new(file)
        .flags(types::FsyncFlags::DATASYNC)
        .build())
}

pub(super) fn zero_range(target: FileTarget, work: &Work) -> squeue::Entry {
    fallocate(
        target,
        work,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    )
}

pub(super) fn punch_hole(target: FileTarget, work: &Work) -> squeue::Entry {
    fallocate(
        target,
        work,
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
    )
}

fn fallocate(target: FileTarget, work: &Work, mode: i32) -> squeue::Entry {
    with_target!(target, file => opcode::Fallocate::new(file, work.len_bytes)
        .offset(work.offset_bytes)
        .mode(mode)
        .build())
}

pub(super) fn discard(target: FileTarget, work: &Work) -> squeue::Entry {
    // The start goes in the address and the length in the first half of the command's bytes.
    let mut command = [0; 16];
    command[..8].copy_from_slice(&work.len_bytes.to_ne_bytes());
    with_target!(target, file => opcode::UringCmd16::new(file, BLOCK_URING_CMD_DISCARD)
        .cmd(command)
        .addr(Some(work.offset_bytes))
        .build())
}

pub(super) fn write_zeroes(target: FileTarget, work: &Work, zeroes: &Map) -> squeue::Entry {
    let left_bytes = work.len_bytes - work.done_bytes;
    let len_bytes = left_bytes.min(zeroes.len_bytes() as u64) as u32;
    let offset_bytes = work.offset_bytes + work.done_bytes;
    with_target!(target, file => opcode::Write::new(file, zeroes.base().as_ptr(), len_bytes)
        .offset(offset_bytes)
        .build())
}
