//! A simulated device: a [`Disk`] that fails as told. The driver's side carries out one operation
//! at a time at the moment it completes; the control plane's side ([`Control`]) can be cut short
//! after any operation.

use std::collections::BTreeSet;

use forebay_engine::format::extents::place_of;
use forebay_engine::format::geometry::DATA_OFFSET_BYTES;
use forebay_engine::{DeviceError, Storage};

use crate::disk::{Disk, PAGE_BYTES, Survival};
use crate::plan::FaultRates;
use crate::rng::Rng;

/// Fate of an operation, decided when it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As it should.
    Good,
    /// It fails; a write lands whole (2), in part (1) or not at all (0).
    Fails {
        /// The part of it that lands.
        landing: u8,
        /// Its pages fail from now on.
        sticky: bool,
    },
    /// A read returns what was before.
    Stale,
    /// A read or write goes to another place.
    Elsewhere {
        /// Its offset, in bytes.
        offset_bytes: u64,
    },
    /// A write is not done.
    Lost,
}

/// Counts of a device's failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Failed reads.
    pub reads: u64,
    /// Failed writes, discards and write-zeroes.
    pub writes: u64,
    /// Failed flushes.
    pub flushes: u64,
    /// Reads that returned something else.
    pub bad_reads: u64,
    /// Writes that went elsewhere or nowhere, flipped bits, lost caches: damage that stays.
    pub damage: u64,
}

impl Tally {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.bad_reads + self.damage
    }
}

/// A fault, and what it touched.
#[derive(Clone, Debug)]
pub struct Harmed {
    /// The kind of fault.
    pub how: How,
    /// Where on the disk.
    pub place: u64,
    /// Its length, in bytes.
    pub len_bytes: u64,
    /// The contents there, or meant to be there, if they are there no more.
    pub contents: Vec<u8>,
}

/// Appearance of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A read failed, or returned something else.
    Read,
    /// A write failed, or a discard.
    Write,
    /// A flush failed.
    Flush,
    /// The contents there stay wrong, or cannot be read.
    Lasting,
}

/// A write that was in flight when its daemon died and may still land.
#[derive(Clone, Debug)]
pub struct Zombie {
    /// Offset, in bytes.
    pub offset_bytes: u64,
    /// The data; `Err` with the length of zeroes.
    pub data: Result<Vec<u8>, u64>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its contents.
    pub disk: Disk,
    span_bytes: u64,
    /// Bytes of each device that copies of the superblock take.
    superblocks_bytes: u64,
    /// Which of the devices on the disk the control plane was given.
    pub numbers: Vec<u8>,
    /// Rates of its failures while faults are on.
    pub rates: FaultRates,
    /// Whether faults are on.
    pub faulty: bool,
    /// Which of the devices on the disk answer nothing any more.
    pub gone: BTreeSet<u8>,
    /// Of several, the only one that fails.
    pub only: Option<u8>,
    /// No fault of that one reaches another: it writes and reads elsewhere on itself.
    pub is_apart: bool,
    /// Counts of its failures.
    pub tally: Tally,
    bad_pages: BTreeSet<u64>,
    /// These pages cannot be read until they are written.
    unreadable_pages: BTreeSet<u64>,
    /// Faults that nobody has looked at yet.
    pub harmed: Vec<Harmed>,
    /// A failed flush lost what was volatile.
    pub lost: bool,
    /// Writes of a daemon that is dead.
    pub zombies: Vec<Zombie>,
}

impl Device {
    /// A device with this disk.
    #[must_use]
    pub fn new(disk: Disk, rates: FaultRates) -> Device {
        let span_bytes = disk.size_bytes();
        Device {
            superblocks_bytes: 0,
            ..Device::several(disk, span_bytes, rates)
        }
    }

    /// Devices of `span_bytes` each that lie one behind the other on this disk, so that they fail
    /// together; offsets are addresses.
    #[must_use]
    pub fn several(disk: Disk, span_bytes: u64, rates: FaultRates) -> Device {
        Device {
            disk,
            span_bytes,
            superblocks_bytes: DATA_OFFSET_BYTES,
            numbers: vec![0],
            rates,
            faulty: false,
            gone: BTreeSet::new(),
            only: None,
            is_apart: false,
            tally: Tally::default(),
            bad_pages: BTreeSet::new(),
            unreadable_pages: BTreeSet::new(),
            harmed: Vec::new(),
            lost: false,
            zombies: Vec::new(),
        }
    }

    /// Makes only this one of the devices on the disk fail.
    #[must_use]
    pub fn failing(self, only: Option<u8>) -> Device {
        Device { only, ..self }
    }

    /// Keeps the faults of that one from the others.
    #[must_use]
    pub fn apart(self, is_apart: bool) -> Device {
        Device { is_apart, ..self }
    }

    /// The size of each of the devices on the disk.
    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    /// The number of devices on the disk.
    #[must_use]
    pub fn device_count(&self) -> u8 {
        (self.disk.size_bytes() / self.span_bytes) as u8
    }

    /// Where on the disk an address is.
    #[must_use]
    pub fn place(&self, address: u64) -> u64 {
        let (number, offset_bytes) = place_of(address);
        u64::from(number) * self.span_bytes + offset_bytes
    }

    /// Whether all devices on the disk are gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        !self.gone.is_empty() && self.gone.len() == usize::from(self.device_count())
    }

    /// Whether the device of an address is gone.
    #[must_use]
    pub fn is_gone_at(&self, address: u64) -> bool {
        self.gone.contains(&place_of(address).0)
    }

    /// Whether the device of a number fails now.
    fn fails(&self, number: u8) -> bool {
        self.faulty && self.only.is_none_or(|only| only == number)
    }

    fn failure(&self, rng: &mut Rng) -> Fate {
        let sticky = rng.percent(u64::from(self.rates.sticky_percent));
        Fate::Fails {
            landing: rng.below(3) as u8,
            sticky,
        }
    }

    /// The fate of a read of an address.
    pub fn read_fate(&self, address: u64, rng: &mut Rng) -> Fate {
        if !self.fails(place_of(address).0) {
            return Fate::Good;
        }
        if rng.in_10_000(self.rates.read) {
            return self.failure(rng);
        }
        if rng.in_10_000(self.rates.stale_read) {
            return Fate::Stale;
        }
        if rng.in_10_000(self.rates.misdirected_read) {
            return Fate::Elsewhere {
                offset_bytes: self.some_page(rng),
            };
        }
        Fate::Good
    }

    /// The fate of a write to an address.
    pub fn write_fate(&self, address: u64, rng: &mut Rng) -> Fate {
        if !self.fails(place_of(address).0) {
            return Fate::Good;
        }
        if rng.in_10_000(self.rates.write) {
            return self.failure(rng);
        }
        if rng.in_10_000(self.rates.misdirected_write) {
            return Fate::Elsewhere {
                offset_bytes: self.some_page(rng),
            };
        }
        if rng.in_10_000(self.rates.lost_write) {
            return Fate::Lost;
        }
        Fate::Good
    }

    /// The fate of a flush of a device, or of a discard on it.
    pub fn plain_fate(&self, number: u8, rate: u32, rng: &mut Rng) -> Fate {
        if self.fails(number) && rng.in_10_000(rate) {
            self.failure(rng)
        } else {
            Fate::Good
        }
    }

    /// A place among the data: a bad copy of the superblock, of four, is no interesting damage.
    fn some_page(&self, rng: &mut Rng) -> u64 {
        let data = self.rotting_data();
        let pages = data.end / PAGE_BYTES as u64;
        let first = data.start / PAGE_BYTES as u64;
        rng.between(first.min(pages - 1), pages - 1) * PAGE_BYTES as u64
    }

    /// The places on the disk where data lies that may be damaged: of one device where that one alone
    /// fails and no fault of it may reach another.
    #[must_use]
    pub fn rotting_data(&self) -> std::ops::Range<u64> {
        match self.only.filter(|_| self.is_apart) {
            Some(only) => {
                let start = u64::from(only) * self.span_bytes;
                start + DATA_OFFSET_BYTES..start + self.span_bytes
            }
            None => DATA_OFFSET_BYTES..self.disk.size_bytes(),
        }
    }

    /// The places of data on the disk that no damage reaches, by device.
    pub fn data_of_others(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        let others = (0..self.device_count()).filter(|number| Some(*number) != self.only);
        others.map(|number| {
            let start = u64::from(number) * self.span_bytes;
            start + DATA_OFFSET_BYTES..start + self.span_bytes
        })
    }

    fn pages(offset_bytes: u64, len_bytes: u64) -> std::ops::Range<u64> {
        offset_bytes / PAGE_BYTES as u64..(offset_bytes + len_bytes).div_ceil(PAGE_BYTES as u64)
    }

    fn is_bad(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        !self.bad_pages.is_empty()
            && self
                .bad_pages
                .range(Device::pages(offset_bytes, len_bytes))
                .next()
                .is_some()
    }

    /// Whether a place on the disk is set aside for copies of the superblock. None stays bad here:
    /// such a cache refuses every change of itself (docs/MODEL.md).
    fn is_superblock(&self, offset_bytes: u64) -> bool {
        offset_bytes % self.span_bytes < self.superblocks_bytes
    }

    /// Notes a fault.
    pub fn harm(&mut self, how: How, place: u64, len_bytes: u64, contents: &[u8]) {
        self.harmed.push(Harmed {
            how,
            place,
            len_bytes,
            contents: contents.to_vec(),
        });
    }

    fn spoil(&mut self, offset_bytes: u64, len_bytes: u64, sticky: bool) {
        if sticky && self.faulty && !self.is_superblock(offset_bytes) {
            self.bad_pages
                .extend(Device::pages(offset_bytes, len_bytes));
            self.tally.damage += 1;
            self.harm(How::Lasting, offset_bytes, len_bytes, &[]);
        }
    }

    /// Carries out a read.
    ///
    /// # Errors
    /// As its fate says, or if the device is gone.
    pub fn read(
        &mut self,
        offset_bytes: u64,
        into: &mut [u8],
        fate: Fate,
    ) -> Result<(), DeviceError> {
        let len_bytes = into.len() as u64;
        let gone = self.is_gone_at(offset_bytes);
        let offset_bytes = self.place(offset_bytes);
        if gone {
            self.harm(How::Read, offset_bytes, len_bytes, &[]);
            return Err(DeviceError::Gone);
        }
        let unreadable = self
            .unreadable_pages
            .range(Device::pages(offset_bytes, len_bytes));
        if self.is_bad(offset_bytes, len_bytes) || unreadable.count() > 0 {
            self.tally.reads += 1;
            self.harm(How::Read, offset_bytes, len_bytes, &[]);
            return Err(DeviceError::Io);
        }
        match fate {
            Fate::Fails { sticky, .. } => {
                self.tally.reads += 1;
                self.harm(How::Read, offset_bytes, len_bytes, &[]);
                self.spoil(offset_bytes, len_bytes, sticky);
                return Err(DeviceError::Io);
            }
            Fate::Stale => {
                self.tally.bad_reads += 1;
                self.harm(How::Read, offset_bytes, len_bytes, &[]);
                self.disk.read_stale(offset_bytes, into);
            }
            Fate::Elsewhere {
                offset_bytes: other,
            } if other + len_bytes <= self.disk.size_bytes() => {
                self.tally.bad_reads += 1;
                self.harm(How::Read, offset_bytes, len_bytes, &[]);
                self.disk.read(other, into);
            }
            _ => self.disk.read(offset_bytes, into),
        }
        Ok(())
    }

    /// Carries out a write.
    ///
    /// # Errors
    /// As its fate says, or if the device is gone.
    pub fn write(
        &mut self,
        offset_bytes: u64,
        data: &[u8],
        fate: Fate,
        rng: &mut Rng,
    ) -> Result<(), DeviceError> {
        let len_bytes = data.len() as u64;
        let gone = self.is_gone_at(offset_bytes);
        let offset_bytes = self.place(offset_bytes);
        if gone {
            self.harm(How::Write, offset_bytes, len_bytes, data);
            return Err(DeviceError::Gone);
        }
        if self.is_bad(offset_bytes, len_bytes) {
            self.tally.writes += 1;
            self.harm(How::Write, offset_bytes, len_bytes, data);
            return Err(DeviceError::Io);
        }
        self.unreadable_pages
            .retain(|page| !Device::pages(offset_bytes, len_bytes).contains(page));
        match fate {
            Fate::Fails { landing, sticky } => {
                self.tally.writes += 1;
                self.harm(How::Write, offset_bytes, len_bytes, data);
                match landing {
                    0 => {}
                    1 => self.disk.write_torn(offset_bytes, data, rng),
                    _ => self.disk.write(offset_bytes, data),
                }
                self.spoil(offset_bytes, len_bytes, sticky);
                return Err(DeviceError::Io);
            }
            Fate::Elsewhere {
                offset_bytes: other,
            } if other + len_bytes <= self.disk.size_bytes() => {
                self.tally.damage += 1;
                let mut before = vec![0; data.len()];
                self.disk.read(other, &mut before);
                self.harm(How::Lasting, offset_bytes, len_bytes, data);
                self.harm(How::Lasting, other, len_bytes, &before);
                self.disk.write(other, data);
            }
            Fate::Lost => {
                self.tally.damage += 1;
                self.harm(How::Lasting, offset_bytes, len_bytes, data);
            }
            _ => self.disk.write(offset_bytes, data),
        }
        Ok(())
    }

    /// Carries out a flush that was submitted when the disk's order was `order`.
    ///
    /// # Errors
    /// As its fate says, or if the device is gone.
    pub fn flush(&mut self, order: u64, fate: Fate, rng: &mut Rng) -> Result<(), DeviceError> {
        self.flush_part(order, 0..u64::MAX, fate, rng)
    }

    /// Flushes one of several devices on the disk.
    ///
    /// # Errors
    /// As its fate says, or if the device is gone.
    pub fn flush_one(
        &mut self,
        number: u8,
        order: u64,
        fate: Fate,
        rng: &mut Rng,
    ) -> Result<(), DeviceError> {
        let start = u64::from(number) * self.span_bytes;
        self.flush_part(order, start..start + self.span_bytes, fate, rng)
    }

    fn flush_part(
        &mut self,
        order: u64,
        part: std::ops::Range<u64>,
        fate: Fate,
        rng: &mut Rng,
    ) -> Result<(), DeviceError> {
        let is_part = |number: &u8| part.contains(&(u64::from(*number) * self.span_bytes));
        if self.gone.iter().any(is_part) {
            return Err(DeviceError::Gone);
        }
        if matches!(fate, Fate::Fails { .. }) {
            self.tally.flushes += 1;
            if rng.percent(u64::from(self.rates.flush_loss_percent)) {
                for place in self.disk.volatile_pages(&part) {
                    let mut contents = vec![0; PAGE_BYTES];
                    self.disk.read(place, &mut contents);
                    self.harm(How::Lasting, place, PAGE_BYTES as u64, &contents);
                }
                self.disk.cut_part(Survival::Any, part, rng);
                self.lost = true;
            }
            return Err(DeviceError::Io);
        }
        self.disk.flush_part(order, part);
        Ok(())
    }

    /// Whether some of its pages never answer.
    #[must_use]
    pub fn has_bad_pages(&self) -> bool {
        !self.bad_pages.is_empty()
    }

    /// These bytes cannot be read until they are written, or the device is healed.
    pub fn make_unreadable(&mut self, offset_bytes: u64, len_bytes: u64) {
        self.unreadable_pages
            .extend(Device::pages(offset_bytes, len_bytes));
        self.tally.damage += 1;
        self.harm(How::Lasting, offset_bytes, len_bytes, &[]);
    }

    /// Its pages answer again.
    pub fn heal(&mut self) {
        self.bad_pages.clear();
        self.unreadable_pages.clear();
    }

    /// Lets writes of a dead daemon land, or never.
    pub fn settle_zombies(&mut self, all: bool, rng: &mut Rng) {
        let mut at = 0;
        while at < self.zombies.len() {
            if !all && rng.percent(70) {
                at += 1;
                continue;
            }
            let zombie = self.zombies.swap_remove(at);
            let place = self.place(zombie.offset_bytes);
            match (&zombie.data, rng.below(3)) {
                (_, 0) => {}
                (Ok(data), 1) => self.disk.write_torn(place, data, rng),
                (Ok(data), _) => self.disk.write(place, data),
                (Err(len_bytes), _) => self.disk.zero(place, *len_bytes),
            }
        }
    }
}

/// The control plane's view of a device: creation, attach, recovery.
#[derive(Debug)]
pub struct Control<'a> {
    device: &'a mut Device,
    rng: &'a mut Rng,
    /// Operations until the machine or the program dies.
    left: Option<u32>,
    /// Operations that were done.
    pub done: u64,
    /// Whether it died.
    pub cut: bool,
}

impl<'a> Control<'a> {
    /// A view that dies with the operation after `left` others.
    pub fn new(device: &'a mut Device, left: Option<u32>, rng: &'a mut Rng) -> Control<'a> {
        Control {
            device,
            rng,
            left,
            done: 0,
            cut: false,
        }
    }

    fn step(&mut self) -> Result<(), DeviceError> {
        if self.device.is_gone() || self.cut {
            return Err(DeviceError::Gone);
        }
        self.done += 1;
        if let Some(left) = &mut self.left {
            if *left == 0 {
                self.cut = true;
                return Err(DeviceError::Gone);
            }
            *left -= 1;
        }
        if !self.device.zombies.is_empty() {
            self.device.settle_zombies(false, self.rng);
        }
        Ok(())
    }
}

impl Control<'_> {
    /// Flushes one of several devices.
    ///
    /// # Errors
    /// As [`Storage::flush`].
    pub fn flush_device(&mut self, number: u8) -> Result<(), DeviceError> {
        self.step()?;
        let fate = self
            .device
            .plain_fate(number, self.device.rates.flush, self.rng);
        let order = self.device.disk.order();
        self.device.flush_one(number, order, fate, self.rng)
    }
}

impl Storage for Control<'_> {
    fn size_bytes(&self) -> u64 {
        self.device.disk.size_bytes()
    }

    fn device_numbers(&self) -> Vec<u8> {
        self.device.numbers.clone()
    }

    fn size_of(&self, number: u8) -> u64 {
        if !self.device.numbers.contains(&number) {
            return 0;
        }
        let span_bytes = self.device.span_bytes;
        let before_it = u64::from(number) * span_bytes;
        let left = self.device.disk.size_bytes().saturating_sub(before_it);
        left.min(span_bytes)
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.step()?;
        let fate = match self.device.read_fate(offset_bytes, self.rng) {
            // A control plane that is lied to by a read has no second source; see MODEL.md.
            Fate::Stale | Fate::Elsewhere { .. } => Fate::Good,
            fate => fate,
        };
        self.device.read(offset_bytes, into, fate)
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let was_cut = self.cut;
        if let Err(error) = self.step() {
            if self.cut && !was_cut && !self.device.is_gone_at(offset_bytes) {
                let at = self.device.place(offset_bytes);
                self.device.disk.write_torn(at, from, self.rng);
            }
            return Err(error);
        }
        let fate = match self.device.write_fate(offset_bytes, self.rng) {
            Fate::Lost | Fate::Elsewhere { .. } => Fate::Good,
            fate => fate,
        };
        self.device.write(offset_bytes, from, fate, self.rng)
    }

    fn flush_of(&mut self, number: u8) -> Result<(), DeviceError> {
        if self.device.device_count() == 1 {
            return self.flush();
        }
        self.device.settle_zombies(true, self.rng);
        self.flush_device(number)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.step()?;
        self.device.settle_zombies(true, self.rng);
        let number = self.device.only.unwrap_or(0);
        let fate = self
            .device
            .plain_fate(number, self.device.rates.flush, self.rng);
        let order = self.device.disk.order();
        self.device.flush(order, fate, self.rng)
    }
}
