//! The calls of the control plane on a device, and the errors of devices.

/// The unit in which buffers and requests are aligned, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// The error of a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DeviceError {
    /// The device reported an error, or a transfer ended short.
    #[error("input/output error; the kernel's log (dmesg) says more")]
    Io,
    /// No room on the device (a file whose file system is full).
    #[error("no space is left; make room (`df` shows where there is none)")]
    NoSpace,
    /// The device cannot do this kind of operation.
    #[error("the device cannot do this")]
    Unsupported,
    /// The device cannot read into or write from a client's own memory ([`crate::Buf::of_client`]):
    /// nothing is wrong with it.
    #[error("the device wants the data copied")]
    NotStraight,
    /// The device is gone.
    #[error("the device is gone; is it connected?")]
    Gone,
}

/// A device for the control plane (creation, attach, recovery, offline commands), which does one
/// thing at a time and may wait. Offsets are in bytes and multiples of 4096 on a cache device.
pub trait Storage {
    /// The device's size, in bytes.
    fn size_bytes(&self) -> u64;
    /// Which of a cache's devices this is: several where it stands for all of them (see
    /// [`crate::Joined`]), and offsets are addresses then.
    fn device_numbers(&self) -> Vec<u8> {
        vec![0]
    }
    /// The size of one of them, in bytes.
    fn size_of(&self, number: u8) -> u64 {
        if number == 0 { self.size_bytes() } else { 0 }
    }
    /// Reads exactly `into.len()` bytes.
    ///
    /// # Errors
    /// If the device fails or ends before.
    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError>;
    /// Writes all of `from`; volatile until the next flush.
    ///
    /// # Errors If the device fails; the data written is then uncertain.
    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError>;
    /// Makes every completed write durable.
    ///
    /// # Errors
    /// If the device fails; unflushed writes are then uncertain for ever (I10).
    fn flush(&mut self) -> Result<(), DeviceError>;
    /// Makes every completed write to one of a cache's devices durable.
    ///
    /// # Errors
    /// As [`Storage::flush`].
    fn flush_of(&mut self, _number: u8) -> Result<(), DeviceError> {
        self.flush()
    }
    /// Reads many places at once, as far as the device can overlap them; each with its own
    /// result.
    fn read_many(&mut self, reads: &mut [ReadAt<'_>]) -> Vec<Result<(), DeviceError>> {
        let mut results = Vec::with_capacity(reads.len());
        for read in reads {
            results.push(self.read(read.offset_bytes, read.into));
        }
        results
    }
    /// Handles of the device for threads that work on it side by side: at most `most`, and no more
    /// than it pays to use at once. None if the device is for one thread.
    fn handles(&self, _most: usize) -> Vec<StorageHandle<'_>> {
        Vec::new()
    }
}

/// A device as one of several threads has it.
pub type StorageHandle<'a> = Box<dyn Storage + Send + 'a>;

/// A device that is borrowed or in a box is one too.
macro_rules! forward {
    ($S:ident, $holder:ty) => {
        impl<$S: Storage + ?Sized> Storage for $holder {
            fn size_bytes(&self) -> u64 {
                (**self).size_bytes()
            }
            fn device_numbers(&self) -> Vec<u8> {
                (**self).device_numbers()
            }
            fn size_of(&self, number: u8) -> u64 {
                (**self).size_of(number)
            }
            fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
                (**self).read(offset_bytes, into)
            }
            fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
                (**self).write(offset_bytes, from)
            }
            fn flush(&mut self) -> Result<(), DeviceError> {
                (**self).flush()
            }
            fn flush_of(&mut self, number: u8) -> Result<(), DeviceError> {
                (**self).flush_of(number)
            }
            fn read_many(&mut self, reads: &mut [ReadAt<'_>]) -> Vec<Result<(), DeviceError>> {
                (**self).read_many(reads)
            }
            fn handles(&self, most: usize) -> Vec<StorageHandle<'_>> {
                (**self).handles(most)
            }
        }
    };
}

forward!(S, &mut S);
forward!(S, Box<S>);

/// A read of [`Storage::read_many`].
#[derive(Debug)]
pub struct ReadAt<'a> {
    /// Device offset, in bytes.
    pub offset_bytes: u64,
    /// Where the data goes; its length is the read's.
    pub into: &'a mut [u8],
}
