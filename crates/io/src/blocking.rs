//! A device for the control plane: creation, attach, recovery, offline commands.

mod many;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forebay_engine::{DeviceError, ReadAt, Storage, StorageHandle};

use crate::device::{RealDevice, device_error_of};
use crate::map::{Map, PAGE_BYTES};
use crate::recording::Kind;
use crate::remote::{RemoteKind, carry_out};
use many::ManyReads;

/// Size of the aligned buffer that single transfers go through, in bytes.
const BOUNCE_BYTES: usize = 1 << 20;

/// A device that does one thing at a time and waits for it; [`Storage::read_many`] alone keeps
/// many reads in flight.
#[derive(Debug)]
pub struct BlockingStorage {
    device: Arc<RealDevice>,
    bounce: Map,
    many: Option<ManyReads>,
}

impl BlockingStorage {
    pub(crate) fn new(device: Arc<RealDevice>) -> io::Result<BlockingStorage> {
        Ok(BlockingStorage {
            device,
            bounce: Map::anonymous(BOUNCE_BYTES)?,
            many: None,
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<RealDevice> {
        &self.device
    }

    fn check_range(&self, offset_bytes: u64, len_bytes: usize) -> Result<(), DeviceError> {
        let end = offset_bytes.checked_add(len_bytes as u64);
        // A write past the end would make a file longer.
        end.filter(|end| *end <= self.device.size_bytes())
            .map(drop)
            .ok_or(DeviceError::Io)
    }

    fn write_pieces(&mut self, mut offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        if let Some(remote) = self.device.as_remote() {
            return carry_out(remote, RemoteKind::Write, offset_bytes, from.to_vec()).map(drop);
        }
        for piece in from.chunks(BOUNCE_BYTES) {
            let bounce = &mut self.bounce.bytes_mut()[..piece.len()];
            bounce.copy_from_slice(piece);
            self.device
                .file()
                .write_all_at(bounce, offset_bytes)
                .map_err(|error| device_error_of(&error))?;
            offset_bytes += piece.len() as u64;
        }
        Ok(())
    }

    fn alignment(&self) -> usize {
        if self.device.is_direct() {
            self.device.logical_block_bytes() as usize
        } else {
            1
        }
    }
}

/// Carries out what changes the device, and records it if the device is recorded.
fn recorded(
    device: &RealDevice,
    kind: Kind,
    offset_bytes: u64,
    data: &[u8],
    work: impl FnOnce() -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let Some(recorder) = device.recorder() else {
        return work();
    };
    let begun = recorder.begin(kind, offset_bytes, data.len() as u64, |log| {
        log.extend_from_slice(data);
    });
    recorder.end(begun, work())
}

/// An aligned range that contains another.
#[derive(Clone, Copy, Debug)]
struct Widened {
    offset_bytes: u64,
    len_bytes: usize,
    /// Bytes before the range that was asked for.
    before: usize,
}

fn widen(offset_bytes: u64, len_bytes: usize, alignment: usize) -> Widened {
    let before = (offset_bytes % alignment as u64) as usize;
    Widened {
        offset_bytes: offset_bytes - before as u64,
        len_bytes: (before + len_bytes).next_multiple_of(alignment),
        before,
    }
}

impl Storage for BlockingStorage {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(offset_bytes, into.len())?;
        let alignment = self.alignment();
        let mut offset_bytes = offset_bytes;
        if let Some(remote) = self.device.as_remote() {
            let wide = widen(offset_bytes, into.len(), alignment);
            let memory = vec![0; wide.len_bytes];
            let bytes = carry_out(remote, RemoteKind::Read, wide.offset_bytes, memory)?;
            let wanted = bytes.get(wide.before..wide.before + into.len());
            into.copy_from_slice(wanted.ok_or(DeviceError::Io)?);
            return Ok(());
        }
        let is_aligned = |at: usize| at.is_multiple_of(alignment);
        if is_aligned(into.as_ptr().addr())
            && is_aligned(into.len())
            && is_aligned(offset_bytes as usize)
        {
            return read_at_least(&self.device, offset_bytes, into, into.len());
        }
        for piece in into.chunks_mut(BOUNCE_BYTES - 2 * PAGE_BYTES) {
            let wide = widen(offset_bytes, piece.len(), alignment);
            let bounce = &mut self.bounce.bytes_mut()[..wide.len_bytes];
            read_at_least(
                &self.device,
                wide.offset_bytes,
                bounce,
                wide.before + piece.len(),
            )?;
            piece.copy_from_slice(&bounce[wide.before..wide.before + piece.len()]);
            offset_bytes += piece.len() as u64;
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.check_range(offset_bytes, from.len())?;
        let alignment = self.alignment();
        if !offset_bytes.is_multiple_of(alignment as u64) || !from.len().is_multiple_of(alignment) {
            return Err(DeviceError::Unsupported);
        }
        let device = Arc::clone(&self.device);
        recorded(&device, Kind::Write, offset_bytes, from, || {
            self.write_pieces(offset_bytes, from)
        })
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        recorded(&self.device, Kind::Flush, 0, &[], || {
            if let Some(remote) = self.device.as_remote() {
                return carry_out(remote, RemoteKind::Flush, 0, Vec::new()).map(drop);
            }
            // SAFETY: fdatasync takes a descriptor, which the device keeps open.
            if unsafe { libc::fdatasync(self.device.file().as_raw_fd()) } == 0 {
                return Ok(());
            }
            // Not even for EINTR again: a second attempt says nothing reliable about the first.
            Err(device_error_of(&io::Error::last_os_error()))
        })
    }

    fn read_many(&mut self, reads: &mut [ReadAt<'_>]) -> Vec<Result<(), DeviceError>> {
        let alignment = self.alignment();
        if self.many.is_none() && self.device.as_remote().is_none() {
            self.many = ManyReads::new().ok();
        }
        let Some(many) = &mut self.many else {
            // Without a ring they are done one by one.
            return reads
                .iter_mut()
                .map(|one| self.read(one.offset_bytes, one.into))
                .collect();
        };
        many.read(&self.device, alignment, reads)
    }

    fn handles(&self, most: usize) -> Vec<StorageHandle<'_>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let handles = (0..most.min(processors)).map_while(|_| {
            let handle = BlockingStorage::new(Arc::clone(&self.device)).ok()?;
            Some(Box::new(handle) as StorageHandle<'_>)
        });
        handles.collect()
    }
}

/// Fills at least the first `least` bytes; a file whose end is not aligned gives no more.
fn read_at_least(
    device: &RealDevice,
    offset_bytes: u64,
    into: &mut [u8],
    least: usize,
) -> Result<(), DeviceError> {
    let mut done = 0;
    while done < least {
        match device
            .file()
            .read_at(&mut into[done..], offset_bytes + done as u64)
        {
            Ok(0) => return Err(DeviceError::Io),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(device_error_of(&error)),
        }
    }
    Ok(())
}
