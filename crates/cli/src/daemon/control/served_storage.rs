//! The cache's devices as commands write superblocks to them while they are served. Flushes go
//! through the gates that all threads share (I21), so that every shard hears of a failure.

use std::sync::mpsc::channel;

use forebay_engine::{Device, DeviceError, ReadAt, Storage};

use crate::daemon::data::link::Link;
use crate::device::cache_storage::CacheStorage;

/// See the module.
pub(in crate::daemon) struct ServedStorage<'a> {
    storage: &'a mut CacheStorage,
    /// A worker, which flushes for it.
    link: &'a Link,
    /// Failed flushes of each device before anything was written here.
    failures: Vec<(u8, u64)>,
}

impl<'a> ServedStorage<'a> {
    /// The devices as they are from now on.
    pub(in crate::daemon) fn new(
        storage: &'a mut CacheStorage,
        link: &'a Link,
    ) -> ServedStorage<'a> {
        let numbers = storage.device_numbers().into_iter();
        let failures = numbers.map(|number| (number, failures_of(link, Device::Cache(number))));
        ServedStorage {
            failures: failures.collect(),
            storage,
            link,
        }
    }

    fn flush_device(&mut self, number: u8) -> Result<(), DeviceError> {
        let mut known = self.failures.iter().filter(|(known, _)| *known == number);
        let before = known.next().map_or(0, |(_, failures)| *failures);
        match flush_served(self.link, Device::Cache(number), before) {
            Some(result) => result,
            // It is being added, and nobody else writes to it yet.
            None => match self.storage.device_mut(number) {
                Some(device) => device.flush(),
                None => Err(DeviceError::Gone),
            },
        }
    }
}

/// The number of a device's flushes that failed up to now.
pub(super) fn failures_of(link: &Link, device: Device) -> u64 {
    let failures = link.call(move |worker| worker.host.failures_of(device));
    // A worker that has ended flushes nothing any more either.
    failures.unwrap_or(0)
}

/// Flushes a device that is served; nothing if it is not. A flush that anybody else saw fail since
/// there were `before` failures may have lost what this one is to cover (I10).
pub(super) fn flush_served(
    link: &Link,
    device: Device,
    before: u64,
) -> Option<Result<(), DeviceError>> {
    let (answer, answered) = channel();
    match link.call(move |worker| worker.flush_for_control(device, answer)) {
        // The worker answers, or has ended with everything else.
        Ok(true) => Some(match answered.recv() {
            Ok(flush) => flush.covers(before),
            Err(_) => Err(DeviceError::Gone),
        }),
        Ok(false) => None,
        Err(_) => Some(Err(DeviceError::Gone)),
    }
}

impl Storage for ServedStorage<'_> {
    fn size_bytes(&self) -> u64 {
        self.storage.size_bytes()
    }

    fn device_numbers(&self) -> Vec<u8> {
        self.storage.device_numbers()
    }

    fn size_of(&self, number: u8) -> u64 {
        self.storage.size_of(number)
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.storage.read(offset_bytes, into)
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.storage.write(offset_bytes, from)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for number in self.storage.device_numbers() {
            result = result.and(self.flush_device(number));
        }
        result
    }

    fn read_many(&mut self, reads: &mut [ReadAt<'_>]) -> Vec<Result<(), DeviceError>> {
        self.storage.read_many(reads)
    }
}
