//! The superblocks of the devices, as their disks have them: what the oracle goes by. It asks after
//! every step, so each is read again only when its pages have changed.

use std::cell::RefCell;
use std::collections::BTreeMap;

use forebay_engine::format::extents::place_of;
use forebay_engine::{DATA_OFFSET_BYTES, DeviceError, Storage, Superblock};

use super::World;
use crate::disk::{Disk, Pages};

/// By number of the device: what was read, and the pages that it was read from.
#[derive(Debug, Default)]
pub(super) struct Superblocks(RefCell<BTreeMap<u8, (Pages, Option<Superblock>)>>);

impl World<'_> {
    /// The newest superblock on any device.
    pub(super) fn newest_superblock(&self) -> Option<Superblock> {
        self.newest_superblock_on(0..self.cache.device_count())
    }

    /// The newest superblock that these devices have.
    pub(super) fn newest_superblock_on(
        &self,
        numbers: impl Iterator<Item = u8>,
    ) -> Option<Superblock> {
        numbers
            .filter_map(|number| self.superblock_on(number))
            .max_by_key(|superblock| (superblock.membership, superblock.epoch, superblock.sequence))
    }

    fn superblock_on(&self, number: u8) -> Option<Superblock> {
        let start = self.cache.place(u64::from(number) << 56);
        let part = start..start + DATA_OFFSET_BYTES;
        let disk = &self.cache.disk;
        let mut read = self.superblocks.0.borrow_mut();
        if let Some((pages, superblock)) = read.get(&number)
            && disk.still_has(&part, pages)
        {
            return superblock.clone();
        }
        let mut view = View(disk, start, self.cache.span_bytes());
        let found = Superblock::of_device(&mut view, 0).ok();
        let superblock = found.map(|(superblock, _)| superblock);
        read.insert(number, (disk.pages(&part), superblock.clone()));
        superblock
    }
}

/// A device of several on a disk, whatever its number.
struct View<'a>(&'a Disk, u64, u64);

impl Storage for View<'_> {
    fn size_bytes(&self) -> u64 {
        self.2
    }

    fn device_numbers(&self) -> Vec<u8> {
        vec![0]
    }

    fn size_of(&self, _number: u8) -> u64 {
        self.2
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (_, offset_bytes) = place_of(offset_bytes);
        self.0.read(self.1 + offset_bytes, into);
        Ok(())
    }

    fn write(&mut self, _offset_bytes: u64, _from: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
}
