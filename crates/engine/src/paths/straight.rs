//! Reads straight into a client's memory ([`Buf::of_client`](crate::Buf::of_client)): no byte of
//! them passes the driver's. So nothing is copied, and no checksum can be compared.
//!
//! | the range is | goes straight |
//! |---|---|
//! | cached whole, none of it as zeroes, and `verify = background` | from the cache |
//! | not cached, in a volume whose mode reads past the cache | from the origin |
//! | read in sequence by a client with one request at a time | no: it is read ahead |
//! | anything else | no |
//!
//! Writes past the cache go straight from there, if no block of theirs is dirty in the cache.
//!
//! Whatever goes wrong on the way changes nothing: the driver asks again, with memory of its own.
//! That read compares checksums, and has all the ways that a read has.

use crate::format::{BlockKey, Slot};
use crate::interface::{Ack, DeviceError, Failure, Memory, Nanos, Request, VolumeSlot};
use crate::parts::Engine;
use crate::planted::{self, Bug};
use crate::settings::Verify;
use crate::settings::mode::Writes;
use crate::store::op::HitRead;

impl Engine {
    /// Whether reads of a volume may go straight into clients' memory at all, as its mode and the
    /// settings are.
    #[must_use]
    pub fn may_read_straight(&self, volume: VolumeSlot) -> bool {
        self.goes_unverified() || self.passes_by(volume)
    }

    /// Whether reads of a volume pass the cache by.
    #[must_use]
    pub fn passes_by(&self, volume: VolumeSlot) -> bool {
        let volume = self.store.find_volume(volume);
        volume.is_some_and(|volume| !volume.config.mode.caches_reads()) || self.store.failed_cache()
    }

    /// Whether writes of a volume may go straight from clients' memory, as its mode is. Not those with
    /// FUA: a flush that failed must not be made good by asking again (I10).
    #[must_use]
    pub fn may_write_straight(&self, volume: VolumeSlot) -> bool {
        let volume = self.store.find_volume(volume);
        volume.is_some_and(|volume| volume.config.mode.writes() == Writes::Origin)
    }

    /// Whether nobody compares hits with their checksums. Each is compared while a dirty block is known
    /// that cannot be read, and since a device or the cache failed: the flush that failed can have
    /// taken acknowledged data, and an older version is in its place.
    #[inline(always)]
    pub(super) fn goes_unverified(&self) -> bool {
        let is_sound = || {
            !self.store.unreadable.has_failed()
                && !self.store.log.has_lost_device()
                && !self.store.failed_cache()
        };
        self.store.settings.verify == Verify::Background && is_sound()
            || planted::is(Bug::StraightUnverified)
    }

    /// Whether consecutive bytes go straight: from these slots, or from the origin.
    pub(super) fn goes_straight(
        &self,
        found: Option<Slot>,
        is_whole: bool,
        passthrough: bool,
    ) -> bool {
        let Some(slot) = found else {
            return passthrough;
        };
        let flags = self.store.index.flags(slot);
        is_whole && flags.live() && !flags.zero() && self.goes_unverified()
    }

    /// Whether a read goes straight, as far as its first block tells. Before anything is counted, and out
    /// of the way of reads that are copied.
    #[inline(never)]
    pub(super) fn is_worth_a_try(&mut self, request: &Request) -> bool {
        let block_bytes = self.store.block_bytes();
        let first = self.store.key_at(request.volume, request.offset_bytes);
        let skip_bytes = request.offset_bytes as usize & (block_bytes - 1);
        let passthrough = self.bypasses_reads(request.volume);
        let end_bytes = skip_bytes + request.len_bytes as usize;
        let is_whole = skip_bytes == 0 && end_bytes >= block_bytes;
        let found = self.servable_slot(first, passthrough, || false);
        let is_read_ahead = end_bytes > block_bytes && !passthrough && self.is_next_alone(first);
        self.goes_straight(found, is_whole, passthrough) && !is_read_ahead
    }

    /// Whether a read from here on continues one, and nothing else is in progress: the blocks after it
    /// are read ahead, which needs copies.
    fn is_next_alone(&self, first: BlockKey) -> bool {
        let is_alone = self.requests.is_empty() && self.jobs.hits_alone == 0;
        is_alone && self.ahead.next == Some(first)
    }

    #[cold]
    pub(crate) fn refuse_straight(&mut self, request: &Request) {
        self.acks.push_back(Ack {
            id: request.id,
            result: Err(Failure::NotStraight),
            bypassed: false,
        });
    }

    /// Blocks have come from the cache, or not.
    #[inline(never)]
    pub(super) fn straight_hit_done(
        &mut self,
        now: Nanos,
        read: HitRead,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if result.is_ok() && !self.goes_unverified() {
            // Something failed since it began.
            return self.finish_part(now, read.request, Err(Failure::NotStraight));
        }
        if let Err(error) = result {
            let is_error = error != DeviceError::NotStraight;
            self.store.stats.cache_read_errors += u64::from(is_error);
            return self.finish_part(now, read.request, Err(Failure::NotStraight));
        }
        self.deliver_hit(now, read, memory);
    }
}
