//! `/dev/ublkcN`: the descriptors of a block device's requests, and their data.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};

use forebay_engine::Buf;
use smallvec::SmallVec;

use crate::map::Map;
use crate::pool::PoolView;

/// The character device of one block device. Only one process can have it open.
#[derive(Debug)]
pub struct UblkDevice {
    file: File,
    path: PathBuf,
}

impl UblkDevice {
    /// Opens the device of this number.
    ///
    /// # Errors
    /// If it is not there, or open already.
    pub fn open(number: u32) -> io::Result<UblkDevice> {
        let path = PathBuf::from(format!("/dev/ublkc{number}"));
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(UblkDevice { file, path })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// As a descriptor.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The descriptors of one queue: `depth` of them, each of `descriptor_bytes`, in an area
    /// for `max_depth`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn descriptors(
        &self,
        queue: u16,
        depth: u16,
        max_depth: u16,
        descriptor_bytes: usize,
    ) -> io::Result<Descriptors> {
        let pages = |count: u16| {
            (usize::from(count) * descriptor_bytes).next_multiple_of(crate::map::PAGE_BYTES)
        };
        let offset_bytes = usize::from(queue) * pages(max_depth);
        let map = Map::read_only(&self.file, offset_bytes as u64, pages(depth))?;
        Ok(Descriptors {
            map,
            descriptor_bytes,
        })
    }

    /// Copies what a user writes, which lies at `position` in the device, into buffers.
    ///
    /// # Errors
    /// What the kernel says; a request that is over by now has no data.
    pub fn copy_in(&self, memory: &PoolView, position: u64, bufs: &[Buf]) -> io::Result<()> {
        if let [buf] = bufs {
            let place = memory.pointer(*buf).as_ptr().cast();
            let wanted = buf.len_bytes as usize;
            // SAFETY: the descriptor is open, and the buffer is memory of the pool that is the
            // caller's, by the pool's rule.
            let copied = unsafe {
                libc::pread(
                    self.file.as_raw_fd(),
                    place,
                    wanted,
                    position as libc::off_t,
                )
            };
            return whole(copied, wanted);
        }
        self.copy(memory, position, bufs, libc::preadv)
    }

    /// Copies buffers to where a user reads.
    ///
    /// # Errors
    /// As [`UblkDevice::copy_in`].
    pub fn copy_out(&self, memory: &PoolView, position: u64, bufs: &[Buf]) -> io::Result<()> {
        if let [buf] = bufs {
            let place = memory.pointer(*buf).as_ptr().cast();
            let wanted = buf.len_bytes as usize;
            // SAFETY: as in `copy_in`.
            let copied = unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    place,
                    wanted,
                    position as libc::off_t,
                )
            };
            return whole(copied, wanted);
        }
        self.copy(memory, position, bufs, libc::pwritev)
    }

    fn copy(
        &self,
        memory: &PoolView,
        position: u64,
        bufs: &[Buf],
        call: unsafe extern "C" fn(
            libc::c_int,
            *const libc::iovec,
            libc::c_int,
            libc::off_t,
        ) -> libc::ssize_t,
    ) -> io::Result<()> {
        let vector: SmallVec<[libc::iovec; 4]> = bufs
            .iter()
            .map(|buf| libc::iovec {
                iov_base: memory.pointer(*buf).as_ptr().cast(),
                iov_len: buf.len_bytes as usize,
            })
            .collect();
        let wanted: usize = vector.iter().map(|piece| piece.iov_len).sum();
        // SAFETY: the descriptor is open, and the vector names memory of the pool that is the
        // caller's, by the pool's rule.
        let copied = unsafe {
            call(
                self.file.as_raw_fd(),
                vector.as_ptr(),
                vector.len() as libc::c_int,
                position as libc::off_t,
            )
        };
        whole(copied, wanted)
    }
}

/// Whether all was copied, by what the system call said.
fn whole(copied: libc::ssize_t, wanted: usize) -> io::Result<()> {
    match usize::try_from(copied) {
        Ok(copied) if copied == wanted => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The descriptors of one queue's requests, shared with the driver.
#[derive(Debug)]
pub struct Descriptors {
    map: Map,
    descriptor_bytes: usize,
}

impl Descriptors {
    /// The descriptor of a tag, of which a request has come.
    ///
    /// # Panics
    /// If the queue has no such tag.
    #[must_use]
    pub fn of_tag<const N: usize>(&self, tag: u16) -> [u8; N] {
        assert_eq!(N, self.descriptor_bytes, "a whole descriptor is read");
        let place = self.map.part(usize::from(tag) * N, N);
        // The driver wrote the descriptor before it completed the tag's command.
        fence(Ordering::Acquire);
        // SAFETY: the range is inside the mapping, which is readable; from the command's
        // completion to the next command the driver does not write to it, so that the read need
        // not be volatile, which takes a byte at a time.
        unsafe { place.cast::<[u8; N]>().read() }
    }
}
