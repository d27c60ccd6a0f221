//! Admission: which missed or written blocks the cache does not take, and why.
//!
//! The gate turns blocks away although there is room: blocks wanted too seldom, any while the cache
//! device is slow, any that would wear it out sooner than agreed.
//!
//! Admission never keeps a newer version of a dirty block out (I5): a write that touches such a
//! block is logged whatever the gate says.

use crate::bypass::{BypassReason, Direction};
use crate::format::BlockKey;
use crate::interface::{Nanos, Request, RequestKind, VolumeSlot};
use crate::policy::Policy;
use crate::policy::touches::Touches;
use crate::settings::mode::Writes;
use crate::settings::{Admission, Settings};
use crate::store::Store;
use crate::store::device_times::LONG_BYTES;
use crate::store::log::RECLAIM_RESERVE;

/// A day, in nanoseconds.
const DAY: u128 = 86_400 * Nanos::SECOND.0 as u128;
/// A budget that was not used is saved up to this share of a day.
const SAVED_SHARE: u64 = 24;
/// Where nothing has come from the cache device for so long, it counts as idle and is tried again.
const IDLE_AFTER: Nanos = Nanos(100 * Nanos::MILLISECOND.0);
/// A new time counts as one of this many in the average.
const AVERAGED: u64 = 8;

/// Writes at least this long, in one request or in sequence, go to the origin while dirty data is
/// at its high mark. Shorter ones write-back brings there faster than they would get there by
/// themselves, as it sorts them.
pub(crate) const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Where the log has no room, single writes of at least this length go to the origin too.
const LARGE_BYTES: u32 = 256 << 10;

/// The state of the gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Whether anything is asked of reads, and of writes.
    guards: [bool; 2],
    /// Whether the times of the cache device matter.
    pub(crate) watches: bool,
    touches: [Option<Touches>; 2],
    latency: [Latency; 2],
    budget: Budget,
    /// The log had no room when it was last looked at for a long write.
    has_no_room: bool,
    /// Data that went past the cache for want of room.
    pub(crate) turned_away_bytes: u64,
    /// Dirty data was at its mark when it was last looked at for a write in sequence.
    dirty_is_high: bool,
}

impl Gate {
    /// The gate that these settings describe, with the measurements of an earlier gate.
    /// `own`: a volume asks more than the settings, of reads and of writes.
    pub(crate) fn set(&mut self, settings: &Settings, own: [bool; 2], slots: usize) {
        let limits = [settings.congestion_read, settings.congestion_write];
        let admissions = [settings.read_admission, settings.write_admission];
        self.watches = limits.iter().any(Option::is_some);
        if settings.write_budget_bytes_per_day.is_none() {
            self.budget = Budget::default();
        }
        for side in 0..2 {
            let counts = own[side] || admissions[side] != Admission::ALWAYS;
            let limited = limits[side].is_some() || settings.write_budget_bytes_per_day.is_some();
            self.guards[side] = counts || limited;
            if !counts {
                self.touches[side] = None;
            } else if self.touches[side].is_none() {
                self.touches[side] = Some(Touches::new(slots / 4));
            }
        }
    }

    /// Whether anything is asked of reads, or of writes.
    #[inline]
    pub(crate) fn guards(&self, direction: Direction) -> bool {
        self.guards[direction as usize]
    }

    /// The cache device answered a request after this long.
    pub(crate) fn answered(&mut self, direction: Direction, now: Nanos, took: Nanos) {
        self.latency[direction as usize].answered(now, took);
    }
}

/// A moving average of the cache device's times.
#[derive(Clone, Copy, Debug, Default)]
struct Latency {
    average: Nanos,
    at: Nanos,
}

impl Latency {
    fn answered(&mut self, now: Nanos, took: Nanos) {
        self.average = if now.since(self.at) > IDLE_AFTER {
            took
        } else {
            Nanos((self.average.0 * (AVERAGED - 1) + took.0) / AVERAGED)
        };
        self.at = now;
    }

    fn exceeds(&self, limit: Option<Nanos>, now: Nanos) -> bool {
        limit.is_some_and(|limit| self.average > limit && now.since(self.at) <= IDLE_AFTER)
    }
}

/// The bytes that may still be written to the cache device; negative where reclaim and headers took
/// more than there was.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    left: i64,
    written: u64,
    at: Option<Nanos>,
}

impl Budget {
    /// Takes the bytes written since the last look from those earned meanwhile. True if any are
    /// left.
    fn allows(&mut self, per_day: u64, written: u64, now: Nanos) -> bool {
        let most = (per_day / SAVED_SHARE) as i64;
        let earned = match self.at {
            None => most,
            Some(at) => (u128::from(per_day) * u128::from(now.since(at).0) / DAY) as i64,
        };
        // Bytes written before there was a budget do not count.
        let spent = self.at.map_or(0, |_| written - self.written) as i64;
        // Less than a byte is not lost: the clock goes on only when something was earned.
        if earned > 0 || self.at.is_none() {
            self.at = Some(now);
        }
        self.written = written;
        self.left = (self.left.saturating_add(earned) - spent).min(most);
        self.left > 0
    }
}

/// Blocks that a read missed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missed {
    pub(crate) volume: VolumeSlot,
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    /// The read goes on where an earlier one ended, past the cut-off.
    pub(crate) sequential: bool,
}

impl Policy {
    /// Why missed blocks are not promoted, if they are not.
    pub(crate) fn read_bypass(
        &mut self,
        store: &Store,
        now: Nanos,
        missed: Missed,
    ) -> Option<BypassReason> {
        let Missed {
            volume: slot,
            key,
            count,
            sequential,
        } = missed;
        let keys = || (0..u64::from(count)).map(move |i| key.plus(i));
        if store.failed_cache() {
            return Some(BypassReason::Failed);
        }
        let volume = store.attached(slot);
        if !volume.config.mode.caches_reads() {
            return Some(BypassReason::Mode);
        }
        if sequential {
            return Some(BypassReason::Sequential);
        }
        if keys().any(|key| store.locks.owner(key).is_some()) {
            return Some(BypassReason::Busy);
        }
        // I6: a block that the origin may hold in its volatile cache only is not clean.
        if volume.has_doubts() && keys().any(|key| volume.is_unflushed(key)) {
            return Some(BypassReason::Unflushed);
        }
        if !has_room_to_promote(store) {
            return Some(BypassReason::NoRoom);
        }
        // Last: it takes being wanted for granted once it has let a block in.
        if !self.gate.guards(Direction::Read) {
            return None;
        }
        self.turned_away(store, now, (slot, Direction::Read), key, u64::from(count))
    }

    /// Why a write is not let in, if it is not, by the mode of its volume. `stream_bytes` is how
    /// much was written in sequence up to its end.
    #[inline(always)]
    pub(crate) fn write_bypass(
        &mut self,
        store: &Store,
        now: Nanos,
        (request, writes): (&Request, Writes),
        stream_bytes: u64,
    ) -> Option<BypassReason> {
        if store.failed_cache() {
            return Some(BypassReason::Failed);
        }
        if !writes.let_in() {
            return Some(BypassReason::Mode);
        }
        if store.has_cutoffs
            && (store.attached(request.volume).cutoff_bytes)
                .is_some_and(|cutoff| stream_bytes > cutoff)
        {
            return Some(BypassReason::Sequential);
        }
        // A write-through needs the origin anyway; it does not wait for room in the log too.
        if writes == Writes::LogAndOrigin && is_log_short(store) {
            return Some(BypassReason::NoRoom);
        }
        if writes == Writes::Log
            && let Some(reason) = self.why_bypass_is_faster(store, request, stream_bytes)
        {
            return Some(reason);
        }
        if !self.gate.guards(Direction::Write) || request.kind == RequestKind::Discard {
            return None;
        }
        let (first, end) = store.keys_of(request);
        let asked = (request.volume, Direction::Write);
        self.turned_away(store, now, asked, first, end.0 - first.0)
    }

    /// Why a long write is faster without the log, if it is.
    #[inline]
    fn why_bypass_is_faster(
        &mut self,
        store: &Store,
        request: &Request,
        stream_bytes: u64,
    ) -> Option<BypassReason> {
        let long = stream_bytes >= SEQUENTIAL_BYTES;
        let large = request.len_bytes >= LARGE_BYTES;
        let is_part = is_part_of_stripe(store, request);
        // At the limit of dirty data writes wait for write-back, and those for a dead origin with it.
        let waits_for_stripe = long && is_part && !store.dirty_is_at_limit();
        if (!long && !large) || waits_for_stripe {
            return None;
        }
        let had_none = self.gate.has_no_room && !store.log.has_room_again();
        self.gate.has_no_room = is_log_short(store) || had_none;
        // Dirty data at its mark is the cause of both, and what a setting changes.
        if long {
            self.gate.dirty_is_high =
                store.dirty_is_high() || (self.gate.dirty_is_high && !is_below_mark(store));
            if self.gate.dirty_is_high {
                return Some(BypassReason::DirtyLimit);
            }
        }
        if self.gate.has_no_room {
            if matches!(request.kind, RequestKind::Write { .. }) {
                self.gate.turned_away_bytes += u64::from(request.len_bytes);
            }
            return Some(BypassReason::NoRoom);
        }
        let goes_past =
            !is_part && (ends_sooner_on_origin(store, request) || origin_keeps_up(store, request));
        goes_past.then_some(BypassReason::OriginSooner)
    }

    /// Whether the budget of writes and the share of a volume have room for so many blocks that are not
    /// cached.
    pub(crate) fn has_leave(
        &mut self,
        store: &Store,
        now: Nanos,
        volume: VolumeSlot,
        count: u64,
    ) -> bool {
        self.has_budget(store, now) && !store.has_its_share(volume, count)
    }

    fn has_budget(&mut self, store: &Store, now: Nanos) -> bool {
        let Some(per_day) = store.settings.write_budget_bytes_per_day else {
            return true;
        };
        let written =
            store.stats.cache_data_written_bytes + store.stats.cache_metadata_written_bytes;
        let own = per_day / u64::from(store.log.geometry.shards);
        self.gate.budget.allows(own, written, now)
    }

    /// Why these blocks are not let in, if they are not.
    #[cold]
    fn turned_away(
        &mut self,
        store: &Store,
        now: Nanos,
        (volume, direction): (VolumeSlot, Direction),
        key: BlockKey,
        count: u64,
    ) -> Option<BypassReason> {
        let own = store.attached(volume).own;
        let side = direction as usize;
        let (limit, admission) = match direction {
            Direction::Read => (
                store.settings.congestion_read,
                own.read_admission.unwrap_or(store.settings.read_admission),
            ),
            Direction::Write => (
                store.settings.congestion_write,
                own.write_admission
                    .unwrap_or(store.settings.write_admission),
            ),
        };
        if self.gate.latency[side].exceeds(limit, now) {
            return Some(BypassReason::Congested);
        }
        if !self.has_budget(store, now) {
            return Some(BypassReason::WriteBudget);
        }
        let keys = || (0..count).map(|i| key.plus(i));
        // A write of a block that is cached replaces it, which takes no new room.
        if direction == Direction::Write && keys().any(|key| store.index.find(key).is_some()) {
            return None;
        }
        if store.has_its_share(volume, count) {
            return Some(BypassReason::Share);
        }
        if admission == Admission::ALWAYS {
            return None;
        }
        let touches = self.gate.touches[side].as_mut()?;
        let most = keys().map(|key| touches.touch(key)).max().unwrap_or(0);
        if most < admission.touches() {
            return Some(BypassReason::Admission);
        }
        keys().for_each(|key| touches.forget(key));
        None
    }
}

/// Whether dirty data is below its mark by so much that a stream is let in again. Pieces of it that
/// went into the log each time a few blocks became clean would have to be written back between the
/// others.
fn is_below_mark(store: &Store) -> bool {
    let low = store.dirty_share(store.settings.dirty_low_percent);
    let high = store.dirty_marks().high;
    store.dirty_blocks_to_come() < high - high.saturating_sub(low) / 8
}

/// Whether a long write ends sooner on the origin, by a fifth at least, behind all that is in flight
/// on either device. A write of cached blocks would wait for their `Drop`s first (I4), and a client
/// that flushes each write for the origin's flush.
fn ends_sooner_on_origin(store: &Store, request: &Request) -> bool {
    let len_bytes = u64::from(request.len_bytes);
    if !is_plain_write(store, request) || len_bytes < LONG_BYTES {
        return false;
    }
    let times = &store.operations.times;
    let is_sooner = match times.long_write_takes(request.volume, len_bytes) {
        (Some(cache), Some(origin)) => origin.0 < cache.0 / 5 * 4,
        _ => false,
    };
    let (first, end) = store.keys_of(request);
    is_sooner && (first.0..end.0).all(|key| store.index.find(BlockKey(key)).is_none())
}

/// Whether a long write goes past a cache device that gains nothing for it. Clean blocks are dropped
/// first (I4): on their next write they are not cached any more. Dirty ones stay (I5).
fn origin_keeps_up(store: &Store, request: &Request) -> bool {
    if !is_plain_write(store, request) || !store.operations.times.origin_keeps_up(request.volume) {
        return false;
    }
    let (first, end) = store.keys_of(request);
    !(first.0..end.0).any(|key| store.is_dirty(BlockKey(key)))
}

/// Whether an array with parity would have to read for a write. Write-back makes whole stripes of
/// such. Long requests come in parts, which the array puts together.
fn is_part_of_stripe(store: &Store, request: &Request) -> bool {
    let stripe = store.attached(request.volume).stripe();
    let least_bytes = stripe.map_or(0, |stripe| stripe.len_bytes().min(SEQUENTIAL_BYTES));
    u64::from(request.len_bytes) < least_bytes
}

/// Whether the client waits for nothing but the write itself.
fn is_plain_write(store: &Store, request: &Request) -> bool {
    request.kind == RequestKind::Write { fua: false } && !store.sync_writer.is_one()
}

/// Whether a promotion would find a place at once.
fn has_room_to_promote(store: &Store) -> bool {
    store.log.free.len() > RECLAIM_RESERVE + 1 && store.has_placed_all()
}

/// Whether appends wait for reclaim: then a long sequential write is faster without the log.
fn is_log_short(store: &Store) -> bool {
    !store.has_placed_all() || store.log.free.len() <= RECLAIM_RESERVE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_earned_over_time_and_saved_for_an_hour() {
        let day = 24 << 20;
        let hour = Nanos(3_600 * Nanos::SECOND.0);
        let mut budget = Budget::default();
        let earlier = 1 << 40;
        assert!(
            budget.allows(day, earlier, Nanos(0)),
            "what was written before does not count"
        );
        let mut budget = Budget::default();
        assert!(budget.allows(day, 0, Nanos(1)));
        assert!(
            !budget.allows(day, 1 << 20, Nanos(2)),
            "the hour's is spent"
        );
        assert!(
            !budget.allows(day, 3 << 20, Nanos(3)),
            "and more, by reclaim"
        );
        assert!(!budget.allows(day, 3 << 20, hour));
        assert!(budget.allows(day, 3 << 20, Nanos(hour.0 * 3 + 10)));
        assert!(budget.allows(day, 3 << 20, Nanos(hour.0 * 100)));
        assert!(
            !budget.allows(day, 4 << 20, Nanos(hour.0 * 100)),
            "saved for no longer"
        );
        let mut slow = Budget::default();
        assert!(slow.allows(86_400, 0, Nanos(0)));
        assert!(!slow.allows(86_400, 3_600, Nanos(0)));
        let half_seconds =
            (1..=4).map(|i| slow.allows(86_400, 3_600, Nanos(i * Nanos::SECOND.0 / 2)));
        assert_eq!(
            half_seconds.filter(|allowed| *allowed).count(),
            3,
            "a byte a second"
        );
    }

    #[test]
    fn a_slow_device_is_tried_again_when_it_was_left_alone() {
        let mut latency = Latency::default();
        let limit = Some(Nanos(1_000_000));
        for i in 1..50 {
            latency.answered(Nanos(i * 1_000_000), Nanos(2_000_000));
        }
        assert!(latency.exceeds(limit, Nanos(50_000_000)));
        assert!(!latency.exceeds(None, Nanos(50_000_000)));
        assert!(!latency.exceeds(limit, Nanos(200_000_000)));
        latency.answered(Nanos(200_000_000), Nanos(100_000));
        assert!(!latency.exceeds(limit, Nanos(200_000_001)));
    }
}
