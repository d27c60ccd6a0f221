//! The devices of a cache during its recovery: which of them fail, and without one if need be.

use crate::format::extents::place_of;
use crate::interface::{DeviceError, ReadAt, Storage};

/// See the module.
pub(super) struct Watched<'a> {
    device: &'a mut dyn Storage,
    /// It counts as missing.
    without: Option<u8>,
    /// Devices that failed something: a bit for each number.
    failed: u32,
}

impl<'a> Watched<'a> {
    pub(super) fn new(device: &'a mut dyn Storage, without: Option<u8>) -> Watched<'a> {
        Watched {
            device,
            without,
            failed: 0,
        }
    }

    /// The device that failed something, if it is a single one.
    pub(super) fn only_failed(&self) -> Option<u8> {
        let is_one = self.failed.is_power_of_two();
        is_one.then(|| self.failed.trailing_zeros() as u8)
    }

    fn note<T>(
        &mut self,
        offset_bytes: u64,
        result: Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if result.is_err() {
            self.failed |= 1 << (place_of(offset_bytes).0 & 31);
        }
        result
    }
}

impl Storage for Watched<'_> {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn device_numbers(&self) -> Vec<u8> {
        let mut numbers = self.device.device_numbers();
        numbers.retain(|number| Some(*number) != self.without);
        numbers
    }

    fn size_of(&self, number: u8) -> u64 {
        self.device.size_of(number)
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let result = self.device.read(offset_bytes, into);
        self.note(offset_bytes, result)
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let result = self.device.write(offset_bytes, from);
        self.note(offset_bytes, result)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for number in self.device_numbers() {
            let flushed = self.device.flush_of(number);
            if flushed.is_err() {
                self.failed |= 1 << (number & 31);
            }
            result = result.and(flushed);
        }
        result
    }

    fn flush_of(&mut self, number: u8) -> Result<(), DeviceError> {
        self.device.flush_of(number)
    }

    fn read_many(&mut self, reads: &mut [ReadAt<'_>]) -> Vec<Result<(), DeviceError>> {
        let results = self.device.read_many(reads);
        for (read, result) in reads.iter().zip(&results) {
            let _ = self.note(read.offset_bytes, *result);
        }
        results
    }
}
