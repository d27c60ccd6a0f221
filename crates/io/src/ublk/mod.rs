//! The system calls behind block devices of ublk: the control device, the character device of each
//! block device, and the commands of its queues on a thread's ring. Their contents are in
//! `forebay-frontend`.

mod control;
mod device;
mod thread;

pub use control::{UblkControl, UblkError};
pub use device::{Descriptors, UblkDevice};
pub use thread::serve_storage_from_this_thread;

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};

use crate::uring::{Token, Uring};

/// A command of one tag of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagCommand {
    /// The command's number.
    pub operation: u32,
    /// The queue.
    pub queue: u16,
    /// The tag.
    pub tag: u16,
    /// The answer to the tag's last request: a count of bytes or a negated errno.
    pub result: i32,
    /// The place in the ring's table of buffers where the driver enters the memory of the tag's next
    /// request, if the device was made so.
    pub client_buffer: Option<u16>,
}

impl Uring {
    /// Gives the driver a tag's command; completes when a request has come, with zero, or with
    /// -ENODEV when none will come any more. Commands wait for as long as the device exists and
    /// hold none of this process's memory, so that they do not count among
    /// [`Uring::in_flight`], and a ring that is dropped does not wait for them.
    pub fn ublk_command(&mut self, device: BorrowedFd<'_>, command: TagCommand, token: Token) {
        // struct ublk_auto_buf_reg in the entry's address: a request whose memory cannot be entered comes
        // all the same, and says so.
        const FALL_BACK: u64 = 1 << 16;
        // struct ublksrv_io_cmd. No address: devices are made with user copy.
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&command.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&command.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&command.result.to_ne_bytes());
        let entry = opcode::UringCmd16::new(types::Fd(device.as_raw_fd()), command.operation)
            .cmd(bytes)
            .addr(
                command
                    .client_buffer
                    .map(|place| u64::from(place) | FALL_BACK),
            )
            .build()
            .user_data(token.raw());
        // SAFETY: the entry points to nothing.
        unsafe { self.push_standing(entry) };
    }
}
