//! Long reads: whether the origin would answer one of clean cached blocks sooner than the cache
//! device.
//!
//! An example. The SSD reads 520 MB/s and has 16 requests of 1 MiB in flight, which takes 32 ms. The
//! disk reads 165 MB/s and is idle. The next request ends in 34 ms on the SSD and in 6 ms on the disk.
//! So it is read from the disk.

use super::{AVERAGED, Known, Times, Transfer};
use crate::interface::{Nanos, VolumeSlot};

impl Known {
    /// The rate of long reads, in bytes a second; 0 where it is not known.
    fn long_read_rate(&self) -> u64 {
        self.times.of(Transfer::LongRead).bytes_per_second
    }

    /// Whether the rate of long reads was taken lately.
    fn reads_lately(&self, now: Nanos) -> bool {
        self.windows[Transfer::LongRead as usize].rate_is_fresh(now)
    }

    /// The time after which a long read that is issued now would end, if that can be told.
    fn long_read_takes(&self, now: Nanos, len_bytes: u64) -> Option<Nanos> {
        let window = &self.windows[Transfer::LongRead as usize];
        let rate = self.long_read_rate();
        if rate == 0 || window.is_stuck(now) {
            return None;
        }
        let bytes = u128::from(self.queued_bytes + len_bytes);
        let transfer = Nanos((bytes * 1_000_000_000 / u128::from(rate)) as u64);
        let is_idle = window.in_flight == 0;
        Some(transfer.after(if is_idle { self.seek } else { Nanos(0) }))
    }

    /// A long read that began while no other was in flight has ended.
    pub(super) fn note_seek(&mut self, took: Nanos, len_bytes: u64) {
        let rate = self.long_read_rate();
        if rate > 0 {
            let transfer_ns = (u128::from(len_bytes) * 1_000_000_000 / u128::from(rate)) as u64;
            let seek_ns = took.0.saturating_sub(transfer_ns);
            self.seek.0 = (self.seek.0 * (AVERAGED - 1) + seek_ns) / AVERAGED;
        }
    }

    /// Whether long writes or a flush are on their way: those of write-back, or of clients that
    /// bypass the cache.
    fn is_written(&self) -> bool {
        self.windows[Transfer::LongWrite as usize].in_flight > 0 || self.flushes.in_flight.is_some()
    }
}

impl Times {
    /// Whether the rate of long reads of the cache device was taken lately.
    pub(crate) fn cache_rate_is_fresh(&self) -> bool {
        self.cache.reads_lately(self.now)
    }

    /// Whether a long read of so many bytes would end sooner on the origin of a volume than on the
    /// cache device, by a fifth at least, behind all that is in flight on either.
    ///
    /// - A rate of the cache device that is a second old does not count, so that the device is tried
    ///   again.
    /// - Nor does one of the origin, unless the origin is a quarter faster. A disk that sleeps is not
    ///   woken for a cached block.
    pub(crate) fn long_read_ends_sooner_on_origin(
        &self,
        volume: VolumeSlot,
        len_bytes: u64,
    ) -> bool {
        let (now, cache) = (self.now, &self.cache);
        let Some(origin) = self.origins.get(usize::from(volume.0)) else {
            return false;
        };
        let is_faster = origin.long_read_rate() / 5 * 4 > cache.long_read_rate();
        if origin.is_written()
            || !cache.reads_lately(now)
            || !(origin.reads_lately(now) || is_faster)
        {
            return false;
        }
        match (
            cache.long_read_takes(now, len_bytes),
            origin.long_read_takes(now, len_bytes),
        ) {
            (Some(cache), Some(origin)) => origin.0 < cache.0 / 5 * 4,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Buf, Device, OpId, Operation, one_buf};
    use crate::store::device_times::MIB;

    const VOLUME: VolumeSlot = VolumeSlot(1);
    const ORIGIN: Device = Device::Origin(VOLUME);
    const CACHE: Device = Device::Cache(0);

    fn transfer(is_write: bool) -> Operation {
        let bufs = one_buf(Buf {
            start_sector: 0,
            len_bytes: MIB as u32,
        });
        match is_write {
            true => Operation::Write {
                offset_bytes: 0,
                bufs,
            },
            false => Operation::Read {
                offset_bytes: 0,
                bufs,
            },
        }
    }

    /// Reads of 1 MiB one after the other, each of which takes so long.
    fn reads(times: &mut Times, device: Device, each: Nanos) {
        for _ in 0..32 {
            let op = times.begins(OpId(0), device, &transfer(false));
            times.now = times.now.after(each);
            times.ends(op, true);
        }
    }

    fn begin(times: &mut Times, device: Device, count: u32) -> Vec<OpId> {
        (1..=count)
            .map(|op| times.begins(OpId(op), device, &transfer(false)))
            .collect()
    }

    /// The SSD takes 2 ms for a MiB, the origin so long; both were read just now.
    fn known(origin: Nanos) -> Times {
        let mut times = Times::default();
        reads(&mut times, ORIGIN, origin);
        reads(&mut times, CACHE, Nanos(2_000_000));
        times
    }

    #[test]
    fn a_disk_takes_the_request_that_would_wait_longer_for_the_ssd() {
        let mut times = known(Nanos(6_000_000));
        assert!(!times.long_read_ends_sooner_on_origin(VOLUME, MIB));
        begin(&mut times, CACHE, 2);
        assert!(!times.long_read_ends_sooner_on_origin(VOLUME, MIB), "6 ms");
        begin(&mut times, CACHE, 1);
        assert!(times.long_read_ends_sooner_on_origin(VOLUME, MIB));
        begin(&mut times, ORIGIN, 1);
        assert!(
            !times.long_read_ends_sooner_on_origin(VOLUME, MIB),
            "behind another"
        );
    }

    #[test]
    fn a_disk_that_nobody_reads_is_left_alone_and_a_faster_array_is_not() {
        for (origin, is_read) in [(6_000_000, false), (1_000_000_u64, true)] {
            let mut times = known(Nanos(origin));
            times.now = times.now.after(Nanos(2 * Nanos::SECOND.0));
            begin(&mut times, CACHE, 8);
            assert!(
                !times.long_read_ends_sooner_on_origin(VOLUME, MIB),
                "the SSD is tried again"
            );
            reads(&mut times, CACHE, Nanos(2_000_000));
            begin(&mut times, CACHE, 8);
            let is_sooner = times.long_read_ends_sooner_on_origin(VOLUME, MIB);
            assert_eq!(is_sooner, is_read);
        }
    }

    #[test]
    fn a_read_pays_for_the_seek_of_an_idle_disk() {
        let mut times = Times::default();
        for _ in 0..32 {
            // Four at a time, and a pause before the next four: 8 ms to get there, 6 for each MiB.
            let ops = begin(&mut times, ORIGIN, 4);
            times.now = times.now.after(Nanos(8_000_000));
            for op in ops {
                times.now = times.now.after(Nanos(6_000_000));
                times.ends(op, true);
            }
            times.now = times.now.after(Nanos(50_000_000));
        }
        reads(&mut times, CACHE, Nanos(2_000_000));
        begin(&mut times, CACHE, 4);
        assert!(!times.long_read_ends_sooner_on_origin(VOLUME, MIB), "10 ms");
        begin(&mut times, CACHE, 8);
        assert!(times.long_read_ends_sooner_on_origin(VOLUME, MIB), "26 ms");
    }

    #[test]
    fn a_device_that_is_written_or_holds_a_read_answers_no_hits() {
        let mut times = known(Nanos(1_000_000));
        assert!(times.long_read_ends_sooner_on_origin(VOLUME, MIB));
        let write = times.begins(OpId(9), ORIGIN, &transfer(true));
        assert!(!times.long_read_ends_sooner_on_origin(VOLUME, MIB));
        times.ends(write, true);
        let flush = times.begins(OpId(9), ORIGIN, &Operation::Flush);
        assert!(!times.long_read_ends_sooner_on_origin(VOLUME, MIB));
        times.ends(flush, true);
        assert!(times.long_read_ends_sooner_on_origin(VOLUME, MIB));
        begin(&mut times, ORIGIN, 1);
        times.now = times.now.after(Nanos(2 * Nanos::SECOND.0));
        reads(&mut times, CACHE, Nanos(2_000_000));
        assert!(!times.long_read_ends_sooner_on_origin(VOLUME, MIB));
    }
}
