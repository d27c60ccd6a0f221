//! Calls of the control plane on a shard: volumes, modes, settings, space, and questions.

use std::ops::Range;

use crate::buffer::MemoryBuffer;
use crate::checksum::crc32c;
use crate::format::{CacheId, Geometry, Sequence, Slot, Stream, Superblock};
use crate::interface::{Memory, Nanos, VolumeSlot};
use crate::parts::Engine;
use crate::policy::trials::Trials;
use crate::settings::replacement::Replacement;
use crate::settings::volume::VolumeSettings;
use crate::settings::{Commit, Mode, Settings};
use crate::spare::Spare;
use crate::stats::Stats;
use crate::store::device_times::DeviceTimes;
use crate::store::stripe::Stripe;
use crate::store::volumes::{Volume, VolumeConfig};

/// A dirty block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyBlock {
    /// Where it is on the cache devices, as an address ([`crate::format::extents`]); none if it is
    /// all zeroes.
    pub address: Option<u64>,
    /// CRC-32C of its contents, unless it is all zeroes.
    pub checksum: u32,
}

impl DirtyBlock {
    /// Whether these are its contents.
    #[must_use]
    pub fn is(&self, contents: &[u8]) -> bool {
        crc32c(contents) == self.checksum
    }
}

impl Engine {
    /// Attaches a volume and says how requests name it.
    pub fn add_volume(&mut self, config: VolumeConfig) -> VolumeSlot {
        let free = self.store.volumes.iter().position(Option::is_none);
        let slot = VolumeSlot(free.unwrap_or(self.store.volumes.len()) as u16);
        self.add_volume_at(slot, config);
        slot
    }

    /// Attaches a volume that requests name so.
    ///
    /// # Panics
    /// If they name another one so.
    pub fn add_volume_at(&mut self, slot: VolumeSlot, config: VolumeConfig) {
        let mut volume = Volume::new(config);
        let (first, end) = volume.keys();
        (volume.cached_blocks, volume.dirty_blocks) = self.store.index.counts_of(first..end);
        let at = usize::from(slot.0);
        let count = self.store.volumes.len().max(at + 1);
        self.store.volumes.resize_with(count, || None);
        assert!(
            self.store.volumes[at].is_none(),
            "volume {at} is served already"
        );
        self.store.volumes[at] = Some(volume);
        self.renew_own_settings();
        self.store.stir();
    }

    /// Times of the cache device, as they are learnt from its operations.
    #[must_use]
    pub fn cache_times(&self) -> DeviceTimes {
        self.store.operations.times.of_cache()
    }

    /// Times of the origin of a volume, likewise.
    #[must_use]
    pub fn origin_times(&self, slot: VolumeSlot) -> DeviceTimes {
        self.store.operations.times.of_origin(slot)
    }

    /// Serves a volume no more, before any request of it: its origin is not there. Its blocks stay
    /// in the cache until [`Engine::bring_back`]. Writes that an earlier life left in the memory
    /// buffer are logged as in write-back, whatever its mode.
    pub fn set_away(&mut self, slot: VolumeSlot) {
        let volume = self.store.volume(slot);
        volume.detaching = true;
        volume.config.mode = Mode::Writeback;
        self.store.set_away(slot);
        self.space.keeps_others();
    }

    /// Serves a volume again whose origin was away, as it is now.
    pub fn bring_back(&mut self, slot: VolumeSlot, config: VolumeConfig) {
        self.store.bring_back(slot, config);
        self.space.keeps_others();
        self.store.volume(slot).detaching = false;
    }

    /// Serves a volume in a larger size from now on, which is on record.
    ///
    /// # Panics
    /// If it is no larger, beyond the keys set aside for the volume, or if its end was within a
    /// block, whose rest the cache may hold as zeroes that the origin does not have.
    pub fn grow_volume(&mut self, slot: VolumeSlot, size_bytes: u64) {
        let block_bytes = self.store.block_bytes() as u64;
        let config = &mut self.store.volume(slot).config;
        assert!(config.size_bytes < size_bytes && config.size_bytes.is_multiple_of(block_bytes));
        assert!(size_bytes <= config.reserved_blocks * block_bytes);
        config.size_bytes = size_bytes;
    }

    /// Changes a volume's mode for requests submitted from now on. Dirty data stays and is
    /// written back as before.
    pub fn set_mode(&mut self, slot: VolumeSlot, mode: Mode) {
        self.store.stir();
        let volume = self.store.volume(slot);
        volume.config.mode = mode;
    }

    /// The mode of a volume.
    #[must_use]
    pub fn mode(&self, slot: VolumeSlot) -> Option<Mode> {
        Some(self.store.find_volume(slot)?.config.mode)
    }

    /// Starts or stops writing everything of a volume back as fast as the origin takes it. What
    /// failed before is tried again at once.
    pub fn set_draining(&mut self, slot: VolumeSlot, draining: bool) {
        self.store.stir();
        self.store.volume(slot).draining = draining;
        if draining {
            self.origin.writeback.try_again(slot);
            self.store.try_unreadable_again(slot);
        }
    }

    /// Takes no more requests for a volume but flushes; others fail with
    /// [`Failure::Detached`](crate::Failure::Detached).
    pub fn set_detaching(&mut self, slot: VolumeSlot, detaching: bool) {
        self.store.volume(slot).detaching = detaching;
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// If they are not valid; the old ones stay.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), String> {
        settings.validate()?;
        self.store.stir();
        self.buffer.in_use |= settings.commit == Commit::Memory;
        let tried = |of: &Settings| (of.replacement, of.probation_percent, of.promotion_hits);
        if tried(&settings) != tried(&self.store.settings) {
            self.policy.trials = Trials::new(self.store.log.usable_slots(), &settings);
        }
        self.store.set_settings(settings);
        self.renew_admission();
        // Its time was reckoned with the period before.
        self.scrub.due = None;
        Ok(())
    }

    /// Gives a volume settings of its own, in place of those it had. A volume that is gone has
    /// none.
    pub fn set_volume_settings(&mut self, slot: VolumeSlot, own: VolumeSettings) {
        let volume = self.store.volumes.get_mut(usize::from(slot.0));
        if let Some(volume) = volume.and_then(Option::as_mut) {
            volume.own = own;
            self.store.stir();
            self.renew_admission();
        }
    }

    /// Says the stripe of a volume's origin, which write-back keeps whole; `None` for an origin without
    /// parity. A stripe with a border inside a block does not count.
    pub fn set_stripe(&mut self, slot: VolumeSlot, stripe: Option<Stripe>) {
        let block_bytes = self.store.block_bytes() as u64;
        let volume = self.store.volumes.get_mut(usize::from(slot.0));
        if let Some(volume) = volume.and_then(Option::as_mut) {
            volume.set_stripe(stripe.filter(|stripe| stripe.fits(block_bytes)));
        }
    }

    /// Says whether a volume's origin may answer long reads of clean cached blocks where it does so
    /// sooner (docs/decisions/0038). Not before this is called: hits do not wait for a network.
    pub fn set_origin_answers_hits(&mut self, slot: VolumeSlot, may: bool) {
        let volume = self.store.volumes.get_mut(usize::from(slot.0));
        if let Some(volume) = volume.and_then(Option::as_mut) {
            volume.origin_answers_hits = may;
        }
    }

    fn renew_admission(&mut self) {
        let own = self.store.own_admissions();
        let slots = self.store.log.usable_slots();
        self.policy.gate.set(&self.store.settings, own, slots);
        self.renew_own_settings();
    }

    fn renew_own_settings(&mut self) {
        self.store.renew_own_settings();
        self.space.keeps_others();
    }

    /// Uses a memory buffer that the driver has from now on ([`Memory::buffer_mut`]), if there was
    /// none before.
    pub fn adopt_buffer(&mut self, memory: &mut dyn Memory) {
        if !self.buffer.has_place() {
            self.buffer = MemoryBuffer::adopt(self.identity, self.store.block_bytes(), memory);
            self.store.stir();
            if self.buffer.has_place() {
                self.spare_buffered = Spare::new(self.store.block_bytes(), memory);
            }
            self.buffer.in_use |= self.store.settings.commit == Commit::Memory;
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.store.settings
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.store.stats
    }

    /// Dirty and cached blocks of a volume. Blocks in the memory buffer alone are dirty too: the
    /// origin does not have them.
    #[must_use]
    pub fn volume_blocks(&self, slot: VolumeSlot) -> Option<(u64, u64)> {
        let volume = self.store.find_volume(slot)?;
        let (first, end) = volume.keys();
        let buffered = self.buffer.blocks_unfinished(first, end);
        Some((volume.dirty_blocks + buffered, volume.cached_blocks))
    }

    /// Blocks of a volume that are on its origin and become clean with the origin's next flush;
    /// some may have been written again since. For showing progress.
    #[must_use]
    pub fn unflushed_blocks(&self, slot: VolumeSlot) -> u64 {
        self.store.unflushed_blocks(slot)
    }

    /// Begins only write-back that somebody waits for: room, memory, a drain. The first part of an
    /// orderly stop, which does not wait for the rest.
    pub fn limit_writeback(&mut self) {
        self.origin.writeback.limit_writeback();
        self.store.stir();
    }

    /// Starts no more write-back, and nothing at all from when [`Engine::is_settled`] says that all
    /// is done. Part of an orderly stop: an origin is to stay as it is, and the driver takes the
    /// shared memory away.
    pub fn hold(&mut self) {
        self.looks.held = true;
        self.origin.writeback.hold();
        self.store.stir();
    }

    /// The number of dirty blocks of a volume that write-back could not read and tries no more.
    #[must_use]
    pub fn unreadable_blocks(&self, volume: VolumeSlot) -> u64 {
        self.store.unreadable_blocks(volume)
    }

    /// Dirty blocks that cannot be read from the cache device, by offset on the volume in bytes:
    /// lost unless an administrator finds another copy.
    #[must_use]
    pub fn unreadable_dirty(&self, volume: VolumeSlot) -> Vec<u64> {
        self.store.unreadable_dirty(volume)
    }

    /// The number of blocks cached, and of those that fit at most.
    #[must_use]
    pub fn occupancy(&self) -> (u64, u64) {
        (
            u64::from(self.store.index.len()),
            self.store.capacity_blocks(),
        )
    }

    /// The variant that `adaptive` replacement is in just now; none under another policy.
    #[must_use]
    pub fn variant(&self) -> Option<&'static str> {
        let adapts = self.store.settings.replacement == Replacement::Adaptive;
        adapts.then(|| self.policy.trials.best().name())
    }

    /// Whether a block of a volume is cached, and whether it is dirty.
    #[must_use]
    pub fn block_state(&self, slot: VolumeSlot, offset_bytes: u64) -> (bool, bool) {
        let Some(volume) = self.store.find_volume(slot) else {
            return (false, false);
        };
        let key = volume.key_at(offset_bytes, self.store.block_bytes());
        if self.buffer.is_unfinished(key) {
            return (true, true);
        }
        self.store.index.find(key).map_or((false, false), |slot| {
            (true, self.store.index.flags(slot).dirty())
        })
    }

    /// Where on the cache devices the newest contents of a block are, as addresses
    /// ([`crate::format::extents`]): two where they are on two devices, none if it is not cached.
    pub fn addresses_of(&self, slot: VolumeSlot, offset_bytes: u64) -> impl Iterator<Item = u64> {
        let volume = self.store.find_volume(slot);
        let key = volume.map(|volume| volume.key_at(offset_bytes, self.store.block_bytes()));
        let found = key.and_then(|key| self.store.index.find(key));
        let addresses = found.map(|slot| self.store.log.map.addresses_at(slot));
        addresses
            .into_iter()
            .flat_map(|(first, second)| std::iter::once(first).chain(second))
    }

    /// The dirty blocks of a volume in a part of the log, each with its offset in bytes: for
    /// whoever reads them beside the driver. `slots` are places of the log, of which there are
    /// [`Engine::log_slots`].
    #[must_use]
    pub fn dirty_blocks_in(
        &self,
        volume: VolumeSlot,
        slots: std::ops::Range<u32>,
    ) -> Vec<(u64, DirtyBlock)> {
        let Some(known) = self.store.find_volume(volume) else {
            return Vec::new();
        };
        let (index, log) = (&self.store.index, &self.store.log);
        let block_bytes = self.store.block_bytes() as u64;
        let in_part = (slots.start..slots.end.min(self.log_slots())).map(Slot);
        let found = in_part.filter_map(|slot| {
            let (flags, key) = (index.flags(slot), index.key(slot));
            if !flags.live() || !flags.dirty() || !known.contains(key) {
                return None;
            }
            let block = DirtyBlock {
                address: (!flags.zero()).then(|| log.map.slot_address(slot)),
                checksum: index.checksum(slot),
            };
            Some(((key.0 - known.config.base.0) * block_bytes, block))
        });
        found.collect()
    }

    /// Blocks of a volume that are in the memory buffer, and not in the log yet.
    #[must_use]
    pub fn buffered_blocks(&self, slot: VolumeSlot) -> u64 {
        let volume = self.store.find_volume(slot);
        volume.map_or(0, |volume| {
            let (first, end) = volume.keys();
            self.buffer.blocks_unfinished(first, end)
        })
    }

    /// Places of the log for blocks.
    #[must_use]
    pub fn log_slots(&self) -> u32 {
        self.store.index.slots()
    }

    /// Whether the newest contents of a block are in the memory buffer alone.
    #[must_use]
    pub fn is_buffered(&self, slot: VolumeSlot, offset_bytes: u64) -> bool {
        self.store.find_volume(slot).is_some_and(|volume| {
            let key = volume.key_at(offset_bytes, self.store.block_bytes());
            self.buffer.is_unfinished(key)
        })
    }

    /// Why the cache failed, if it did (I15).
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        self.store.failed.as_ref().map(|failed| failed.reason)
    }

    /// The shape of the cache.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.store.log.geometry
    }

    /// The identity of the cache.
    #[must_use]
    pub fn cache_id(&self) -> CacheId {
        self.store.log.id
    }

    /// Uses the extents of this superblock, which is durable: new segments are free from now on,
    /// and those that are gone have been emptied ([`Engine::begin_shrink`]).
    ///
    /// # Panics
    /// If a segment that is gone is not empty.
    pub fn set_extents(&mut self, superblock: &Superblock) {
        self.space.set_extents(&mut self.store, superblock);
        let slots = self.store.log.usable_slots();
        self.policy.trials = Trials::new(slots, &self.store.settings);
    }

    /// Begins to empty these segments, so that their extents can be taken away. Nothing happens to
    /// them until all are empty ([`Engine::shrinking`]) and the driver says so
    /// ([`Engine::set_extents`]); until then they can be put back ([`Engine::cancel_shrink`]).
    ///
    /// # Errors
    /// With the number of segments that must stay, if they would not.
    ///
    /// # Panics
    /// If others are being removed, or any is not there.
    pub fn begin_shrink(&mut self, ids: Vec<Range<u32>>) -> Result<(), u32> {
        self.space.begin_shrink(&mut self.store, ids)
    }

    /// The number of segments being removed that still hold something, and of all segments being
    /// removed; `None` if none are to leave.
    #[must_use]
    pub fn shrinking(&self) -> Option<(u32, u32)> {
        self.space.shrinking(&self.store)
    }

    /// A device of the cache is being lost (I28): nothing is opened on it any more. Returns the
    /// number that goes on record, below which clean data counts no more. Until that is durable
    /// ([`Engine::device_lost`]) the driver tells the engine of the end of no write and no flush.
    pub fn device_leaves(&mut self, now: Nanos, number: u8, memory: &mut dyn Memory) -> Sequence {
        // An orderly stop has come to its end: what is open stays as it is on record.
        let may_close = !self.looks.held;
        (self.space).device_leaves(&mut self.store, now, number, may_close, memory)
    }

    /// Whether a start without a device, and without those that are lost, would miss a segment of the
    /// write stream (I28).
    #[must_use]
    pub fn is_alone_on(&self, number: u8) -> bool {
        let tail = self.store.durable_tail(Stream::Write);
        self.store.log.is_alone_on(number, tail)
    }

    /// Whether a start without any one device would miss a segment of the write stream (I28).
    #[must_use]
    pub fn is_alone_somewhere(&self) -> bool {
        let tail = self.store.durable_tail(Stream::Write);
        self.store.log.is_alone_somewhere(tail)
    }

    /// The cache goes on without the devices that left, and that is on record.
    pub fn device_lost(&mut self) {
        self.space.device_lost(&mut self.store);
    }

    /// The number of dirty blocks that are on one device, where they are to be on two.
    #[must_use]
    pub fn exposed_blocks(&self) -> u64 {
        self.store.exposed_blocks()
    }

    /// Whether dirty data is being copied so that all of it is on two devices.
    #[must_use]
    pub fn is_mirroring(&self) -> bool {
        self.space.is_mirroring(&self.store)
    }

    /// Uses the segments that were to leave as before.
    pub fn cancel_shrink(&mut self) {
        self.space.cancel_shrink(&mut self.store);
    }
}
