//! A model of the devices, learnt from the operations that end: how long each kind takes now, and
//! how many bytes a second a device moves in long transfers.
//!
//! A figure forgets: each new one counts a fixed share of it. Short transfers are sampled, so that
//! a hit pays next to nothing for it.

mod long_reads;
mod long_run;
mod window;

use long_run::LongRun;
use window::Window;

use crate::interface::{Buf, Device, Nanos, OpId, Operation, VolumeSlot, total_bytes};
use crate::slab::SlabId;

/// From this length on the rate of a device decides about a transfer, not its latency.
pub(crate) const LONG_BYTES: u64 = 64 << 10;
/// Of short transfers one in so many is timed.
const SAMPLED: u32 = 64;
/// A new time counts as one of this many in the average.
const AVERAGED: u64 = 8;
/// A new time of a flush counts as one of this many in the average.
const AVERAGED_FLUSHES: u64 = 2;
const MIB: u64 = 1 << 20;
/// A new rate counts as one of this many in the average.
const AVERAGED_RATES: u64 = 3;
/// A rate that was not renewed for so long tells nothing of now: an SSD left alone recovers.
const STALE: Nanos = Nanos(1_000_000_000);
/// Likewise, of an origin, which has no reason to become slower while nothing is written to it. A load with
/// pauses would begin each time as if nothing was known. Hardly a disk sleeps so soon.
const STALE_ORIGIN: Nanos = Nanos(10 * Nanos::SECOND.0);
/// A flush that takes so long is more than what a disk has in its memory.
const FLUSH_STUCK: Nanos = Nanos(3 * Nanos::SECOND.0);

/// A kind of operation whose times differ from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// A read of less than 64 KiB.
    ShortRead,
    /// A read of 64 KiB or more.
    LongRead,
    /// A write of less than 64 KiB.
    ShortWrite,
    /// A write of 64 KiB or more.
    LongWrite,
    /// A flush.
    Flush,
}

impl Transfer {
    /// All of them with their names.
    pub const NAMES: [(Transfer, &'static str); 5] = [
        (Transfer::ShortRead, "short-read"),
        (Transfer::LongRead, "long-read"),
        (Transfer::ShortWrite, "short-write"),
        (Transfer::LongWrite, "long-write"),
        (Transfer::Flush, "flush"),
    ];
}

/// Times of one kind of operation on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTimes {
    /// Operations that were timed.
    pub timed: u64,
    /// The moving average of their durations, in nanoseconds.
    pub mean_ns: u64,
    /// Bytes a second while any was in flight; 0 for short transfers, flushes and what is not known.
    pub bytes_per_second: u64,
}

/// Times of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    kinds: [TransferTimes; Transfer::NAMES.len()],
}

impl DeviceTimes {
    /// Times of a kind of operation.
    #[must_use]
    pub fn of(&self, transfer: Transfer) -> TransferTimes {
        self.kinds[transfer as usize]
    }

    /// The times with this mean for a kind of operation, as if one had been timed.
    #[must_use]
    pub fn with(mut self, transfer: Transfer, mean_ns: u64) -> DeviceTimes {
        self.kinds[transfer as usize] = TransferTimes {
            timed: 1,
            mean_ns,
            bytes_per_second: 0,
        };
        self
    }
}

/// Writes that a flush covers.
#[derive(Clone, Copy, Debug, Default)]
struct Unflushed {
    /// Bytes of long ones.
    bytes: u64,
    /// There are short ones too: how much of the flush is theirs is not known.
    has_short: bool,
}

/// Time that flushes take for what was written before them. A disk takes long writes into its own
/// cache sooner than onto its platters; the next flush pays the difference.
#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    /// The one in flight: when it began, and what it covers.
    in_flight: Option<(Nanos, Unflushed)>,
    /// Writes that have ended since the last one began.
    next: Unflushed,
    /// The average time for each MiB of long writes, in nanoseconds.
    ns_per_mib: u64,
}

impl Flushes {
    fn wrote(&mut self, transfer: Transfer, len_bytes: u64) {
        match transfer {
            Transfer::LongWrite => self.next.bytes += len_bytes,
            Transfer::ShortWrite => self.next.has_short = true,
            Transfer::ShortRead | Transfer::LongRead | Transfer::Flush => {}
        }
    }

    /// Writes that end while it is in flight are covered by the next one.
    fn begins(&mut self, now: Nanos) {
        self.in_flight = Some((now, std::mem::take(&mut self.next)));
    }

    fn ends(&mut self, took: u64) {
        let Some((_, covered)) = self.in_flight.take() else {
            return;
        };
        if covered.bytes >= MIB && !covered.has_short {
            let each = (u128::from(took) * u128::from(MIB) / u128::from(covered.bytes)) as u64;
            self.ns_per_mib = match self.ns_per_mib {
                0 => each,
                old => (old * (AVERAGED_FLUSHES - 1) + each) / AVERAGED_FLUSHES,
            };
        }
    }

    /// The time that flushes cost a long write that is issued now: its part of the next one, behind
    /// the rest of the one in flight, which usually takes `mean_ns`.
    fn cost(&self, now: Nanos, mean_ns: u64, len_bytes: u64) -> Nanos {
        let own = (u128::from(self.ns_per_mib) * u128::from(len_bytes) / u128::from(MIB)) as u64;
        let left = (self.in_flight).map_or(0, |(at, _)| mean_ns.saturating_sub(now.since(at).0));
        Nanos(own + left)
    }
}

/// A device as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    times: DeviceTimes,
    windows: [Window; Transfer::NAMES.len()],
    flushes: Flushes,
    long_run: LongRun,
    /// Bytes of long transfers in flight.
    queued_bytes: u64,
    /// The time by which a long read takes longer that finds the device idle, as an average: a disk
    /// seeks, and the rate of a stream does not show it.
    seek: Nanos,
}

impl Known {
    /// The time after which a long write that is issued now would end, and its part of a flush; `None` if
    /// the last one ended longer ago than `stale`.
    fn long_write_takes(&self, now: Nanos, len_bytes: u64, stale: Nanos) -> Option<Nanos> {
        let rate = self.times.of(Transfer::LongWrite).bytes_per_second;
        let window = &self.windows[Transfer::LongWrite as usize];
        let is_stale = window.in_flight == 0 && now.since(window.ended_at) > stale;
        if rate == 0 || is_stale || self.is_stuck(now) {
            return None;
        }
        let bytes = u128::from(self.queued_bytes + len_bytes);
        let transfer = Nanos((bytes * 1_000_000_000 / u128::from(rate)) as u64);
        let flush_ns = self.times.of(Transfer::Flush).mean_ns;
        Some(transfer.after(self.flushes.cost(now, flush_ns, len_bytes)))
    }

    /// Whether it holds a long transfer or a flush.
    fn is_stuck(&self, now: Nanos) -> bool {
        let flush = self.flushes.in_flight;
        self.windows.iter().any(|window| window.is_stuck(now))
            || flush.is_some_and(|(at, _)| now.since(at) > FLUSH_STUCK)
    }
}

/// An operation that is being timed.
#[derive(Clone, Copy, Debug)]
struct Timed {
    at: Nanos,
    len_bytes: u64,
    device: Device,
    transfer: Transfer,
    /// No other of its kind was in flight.
    was_idle: bool,
}

/// The devices of a shard.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// The time of the driver's call.
    pub(crate) now: Nanos,
    short: u32,
    timed: Vec<Option<Timed>>,
    cache: Known,
    origins: Vec<Known>,
}

impl Times {
    /// Whether a transfer of this length is to be timed.
    #[inline(always)]
    pub(crate) fn wants(&mut self, len_bytes: u64) -> bool {
        self.short = self.short.wrapping_add(1);
        len_bytes >= LONG_BYTES || self.short.is_multiple_of(SAMPLED)
    }

    /// An operation that is timed is handed to the driver; its id from now on.
    #[cold]
    pub(crate) fn begins(&mut self, op: OpId, device: Device, operation: &Operation) -> OpId {
        let (transfer, len_bytes) = match operation {
            Operation::Read { bufs, .. } => read(bufs),
            Operation::Write { bufs, .. } => written(bufs),
            Operation::ReadEither { buf, .. } => read(std::slice::from_ref(buf)),
            Operation::WriteBoth(both) => written(&both.bufs),
            Operation::Flush => (Transfer::Flush, 0),
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => return op,
        };
        let now = self.now;
        if counts_in_the_long_run(transfer) {
            self.known(device).long_run.begins(now);
        }
        if transfer == Transfer::Flush {
            self.known(device).flushes.begins(now);
        }
        let mut was_idle = false;
        if is_long(transfer) {
            let known = self.known(device);
            was_idle = known.windows[transfer as usize].in_flight == 0;
            known.queued_bytes += len_bytes;
            known.windows[transfer as usize].begins(now);
        }
        let at = op.index() as usize;
        if self.timed.len() <= at {
            self.timed.resize(at + 1, None);
        }
        self.timed[at] = Some(Timed {
            at: now,
            len_bytes,
            device,
            transfer,
            was_idle,
        });
        OpId(op.0 | OpId::TIMED)
    }

    /// An operation has ended.
    #[inline(always)]
    pub(crate) fn ends(&mut self, op: OpId, went_well: bool) {
        if op.0 & OpId::TIMED != 0 {
            self.ends_timed(op, went_well);
        }
    }

    #[cold]
    fn ends_timed(&mut self, op: OpId, went_well: bool) {
        let now = self.now;
        let place = self.timed.get_mut(op.index() as usize);
        let Some(timed) = place.and_then(Option::take) else {
            return;
        };
        let known = self.known(timed.device);
        let kind = timed.transfer as usize;
        if !went_well {
            // A device that refuses everything at once is not fast. Nor is a long write sent by choice to
            // one that has refused anything.
            known.times.kinds[kind].bytes_per_second = 0;
            known.times.kinds[Transfer::LongWrite as usize].bytes_per_second = 0;
            if counts_in_the_long_run(timed.transfer) {
                known.long_run.fails();
            }
            if timed.transfer == Transfer::Flush {
                known.flushes.in_flight = None;
            }
            if is_long(timed.transfer) {
                known.queued_bytes -= timed.len_bytes;
                known.windows[kind].fails();
            }
            return;
        }
        if counts_in_the_long_run(timed.transfer) {
            let is_write = timed.transfer == Transfer::LongWrite;
            known
                .long_run
                .ends(now, is_write.then_some(timed.len_bytes));
        }
        let times = &mut known.times.kinds[kind];
        let took = now.since(timed.at).0;
        times.mean_ns = match times.timed {
            0 => took,
            _ => (times.mean_ns * (AVERAGED - 1) + took) / AVERAGED,
        };
        times.timed += 1;
        match timed.transfer {
            Transfer::Flush => known.flushes.ends(took),
            transfer => known.flushes.wrote(transfer, timed.len_bytes),
        }
        if !is_long(timed.transfer) {
            return;
        }
        known.queued_bytes -= timed.len_bytes;
        if timed.transfer == Transfer::LongRead && timed.was_idle {
            known.note_seek(Nanos(took), timed.len_bytes);
        }
        let is_first = known.times.kinds[kind].bytes_per_second == 0;
        if let Some(rate) = known.windows[kind].ends(now, timed.len_bytes, is_first) {
            let times = &mut known.times.kinds[kind];
            times.bytes_per_second = match times.bytes_per_second {
                0 => rate,
                old => (old * (AVERAGED_RATES - 1) + rate) / AVERAGED_RATES,
            };
        }
    }

    fn known(&mut self, device: Device) -> &mut Known {
        match device {
            Device::Cache(_) => &mut self.cache,
            Device::Origin(volume) => {
                let at = usize::from(volume.0);
                if self.origins.len() <= at {
                    self.origins.resize_with(at + 1, Known::default);
                }
                &mut self.origins[at]
            }
        }
    }

    /// A volume has another origin, or none; nothing of it is in flight.
    pub(crate) fn forget_origin(&mut self, volume: VolumeSlot) {
        if let Some(known) = self.origins.get_mut(usize::from(volume.0)) {
            *known = Known::default();
        }
    }

    /// Times of the cache device.
    pub(crate) fn of_cache(&self) -> DeviceTimes {
        self.cache.times
    }

    /// Times of the origin of a volume.
    pub(crate) fn of_origin(&self, volume: VolumeSlot) -> DeviceTimes {
        let known = self.origins.get(usize::from(volume.0));
        known.map_or_else(DeviceTimes::default, |known| known.times)
    }

    /// Whether the origin of a volume takes long writes about as fast as the cache device, in the long
    /// run; false where that is not known. What the cache takes is read again and written to the
    /// origin later, so that a cache device that is a third faster gains nothing.
    pub(crate) fn origin_keeps_up(&self, volume: VolumeSlot) -> bool {
        let origin = self.origins.get(usize::from(volume.0));
        let origin = origin.and_then(|origin| origin.long_run.rates(self.now));
        match (self.cache.long_run.rates(self.now), origin) {
            // Write-back pauses, and a disk empties its memory then: a second of each is no second
            // of a stream.
            (Some(cache), Some(origin)) => origin.lasting > cache.while_busy / 4 * 3,
            _ => false,
        }
    }

    /// The time after which a long write of so many bytes would end on the cache device, and on the
    /// origin of a volume, with its part of a flush; `None` for a device of which that is not known, or was long ago.
    pub(crate) fn long_write_takes(
        &self,
        volume: VolumeSlot,
        len_bytes: u64,
    ) -> (Option<Nanos>, Option<Nanos>) {
        let (now, cache) = (self.now, &self.cache);
        // An SSD that has rested is another one: a window of long writes is tried there. For a stream that
        // goes past it that is 1 % of the time.
        let is_tried = cache.windows[Transfer::LongWrite as usize].rate_is_old(now)
            && cache.queued_bytes < window::WINDOW_BYTES;
        let cache = (!is_tried).then(|| cache.long_write_takes(now, len_bytes, STALE));
        let origin = self.origins.get(usize::from(volume.0));
        (
            cache.flatten(),
            origin.and_then(|origin| origin.long_write_takes(now, len_bytes, STALE_ORIGIN)),
        )
    }
}

fn counts_in_the_long_run(transfer: Transfer) -> bool {
    matches!(transfer, Transfer::LongWrite | Transfer::Flush)
}

fn is_long(transfer: Transfer) -> bool {
    matches!(transfer, Transfer::LongRead | Transfer::LongWrite)
}

/// The kind of a read, and its length in bytes.
fn read(bufs: &[Buf]) -> (Transfer, u64) {
    by_length(bufs, Transfer::ShortRead, Transfer::LongRead)
}

/// The kind of a write, and its length in bytes.
fn written(bufs: &[Buf]) -> (Transfer, u64) {
    by_length(bufs, Transfer::ShortWrite, Transfer::LongWrite)
}

fn by_length(bufs: &[Buf], short: Transfer, long: Transfer) -> (Transfer, u64) {
    let len_bytes = total_bytes(bufs);
    let transfer = if len_bytes < LONG_BYTES { short } else { long };
    (transfer, len_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Buf, one_buf};

    const ORIGIN: Device = Device::Origin(VolumeSlot(1));

    fn write(len_bytes: u32) -> Operation {
        Operation::Write {
            offset_bytes: 0,
            bufs: one_buf(Buf {
                start_sector: 0,
                len_bytes,
            }),
        }
    }

    /// Writes of 1 MiB one after the other, each of which takes so long.
    fn writes(times: &mut Times, device: Device, count: u32, each: Nanos) {
        for _ in 0..count {
            let op = times.begins(OpId(0), device, &write(1 << 20));
            times.now = times.now.after(each);
            times.ends(op, true);
        }
    }

    #[test]
    fn a_rate_is_learnt_from_long_transfers_and_follows_a_change() {
        let mut times = Times::default();
        assert_eq!(times.long_write_takes(VolumeSlot(1), 1 << 20), (None, None));
        writes(&mut times, ORIGIN, 64, Nanos(10_000_000));
        let rate = |times: &Times| times.of_origin(VolumeSlot(1)).of(Transfer::LongWrite);
        assert!((104_000_000..106_000_000).contains(&rate(&times).bytes_per_second));
        assert_eq!(rate(&times).mean_ns, 10_000_000);
        writes(&mut times, ORIGIN, 64, Nanos(20_000_000));
        assert!((52_000_000..54_000_000).contains(&rate(&times).bytes_per_second));
        assert_eq!(times.of_cache(), DeviceTimes::default());
    }

    #[test]
    fn transfers_that_end_in_the_turn_that_began_them_show_no_rate() {
        let mut times = Times::default();
        writes(&mut times, ORIGIN, 3, Nanos(0));
        let rate = |times: &Times| times.of_origin(VolumeSlot(1)).of(Transfer::LongWrite);
        assert_eq!(rate(&times).bytes_per_second, 0);
        writes(&mut times, ORIGIN, 1, Nanos(10_000_000));
        assert!((104_000_000..106_000_000).contains(&rate(&times).bytes_per_second));
    }

    #[test]
    fn time_without_a_transfer_in_flight_does_not_count() {
        let mut times = Times::default();
        for _ in 0..32 {
            writes(&mut times, ORIGIN, 1, Nanos(10_000_000));
            times.now = times.now.after(Nanos::SECOND);
        }
        let rate = times.of_origin(VolumeSlot(1)).of(Transfer::LongWrite);
        assert!((104_000_000..106_000_000).contains(&rate.bytes_per_second));
    }

    #[test]
    fn a_write_ends_behind_those_in_flight() {
        let mut times = Times::default();
        writes(&mut times, Device::Cache(0), 64, Nanos(2_000_000));
        let takes = |times: &Times| {
            let (cache, _) = times.long_write_takes(VolumeSlot(0), 1 << 20);
            cache.expect("known").0 / 1000
        };
        assert_eq!(takes(&times), 2_000);
        let ops = [1, 2, 3].map(|op| times.begins(OpId(op), Device::Cache(0), &write(1 << 20)));
        assert_eq!(takes(&times), 8_000);
        for op in ops {
            times.now = times.now.after(Nanos(2_000_000));
            times.ends(op, true);
        }
        assert_eq!(takes(&times), 2_000);
    }

    #[test]
    fn a_device_that_refuses_everything_at_once_is_not_fast() {
        let mut times = Times::default();
        writes(&mut times, ORIGIN, 64, Nanos(10_000_000));
        for _ in 0..64 {
            let op = times.begins(OpId(0), ORIGIN, &write(1 << 20));
            times.now = times.now.after(Nanos(1_000));
            times.ends(op, false);
        }
        let known = times.of_origin(VolumeSlot(1)).of(Transfer::LongWrite);
        assert_eq!((known.timed, known.bytes_per_second), (64, 0));
        assert_eq!(times.long_write_takes(VolumeSlot(1), 1 << 20), (None, None));
        writes(&mut times, ORIGIN, 1, Nanos(10_000_000));
        let (_, origin) = times.long_write_takes(VolumeSlot(1), 1 << 20);
        assert_eq!(
            origin,
            Some(Nanos(10_000_000)),
            "known again from its first success"
        );
    }

    #[test]
    fn a_write_pays_its_part_of_the_flush_to_come() {
        let mut times = Times::default();
        let takes = |times: &Times| {
            let (_, origin) = times.long_write_takes(VolumeSlot(1), 1 << 20);
            origin.expect("known").0 / 1000
        };
        let flush = |times: &mut Times| times.begins(OpId(9), ORIGIN, &Operation::Flush);
        for _ in 0..8 {
            writes(&mut times, ORIGIN, 64, Nanos(3_000_000));
            let op = flush(&mut times);
            times.now = times.now.after(Nanos(256_000_000));
            times.ends(op, true);
        }
        // 3 ms into the disk's own cache, 4 from there: 150 MB/s.
        assert!(
            (6_900..=7_000).contains(&takes(&times)),
            "{}",
            takes(&times)
        );
        let op = flush(&mut times);
        times.now = times.now.after(Nanos(100_000_000));
        assert!(takes(&times) > 150_000, "behind the flush");
        times.ends(op, true);
        assert!(takes(&times) <= 7_000, "a flush of nothing tells nothing");
        // A flush of short writes in no order is no price of long ones.
        while !times.wants(4096) {}
        let op = times.begins(OpId(0), ORIGIN, &write(4096));
        times.ends(op, true);
        writes(&mut times, ORIGIN, 1, Nanos(3_000_000));
        let op = flush(&mut times);
        times.now = times.now.after(Nanos(400_000_000));
        times.ends(op, true);
        assert!(takes(&times) <= 7_000);
    }

    #[test]
    fn writes_that_end_during_a_flush_are_covered_by_the_next() {
        let mut times = Times::default();
        let flush = |times: &mut Times| times.begins(OpId(9), ORIGIN, &Operation::Flush);
        for _ in 0..8 {
            let op = flush(&mut times);
            writes(&mut times, ORIGIN, 64, Nanos(3_000_000));
            times.now = times.now.after(Nanos(64_000_000));
            times.ends(op, true);
        }
        // 3 ms into the disk's own cache, and 4 of each flush.
        let (_, origin) = times.long_write_takes(VolumeSlot(1), 1 << 20);
        let takes = origin.expect("known").0 / 1000;
        assert!((6_900..7_100).contains(&takes), "{takes}");
    }

    #[test]
    fn an_origin_keeps_up_if_it_is_hardly_slower_in_the_long_run() {
        let mut times = Times::default();
        let volume = VolumeSlot(1);
        let long_run = |times: &mut Times, device: Device, each: Nanos| {
            writes(times, device, 64, each);
            let op = times.begins(OpId(9), device, &Operation::Flush);
            times.ends(op, true);
        };
        long_run(&mut times, Device::Cache(0), Nanos(10_000_000));
        assert!(!times.origin_keeps_up(volume), "not known");
        long_run(&mut times, ORIGIN, Nanos(13_000_000));
        assert!(times.origin_keeps_up(volume));
        long_run(&mut times, ORIGIN, Nanos(14_000_000));
        assert!(!times.origin_keeps_up(volume));
    }

    /// Found in the lab: each burst with a pause before it went to the slower device, as if nothing was
    /// known of the origin.
    #[test]
    fn an_origin_is_as_fast_after_a_pause_as_before_it() {
        let mut times = Times::default();
        let takes = |times: &Times| times.long_write_takes(VolumeSlot(1), 1 << 20);
        writes(&mut times, Device::Cache(0), 8, Nanos(10_000_000));
        writes(&mut times, ORIGIN, 8, Nanos(2_000_000));
        times.now = times.now.after(Nanos(2 * Nanos::SECOND.0));
        assert_eq!(takes(&times), (None, Some(Nanos(2_000_000))));
        writes(&mut times, Device::Cache(0), 1, Nanos(10_000_000));
        let both = (Some(Nanos(10_000_000)), Some(Nanos(2_000_000)));
        assert_eq!(takes(&times), both);
        times.now = times.now.after(Nanos(10 * Nanos::SECOND.0));
        assert_eq!(takes(&times).1, None, "it may sleep");
    }

    #[test]
    fn an_origin_that_hangs_or_fails_has_no_speed() {
        let takes = |times: &Times| times.long_write_takes(VolumeSlot(1), 1 << 20).1;
        let read = Operation::Read {
            offset_bytes: 0,
            bufs: one_buf(Buf {
                start_sector: 0,
                len_bytes: 1 << 20,
            }),
        };
        for (operation, stuck) in [(read, STALE), (Operation::Flush, FLUSH_STUCK)] {
            let mut times = Times::default();
            writes(&mut times, ORIGIN, 8, Nanos(2_000_000));
            let op = times.begins(OpId(9), ORIGIN, &operation);
            times.now = times.now.after(stuck);
            assert!(takes(&times).is_some());
            times.now = times.now.after(Nanos(1));
            assert_eq!(takes(&times), None, "{operation:?} hangs");
            times.ends(op, true);
            assert!(takes(&times).is_some());
            let op = times.begins(OpId(9), ORIGIN, &operation);
            times.ends(op, false);
            assert_eq!(takes(&times), None, "{operation:?} fails");
        }
    }

    #[test]
    fn a_cache_device_is_tried_where_its_rate_is_old() {
        let mut times = Times::default();
        let takes = |times: &Times| times.long_write_takes(VolumeSlot(1), 1 << 20).0;
        writes(&mut times, Device::Cache(0), 9, Nanos(10_000_000));
        times.now = times.now.after(Nanos(11 * Nanos::SECOND.0));
        writes(&mut times, Device::Cache(0), 3, Nanos(1_000_000));
        assert_eq!(takes(&times), None, "a window takes 4 MiB");
        let ops = [1, 2, 3, 4].map(|op| times.begins(OpId(op), Device::Cache(0), &write(1 << 20)));
        assert!(takes(&times).is_some(), "a window is on its way");
        for op in ops {
            times.now = times.now.after(Nanos(1_000_000));
            times.ends(op, true);
        }
        let takes = takes(&times).expect("tried").0 / 1000;
        assert!((2_000..3_000).contains(&takes), "{takes}");
    }

    #[test]
    fn a_device_that_holds_a_write_has_no_speed() {
        let mut times = Times::default();
        writes(&mut times, ORIGIN, 64, Nanos(10_000_000));
        times.begins(OpId(7), ORIGIN, &write(1 << 20));
        assert!(times.long_write_takes(VolumeSlot(1), 1 << 20).1.is_some());
        times.now = times.now.after(Nanos(2 * Nanos::SECOND.0));
        assert_eq!(times.long_write_takes(VolumeSlot(1), 1 << 20).1, None);
    }

    #[test]
    fn short_transfers_are_sampled() {
        let mut times = Times::default();
        for _ in 0..640 {
            if times.wants(4096) {
                let op = times.begins(OpId(0), ORIGIN, &write(4096));
                times.now = times.now.after(Nanos(5_000));
                times.ends(op, true);
            }
        }
        let short = times.of_origin(VolumeSlot(1)).of(Transfer::ShortWrite);
        assert_eq!((short.timed, short.mean_ns), (10, 5_000));
        assert_eq!(short.bytes_per_second, 0);
    }
}
