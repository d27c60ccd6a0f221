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
        self.copy(memory, position, bufs, Way::In)
    }

    /// Copies buffers to where a user reads.
    ///
    /// # Errors
    /// As [`UblkDevice::copy_in`].
    pub fn copy_out(&self, memory: &PoolView, position: u64, bufs: &[Buf]) -> io::Result<()> {
        self.copy(memory, position, bufs, Way::Out)
    }

    fn copy(&self, memory: &PoolView, position: u64, bufs: &[Buf], way: Way) -> io::Result<()> {
        let (file, at) = (self.file.as_raw_fd(), position as libc::off_t);
        let pointer = |buf: &Buf| memory.pointer(*buf).as_ptr().cast::<libc::c_void>();
        let wanted: usize = bufs.iter().map(|buf| buf.len_bytes as usize).sum();
        let vector: SmallVec<[libc::iovec; 4]> = match bufs {
            // One buffer goes without: the kernel would copy and check the vector first.
            [_] => SmallVec::new(),
            _ => bufs.iter().map(|buf| piece(pointer(buf), buf)).collect(),
        };
        let (pieces, count) = (vector.as_ptr(), vector.len() as libc::c_int);
        // SAFETY: the descriptor is open, and the buffers, which the vector names, are memory of the
        // pool that is the caller's, by the pool's rule.
        let copied = unsafe {
            match (way, bufs) {
                (Way::In, [buf]) => libc::pread(file, pointer(buf), wanted, at),
                (Way::Out, [buf]) => libc::pwrite(file, pointer(buf), wanted, at),
                (Way::In, _) => libc::preadv(file, pieces, count, at),
                (Way::Out, _) => libc::pwritev(file, pieces, count, at),
            }
        };
        match usize::try_from(copied) {
            Ok(copied) if copied == wanted => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// From the device into buffers, or out of these.
#[derive(Clone, Copy)]
enum Way {
    In,
    Out,
}

fn piece(pointer: *mut libc::c_void, buf: &Buf) -> libc::iovec {
    libc::iovec {
        iov_base: pointer,
        iov_len: buf.len_bytes as usize,
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
