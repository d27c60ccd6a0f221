//! The superblock: the identity of the cache and its volumes, in several copies.

use super::cache_id::CacheId;
use super::codec::{Reader, Writer, checksum};
use super::extents::{Extent, Extents, MAX_DEVICES, MAX_EXTENTS, SegmentMap, address};
use super::geometry::{BlockKey, Geometry, GeometryError};
use super::header::page_checksum;
use super::superblock_tables::{COPIES_OFFSET, CopiesTable, TABLE_OFFSET, Table};
use super::{ABANDONED_VERSION, COPIES_VERSION, EXTENTS_VERSION, FORMAT_VERSION, Places, Sequence};
use crate::planted::{self, Bug};
use crate::storage::{DeviceError, Storage};

const MAGIC: u64 = u64::from_le_bytes(*b"FOREBAY1");
/// Bytes of one copy.
pub const COPY_BYTES: usize = 64 << 10;
/// The number of copies; at most half of them are written between two flushes.
pub const COPIES: u64 = 4;
/// The distance from the start of a copy to that of the next, in bytes.
pub const COPY_STRIDE_BYTES: u64 = 256 << 10;
/// The message about a device that was left behind.
pub(crate) const OLD_COPY: &str = "it is an old copy of one of the cache's devices: the cache was attached since, with what was in its place then. Give that device, or a copy of all of them from one moment; nothing was changed";
/// The message about two devices that are a split.
pub(crate) const SPLIT: &str = "both went on, each without the other: what was written to one of them is not on the other. Decide which of them counts, start with that one alone, and take the other as an empty one (`forebay cache replace OTHER OTHER --force`)";
/// The message about a device that the cache went on without.
pub(crate) const OUT: &str = "it is out of the cache: it failed or was missing, and the cache went on without it. Leave it out, or erase it and add it as a new device (`forebay cache add`)";
/// The longest name of a volume, in bytes.
pub const NAME_BYTES: usize = 64;
/// The most volumes a cache can have.
pub const MAX_VOLUMES: usize = 256;
const FIXED_BYTES: usize = 8 + 2 + 2 + 4 + 16 + 8 + 4 + 4 + 8 + 4 + 8 + 2 + Geometry::BYTES;
const VOLUME_BYTES: usize = 4 + 2 + NAME_BYTES + 8 + 8 + 8 + 1 + 1 + 32 + 8 + 4;
/// The flag of a cache that failed, in a superblock of [`COPIES_VERSION`].
const ABANDONED_FLAG: u16 = 1;
const _: () = assert!(FIXED_BYTES + MAX_VOLUMES * VOLUME_BYTES <= TABLE_OFFSET);
/// A device of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheDevice {
    /// Its number, in addresses.
    pub number: u8,
    /// Never given twice in a cache, as a number can be; 0 for the device it was created on.
    pub serial: u32,
    /// Its size when it was added or last resized, in bytes.
    pub size_bytes: u64,
    /// The cache goes on without it: nothing on it counts, and nothing is written to it (I28).
    pub out: bool,
    /// No dirty data is on it alone, so that a start may do without it (I28).
    pub dispensable: bool,
    /// Which half of its copies of the superblock is known to be whole: 0 the even, 1 the odd
    /// ones. The others are written first. Not on the device.
    pub(crate) whole_half: u64,
}

/// Whether a volume's data may be in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VolumeState {
    /// Served, or to be served again: the cache may hold dirty data of it.
    Attached = 1,
    /// Taken off in order: nothing below the recorded epoch counts any more (I15).
    Detached = 2,
}

/// A volume as the cache knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Never given twice (I16).
    pub id: u32,
    /// The user's name for it, at most [`NAME_BYTES`] bytes.
    pub name: String,
    /// Its first block key; a multiple of the region.
    pub base: BlockKey,
    /// The number of keys set aside for it, so that the origin can grow.
    pub reserved_blocks: u64,
    /// The origin's size at the last attach, in bytes.
    pub size_bytes: u64,
    /// Whether it is attached.
    pub state: VolumeState,
    /// The mode last set, as its number.
    pub mode: u8,
    /// The fingerprint of the origin when it was last let go.
    pub fingerprint: [u8; 32],
    /// When the fingerprint was taken, seconds since 1970, 0 for never: an attach that was not
    /// ended in order leaves none.
    pub fingerprint_at: u64,
    /// Nothing of this volume from epochs below this one counts (I15).
    pub valid_from_epoch: u32,
}

/// The superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the cache.
    pub id: CacheId,
    /// Counts the writes of the superblock; the highest counts.
    pub sequence: u64,
    /// The epoch of the last attach (I1).
    pub epoch: u32,
    /// Everything from epochs below this one was decided by a recovery whose verdict is durable
    /// (I12).
    pub decided_epoch: u32,
    /// True if the volumes went on without the cache: its contents count only as far as a record
    /// outside of it says so (I15).
    pub abandoned: bool,
    /// The devices.
    pub devices: Vec<CacheDevice>,
    /// The id the next volume gets.
    pub next_volume_id: u32,
    /// The key the next volume starts at.
    pub next_base: BlockKey,
    /// The shape.
    pub geometry: Geometry,
    /// Where the segments are.
    pub extents: Extents,
    /// The serial that the next device or extent gets.
    pub next_serial: u32,
    /// Attached and detached volumes; detached ones whose data may still be in the log stay.
    pub volumes: Vec<VolumeRecord>,
    /// The number of devices that hold each dirty block: 1 or 2.
    pub copies: u8,
    /// Counts the changes of which devices are in the cache and of `copies`; 0 for a cache that
    /// never kept two copies.
    pub membership: u32,
    /// By shard: nothing of probation and main counts below this (I28). Empty if no device was lost.
    pub clean_from: Vec<Sequence>,
}

/// Why a device cannot be used as a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// No copy can be read as ours and the place is not blank.
    #[error("no Forebay cache here: none of the {COPIES} superblock copies is valid{detail}")]
    NotACache {
        /// A hint at what was found instead.
        detail: &'static str,
    },
    /// All copies are zero.
    #[error("the device is blank: it holds no cache")]
    Blank,
    /// A newer program wrote it.
    #[error(
        "the cache has format version {found}, this program knows version {COPIES_VERSION}: use a newer forebay"
    )]
    Newer {
        /// Its version.
        found: u16,
    },
    /// The cache has several devices, and not all were given.
    #[error(
        "the cache has {count} devices, and number {number} is not among those given: give all of them"
    )]
    Incomplete {
        /// The number of a device that is missing.
        number: u8,
        /// The number of devices.
        count: usize,
    },
    /// The cache has several devices, and this device holds the contents that it had before the
    /// last attach.
    #[error("{} (device number {number})", super::superblock::OLD_COPY)]
    Stale {
        /// Its number.
        number: u8,
    },
    /// The cache goes on without this device.
    #[error("{} (device number {number})", super::superblock::OUT)]
    Out {
        /// Its number.
        number: u8,
    },
    /// Two devices went on, each without the other.
    #[error("devices number {one} and {other}: {}", super::superblock::SPLIT)]
    Split {
        /// The number of the first.
        one: u8,
        /// The number of the second.
        other: u8,
    },
    /// The device shrank.
    #[error(
        "the device has {found_bytes} bytes, the cache on it was made for {recorded_bytes}: it was cut short, or is not the same device. A file gets its size back with `truncate -s {recorded_bytes} FILE`; nothing is lost by that, and what was cut off, if anything was there, is then named as damage"
    )]
    Truncated {
        /// Its size now.
        found_bytes: u64,
        /// Its size when it was added or last resized.
        recorded_bytes: u64,
    },
    /// Its checksum is right, and it says what no superblock can say.
    #[error(
        "the superblock is malformed: {0}. No forebay wrote that: restore the cache device from a copy, or create the cache anew (what was only in it is lost then)"
    )]
    Malformed(&'static str),
    /// The shape in it cannot be.
    #[error("the superblock describes an impossible cache: {0}")]
    Geometry(#[from] GeometryError),
    /// The device failed.
    #[error("cannot read or write the superblock: {0}")]
    Device(#[from] DeviceError),
    /// No room for another volume.
    #[error("{0}")]
    Full(&'static str),
}

impl Superblock {
    /// The superblock of a new cache.
    #[must_use]
    pub fn new(id: CacheId, geometry: Geometry, device_bytes: u64) -> Superblock {
        Superblock {
            id,
            sequence: 0,
            epoch: 0,
            decided_epoch: 0,
            devices: vec![CacheDevice {
                number: 0,
                serial: 0,
                size_bytes: device_bytes,
                out: false,
                dispensable: false,
                whole_half: 0,
            }],
            next_volume_id: 1,
            next_base: BlockKey(0),
            geometry,
            extents: Extents::of_new(&geometry),
            next_serial: 1,
            abandoned: false,
            volumes: Vec::new(),
            copies: 1,
            membership: 0,
            clean_from: Vec::new(),
        }
    }

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

    /// Devices that are in the cache and not lost.
    pub fn devices_in_use(&self) -> impl Iterator<Item = &CacheDevice> {
        self.devices.iter().filter(|on| !on.out)
    }

    /// Devices that the cache goes on without.
    pub fn devices_out(&self) -> impl Iterator<Item = &CacheDevice> {
        self.devices.iter().filter(|on| on.out)
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

    /// Whether the cache of this superblock went on without a device of this serial: that is out, or
    /// was removed. Not so of a device that came later, and of none by number: that may be another's.
    #[must_use]
    pub fn is_without(&self, serial: u32) -> bool {
        serial < self.next_serial && self.devices_in_use().all(|on| on.serial != serial)
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

    /// Where a shard's segments are.
    pub(crate) fn segment_map(&self, shard: u16) -> SegmentMap {
        let mut map = SegmentMap::new(self.id, shard, &self.geometry, &self.extents);
        if self.membership > 0 {
            map.keep_places(Places::own(self.geometry.segments_per_shard));
        }
        map
    }

    /// Whether dirty data is on two devices, of those that are there.
    #[must_use]
    pub fn keeps_two(&self) -> bool {
        self.copies > 1 && self.devices_in_use().count() > 1
    }

    /// Whether a device is in the cache, and not lost.
    #[must_use]
    pub fn has_device(&self, number: u8) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|on| on.number == number && (!on.out || planted::is(Bug::OutBelieved)))
    }

    /// The number of segments that a shard would gain from a stretch of a device.
    #[must_use]
    pub fn segments_in(&self, bytes: u64) -> u32 {
        u32::try_from(bytes / self.geometry.row_bytes()).unwrap_or(u32::MAX)
    }

    /// Adds the space that a device has behind its last extent, up to `end_bytes`; it is used when
    /// this superblock is written. Returns the number of segments that each shard gains.
    ///
    /// # Errors
    /// If that is none, or more than a cache can have.
    pub fn grow(&mut self, device: u8, end_bytes: u64) -> Result<u32, SuperblockError> {
        let start_bytes = self.extents.end_bytes(device, &self.geometry);
        let segments = self.segments_in(end_bytes.saturating_sub(start_bytes));
        if segments == 0 {
            return Err(SuperblockError::Full(
                "there is no room for another segment of each shard on the device",
            ));
        }
        let mut extents = self.extents.clone();
        extents.add(
            Extent {
                serial: self.next_serial,
                device,
                alternates: true,
                start_bytes,
                first_segment: 0,
                segments,
                since_epoch: if self.membership > 0 { self.epoch } else { 0 },
            },
            &self.geometry,
        );
        if extents.iter().count() > MAX_EXTENTS {
            return Err(SuperblockError::Full(
                "the cache has been resized too often for another piece: remove a device and add it again",
            ));
        }
        let geometry = Geometry {
            segments_per_shard: extents.end_segment(),
            ..self.geometry
        };
        geometry.validate()?;
        self.next_serial += 1;
        (self.geometry, self.extents) = (geometry, extents);
        if let Some(record) = self.devices.iter_mut().find(|on| on.number == device) {
            record.size_bytes = record.size_bytes.max(end_bytes);
        }
        Ok(segments)
    }

    /// Adds a device, which holds nothing yet (see [`Superblock::grow`]), and says its number.
    ///
    /// # Errors
    /// If the cache has as many as it can.
    pub fn add_device(&mut self, size_bytes: u64) -> Result<u8, SuperblockError> {
        let taken = |number: &u8| self.devices.iter().any(|on| on.number == *number);
        let Some(number) = (0..MAX_DEVICES as u8).find(|number| !taken(number)) else {
            return Err(SuperblockError::Full(
                "the cache has 16 devices already: remove one first",
            ));
        };
        self.devices.push(CacheDevice {
            number,
            serial: self.next_serial,
            size_bytes,
            out: false,
            // All free segments can be on it, so that one for dirty data may be opened there alone.
            dispensable: false,
            whole_half: 0,
        });
        self.devices.sort_by_key(|on| on.number);
        self.next_serial += 1;
        Ok(number)
    }

    /// Has each dirty block on so many devices, 1 or 2, from the next write of this superblock on.
    pub fn set_copies(&mut self, copies: u8) {
        assert!((1..=2).contains(&copies), "one copy or two");
        if self.copies == copies {
            return;
        }
        self.copies = copies;
        if copies == 1 {
            self.leave_two(|_| true);
        } else {
            self.membership += 1;
        }
        // A cache that was never attached holds nothing.
        if self.epoch == 0 && self.keeps_two() {
            self.be_on_two();
        }
    }

    /// The cache goes on without a device, once this superblock is written: what its clean streams
    /// hold below these numbers, by shard, counts no more (I28). A `Drop` may have been on that
    /// device alone.
    pub fn lose_device(&mut self, number: u8, clean_from: &[(u16, Sequence)]) {
        for on in self.devices.iter_mut().filter(|on| on.number == number) {
            on.out = true;
        }
        // The other copy of what was on it may be on any.
        self.leave_two(|_| true);
        self.leave_clean_behind(clean_from);
    }

    /// Whether no dirty data is on any device alone, as far as is on record.
    #[must_use]
    pub fn is_all_on_two(&self) -> bool {
        self.devices_in_use().all(|on| on.dispensable)
    }

    /// Dirty data may be on one of these devices alone, once this superblock is written. A count that
    /// began before says nothing any more.
    pub fn leave_two(&mut self, stay: impl Fn(&CacheDevice) -> bool) {
        for on in &mut self.devices {
            on.dispensable &= !stay(on);
        }
        self.membership += 1;
    }

    /// No dirty data is on any device alone, once this superblock is written.
    pub fn be_on_two(&mut self) {
        for on in &mut self.devices {
            on.dispensable = !on.out;
        }
    }

    /// Has nothing count that the clean streams hold below these numbers, by shard.
    pub(crate) fn leave_clean_behind(&mut self, clean_from: &[(u16, Sequence)]) {
        let shards = usize::from(self.geometry.shards);
        self.clean_from.resize(shards, Sequence::ZERO);
        for (shard, from) in clean_from {
            let known = &mut self.clean_from[usize::from(*shard)];
            *known = (*known).max(*from);
        }
    }

    /// Takes segments away that every shard has emptied, and devices that hold none then.
    pub fn shrink(&mut self, gone: &[std::ops::Range<u32>]) {
        self.extents = self.extents.without(gone, &self.geometry);
        self.geometry.segments_per_shard = self.extents.end_segment();
        let extents = &self.extents;
        self.devices
            .retain(|on| extents.iter().any(|extent| extent.device == on.number));
    }

    /// Adds a volume with a range of keys of its own.
    ///
    /// # Errors
    /// If there are too many volumes or too few keys left.
    pub fn add_volume(
        &mut self,
        name: &str,
        size_bytes: u64,
        mode: u8,
    ) -> Result<&mut VolumeRecord, SuperblockError> {
        // A detached volume's record only guards keys that are never given again.
        if self.volumes.len() >= MAX_VOLUMES {
            match self
                .volumes
                .iter()
                .position(|volume| volume.state == VolumeState::Detached)
            {
                Some(oldest) => drop(self.volumes.remove(oldest)),
                None => {
                    return Err(SuperblockError::Full(
                        "the cache has 256 volumes already: detach one first",
                    ));
                }
            }
        }
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(SuperblockError::Full("a volume's name has 1 to 64 bytes"));
        }
        let region_blocks = u64::from(self.geometry.region_bytes / self.geometry.block_bytes);
        let blocks = size_bytes.div_ceil(u64::from(self.geometry.block_bytes));
        // Room to grow by a half, and at least a gigabyte.
        let reserved_blocks = (blocks
            + (blocks / 2).max((1 << 30) / u64::from(self.geometry.block_bytes)))
        .next_multiple_of(region_blocks);
        if self.next_base.0 + reserved_blocks > BlockKey::END {
            return Err(SuperblockError::Full(
                "the cache has used up its block numbers (4 PiB of origins at 4 KiB blocks): drain it and create it anew",
            ));
        }
        let id = self.next_volume_id;
        self.volumes.push(VolumeRecord {
            id,
            name: name.to_owned(),
            base: self.next_base,
            reserved_blocks,
            size_bytes,
            state: VolumeState::Attached,
            mode,
            fingerprint: [0; 32],
            fingerprint_at: 0,
            valid_from_epoch: 0,
        });
        self.next_volume_id += 1;
        self.next_base = self.next_base.plus(reserved_blocks);
        Ok(self.volumes.last_mut().expect("just pushed"))
    }

    /// The size to which a volume's origin may grow without being attached anew, in bytes.
    #[must_use]
    pub fn room_bytes(&self, volume: &VolumeRecord) -> u64 {
        let block_bytes = u64::from(self.geometry.block_bytes);
        volume.reserved_blocks.saturating_mul(block_bytes)
    }

    /// Whether entries of this epoch for this block count: its volume is attached and the epoch
    /// is not one that was abandoned (I15, I16).
    #[must_use]
    pub fn accepts(&self, key: BlockKey, epoch: u32) -> bool {
        self.volumes.iter().any(|volume| {
            volume.state == VolumeState::Attached
                && (volume.base.0..volume.base.0 + volume.reserved_blocks).contains(&key.0)
                && epoch >= volume.valid_from_epoch
        })
    }

    /// Whether a superblock of version 1 says all there is to say.
    fn is_as_created(&self) -> bool {
        let first = self.devices.first();
        self.extents == Extents::of_version_1(&self.geometry)
            && self.devices.len() == 1
            && first.is_some_and(|on| on.serial == 0 && on.number == 0)
            && self.next_serial == 1
    }

    fn encode(&self, on: &CacheDevice) -> Vec<u8> {
        let mut page = vec![0; COPY_BYTES];
        let mut out = Writer::new(&mut page);
        out.u64(MAGIC);
        let has_copies = self.membership > 0;
        let has_table = self.abandoned || has_copies || !self.is_as_created();
        out.u16(match (has_copies, self.abandoned, has_table) {
            (true, ..) => COPIES_VERSION,
            (false, true, _) => ABANDONED_VERSION,
            (false, false, true) => EXTENTS_VERSION,
            (false, false, false) => FORMAT_VERSION,
        });
        let is_flagged = has_copies && self.abandoned;
        out.u16(if is_flagged { ABANDONED_FLAG } else { 0 });
        out.u32(0); // checksum, below
        out.bytes(&self.id.0);
        out.u64(self.sequence);
        out.u32(self.epoch);
        out.u32(self.decided_epoch);
        out.u64(on.size_bytes);
        out.u32(self.next_volume_id);
        out.u64(self.next_base.0);
        out.u16(self.volumes.len() as u16);
        self.geometry.encode(&mut out);
        assert_eq!(out.position(), FIXED_BYTES);
        for volume in &self.volumes {
            out.u32(volume.id);
            out.u16(volume.name.len() as u16);
            let mut name = [0; NAME_BYTES];
            name[..volume.name.len()].copy_from_slice(volume.name.as_bytes());
            out.bytes(&name);
            out.u64(volume.base.0);
            out.u64(volume.reserved_blocks);
            out.u64(volume.size_bytes);
            out.u8(volume.state as u8);
            out.u8(volume.mode);
            out.bytes(&volume.fingerprint);
            out.u64(volume.fingerprint_at);
            out.u32(volume.valid_from_epoch);
        }
        assert_eq!(
            out.position(),
            FIXED_BYTES + self.volumes.len() * VOLUME_BYTES
        );
        if has_table {
            self.encode_table(on, &mut page[TABLE_OFFSET..]);
        }
        if has_copies {
            self.encode_copies(&mut page[COPIES_OFFSET..]);
        }
        let sum = checksum(self.id, &page);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn decode(page: &[u8]) -> Result<(Superblock, CacheDevice), SuperblockError> {
        let not_ours = || SuperblockError::NotACache { detail: "" };
        let mut input = Reader::new(page);
        if input.u64() != MAGIC {
            return Err(not_ours());
        }
        let version = input.u16();
        let flags = input.u16();
        let sum = input.u32();
        let id = CacheId(input.fixed());
        if sum != page_checksum(id, page, 12) {
            return Err(not_ours());
        }
        if version > COPIES_VERSION {
            return Err(SuperblockError::Newer { found: version });
        }
        let sequence = input.u64();
        let epoch = input.u32();
        let decided_epoch = input.u32();
        let device_bytes = input.u64();
        let next_volume_id = input.u32();
        let next_base = BlockKey(input.u64());
        let volume_count = input.u16();
        let geometry = Geometry::decode(&mut input);
        geometry.validate()?;
        if usize::from(volume_count) > MAX_VOLUMES {
            return Err(SuperblockError::Malformed("it has more than 256 volumes"));
        }
        let mut volumes = Vec::new();
        for _ in 0..volume_count {
            let malformed = SuperblockError::Malformed("a volume has no name or no state");
            volumes.push(decode_volume(&mut input).ok_or(malformed)?);
        }
        if input.overran() {
            return Err(not_ours());
        }
        let table = if version == FORMAT_VERSION {
            Table::of_version_1(&geometry, device_bytes)
        } else {
            let malformed = SuperblockError::Malformed("its table of devices and extents");
            Table::decode(&page[TABLE_OFFSET..]).ok_or(malformed)?
        };
        let copies = if version == COPIES_VERSION {
            let malformed = SuperblockError::Malformed("its table of copies");
            CopiesTable::decode(&page[COPIES_OFFSET..]).ok_or(malformed)?
        } else {
            CopiesTable::of_one_copy()
        };
        let is_flagged = version == COPIES_VERSION && flags & ABANDONED_FLAG != 0;
        let mut extents = Extents::listed(table.extents, &geometry)?;
        for (serial, epoch) in copies.since {
            extents.note_since(serial, epoch);
        }
        let superblock = Superblock {
            id,
            sequence,
            epoch,
            decided_epoch,
            abandoned: version == ABANDONED_VERSION || is_flagged,
            devices: table.devices,
            next_volume_id,
            next_base,
            geometry,
            extents,
            next_serial: table.next_serial,
            volumes,
            copies: copies.copies,
            membership: copies.membership,
            clean_from: copies.clean_from,
        };
        match superblock.fault() {
            Some(fault) => Err(SuperblockError::Malformed(fault)),
            None => Ok((superblock, table.on)),
        }
    }
}

fn decode_volume(input: &mut Reader<'_>) -> Option<VolumeRecord> {
    let id = input.u32();
    let name_bytes = usize::from(input.u16());
    let name: [u8; NAME_BYTES] = input.fixed();
    Some(VolumeRecord {
        id,
        name: String::from_utf8(name.get(..name_bytes)?.to_vec()).ok()?,
        base: BlockKey(input.u64()),
        reserved_blocks: input.u64(),
        size_bytes: input.u64(),
        state: match input.u8() {
            1 => VolumeState::Attached,
            2 => VolumeState::Detached,
            _ => return None,
        },
        mode: input.u8(),
        fingerprint: input.fixed(),
        fingerprint_at: input.u64(),
        valid_from_epoch: input.u32(),
    })
}
