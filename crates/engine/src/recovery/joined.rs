//! The devices of a cache together: offsets are addresses (see `format::extents`).

use crate::format::extents::place_of;
use crate::format::{CacheDevice, Superblock, SuperblockError};
use crate::interface::{DeviceError, ReadAt, Storage, StorageHandle};

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
    /// The cache goes on without this device.
    #[error("{}", crate::format::superblock::OUT)]
    Out {
        /// Which.
        given: usize,
    },
    /// Two devices went on, each without the other.
    #[error("{}", crate::format::superblock::SPLIT)]
    Split {
        /// The first.
        given: usize,
        /// The second.
        other: usize,
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
            | IdentifyError::Out { given }
            | IdentifyError::Split { given, .. }
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
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let found = identify_those_given(devices, &mut |_, _| false)?;
    let missing = found.error_of_missing();
    let numbers = found.given.into_iter().collect::<Result<Vec<_>, _>>()?;
    missing.map_or(Ok(numbers), Err)
}

/// Devices of one cache, told apart.
#[derive(Clone, Debug)]
pub struct Identified {
    /// The newest superblock of those that are believed. It is read again by an attach, and is not
    /// for writing.
    pub superblock: Superblock,
    /// Of each device as it was given: its number, or why it is left out.
    pub given: Vec<Result<u8, IdentifyError>>,
    /// Devices of the cache that are in use and not among those given.
    pub missing: Vec<CacheDevice>,
}

impl Identified {
    /// The error where a device in use is not there; `None` if all are.
    #[must_use]
    pub fn error_of_missing(&self) -> Option<IdentifyError> {
        self.missing.first().map(|missing| IdentifyError::Missing {
            number: missing.number,
            size_bytes: missing.size_bytes,
            count: self.superblock.devices.len(),
        })
    }
}

/// Finds out which of these devices are in use in their cache, and which are missing. `is_out` knows
/// of devices that the cache went on without, whatever they say themselves. Nothing is written.
///
/// A device that cannot be read or is out is left out where dirty data is or was on two devices;
/// whether the cache may go on without those that are missing then is the caller's to know (I28).
///
/// # Errors
/// If they are not devices of one cache, or none of them can be read.
pub fn identify_those_given(
    devices: &mut [&mut dyn Storage],
    is_out: &mut dyn FnMut(&Superblock, &CacheDevice) -> bool,
) -> Result<Identified, IdentifyError> {
    let mut read = Vec::new();
    for device in devices.iter_mut() {
        read.push(Superblock::of_device(*device, 0));
    }
    // Before any of them is left out: what it has alone would be given up without a word.
    let readable =
        (read.iter().enumerate()).filter_map(|(given, one)| Some((given, one.as_ref().ok()?)));
    if let Some((given, other)) = Superblock::split_in(readable) {
        return Err(IdentifyError::Split { given, other });
    }
    let mut found: Vec<Result<(Superblock, CacheDevice), IdentifyError>> = Vec::new();
    for (given, one) in read.into_iter().enumerate() {
        found.push(match one {
            Ok((one, on)) if is_out(&one, &on) => Err(IdentifyError::Out { given }),
            Ok(one) => Ok(one),
            Err(source) => Err(IdentifyError::Superblock { given, source }),
        });
    }
    let mut newest: Option<&Superblock> = None;
    for (one, _) in found.iter().flatten() {
        if newest.is_none_or(|newest| one.is_newer_than(newest)) {
            newest = Some(one);
        }
    }
    let Some(superblock) = newest.cloned() else {
        let none = IdentifyError::Superblock {
            given: 0,
            source: SuperblockError::Blank,
        };
        return Err(found.into_iter().find_map(Result::err).unwrap_or(none));
    };
    // One that never kept two copies needs all of its devices.
    let may_lack = superblock.membership > 0;
    let mut given = Vec::new();
    let mut numbers: Vec<u8> = Vec::new();
    for (at, one) in found.iter().enumerate() {
        let place = match one {
            Ok((one, on)) => place_in(&superblock, at, one, on),
            Err(why) => Err(why.clone()),
        };
        match place {
            Ok(number) if numbers.contains(&number) => {
                return Err(IdentifyError::Twice { given: at });
            }
            Ok(number) => numbers.push(number),
            Err(IdentifyError::Out { .. }) => {}
            // Nothing of one that was removed is needed.
            Err(IdentifyError::Superblock { .. } | IdentifyError::Removed { .. }) if may_lack => {}
            Err(why) => return Err(why),
        }
        given.push(place);
    }
    // After all else: of two copies of one device the newer makes the older stale.
    for (at, one) in found.iter().enumerate() {
        if let (Ok((one, _)), Ok(_)) = (one, &given[at])
            && superblock.makes_stale(one.epoch)
        {
            return Err(IdentifyError::Stale { given: at });
        }
    }
    Ok(Identified {
        missing: superblock.missing(&numbers).copied().collect(),
        superblock,
        given,
    })
}

/// The number of a device in the cache of this superblock, which counts.
fn place_in(
    superblock: &Superblock,
    given: usize,
    one: &Superblock,
    on: &CacheDevice,
) -> Result<u8, IdentifyError> {
    if one.id != superblock.id {
        return Err(IdentifyError::Foreign {
            given,
            found: one.id,
            expected: superblock.id,
        });
    }
    let named = |device: &&CacheDevice| (device.number, device.serial) == (on.number, on.serial);
    match superblock.devices.iter().find(named) {
        None => Err(IdentifyError::Removed { given }),
        Some(known) if known.out => Err(IdentifyError::Out { given }),
        Some(_) => Ok(on.number),
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

    fn flush_of(&mut self, number: u8) -> Result<(), DeviceError> {
        self.device_mut(number).ok_or(DeviceError::Gone)?.flush()
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

    fn handles(&self, most: usize) -> Vec<StorageHandle<'_>> {
        let of_each = self.devices.iter().map(|(number, device)| {
            let handles = device.handles(most).into_iter();
            (*number, handles)
        });
        let mut of_each: Vec<_> = of_each.collect();
        let count = of_each.iter().map(|(_, handles)| handles.len()).min();
        let joined = (0..count.unwrap_or(0)).map(|_| -> StorageHandle<'_> {
            let of_one = of_each.iter_mut().map(|(number, handles)| {
                let handle = handles.next().expect("no device has fewer");
                (*number, handle)
            });
            Box::new(Joined::new(of_one.collect()))
        });
        joined.collect()
    }
}
