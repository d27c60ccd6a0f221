//! Memory straight from the kernel: page-aligned, and touched only when used.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// The page size that buffers are aligned to, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A mapping of the kernel's, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread; it has no state of its own beyond
// its address, and access to its bytes is the business of whoever makes references into it.
unsafe impl Send for Map {}
// SAFETY: as above; `&Map` gives only an address and a length.
unsafe impl Sync for Map {}

impl Map {
    /// Private memory of zeroes that costs nothing until it is touched.
    pub(crate) fn anonymous(len_bytes: usize) -> io::Result<Map> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choosing touches no
        // memory that anyone else uses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        Map::from_mmap(address, len_bytes)
    }

    /// The first `len_bytes` of a file, shared with it.
    pub(crate) fn shared(file: &File, len_bytes: usize) -> io::Result<Map> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Map::of_file(file, 0, len_bytes, access)
    }

    /// A part of a device's memory that can only be read. Its owner must not use
    /// [`Map::bytes_mut`], which only those who made a mapping writable have a use for.
    pub(crate) fn read_only(file: &File, offset_bytes: u64, len_bytes: usize) -> io::Result<Map> {
        Map::of_file(file, offset_bytes, len_bytes, libc::PROT_READ)
    }

    fn of_file(
        file: &File,
        offset_bytes: u64,
        len_bytes: usize,
        access: libc::c_int,
    ) -> io::Result<Map> {
        // SAFETY: as for `anonymous`; that the file stays this long is what the caller's lock on
        // it is for.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset_bytes as libc::off_t,
            )
        };
        Map::from_mmap(address, len_bytes)
    }

    fn from_mmap(address: *mut libc::c_void, len_bytes: usize) -> io::Result<Map> {
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(address.cast::<u8>()) {
            Some(base) => Ok(Map { base, len_bytes }),
            None => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The address of a part of the mapping.
    ///
    /// # Panics
    /// If the part is not inside the mapping: the caller holds a buffer of another pool.
    pub(crate) fn part(&self, start: usize, len_bytes: usize) -> NonNull<u8> {
        let inside = start
            .checked_add(len_bytes)
            .is_some_and(|end| end <= self.len_bytes);
        assert!(inside, "a buffer lies inside its memory");
        // SAFETY: `start` is within the one mapping that `base` points to, or one past its end.
        unsafe { self.base.add(start) }
    }

    /// All bytes of a mapping that has one owner.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and initialised by the kernel, and `&mut self`
        // is the only way to its bytes in this type's users that call this.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len_bytes) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this type with this address and length, and nothing
        // that borrows from it outlives it. An error can only mean a bug in that bookkeeping, and
        // leaves the mapping in place.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}
