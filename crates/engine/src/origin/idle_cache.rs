//! Idle time of the cache device beside its clients, which write-back may use.
//!
//! A client that asks for one block at a time leaves an SSD idle most of the time, and is not slowed
//! by a short read now and then. A client that asks for as much as the SSD can give is slowed by
//! each byte that write-back reads.
//!
//! An example. An SSD reads 500 MB/s. A client reads single blocks one after the other, 28 MB/s: an
//! 18th of that. Write-back reads 8 KiB each 200 µs, 39 MiB a second: one request of the client's
//! in two waits for such a piece, 16 µs at most. With 32 requests in flight the client reads
//! 400 MB/s, more than half, and write-back has its few portions a second.

use crate::interface::Nanos;
use crate::store::Store;
use crate::store::device_times::Transfer;

/// The traffic of clients is counted over this time.
const PERIOD: Nanos = Nanos(10_000_000);
/// Counts over more time than this tell nothing of now.
const LONGEST_PERIOD: Nanos = Nanos(100_000_000);
/// The device has idle time up to this part of what it moves, in percent.
const BUSY_PERCENT: f64 = 50.0;
/// Writes are taken to be no slower than this part of the rate of reads: single blocks tell no rate.
const LEAST_WRITE_RATE: f64 = 0.25;
/// A client's request waits so much longer for a piece that write-back reads.
const PIECE: Nanos = Nanos(16_000);
/// A piece begins so long after the one before at the earliest: it takes the processor's time too, of
/// which a client's request has a few microseconds.
pub(super) const PIECE_EVERY: Nanos = Nanos(200_000);
/// Bytes of a piece, whatever the device.
const PIECE_BYTES: (usize, usize) = (8 << 10, 128 << 10);

/// The cache device's traffic, as write-back looks at it.
#[derive(Debug, Default)]
pub(super) struct IdleCache {
    looked_at: Nanos,
    /// Bytes read and written when it was last looked at, by anyone.
    read_bytes: u64,
    written_bytes: u64,
    /// Bytes that write-back has read since.
    own_bytes: u64,
    is_idle: bool,
}

impl IdleCache {
    /// Write-back reads from the cache device.
    pub(super) fn reads(&mut self, bytes: u32) {
        self.own_bytes += u64::from(bytes);
    }

    /// Brings the figures up to date.
    pub(super) fn advance(&mut self, now: Nanos, store: &Store) {
        let elapsed = now.since(self.looked_at);
        if elapsed < PERIOD {
            return;
        }
        let stats = &store.stats;
        let (read_bytes, written_bytes) =
            (stats.cache_data_read_bytes, stats.cache_data_written_bytes);
        let own = std::mem::take(&mut self.own_bytes);
        let read = (read_bytes - self.read_bytes).saturating_sub(own);
        let written = written_bytes - self.written_bytes;
        let busy_percent = busy(store, read, written) * 100.0 / elapsed.0 as f64;
        self.is_idle = elapsed <= LONGEST_PERIOD && busy_percent < BUSY_PERCENT;
        self.looked_at = now;
        (self.read_bytes, self.written_bytes) = (read_bytes, written_bytes);
    }

    /// Whether clients left the device idle for half of the time lately.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }
}

/// The nanoseconds in which the device reads and writes so many bytes: for ever as long as nothing
/// long was read from it.
fn busy(store: &Store, read_bytes: u64, written_bytes: u64) -> f64 {
    let rate = |transfer: Transfer| {
        let times = store.operations.times.of_cache();
        times.of(transfer).bytes_per_second as f64 / 1e9
    };
    let reads = rate(Transfer::LongRead);
    if reads == 0.0 {
        return f64::INFINITY;
    }
    let writes = rate(Transfer::LongWrite).max(reads * LEAST_WRITE_RATE);
    read_bytes as f64 / reads + written_bytes as f64 / writes
}

/// The bytes that write-back reads at a time beside a client that leaves the device idle.
pub(super) fn piece_bytes(store: &Store) -> usize {
    let times = store.operations.times.of_cache();
    let all = times.of(Transfer::LongRead).bytes_per_second;
    // A piece is read from one of the devices, whose rates the cache's is the sum of.
    let rate = all / u64::from(store.log.devices_in_use());
    let bytes = u128::from(rate) * u128::from(PIECE.0) / u128::from(Nanos::SECOND.0);
    (bytes as usize).clamp(PIECE_BYTES.0, PIECE_BYTES.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::settings::{Mode, Settings};

    const MIB: u64 = 1 << 20;

    fn rig() -> Rig {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        rig.has_read_long();
        rig
    }

    /// Whether the device is idle after ten periods with so much read and written in each, and so
    /// much of what is read by write-back.
    fn is_idle(rig: &mut Rig, read: u64, written: u64, own: u64) -> bool {
        let mut idle_cache = IdleCache::default();
        let mut now = Nanos(1);
        for _ in 0..10 {
            rig.store.stats.cache_data_read_bytes += read;
            rig.store.stats.cache_data_written_bytes += written;
            idle_cache.reads(own as u32);
            now = now.after(PERIOD);
            idle_cache.advance(now, &rig.store);
        }
        idle_cache.is_idle()
    }

    #[test]
    fn a_device_is_idle_beside_clients_who_take_less_than_half_of_what_it_moves() {
        let mut rig = rig();
        assert!(is_idle(&mut rig, 0, 0, 0));
        assert!(is_idle(&mut rig, 2 * MIB, 0, 0), "of 5 in a period");
        assert!(!is_idle(&mut rig, 3 * MIB, 0, 0));
        assert!(
            is_idle(&mut rig, 3 * MIB, 0, 2 * MIB),
            "what write-back reads is no client's"
        );
        assert!(is_idle(&mut rig, 0, MIB / 2, 0));
        assert!(!is_idle(&mut rig, MIB, MIB / 2, 0));
        assert!(
            !is_idle(&mut rig, 0, MIB, 0),
            "written at a quarter of that"
        );
    }

    #[test]
    fn a_device_whose_rate_is_not_known_is_not_idle() {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        assert!(!is_idle(&mut rig, 4096, 0, 0));
        assert_eq!(piece_bytes(&rig.store), PIECE_BYTES.0);
    }

    #[test]
    fn a_count_over_a_long_time_tells_nothing() {
        let rig = rig();
        let mut idle_cache = IdleCache::default();
        idle_cache.advance(Nanos(1).after(PERIOD), &rig.store);
        assert!(idle_cache.is_idle());
        idle_cache.advance(Nanos(2).after(PERIOD).after(LONGEST_PERIOD), &rig.store);
        assert!(!idle_cache.is_idle());
    }

    #[test]
    fn a_piece_takes_a_few_microseconds_of_the_device() {
        let rig = rig();
        let bytes = piece_bytes(&rig.store);
        assert!(
            (8_192..8_500).contains(&bytes),
            "16 µs at 524 MB a second: {bytes}"
        );
    }
}
