//! Reading: the newest valid copy of all that the devices hold, and which devices it refuses.

use super::{COPIES, COPY_BYTES, COPY_STRIDE_BYTES, CacheDevice, Superblock, SuperblockError};
use crate::format::extents::address;
use crate::planted::{self, Bug};
use crate::storage::Storage;

impl Superblock {
    /// Reads the newest valid copy of all that the devices hold and checks it against them.
    ///
    /// # Errors
    /// Says what is there instead, or that a device fails or is too small.
    pub fn read(device: &mut dyn Storage) -> Result<Superblock, SuperblockError> {
        let superblock = Superblock::read_of_those_given(device)?;
        superblock.check_complete(&device.device_numbers())?;
        Ok(superblock)
    }

    /// Refuses a cache of which not all devices in use are among these.
    pub(crate) fn check_complete(&self, given: &[u8]) -> Result<(), SuperblockError> {
        match self.missing(given).next() {
            None => Ok(()),
            Some(on) => Err(SuperblockError::Incomplete {
                number: on.number,
                count: self.devices.len(),
            }),
        }
    }

    /// The devices in use that are not among these.
    pub(crate) fn missing(&self, given: &[u8]) -> impl Iterator<Item = &CacheDevice> {
        self.devices_in_use()
            .filter(|on| !given.contains(&on.number))
    }

    /// [`Superblock::read`], whatever devices are missing.
    pub(crate) fn read_of_those_given(
        device: &mut dyn Storage,
    ) -> Result<Superblock, SuperblockError> {
        let mut read: Vec<(Superblock, CacheDevice)> = Vec::new();
        for number in device.device_numbers() {
            let (found, on) = Superblock::of_device(device, number)?;
            if on.number != number {
                // It stands for another device: the device it was taken for is missing.
                let count = found.devices.len();
                return Err(SuperblockError::Incomplete { number, count });
            }
            read.push((found, on));
        }
        let numbered = read.iter().map(|one| (one.1.number, one));
        if let Some((one, other)) = Superblock::split_in(numbered) {
            return Err(SuperblockError::Split { one, other });
        }
        let newest = read.iter().map(|(found, _)| found);
        let newest = newest.reduce(|best, found| match found.is_newer_than(best) {
            true => found,
            false => best,
        });
        let mut best = newest.ok_or(SuperblockError::Blank)?.clone();
        let given = device.device_numbers();
        if let Some(on) = best.devices_out().find(|on| given.contains(&on.number))
            && !planted::is(Bug::OutBelieved)
        {
            return Err(SuperblockError::Out { number: on.number });
        }
        let mut all = read.iter();
        if let Some((_, on)) = all.find(|(found, _)| best.makes_stale(found.epoch)) {
            return Err(SuperblockError::Stale { number: on.number });
        }
        best.check_sizes(device, &given)?;
        for (_, read) in &read {
            for on in best
                .devices
                .iter_mut()
                .filter(|on| on.number == read.number)
            {
                on.whole_half = read.whole_half;
            }
        }
        Ok(best)
    }

    /// Two devices of a cache that went on, each without the other, so that each has what the other
    /// lacks: the keys that they come with. Each superblock comes with the device that it was read of.
    pub(crate) fn split_in<'a, K>(
        mut read: impl Iterator<Item = (K, &'a (Superblock, CacheDevice))> + Clone,
    ) -> Option<(K, K)> {
        while let Some((key, (one, on))) = read.next() {
            let mut others = read.clone();
            let split = others.find(|(_, (other, other_on))| {
                one.id == other.id && one.is_without(other_on.serial) && other.is_without(on.serial)
            });
            if let Some((other, _)) = split {
                return Some((key, other));
            }
        }
        None
    }

    /// True if this superblock counts and not the other. A cache that was attached without a device
    /// has a higher epoch than the superblock on that device, whatever was still written to it
    /// before. A higher membership counts first: an attach of all devices that was cut short may have
    /// left its epoch on one of them, and that of the next attach, without that device, is the same.
    pub(crate) fn is_newer_than(&self, other: &Superblock) -> bool {
        let rank = |of: &Superblock| (of.membership, of.epoch, of.sequence);
        rank(self) > rank(other)
    }

    /// Whether a device whose newest copy is of this epoch was not there at the last attach: that
    /// wrote its epoch on every device, durable, before it decided anything.
    pub(crate) fn makes_stale(&self, epoch: u32) -> bool {
        epoch < self.decided_epoch
    }

    fn check_sizes(&self, device: &dyn Storage, given: &[u8]) -> Result<(), SuperblockError> {
        for record in self.devices.iter().filter(|on| given.contains(&on.number)) {
            let found_bytes = device.size_of(record.number);
            if found_bytes < self.extents.end_bytes(record.number, &self.geometry) {
                return Err(SuperblockError::Truncated {
                    found_bytes,
                    recorded_bytes: record.size_bytes,
                });
            }
        }
        Ok(())
    }

    /// Reads the newest valid copy on one of the devices, and which device it says it is on.
    ///
    /// # Errors
    /// Says what is there instead, or that the device fails.
    pub fn of_device(
        device: &mut dyn Storage,
        number: u8,
    ) -> Result<(Superblock, CacheDevice), SuperblockError> {
        let mut best: Option<(Superblock, CacheDevice)> = None;
        let mut newer = None;
        let mut malformed = None;
        let mut blank = true;
        let mut failed = None;
        let mut truncated = false;
        let mut page = vec![0; COPY_BYTES];
        for copy in 0..COPIES {
            let offset_bytes = copy * COPY_STRIDE_BYTES;
            if offset_bytes + COPY_BYTES as u64 > device.size_of(number) {
                truncated = true;
                continue;
            }
            if let Err(error) = device.read(address(number, offset_bytes), &mut page) {
                failed = Some(error);
                continue;
            }
            blank &= page.iter().all(|byte| *byte == 0);
            match Superblock::decode(&page) {
                Ok((found, mut on))
                    if best
                        .as_ref()
                        .is_none_or(|best| found.is_newer_than(&best.0)) =>
                {
                    on.whole_half = copy % 2;
                    best = Some((found, on));
                }
                Err(SuperblockError::Newer { found }) => newer = Some(found),
                Err(error @ (SuperblockError::Malformed(_) | SuperblockError::Geometry(_))) => {
                    malformed = Some(error)
                }
                _ => {}
            }
        }
        if let Some(found) = newer {
            return Err(SuperblockError::Newer { found });
        }
        // Whichever would count: with one copy that was made up the others are not to be trusted.
        if let Some(error) = malformed {
            return Err(error);
        }
        let Some(found) = best else {
            return Err(match failed {
                Some(error) => error.into(),
                None if blank => SuperblockError::Blank,
                None if truncated => SuperblockError::NotACache {
                    detail: " (the device is smaller than the space for them)",
                },
                None => SuperblockError::NotACache {
                    detail: " (there is other data)",
                },
            });
        };
        Ok(found)
    }
}
