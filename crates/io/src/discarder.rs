//! Discards for kernels whose io_uring cannot do them on block devices (before 6.12): a thread
//! that waits in the ioctl in place of the data path.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::device::RealDevice;
use crate::event::Event;

/// Discards that may wait for the thread. More are refused as unsupported: nothing depends on a
/// discard.
const WAITING: usize = 256;

/// From linux/fs.h: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

struct Job {
    slot: u32,
    device: Arc<RealDevice>,
    range: [u64; 2],
}

/// The thread's end of the driver.
pub(crate) struct Discarder {
    jobs: SyncSender<Job>,
    results: Receiver<(u32, i32)>,
    event: Event,
}

impl std::fmt::Debug for Discarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discarder").finish_non_exhaustive()
    }
}

impl Discarder {
    pub(crate) fn start() -> io::Result<Discarder> {
        let event = Event::new()?;
        let notify = event.clone();
        let (jobs, to_do) = sync_channel::<Job>(WAITING);
        let (done, results) = sync_channel(2 * WAITING);
        std::thread::Builder::new()
            .name("forebay-discard".to_owned())
            .spawn(move || {
                // Ends when the driver drops its end of either channel.
                while let Ok(job) = to_do.recv() {
                    let result = discard(&job.device, job.range);
                    if done.send((job.slot, result)).is_err() {
                        return;
                    }
                    notify.notify();
                }
            })?;
        Ok(Discarder {
            jobs,
            results,
            event,
        })
    }

    /// Whether the job was taken.
    pub(crate) fn submit(&self, slot: u32, device: Arc<RealDevice>, range: [u64; 2]) -> bool {
        self.jobs
            .try_send(Job {
                slot,
                device,
                range,
            })
            .is_ok()
    }

    /// Readable when results may be had.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn clear_event(&self) {
        self.event.clear();
    }

    /// The next finished job's slot, with zero or a negated errno.
    pub(crate) fn next_result(&self) -> Option<(u32, i32)> {
        self.results.try_recv().ok()
    }
}

fn discard(device: &RealDevice, range: [u64; 2]) -> i32 {
    // SAFETY: BLKDISCARD reads an array of two u64, a start and a length in bytes.
    if unsafe { libc::ioctl(device.file().as_raw_fd(), BLKDISCARD, range.as_ptr()) } == 0 {
        return 0;
    }
    -io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
