//! Two devices of a cache that keeps two copies (I28) are lost at a time: what lay on these alone
//! cannot be read until they are back, and nothing else is lost.
//!
//! From then on the cache may fail, and everything is as with one copy, but for reads: one that
//! fails must have met a block that no device has that is left. At the next start both are back, as
//! they were, and what was on record as unsaved is written out. Some starts are tried without a
//! device before: if one of these succeeds, what was not flushed may be gone with that device, and if
//! it is refused all has to be there as soon as the device is.

use std::ops::Range;

use forebay_engine::format::extents::place_of;
use forebay_engine::{Engine, VolumeSlot};

use super::{Check, Pending, World};
use crate::model::{self, Event};
use crate::payload::{self, SECTOR_BYTES};

/// Starts that are tried without a device once two have been lost.
const MISSING_PERCENT: u64 = 50;

impl World<'_> {
    /// Whether nothing at all may fail: dirty data is on two devices, and one of them at most is lost.
    pub(super) fn is_strict(&self) -> bool {
        self.keeps_two() && !self.two_lost
    }

    /// The device that fails is gone, and another one with it.
    pub(super) fn both_gone(&mut self, device: u8) {
        let Some(failing) = self.plan.config.failing_device else {
            return;
        };
        let is_in = self.served_devices.contains(&device);
        if self.is_sound || self.two_lost || !is_in || failing == device {
            return;
        }
        self.tell(|_| format!("devices {failing} and {device} of the cache are gone at a time"));
        self.counts().add("two cache devices gone at a time", 1);
        self.two_lost = true;
        self.cache.gone.extend([failing, device]);
        self.cache.tally.damage += 1;
        for pending in self.requests.values_mut() {
            pending.found_dirty = true;
        }
    }

    /// Some starts are tried without one of the devices that are in the cache.
    pub(super) fn one_of_two_is_missing(&mut self, mut named: Vec<u8>) -> Vec<u8> {
        if named.len() > 1 && self.rng.percent(MISSING_PERCENT) {
            let missing = named.remove(self.rng.below(named.len() as u64) as usize);
            self.tell(|_| format!("device {missing} is missing at this start"));
            self.counts().add("starts without one of two", 1);
        }
        named
    }

    /// A loss that is not put on record: all threads are told, and the cache fails.
    pub(super) fn loss_is_not_recorded(&mut self, device: u8) -> Check {
        if self.is_strict() {
            return Err(format!(
                "the cache cannot go on without device {device}, which fails alone"
            ));
        }
        self.counts().add("losses that may not go on record", 1);
        self.loss_told(device, false);
        Ok(())
    }

    /// A read failed: of a block of it no copy is left.
    pub(super) fn read_met_what_is_lost(&self, pending: &Pending) -> Check {
        let mut blocks = self.blocks_of(pending.range).into_iter();
        if blocks.any(|(volume, block)| !self.is_left(volume, block, pending)) {
            return Ok(());
        }
        Err(format!(
            "read of {:?} failed, and devices that are left have all of it",
            pending.range
        ))
    }

    /// Whether a range begins or ends within a block that no device has that is left.
    pub(super) fn cuts_what_is_lost(&self, range: model::Range) -> bool {
        let end = range.sector + range.count;
        let mut cut = self.blocks_of(range).into_iter().filter(|(volume, block)| {
            let sectors = self.sectors_of(*volume, *block);
            sectors.start < range.sector || sectors.end > end
        });
        cut.any(|(volume, block)| {
            let mut addresses = self.addresses(volume, block).peekable();
            addresses.peek().is_some() && addresses.all(|address| self.cache.is_gone_at(address))
        })
    }

    fn addresses(&self, volume: u16, block: u64) -> impl Iterator<Item = u64> {
        let offset_bytes = block * u64::from(self.plan.config.geometry.block_bytes);
        self.engines()
            .flat_map(move |engine| engine.addresses_of(VolumeSlot(volume), offset_bytes))
    }

    /// Whether the newest contents of a block are on a device that is left, or at the origin, if these
    /// contents are certain and have been since the read was submitted. Others may be nowhere.
    fn is_left(&self, volume: u16, block: u64, pending: &Pending) -> bool {
        let offset_bytes = block * u64::from(self.plan.config.geometry.block_bytes);
        let is_dirty = |engine: &Engine| engine.block_state(VolumeSlot(volume), offset_bytes).1;
        if !self.engines().any(is_dirty) {
            let mut sectors = self.sectors_of(volume, block);
            let settled = |sector| self.model.settled(volume, sector, pending.submitted);
            return !pending.found_dirty && sectors.all(|sector| settled(sector).is_some());
        }
        self.addresses(volume, block).any(|address| {
            let (number, _) = place_of(address);
            self.served_devices.contains(&number)
                && !self.cache.gone.contains(&number)
                && self.holds_block(address, volume, block, pending.submitted)
        })
    }

    pub(super) fn sectors_of(&self, volume: u16, block: u64) -> Range<u64> {
        let sectors = u64::from(self.plan.config.geometry.block_bytes) / SECTOR_BYTES as u64;
        let end = self.volumes[usize::from(volume)].sectors;
        block * sectors..((block + 1) * sectors).min(end)
    }

    fn holds_block(&self, address: u64, volume: u16, block: u64, submitted: Event) -> bool {
        let block_bytes = self.plan.config.geometry.block_bytes as usize;
        let mut bytes = vec![0; block_bytes];
        self.cache.disk.read(self.cache.place(address), &mut bytes);
        let sectors = self.sectors_of(volume, block);
        let mut sectors = sectors.zip(bytes.chunks_exact(SECTOR_BYTES));
        sectors.all(|(sector, bytes)| {
            let value = payload::decode(bytes, volume, sector).ok();
            value.is_some() && value == self.model.settled(volume, sector, submitted)
        })
    }

    /// Sees whether both devices are back, and all dirty data is on two again, as the record says.
    pub(super) fn look_for_both(&mut self) {
        if !self.two_lost || !self.cache.gone.is_empty() || self.abandoned.is_some() {
            return;
        }
        let is_whole = self.is_whole() && self.has_two_of_all();
        if is_whole && self.superblock().is_all_on_two() {
            self.two_lost = false;
            self.counts().add("two cache devices back", 1);
        }
    }
}
