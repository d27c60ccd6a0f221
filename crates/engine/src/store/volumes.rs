//! Attached volumes, and the state of their origins' volatile caches.

use std::collections::BTreeSet;

use crate::format::{BlockKey, Slot};
use crate::ids::{JobId, RequestIndex};
use crate::interface::{Device, Memory, Nanos, Operation, Request, VolumeSlot};
use crate::planted::{self, Bug};
use crate::settings::volume::VolumeSettings;
use crate::settings::{Admission, Mode};
use crate::store::Store;
use crate::store::log::Version;
use crate::store::op::Op;
use crate::store::sequential::SequentialDetector;
use crate::store::stripe::Stripe;

/// Blocks of one bit of "written since the origin's last flush".
const REGION_BLOCKS: u64 = 64;
/// An origin hangs that ended nothing for so long while it had something to do: a disk with a full
/// queue takes a tenth of it.
pub(crate) const HANGS_AFTER: Nanos = Nanos(2_000_000_000);
/// Likewise, of one with a flush that a client waits for: a disk with a cache full of scattered writes
/// takes seconds.
const FLUSH_HANGS_AFTER: Nanos = Nanos(10_000_000_000);

/// Unflushed origin writes are flushed after this long, so that their blocks become clean and may
/// be promoted.
const ORIGIN_FLUSH_INTERVAL: Nanos = Nanos(500_000_000);
/// As long as a client writes past the cache, or through it and little is dirty by it: a disk sorts
/// what its own cache holds, and each flush leaves it nothing to sort.
const ORIGIN_FLUSH_MOST: Nanos = Nanos(5_000_000_000);
/// A client that wrote this lately goes on.
pub(crate) const GOES_ON: Nanos = Nanos(15_000_000);
/// Likewise, of one whose write is on its way: 4 MiB take a disk 30 ms.
const GOES_ON_IN_FLIGHT: Nanos = Nanos(50_000_000);

/// The driver's description of a volume for the engine.
#[derive(Clone, Copy, Debug)]
pub struct VolumeConfig {
    /// Its first block key, from the superblock.
    pub base: BlockKey,
    /// The number of keys it may use, from the superblock.
    pub reserved_blocks: u64,
    /// The origin's size, in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Its mode.
    pub mode: Mode,
}

/// A version that was written to the origin and waits for the origin's flush (I6).
#[derive(Clone, Copy, Debug)]
struct WrittenVersion {
    key: BlockKey,
    version: Version,
}

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) config: VolumeConfig,
    /// Settings of its own.
    pub(crate) own: VolumeSettings,
    /// The cut-off in force.
    pub(crate) cutoff_bytes: Option<u64>,
    pub(crate) dirty_blocks: u64,
    pub(crate) cached_blocks: u64,
    /// Write everything back (drain, detach, cleaner).
    pub(crate) draining: bool,
    pub(crate) detaching: bool,
    /// Its origin is not there.
    pub(crate) away: bool,
    pub(crate) reads: SequentialDetector,
    pub(crate) writes: SequentialDetector,
    /// When a read of the origin for a client last began or ended, or a flush that one waited for ended.
    waited_at: Option<Nanos>,
    /// When any read or flush that a client waited for last ended, or the first of those on their way
    /// began.
    waits_go_on_at: Nanos,
    /// Likewise, of clients' writes to the origin.
    writes_go_on_at: Nanos,
    /// The stripe of its origin, if that has one.
    stripe: Option<Stripe>,
    /// Its origin may answer hits.
    pub(crate) origin_answers_hits: bool,
    /// When a client's write to the origin last began or ended.
    wrote_at: Option<Nanos>,
    pub(crate) foreground_reads: u32,
    /// Clients' writes in flight to the origin. A queued write keeps its client active, until the origin
    /// hangs.
    pub(crate) foreground_writes: u32,
    /// Regions written since the last flush that began.
    unflushed: BTreeSet<u64>,
    /// Regions covered by the flush in flight.
    flushing: BTreeSet<u64>,
    /// Regions of which a flush failed: never promoted again in this life (I6, I10).
    uncertain: BTreeSet<u64>,
    /// A flush failed that concerned clients and that none waited for; the next reports it.
    pub(crate) flush_error: bool,
    /// Flushes that failed in this life.
    failed_flushes: u32,
    unflushed_since: Option<Nanos>,
    written: Vec<WrittenVersion>,
    written_flushing: Vec<WrittenVersion>,
    /// Clients wrote to the origin since the last flush that began.
    pub(crate) owes_flush: bool,
    /// The flush in flight covers writes of theirs.
    owed_in_flight: bool,
    flush_in_flight: bool,
    flush_wanted: bool,
    /// Requests and jobs that wait for a flush that has not begun.
    waiting: Vec<OriginWaiter>,
    waiting_flushing: Vec<OriginWaiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginWaiter {
    /// A client's flush.
    Request(RequestIndex),
    /// A flush of whose failure no client hears that asked for one.
    Unheard(RequestIndex),
    Job(JobId),
}

impl Volume {
    /// When unflushed writes of its origin are to be flushed; `may_wait` where no room is wanted of
    /// those that become clean then.
    fn flush_due_at(&self, may_wait: bool) -> Option<Nanos> {
        let since = self.unflushed_since?;
        let least = since.after(ORIGIN_FLUSH_INTERVAL);
        if !self.written.is_empty() && !may_wait {
            return Some(least);
        }
        let most = since.after(ORIGIN_FLUSH_MOST);
        let goes_on = match self.foreground_writes {
            0 => GOES_ON,
            _ => GOES_ON_IN_FLIGHT,
        };
        Some((self.wrote_at).map_or(least, |at| least.max(at.after(goes_on).min(most))))
    }

    pub(crate) fn new(config: VolumeConfig) -> Volume {
        Volume {
            config,
            own: VolumeSettings::default(),
            cutoff_bytes: None,
            dirty_blocks: 0,
            cached_blocks: 0,
            draining: false,
            detaching: false,
            away: false,
            reads: SequentialDetector::default(),
            writes: SequentialDetector::default(),
            waited_at: None,
            waits_go_on_at: Nanos(0),
            writes_go_on_at: Nanos(0),
            stripe: None,
            origin_answers_hits: false,
            wrote_at: None,
            foreground_reads: 0,
            foreground_writes: 0,
            unflushed: BTreeSet::new(),
            flushing: BTreeSet::new(),
            uncertain: BTreeSet::new(),
            flush_error: false,
            failed_flushes: 0,
            unflushed_since: None,
            written: Vec::new(),
            written_flushing: Vec::new(),
            owes_flush: false,
            owed_in_flight: false,
            flush_in_flight: false,
            flush_wanted: false,
            waiting: Vec::new(),
            waiting_flushing: Vec::new(),
        }
    }

    /// A client is about to read from the origin.
    pub(crate) fn client_waits(&mut self, now: Nanos) {
        self.wait_begins(now);
        self.waited_at = Some(now);
    }

    /// A read of the origin for a client has ended, or a flush that one waited for.
    pub(crate) fn client_has_waited(&mut self, now: Nanos) {
        (self.waits_go_on_at, self.waited_at) = (now, Some(now));
    }

    /// A client's write to the origin begins.
    pub(crate) fn client_writes(&mut self, now: Nanos) {
        if self.foreground_writes == 0 {
            self.writes_go_on_at = now;
        }
        self.foreground_writes += 1;
        self.wrote_at = Some(now);
    }

    /// A client's write to the origin has ended.
    pub(crate) fn client_has_written(&mut self, now: Nanos) {
        self.foreground_writes -= 1;
        (self.writes_go_on_at, self.wrote_at) = (now, Some(now));
    }

    /// A client is about to wait for a read or flush.
    fn wait_begins(&mut self, now: Nanos) {
        if self.foreground_reads == 0 && !self.is_flushed_for_client() {
            self.waits_go_on_at = now;
        }
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        key.0.wrapping_sub(self.config.base.0) < self.config.reserved_blocks
    }

    /// The block that holds this byte.
    pub(crate) fn key_at(&self, offset_bytes: u64, block_bytes: usize) -> BlockKey {
        // Block sizes are powers of two.
        let before = offset_bytes >> block_bytes.trailing_zeros();
        self.config.base.plus(before)
    }

    /// The first key set aside for it and the one after the last.
    pub(crate) fn keys(&self) -> (BlockKey, BlockKey) {
        let base = self.config.base;
        (base, base.plus(self.config.reserved_blocks))
    }

    /// Whether the origin may hold this block's last write in its volatile cache only.
    pub(crate) fn is_unflushed(&self, key: BlockKey) -> bool {
        let region = key.0 / REGION_BLOCKS;
        self.unflushed.contains(&region)
            || self.flushing.contains(&region)
            || self.uncertain.contains(&region)
    }

    /// Whether a flush of the origin is in flight.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flush_in_flight
    }

    /// Whether the origin may hold anything in its volatile cache only.
    pub(crate) fn has_doubts(&self) -> bool {
        self.has_unflushed() || !self.uncertain.is_empty()
    }

    /// True if no flush has covered yet all that clients wrote to the origin. Blocks that
    /// write-back wrote there are dirty in the cache until a flush covers them. No client has to
    /// wait for that flush, and a disk with a cache full of scattered writes takes seconds.
    pub(crate) fn owes_clients_a_flush(&self) -> bool {
        self.owes_flush || self.owed_in_flight
    }

    /// Whether something acknowledged may be in the origin's volatile cache only.
    pub(crate) fn has_unflushed_of_clients(&self, has_cache: bool) -> bool {
        if has_cache {
            self.owes_clients_a_flush()
        } else {
            // Write-back is then the only way anything dirty is saved.
            self.has_unflushed()
        }
    }

    /// The stripe of its origin, if that has one whose borders are borders of blocks.
    pub(crate) fn stripe(&self) -> Option<Stripe> {
        self.stripe
    }

    pub(crate) fn set_stripe(&mut self, stripe: Option<Stripe>) {
        self.stripe = stripe;
    }

    /// Flushes of the origin that failed in this life.
    pub(crate) fn failed_flushes(&self) -> u32 {
        self.failed_flushes
    }

    /// Whether a client waits for a flush of the origin.
    fn is_flushed_for_client(&self) -> bool {
        !(self.waiting.is_empty() && self.waiting_flushing.is_empty())
    }

    /// Whether a client waits for the origin's read or flush, and the origin does not hang.
    fn is_awaited(&self, now: Nanos) -> bool {
        let since = now.since(self.waits_go_on_at);
        self.foreground_reads > 0 && since < HANGS_AFTER
            || self.is_flushed_for_client() && since < FLUSH_HANGS_AFTER
    }

    /// Whether a client's write to the origin is on its way, and the origin does not hang.
    fn is_being_written(&self, now: Nanos) -> bool {
        self.foreground_writes > 0 && now.since(self.writes_go_on_at) < HANGS_AFTER
    }

    /// Whether anything was written to the origin that no flush has covered yet.
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty() || !self.flushing.is_empty()
    }
}

impl Store {
    /// A volume, if it is served.
    #[inline(always)]
    pub(crate) fn find_volume(&self, slot: VolumeSlot) -> Option<&Volume> {
        self.volumes.get(usize::from(slot.0))?.as_ref()
    }

    /// Whether a block is of one of these volumes.
    pub(crate) fn is_of(&self, slots: impl Iterator<Item = VolumeSlot>, key: BlockKey) -> bool {
        let mut volumes = slots.filter_map(|slot| self.find_volume(slot));
        volumes.any(|volume| volume.contains(key))
    }

    /// Dirty blocks of these volumes that write-back has a place for.
    pub(crate) fn present_dirty_in(&self, slots: impl Iterator<Item = VolumeSlot>) -> u64 {
        let volumes = slots.filter_map(|slot| self.find_volume(slot));
        let present = volumes.filter(|volume| !volume.away);
        present.map(|volume| volume.dirty_blocks).sum()
    }

    /// A volume that is there.
    pub(crate) fn attached(&self, slot: VolumeSlot) -> &Volume {
        self.find_volume(slot).expect("an attached volume")
    }

    /// An attached volume, to change.
    pub(crate) fn volume(&mut self, slot: VolumeSlot) -> &mut Volume {
        self.volumes[usize::from(slot.0)]
            .as_mut()
            .expect("an attached volume")
    }

    /// Finds the cut-off of each volume, and whether shares are kept for any, after a change of
    /// settings or volumes.
    pub(crate) fn renew_own_settings(&mut self) {
        let of_cache = self.settings.sequential_cutoff_bytes;
        self.has_cutoffs = false;
        self.keeps_shares = false;
        self.has_own_ages = false;
        for volume in self.volumes.iter_mut().flatten() {
            volume.cutoff_bytes = volume.own.sequential_cutoff_bytes.unwrap_or(of_cache);
            self.has_cutoffs |= volume.cutoff_bytes.is_some();
            self.keeps_shares |= volume.own.least_share_percent.is_some();
            self.has_own_ages |= volume.own.age_limit.is_some();
        }
    }

    /// The shortest time that data of any volume stays dirty.
    pub(crate) fn least_age_limit(&self) -> Nanos {
        let of_cache = self.settings.age_limit;
        let volumes = self.volumes.iter().flatten();
        let limits = volumes.map(|volume| volume.own.age_limit.unwrap_or(of_cache));
        limits.min().unwrap_or(of_cache)
    }

    /// The longest time that a block stays dirty.
    pub(crate) fn age_limit_of(&self, key: BlockKey) -> Nanos {
        if !self.has_own_ages {
            return self.settings.age_limit;
        }
        let own = self
            .volume_of(key)
            .and_then(|slot| self.attached(slot).own.age_limit);
        own.unwrap_or(self.settings.age_limit)
    }

    /// Whether a block stays because its volume has no more than the share that is kept for it.
    pub(crate) fn is_kept_for_its_volume(&self, key: BlockKey) -> bool {
        self.volume_of(key).is_some_and(|slot| {
            let volume = self.attached(slot);
            let least = volume.own.least_share_percent;
            least.is_some_and(|least| volume.cached_blocks <= self.share(least))
        })
    }

    /// Whether a volume has its share of the cache, if so many blocks more come in.
    pub(crate) fn has_its_share(&self, slot: VolumeSlot, more: u64) -> bool {
        let volume = self.attached(slot);
        let most = volume.own.most_share_percent;
        most.is_some_and(|most| volume.cached_blocks + more > self.share(most))
    }

    /// Whether a volume asks more of reads by itself, and of writes.
    pub(crate) fn own_admissions(&self) -> [bool; 2] {
        let own = || self.volumes.iter().flatten().map(|volume| volume.own);
        let asks = |admission: Option<Admission>| {
            admission.is_some_and(|admission| admission != Admission::ALWAYS)
        };
        let is_bounded = own().any(|own| own.most_share_percent.is_some());
        [
            is_bounded || own().any(|own| asks(own.read_admission)),
            is_bounded || own().any(|own| asks(own.write_admission)),
        ]
    }

    /// Notes that a write to these blocks reached the origin, or may have. The first since a flush began
    /// sets the time of the next one.
    pub(crate) fn origin_written(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        key: BlockKey,
        blocks: u64,
    ) {
        let volume = self.volume(volume);
        volume
            .unflushed
            .extend(key.0 / REGION_BLOCKS..=(key.0 + blocks - 1) / REGION_BLOCKS);
        if volume.unflushed_since.is_none() {
            volume.unflushed_since = Some(now);
            self.stir();
        }
    }

    /// Notes that the newest version of a block is on the origin, so that the next flush makes
    /// it clean.
    pub(crate) fn version_written(&mut self, volume: VolumeSlot, key: BlockKey, slot: Slot) {
        let version = self.log.version(slot);
        self.written.insert(key, slot);
        self.volume(volume)
            .written
            .push(WrittenVersion { key, version });
    }

    /// Blocks of a volume that are on its origin and become clean with the origin's next flush;
    /// some may have been written again since. For showing progress.
    #[must_use]
    pub(crate) fn unflushed_blocks(&self, slot: VolumeSlot) -> u64 {
        self.find_volume(slot).map_or(0, |volume| {
            (volume.written.len() + volume.written_flushing.len()) as u64
        })
    }

    /// Has `waiter` told when everything written to the origin so far is durable there.
    pub(crate) fn await_origin(&mut self, now: Nanos, volume: VolumeSlot, waiter: OriginWaiter) {
        self.stir();
        let state = self.volume(volume);
        state.wait_begins(now);
        state.waiting.push(waiter);
        state.flush_wanted = true;
    }

    /// Whether this version is on the origin already and only waits for the origin's flush.
    pub(crate) fn is_written(&self, key: BlockKey, slot: Slot) -> bool {
        self.written.get(&key) == Some(&slot)
    }

    fn forget_written(&mut self, key: BlockKey, slot: Slot) {
        if self.written.get(&key) == Some(&slot) {
            self.written.remove(&key);
        }
    }

    pub(crate) fn want_origin_flush(&mut self, volume: VolumeSlot) {
        self.volume(volume).flush_wanted = true;
    }

    /// Starts the origin flushes that are wanted or due.
    pub(crate) fn advance_origins(&mut self, now: Nanos) {
        for at in 0..self.volumes.len() {
            let due_at = self.volumes[at].as_ref();
            let due_at = due_at.and_then(|volume| self.flush_due_at(volume));
            let due = due_at.is_some_and(|at| now >= at);
            let Some(volume) = &mut self.volumes[at] else {
                continue;
            };
            if volume.flush_in_flight {
                continue;
            }
            if !(due || volume.flush_wanted) {
                continue;
            }
            volume.flush_in_flight = true;
            volume.flush_wanted = false;
            volume.unflushed_since = None;
            volume.owed_in_flight = std::mem::take(&mut volume.owes_flush);
            volume.flushing = std::mem::take(&mut volume.unflushed);
            volume.written_flushing = std::mem::take(&mut volume.written);
            volume.waiting_flushing = std::mem::take(&mut volume.waiting);
            self.stats.origin_flushes += 1;
            let slot = VolumeSlot(at as u16);
            self.issue(
                Op::OriginFlush(slot),
                Device::Origin(slot),
                Operation::Flush,
            );
        }
    }

    pub(crate) fn origins_deadline(&self) -> Option<Nanos> {
        let idle = self
            .volumes
            .iter()
            .flatten()
            .filter(|volume| !volume.flush_in_flight);
        idle.filter_map(|volume| self.flush_due_at(volume)).min()
    }

    fn flush_due_at(&self, volume: &Volume) -> Option<Nanos> {
        volume.flush_due_at(self.origin_flushes_may_wait(volume))
    }

    /// Whether blocks that wait for a flush to become clean are in nobody's way. Reclaim asks for a
    /// flush by itself.
    fn origin_flushes_may_wait(&self, volume: &Volume) -> bool {
        let is_through = volume.config.mode.writes().are_through();
        let most = if is_through {
            self.dirty_share(self.settings.dirty_low_percent)
        } else {
            self.dirty_marks().high
        };
        self.present_dirty() < most
    }

    /// The number of versions that are on an origin and wait for its flush.
    pub(crate) fn written_blocks(&self) -> usize {
        self.written.len()
    }

    /// A flush of this volume's origin has ended.
    pub(crate) fn origin_flush_ended(&mut self, slot: VolumeSlot) {
        self.volume(slot).flush_in_flight = false;
    }

    /// The flush in flight has made all writes before it durable. Returns the waiters.
    pub(crate) fn origin_flushed(
        &mut self,
        now: Nanos,
        slot: VolumeSlot,
        memory: &mut dyn Memory,
    ) -> Vec<OriginWaiter> {
        let volume = self.volume(slot);
        let waiting = std::mem::take(&mut volume.waiting_flushing);
        if !waiting.is_empty() {
            volume.client_has_waited(now);
        }
        let mut written = std::mem::take(&mut volume.written_flushing);
        if planted::is(Bug::CleanEarly) {
            written.append(&mut volume.written);
        }
        volume.flushing.clear();
        volume.owed_in_flight = false;
        for written in written {
            self.forget_written(written.key, written.version.slot);
            self.version_durable(now, written, memory);
        }
        self.notice_slack();
        waiting
    }

    /// Makes all unflushed writes uncertain for ever (I10), those that ended while the flush ran
    /// among them. Versions that the log holds stay dirty and are written again. What clients wrote
    /// there is lost if the origin lost it, and a later flush must report that. Returns the waiters,
    /// and how many blocks are to be written again; `None` if the volume is not there.
    pub(crate) fn origin_flush_failed(
        &mut self,
        now: Nanos,
        slot: VolumeSlot,
    ) -> Option<(Vec<OriginWaiter>, usize)> {
        self.stir();
        let has_cache = !self.failed_cache();
        let volume = self.volumes.get_mut(usize::from(slot.0))?.as_mut()?;
        volume.failed_flushes = volume.failed_flushes.wrapping_add(1);
        let mut waiting = std::mem::take(&mut volume.waiting_flushing);
        waiting.append(&mut volume.waiting);
        volume.waits_go_on_at = now;
        let mut written = std::mem::take(&mut volume.written_flushing);
        written.append(&mut volume.written);
        let concerns_clients =
            volume.has_unflushed_of_clients(has_cache && !planted::is(Bug::HarmlessTold));
        let mut regions = std::mem::take(&mut volume.flushing);
        regions.append(&mut volume.unflushed);
        volume.uncertain.append(&mut regions);
        (volume.owes_flush, volume.owed_in_flight) = (false, false);
        volume.unflushed_since = None;
        volume.flush_wanted = false;
        let heard = waiting
            .iter()
            .any(|waiter| matches!(waiter, OriginWaiter::Request(_)));
        volume.flush_error |= concerns_clients && !heard;
        let blocks = written.len();
        for written in written {
            self.forget_written(written.key, written.version.slot);
        }
        Some((waiting, blocks))
    }

    /// I6: clean, if it is still the newest version.
    fn version_durable(&mut self, now: Nanos, written: WrittenVersion, memory: &mut dyn Memory) {
        let (key, slot) = (written.key, written.version.slot);
        if self.index.find(key) != Some(slot)
            || !self.index.flags(slot).dirty()
            || !self.log.holds(written.version)
        {
            return;
        }
        self.index.set_clean(slot);
        self.log.segment_of(slot).dirty -= 1;
        self.stats.dirty_blocks -= 1;
        self.account_volume(key, -1, 0);
        self.log_clean(now, slot, memory);
    }

    /// Has unreadable blocks of a volume tried again: an administrator who has it written back may
    /// have mended the cause.
    pub(crate) fn try_unreadable_again(&mut self, slot: VolumeSlot) {
        if !self.unreadable.is_empty() {
            let (first, end) = self.volume(slot).keys();
            self.unreadable.try_again(first, end);
        }
    }

    /// The number of dirty blocks of a volume that write-back could not read and tries no more.
    pub(crate) fn unreadable_blocks(&self, volume: VolumeSlot) -> u64 {
        if self.unreadable.is_empty() {
            return 0;
        }
        self.unreadable_dirty(volume).len() as u64
    }

    /// Dirty blocks that cannot be read from the cache device, by offset on the volume in bytes:
    /// lost unless an administrator finds another copy.
    pub(crate) fn unreadable_dirty(&self, volume: VolumeSlot) -> Vec<u64> {
        let Some(state) = self.find_volume(volume) else {
            return Vec::new();
        };
        let still = self
            .unreadable
            .iter()
            .filter(|(key, slot)| self.index.find(*key) == Some(*slot));
        let block_bytes = self.block_bytes() as u64;
        let mut offsets: Vec<u64> = still
            .filter(|(key, _)| state.contains(*key))
            .map(|(key, _)| (key.0 - state.config.base.0) * block_bytes)
            .collect();
        offsets.sort_unstable();
        offsets
    }

    /// Whether a client writes to an origin that does not hang, or did so this lately.
    pub(crate) fn origin_is_written(&self, now: Nanos, lately: Nanos) -> bool {
        self.volumes.iter().flatten().any(|volume| {
            let recent = |at: Nanos| now.since(at) < lately;
            volume.is_being_written(now) || volume.wrote_at.is_some_and(recent)
        })
    }

    /// Whether a client waits for a read or flush of an origin that does not hang, or did so this
    /// lately.
    pub(crate) fn origin_is_awaited(&self, now: Nanos, lately: Nanos) -> bool {
        self.volumes.iter().flatten().any(|volume| {
            let recent = |at: Nanos| now.since(at) < lately;
            volume.is_awaited(now) || volume.waited_at.is_some_and(recent)
        })
    }

    /// Whether a client reads, writes or flushes an origin that does not hang, or did so this lately.
    pub(crate) fn origin_is_used(&self, now: Nanos, lately: Nanos) -> bool {
        self.origin_is_awaited(now, lately) || self.origin_is_written(now, lately)
    }

    /// The block of a volume that holds this byte.
    #[inline(always)]
    pub(crate) fn key_at(&self, volume: VolumeSlot, offset_bytes: u64) -> BlockKey {
        let volume = self.find_volume(volume).expect("attached");
        volume.key_at(offset_bytes, self.block_bytes())
    }

    /// The first block of a request, and the one after its last.
    #[inline(always)]
    pub(crate) fn keys_of(&self, request: &Request) -> (BlockKey, BlockKey) {
        let end_bytes = request.offset_bytes + u64::from(request.len_bytes);
        (
            self.key_at(request.volume, request.offset_bytes),
            self.key_at(request.volume, end_bytes - 1).plus(1),
        )
    }

    /// Where a block is on its origin, and how much of it the origin has.
    pub(crate) fn origin_range(
        &self,
        volume: VolumeSlot,
        key: BlockKey,
        blocks: u64,
    ) -> (u64, usize) {
        let config = self.find_volume(volume).expect("attached").config;
        let block_bytes = self.block_bytes() as u64;
        let start = (key.0 - config.base.0) * block_bytes;
        let end = (start + blocks * block_bytes).min(config.size_bytes);
        (start, (end - start) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found in the lab: 4 MiB took a disk longer than the pause by which a client was known to go on, so
    /// that a flush came between, each half second, and the next write waited behind it.
    #[test]
    fn a_client_goes_on_while_its_write_is_on_its_way() {
        let mut volume = Volume::new(VolumeConfig {
            base: BlockKey(0),
            reserved_blocks: 1024,
            size_bytes: 4 << 20,
            mode: Mode::Writeback,
        });
        volume.unflushed_since = Some(Nanos(0));
        let written_at = Nanos(600_000_000);
        volume.client_writes(written_at);
        let due_at = volume.flush_due_at(true);
        assert_eq!(due_at, Some(written_at.after(GOES_ON_IN_FLIGHT)));
        volume.client_has_written(written_at);
        assert_eq!(volume.flush_due_at(true), Some(written_at.after(GOES_ON)));
    }
}
