//! The devices of a cache together: offsets are addresses (see `format::extents`).

use crate::format::extents::place_of;
use crate::format::{CacheDevice, Superblock, SuperblockError};
use crate::interface::{DeviceError, ReadAt, Storage};

/// Why devices are not a cache together. Devices are numbered as they were given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentifyError {
    /// A device is no cache device.
    #[error("{source}")]
    Superblock {
        /// Which.
        given: usize,
        /// Why.
        source: SuperblockError,
    },
    /// A device belongs to another cache.
    #[error("it belongs to cache {found}, and another of the devices to cache {expected}")]
    Foreign {
        /// Which.
        given: usize,
        /// Its cache.
        found: crate::format::CacheId,
        /// The cache of the others.
        expected: crate::format::CacheId,
    },
    /// A device was taken out of the cache.
    #[error("it belonged to the cache and was removed from it: leave it out")]
    Removed {
        /// Which.
        given: usize,
    },
    /// A device holds the contents that it had before the last attach.
    #[error("{}", crate::format::superblock::OLD_COPY)]
    Stale {
        /// Which.
        given: usize,
    },
    /// A device is given twice.
    #[error("it is given twice, or is a copy of another of the cache's devices")]
    Twice {
        /// Which.
        given: usize,
    },
    /// The cache has one that is not among them.
    #[error(
        "the cache has {count} devices, and number {number} ({size_bytes} bytes) is not among those given: give all of them"
    )]
    Missing {
        /// Its number.
        number: u8,
        /// Its size.
        size_bytes: u64,
        /// The number of devices of the cache.
        count: usize,
    },
}

impl IdentifyError {
    /// Which of the devices it is about, if it is about one.
    #[must_use]
    pub fn given(&self) -> Option<usize> {
        match self {
            IdentifyError::Superblock { given, .. }
            | IdentifyError::Foreign { given, .. }
            | IdentifyError::Removed { given }
            | IdentifyError::Stale { given }
            | IdentifyError::Twice { given } => Some(*given),
            IdentifyError::Missing { .. } => None,
        }
    }
}

/// Finds out which number each of these devices has in their cache. Nothing is written.
///
/// # Errors
/// If they are not all devices of one cache.
pub fn identify(devices: &mut [&mut dyn Storage]) -> Result<Vec<u8>, IdentifyError> {
    let mut found: Vec<(Superblock, CacheDevice)> = Vec::new();
    for (given, device) in devices.iter_mut().enumerate() {
        let one = Superblock::of_device(*device, 0);
        found.push(one.map_err(|source| IdentifyError::Superblock { given, source })?);
    }
    let mut newest = 0;
    for given in 1..found.len() {
        if found[given].0.is_newer_than(&found[newest].0) {
            newest = given;
        }
    }
    let Some((superblock, _)) = found.get(newest) else {
        return Ok(Vec::new());
    };
    let mut numbers: Vec<u8> = Vec::new();
    for (given, (one, on)) in found.iter().enumerate() {
        if one.id != superblock.id {
            return Err(IdentifyError::Foreign {
                given,
                found: one.id,
                expected: superblock.id,
            });
        }
        let named =
            |device: &&CacheDevice| (device.number, device.serial) == (on.number, on.serial);
        if !superblock.devices.iter().any(|device| named(&device)) {
            return Err(IdentifyError::Removed { given });
        }
        if numbers.contains(&on.number) {
            return Err(IdentifyError::Twice { given });
        }
        numbers.push(on.number);
    }
    // After all else: of two copies of one device the newer makes the older stale.
    if let Some(given) = found
        .iter()
        .position(|(one, _)| superblock.makes_stale(one.epoch))
    {
        return Err(IdentifyError::Stale { given });
    }
    let mut named = superblock.devices.iter();
    match named.find(|device| !numbers.contains(&device.number)) {
        Some(missing) => Err(IdentifyError::Missing {
            number: missing.number,
            size_bytes: missing.size_bytes,
            count: superblock.devices.len(),
        }),
        None => Ok(numbers),
    }
}

/// The devices of a cache as one.
#[derive(Debug)]
pub struct Joined<S> {
    devices: Vec<(u8, S)>,
}

impl<S: Storage> Joined<S> {
    /// The devices with their numbers ([`identify`]).
    #[must_use]
    pub fn new(devices: Vec<(u8, S)>) -> Joined<S> {
        Joined { devices }
    }

    /// Adds a device under a number that none has.
    pub fn add(&mut self, number: u8, device: S) {
        self.devices.push((number, device));
    }

    /// Takes a device away.
    pub fn remove(&mut self, number: u8) -> Option<S> {
        let at = self
            .devices
            .iter()
            .position(|(known, _)| *known == number)?;
        Some(self.devices.remove(at).1)
    }

    /// The devices with their numbers.
    pub fn devices(&self) -> impl Iterator<Item = (u8, &S)> {
        self.devices
            .iter()
            .map(|(number, device)| (*number, device))
    }

    /// A device, by its number.
    pub fn device_mut(&mut self, number: u8) -> Option<&mut S> {
        let mut devices = self.devices.iter_mut();
        let found = devices.find(|(known, _)| *known == number);
        found.map(|(_, device)| device)
    }

    fn place(&mut self, address: u64) -> Result<(&mut S, u64), DeviceError> {
        let (number, offset_bytes) = place_of(address);
        let device = self.device_mut(number).ok_or(DeviceError::Gone)?;
        Ok((device, offset_bytes))
    }
}

impl<S: Storage> Storage for Joined<S> {
    fn size_bytes(&self) -> u64 {
        self.devices
            .iter()
            .map(|(_, device)| device.size_bytes())
            .sum()
    }

    fn device_numbers(&self) -> Vec<u8> {
        self.devices.iter().map(|(number, _)| *number).collect()
    }

    fn size_of(&self, number: u8) -> u64 {
        let mut devices = self.devices.iter();
        let found = devices.find(|(known, _)| *known == number);
        found.map_or(0, |(_, device)| device.size_bytes())
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (device, offset_bytes) = self.place(address)?;
        device.read(offset_bytes, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DeviceError> {
        let (device, offset_bytes) = self.place(address)?;
        device.write(offset_bytes, from)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        // All of them, even if one fails: the others keep all they can.
        let mut result = Ok(());
        for (_, device) in &mut self.devices {
            result = result.and(device.flush());
        }
        result
    }

    fn read_many(&mut self, reads: &mut [ReadAt<'_>]) -> Vec<Result<(), DeviceError>> {
        let mut results = vec![Err(DeviceError::Gone); reads.len()];
        for (number, device) in &mut self.devices {
            let is_here = |read: &&mut ReadAt<'_>| place_of(read.offset_bytes).0 == *number;
            let places: Vec<usize> = (0..reads.len())
                .filter(|at| place_of(reads[*at].offset_bytes).0 == *number)
                .collect();
            let mut here: Vec<ReadAt<'_>> = reads
                .iter_mut()
                .filter(is_here)
                .map(|read| ReadAt {
                    offset_bytes: place_of(read.offset_bytes).1,
                    into: &mut *read.into,
                })
                .collect();
            for (at, result) in places.into_iter().zip(device.read_many(&mut here)) {
                results[at] = result;
            }
        }
        results
    }
}
