//! The interface of the engine and its drivers: requests and acknowledgements on the client's side,
//! actions and completions on the devices' side, and the memory both refer to.
//!
//! Nothing here does I/O or reads a clock. The daemon's io_uring loop and the simulator are two
//! drivers of the same few types.

use std::ops::Range;

use crate::planted::{self, Bug};

pub use crate::storage::{DeviceError, ReadAt, SECTOR_BYTES, Storage, StorageHandle};
use smallvec::SmallVec;

/// A point on the driver's monotonic clock, in nanoseconds. Real in the daemon, virtual in the
/// simulator; the engine only compares and adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A millisecond.
    pub const MILLISECOND: Nanos = Nanos(1_000_000);
    /// No time that comes.
    pub const NEVER: Nanos = Nanos(u64::MAX);
    /// A second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// This point moved `by` later.
    #[must_use]
    pub fn after(self, by: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(by.0))
    }

    /// The time from `earlier` to this point, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A piece of the driver's buffer memory, named and not pointed to, so that the engine stays free
/// of `unsafe`. Starts on a sector; its length is in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Buf {
    /// Where it starts in the driver's memory, in sectors of 512 bytes.
    pub start_sector: u32,
    /// Its length, in bytes.
    pub len_bytes: u32,
}

impl Buf {
    /// A buffer of no bytes, for requests that carry no data.
    pub const EMPTY: Buf = Buf {
        start_sector: 0,
        len_bytes: 0,
    };

    /// Memory of a client's, that the driver's devices can read into and nobody here can look at:
    /// the pages behind a block device's request. The driver numbers such pieces, each of up to
    /// [`MAX_REQUEST_BYTES`]. Reads may bring one, and writes without FUA. What does not go straight
    /// is answered with [`Failure::NotStraight`]; [`crate::Engine::may_read_straight`] and
    /// [`crate::Engine::may_write_straight`] say whether to try.
    ///
    /// # Panics
    /// If the number is not below 2^20, or the buffer longer than a request.
    #[must_use]
    pub const fn of_client(number: u32, len_bytes: u32) -> Buf {
        assert!(number < 1 << 20 && len_bytes <= MAX_REQUEST_BYTES);
        Buf {
            start_sector: Buf::CLIENTS + number * Buf::SECTORS_OF_CLIENT,
            len_bytes,
        }
    }

    /// Names from here on are of clients' memory: the driver's own has less than 1 TiB.
    pub const CLIENTS: u32 = 1 << 31;
    const SECTORS_OF_CLIENT: u32 = MAX_REQUEST_BYTES / SECTOR_BYTES as u32;

    /// Whether it is a client's, or a part of one.
    #[must_use]
    #[inline(always)]
    pub const fn is_of_client(self) -> bool {
        self.start_sector >= Buf::CLIENTS
    }

    /// The number of a client's memory, and where in it this buffer starts, in bytes.
    #[must_use]
    pub const fn in_client(self) -> Option<(u32, u32)> {
        if !self.is_of_client() {
            return None;
        }
        let sector = self.start_sector - Buf::CLIENTS;
        let (number, sector) = (
            sector / Buf::SECTORS_OF_CLIENT,
            sector % Buf::SECTORS_OF_CLIENT,
        );
        Some((number, sector * SECTOR_BYTES as u32))
    }

    /// The part of this buffer from `offset_bytes` (a multiple of 512) of `len_bytes`.
    ///
    /// # Panics
    /// If the part is not inside the buffer or does not start on a sector.
    #[must_use]
    pub fn slice(self, offset_bytes: usize, len_bytes: usize) -> Buf {
        assert!(
            offset_bytes.is_multiple_of(SECTOR_BYTES),
            "a buffer is sliced on sectors"
        );
        assert!(
            offset_bytes + len_bytes <= self.len_bytes as usize,
            "slice inside its buffer"
        );
        Buf {
            start_sector: self.start_sector + (offset_bytes / SECTOR_BYTES) as u32,
            len_bytes: len_bytes as u32,
        }
    }

    /// Where its bytes are in the driver's memory.
    #[must_use]
    pub fn bytes(self) -> Range<usize> {
        let start = self.start_sector as usize * SECTOR_BYTES;
        start..start + self.len_bytes as usize
    }
}

/// The driver's buffer memory, lent to the engine for the length of a call.
///
/// `alloc` gives buffers that start on a 4 KiB page, as O_DIRECT wants them. The engine frees
/// exactly the buffers it allocated (never a slice of one, never a request's own).
pub trait Memory {
    /// A buffer of `len_bytes`, or `None` when memory is short; the engine then waits or does
    /// without (it never fails a request for it).
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf>;
    /// Gives back a buffer of `alloc`.
    fn free(&mut self, buf: Buf);
    /// The bytes of a buffer or of a slice of one.
    fn bytes(&self, buf: Buf) -> &[u8];
    /// The bytes of a buffer or of a slice of one, to write.
    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8];
    /// Copies one buffer into another of the same length; the two do not overlap.
    fn copy(&mut self, from: Buf, to: Buf) {
        // By way of the stack, because the two cannot be borrowed together here.
        let mut sector = [0; SECTOR_BYTES];
        let mut at = 0;
        while at < to.len_bytes as usize {
            let len = (to.len_bytes as usize - at).min(SECTOR_BYTES);
            sector[..len].copy_from_slice(self.bytes(from.slice(at, len)));
            self.bytes_mut(to.slice(at, len))
                .copy_from_slice(&sector[..len]);
            at += len;
        }
    }
    /// The shard's crash journal (I16): memory that outlives the daemon but not the machine.
    /// Its size is [`crate::shm_journal::JOURNAL_BYTES`].
    fn journal_mut(&mut self, shard: u16) -> &mut [u8];
    /// The shard's memory buffer ([`crate::Commit::Memory`]): memory that outlives the daemon but
    /// not the machine, of any size. Empty, or too small for a buffer, where nothing shall be
    /// acknowledged from memory.
    fn buffer_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut []
    }
    /// Copies a buffer into the shard's memory buffer, from `at_bytes` (of that) on.
    fn copy_to_buffer(&mut self, shard: u16, at_bytes: usize, from: Buf) {
        let mut sector = [0; SECTOR_BYTES];
        for offset in (0..from.len_bytes as usize).step_by(SECTOR_BYTES) {
            sector.copy_from_slice(self.bytes(from.slice(offset, SECTOR_BYTES)));
            let at = at_bytes + offset;
            self.buffer_mut(shard)[at..at + SECTOR_BYTES].copy_from_slice(&sector);
        }
    }
    /// Copies from the shard's memory buffer, from `at_bytes` (of that) on, into a buffer.
    fn copy_from_buffer(&mut self, shard: u16, at_bytes: usize, to: Buf) {
        let mut sector = [0; SECTOR_BYTES];
        for offset in (0..to.len_bytes as usize).step_by(SECTOR_BYTES) {
            let at = at_bytes + offset;
            sector.copy_from_slice(&self.buffer_mut(shard)[at..at + SECTOR_BYTES]);
            self.bytes_mut(to.slice(offset, SECTOR_BYTES))
                .copy_from_slice(&sector);
        }
    }
}

/// Memory without buffers, for an engine that only counts, or a host whose shards want none. It has a
/// crash journal, which is thrown away; an empty one where no shard has a log.
#[derive(Debug, Default)]
pub struct NoMemory(pub Vec<u8>);

impl Memory for NoMemory {
    fn alloc(&mut self, _: usize) -> Option<Buf> {
        None
    }
    fn free(&mut self, _: Buf) {}
    fn bytes(&self, _: Buf) -> &[u8] {
        &[]
    }
    fn bytes_mut(&mut self, _: Buf) -> &mut [u8] {
        &mut []
    }
    fn journal_mut(&mut self, _: u16) -> &mut [u8] {
        &mut self.0
    }
}

/// The driver's name for a request; comes back in its [`Ack`]. The two highest bits are not the
/// driver's to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names of flushes have this bit if no client that asked for one hears of their failure.
const UNHEARD: u64 = 1 << 62;

impl RequestId {
    /// The name of a flush that is not a client's own: it follows a trim, or the daemon asks. Its
    /// failure leaves that of the next flush as it is (I10).
    #[must_use]
    pub fn unheard(self) -> RequestId {
        RequestId(self.0 | UNHEARD)
    }

    /// Whether it is such a name.
    #[must_use]
    pub fn is_unheard(self) -> bool {
        self.0 & UNHEARD != 0
    }
}

/// Which attached volume, as the driver numbered it with [`crate::Engine::add_volume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeSlot(pub u16);

/// The kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Fill the buffer.
    Read,
    /// Store the buffer; with FUA, acknowledge only when it is durable.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Make everything acknowledged before this durable. Has no range and no buffer.
    Flush,
    /// The range's contents no longer matter.
    Discard,
    /// The range shall read as zeroes.
    WriteZeroes {
        /// Force unit access.
        fua: bool,
    },
    /// Bring the range into the cache; carries no data to the client.
    Prefetch,
}

/// A request of a client, already cut to one shard (see [`crate::Geometry::split`]).
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the acknowledgement.
    pub id: RequestId,
    /// Which volume.
    pub volume: VolumeSlot,
    /// Its kind.
    pub kind: RequestKind,
    /// Where it starts on the volume, in bytes, a multiple of 512.
    pub offset_bytes: u64,
    /// Its length, in bytes, a multiple of 512. At most [`MAX_REQUEST_BYTES`] for requests with
    /// data.
    pub len_bytes: u32,
    /// The data, exactly `len_bytes` long for reads and writes, [`Buf::EMPTY`] otherwise. It
    /// belongs to the driver and must stay until the acknowledgement. Placed so that its address
    /// and `offset_bytes` agree modulo 4096, whole blocks are transferred without a copy.
    pub buf: Buf,
}

/// The longest read or write one request may carry, in bytes. Frontends cut longer ones.
pub const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which request.
    pub id: RequestId,
    /// Whether it was done.
    pub result: Result<(), Failure>,
    /// Of a write: some of it bypassed the cache, or may before its client hears of the answer, so
    /// that the origin alone has it. Of a read: the origin had a part in it.
    pub bypassed: bool,
}

/// Why a request could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// A device failed and no other copy exists.
    #[error("input/output error")]
    Io,
    /// The range is not on the volume or not aligned.
    #[error("the range is not on the volume, or not in whole sectors")]
    Invalid,
    /// The device has no room (a full file system under a file).
    #[error("no space left on device")]
    NoSpace,
    /// The volume is being detached or does not exist.
    #[error("the volume is not attached")]
    Detached,
    /// Not for clients: a read into a client's own memory ([`Buf::of_client`]) did not bring what
    /// was asked for, or a write from there may have landed or not. The driver asks again with
    /// memory of its own.
    #[error("the data has to be copied")]
    NotStraight,
}

/// The engine's name for one device operation; comes back in the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

/// Which device an action is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// The cache: engines say 0 and give addresses ([`crate::format::extents`]); drivers name its
    /// devices by their numbers. A flush is of all of them.
    Cache(u8),
    /// The origin device of this volume.
    Origin(VolumeSlot),
}

/// Buffers of one transfer, in device order.
pub type Bufs = SmallVec<[Buf; 4]>;

/// The length of all these together, in bytes.
#[inline(always)]
pub(crate) fn total_bytes(bufs: &[Buf]) -> u64 {
    bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum()
}

/// The list of a single buffer.
#[inline]
pub(crate) fn one_buf(buf: Buf) -> Bufs {
    Bufs::from_buf_and_len([buf, Buf::EMPTY, Buf::EMPTY, Buf::EMPTY], 1)
}

/// Two places of the same data, on two cache devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoPlaces {
    /// The address of each, in bytes.
    pub offsets_bytes: [u64; 2],
    /// The data, in order.
    pub bufs: Bufs,
}

/// An operation on a device, for the driver to carry out. Offsets and lengths are in bytes and
/// multiples of 512 (of 4096 on the cache device).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read from `offset_bytes` into the buffers, in order.
    Read {
        /// Device offset, in bytes.
        offset_bytes: u64,
        /// Where the data goes.
        bufs: Bufs,
    },
    /// Write the buffers, in order, from `offset_bytes` on.
    Write {
        /// Device offset, in bytes.
        offset_bytes: u64,
        /// The data.
        bufs: Bufs,
    },
    /// Read from whichever of two devices answers sooner (I28). Drivers get it as a read of one.
    ReadEither {
        /// The address on each, in bytes.
        offsets_bytes: [u64; 2],
        /// Where the data goes.
        buf: Buf,
    },
    /// Write to two devices (I28). Drivers get it as two writes. Boxed, so that operations stay small.
    WriteBoth(Box<TwoPlaces>),
    /// Make durable every write that completed before this action was handed out. The driver may
    /// serve several flushes of one device with one that starts after all of them.
    Flush,
    /// Tell the device the range is unused. `DeviceError::Unsupported` is a fine answer.
    Discard {
        /// Device offset, in bytes.
        offset_bytes: u64,
        /// Length, in bytes.
        len_bytes: u64,
    },
    /// Make the range read as zeroes, by writing them if the device has no better way.
    WriteZeroes {
        /// Device offset, in bytes.
        offset_bytes: u64,
        /// Length, in bytes.
        len_bytes: u64,
    },
}

impl Operation {
    /// A write to one address, or to two.
    #[inline(always)]
    pub(crate) fn write_at((offset_bytes, second): (u64, Option<u64>), bufs: Bufs) -> Operation {
        match second.filter(|_| !planted::is(Bug::SecondForgotten)) {
            None => Operation::Write { offset_bytes, bufs },
            Some(second) => Operation::WriteBoth(Box::new(TwoPlaces {
                offsets_bytes: [offset_bytes, second],
                bufs,
            })),
        }
    }
}

/// An operation that the driver must carry out and answer with [`crate::Engine::complete`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Comes back in the completion.
    pub op: OpId,
    /// On which device.
    pub device: Device,
    /// The operation.
    pub operation: Operation,
}
