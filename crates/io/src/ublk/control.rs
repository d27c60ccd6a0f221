//! `/dev/ublk-control`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

const CONTROL_DEVICE: &str = "/dev/ublk-control";
/// For commands that are about no queue.
const NO_QUEUE: u16 = u16::MAX;

/// Why the driver cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel has no such driver, or it is not loaded.
    #[error(
        "there is no {CONTROL_DEVICE}: load the kernel's driver with `modprobe ublk_drv` \
         (Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK)"
    )]
    NoDriver,
    /// It cannot be opened.
    #[error("cannot open {CONTROL_DEVICE} (block devices are made by root)")]
    Open(#[source] io::Error),
    /// The ring for its commands cannot be had.
    #[error("cannot make an io_uring for {CONTROL_DEVICE}")]
    Ring(#[source] io::Error),
}

/// The control device, by which block devices are made and taken away. Its commands wait until
/// they are done, some of them for a thread that serves a queue: never call from such a thread.
pub struct UblkControl {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl std::fmt::Debug for UblkControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UblkControl").finish_non_exhaustive()
    }
}

impl UblkControl {
    /// Opens the control device.
    ///
    /// # Errors
    /// If there is none, or it is not this user's.
    pub fn open() -> Result<UblkControl, UblkError> {
        if !Path::new(CONTROL_DEVICE).exists() {
            return Err(UblkError::NoDriver);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(CONTROL_DEVICE)
            .map_err(UblkError::Open)?;
        let ring = IoUring::builder().build(4).map_err(UblkError::Ring)?;
        Ok(UblkControl { file, ring })
    }

    /// Carries a command for a device out: `value` goes with it, and the buffer both ways.
    ///
    /// # Errors
    /// What the driver says.
    pub fn command(
        &mut self,
        operation: u32,
        device: u32,
        value: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let len_bytes = u16::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // struct ublksrv_ctrl_cmd, at the beginning of the room that long entries have.
        let mut bytes = [0; 80];
        bytes[0..4].copy_from_slice(&device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
        bytes[6..8].copy_from_slice(&len_bytes.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(buffer.as_mut_ptr() as u64).to_ne_bytes());
        bytes[16..24].copy_from_slice(&value.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), operation)
            .cmd(bytes)
            .build();
        // SAFETY: the buffer is borrowed for this call, which ends only with the completion: the
        // ring has no other entries, and a failed wait is tried again below.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::ErrorKind::WouldBlock)?;
        loop {
            // Nothing but the completion ends the loop, not even an error: the kernel may write
            // to the buffer until then.
            let _interrupted = self.ring.submit_and_wait(1);
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    0.. => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(-errno)),
                };
            }
        }
    }
}
