//! Writing: half of the copies before a flush and half after it, so that a crash leaves a whole one.

use super::{COPIES, COPY_BYTES, COPY_STRIDE_BYTES, CacheDevice, Superblock, SuperblockError};
use crate::format::extents::address;
use crate::storage::Storage;

impl Superblock {
    /// Writes all copies on all devices, half of them before a flush and half between that and
    /// another, so that a crash at any moment leaves a whole one.
    ///
    /// # Errors
    /// If a device fails; the old or the new superblock then counts.
    pub fn write(&mut self, device: &mut dyn Storage) -> Result<(), SuperblockError> {
        self.sequence += 1;
        self.write_on(|_| true, device)
    }

    /// Writes all copies on the devices that are given, of a cache that may do without the others: what
    /// it says leaves nobody out.
    ///
    /// # Errors
    /// As [`Superblock::write`].
    pub(crate) fn write_on_those_given(
        &mut self,
        device: &mut dyn Storage,
    ) -> Result<(), SuperblockError> {
        let given = device.device_numbers();
        self.sequence += 1;
        self.write_on(|on| given.contains(&on.number), device)
    }

    fn write_on(
        &mut self,
        wanted: impl Fn(&CacheDevice) -> bool,
        device: &mut dyn Storage,
    ) -> Result<(), SuperblockError> {
        let pages: Vec<(CacheDevice, Vec<u8>)> = self
            .devices_in_use()
            .filter(|on| wanted(on))
            .map(|on| (*on, self.encode(on)))
            .collect();
        for is_second in [0, 1] {
            for (on, page) in &pages {
                // As it was before this write: the half that is not known to be whole goes first.
                let half = on.whole_half ^ 1 ^ is_second;
                for copy in (0..COPIES).filter(|copy| copy % 2 == half) {
                    device.write(address(on.number, copy * COPY_STRIDE_BYTES), page)?;
                }
            }
            device.flush()?;
            if is_second == 0 {
                // I24: believed from its own flush on, whatever becomes of the other. Which goes
                // first alternates, so that a copy that is always torn cannot be the one always
                // relied on.
                for on in self.devices.iter_mut().filter(|on| wanted(on)) {
                    on.whole_half ^= 1;
                }
            }
        }
        Ok(())
    }

    /// Writes down that the cache failed, on every device that takes it (I22). Returns the
    /// number of those that did: each device that can be written says so to its next attach.
    pub fn abandon(&mut self, device: &mut dyn Storage) -> usize {
        self.abandoned = true;
        self.sequence += 1;
        let numbers: Vec<u8> = self.devices_in_use().map(|on| on.number).collect();
        let mut taken = 0;
        for number in numbers {
            let written = self.write_on(|on| on.number == number, device);
            taken += usize::from(written.is_ok());
        }
        taken
    }

    /// Removes all copies from a device that the superblock no longer names.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wipe(device: &mut dyn Storage) -> Result<(), SuperblockError> {
        let zeroes = vec![0; COPY_BYTES];
        for copy in 0..COPIES {
            device.write(copy * COPY_STRIDE_BYTES, &zeroes)?;
        }
        Ok(device.flush()?)
    }

    /// Takes a changed superblock over and writes it. If that fails this one stays as it was,
    /// with a number for its next write that counts above whatever was written.
    ///
    /// # Errors
    /// If a device fails; the old or the new superblock counts until the next one is written.
    pub fn replace(
        &mut self,
        mut changed: Superblock,
        device: &mut dyn Storage,
    ) -> Result<(), SuperblockError> {
        changed.sequence += 1;
        // A device has a superblock of its own before the others name it.
        let is_new = |on: &CacheDevice| {
            let mut known = self.devices.iter();
            known.all(|known| (known.number, known.serial) != (on.number, on.serial))
        };
        let mut written = Ok(());
        if changed.devices.iter().any(is_new) {
            written = changed.write_on(is_new, device);
        }
        if written.is_ok() {
            written = changed.write_on(|on| !is_new(on), device);
        }
        match written {
            Ok(()) => {
                *self = changed;
                Ok(())
            }
            Err(error) => {
                self.sequence = changed.sequence;
                // A device to which a failed change has written copies is told apart from the next
                // that is added.
                self.next_serial = changed.next_serial;
                self.next_volume_id = changed.next_volume_id;
                for on in &mut self.devices {
                    let mut written = changed.devices.iter();
                    if let Some(written) = written
                        .find(|written| (written.number, written.serial) == (on.number, on.serial))
                    {
                        on.whole_half = written.whole_half;
                    }
                }
                Err(error)
            }
        }
    }
}
