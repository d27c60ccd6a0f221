//! The counters of a shard. Plain numbers, read between calls.

use crate::bypass::Bypasses;
use crate::interface::Nanos;

/// A log-linear histogram of times: 8 steps to each power of two, relative error 12.5 % at most.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; Histogram::BUCKETS]>,
    count: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: Box::new([0; Histogram::BUCKETS]),
            count: 0,
            sum_ns: 0,
        }
    }
}

impl Histogram {
    const STEPS: u32 = 8;
    /// From 1 µs to about 18 minutes; longer times count as that.
    const BUCKETS: usize = 31 * Self::STEPS as usize;

    /// Counts a time.
    pub fn record(&mut self, time: Nanos) {
        let units = (time.0 / 1024).max(1);
        let power = units.ilog2();
        let step = ((units << 3) >> power) as u32 & (Self::STEPS - 1);
        let bucket = (power * Self::STEPS + step) as usize;
        self.counts[bucket.min(Self::BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(time.0);
    }

    /// The number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }

    /// The time below which this share (0 to 1) of the counted ones lies, in nanoseconds.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                let (power, step) = (
                    bucket as u32 / Self::STEPS,
                    bucket as u64 % u64::from(Self::STEPS),
                );
                return (((8 + step + 1) << power) >> 3) * 1024;
            }
        }
        0
    }

    /// The sum of all counted times, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Limits that double, each in nanoseconds and with the number of counted times below it. Times
    /// above the last, about 18 minutes, are only in [`Histogram::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let powers = self.counts.chunks(Self::STEPS as usize).enumerate();
        let bounded = powers.take(Self::BUCKETS / Self::STEPS as usize - 1);
        bounded.scan(0, |below, (power, counts)| {
            *below += counts.iter().sum::<u64>();
            Some((2048 << power, *below))
        })
    }

    /// Returns the counts since an earlier state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*before);
        }
        since.count = self.count.saturating_sub(earlier.count);
        since.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
        since
    }

    /// Adds another histogram's counts.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// The counters of a shard since it started. Bytes and blocks as their names say.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Stats {
    pub read_blocks_hit: u64,
    pub read_blocks_missed: u64,
    pub write_blocks_hit: u64,
    pub write_blocks_missed: u64,
    pub read_requests: u64,
    pub write_requests: u64,
    pub flush_requests: u64,
    pub discard_requests: u64,
    pub failed_requests: u64,
    pub promoted_blocks: u64,
    pub retained_blocks: u64,
    pub evicted_blocks: u64,
    /// Evicted blocks that were read where they had been, and are among the hits.
    pub victim_reads: u64,
    /// Clean blocks that were read from the origin, which answered sooner; they are among the hits.
    pub blocks_hit_on_origin: u64,
    /// Blocks read from the cache device before anyone asked for them.
    pub blocks_read_ahead: u64,
    /// Of these, how many were asked for then; they are among the hits.
    pub blocks_served_ahead: u64,
    pub renewed_segments: u64,
    pub reclaimed_segments: u64,
    pub written_back_blocks: u64,
    pub dirty_blocks: u64,
    /// Dirty blocks above which writes slow down just now.
    pub dirty_high_blocks: u64,
    /// Dirty blocks above which fewer are let in than are written back, just now.
    pub dirty_limit_blocks: u64,
    pub cache_data_read_bytes: u64,
    pub cache_data_written_bytes: u64,
    pub cache_metadata_written_bytes: u64,
    pub cache_flushes: u64,
    pub origin_read_bytes: u64,
    pub origin_written_bytes: u64,
    pub origin_flushes: u64,
    pub cache_read_errors: u64,
    pub cache_write_errors: u64,
    pub checksum_errors: u64,
    /// Blocks that one of two devices gave wrong or not at all, and that were written there again.
    pub mended_blocks: u64,
    /// Requests whose data went between devices and clients' memory without a copy.
    pub straight_requests: u64,
    /// Blocks that the scrub read, and found as they should be.
    pub scrubbed_blocks: u64,
    /// Passes of the scrub through all segments.
    pub scrub_passes: u64,
    pub unreadable_dirty_blocks: u64,
    pub origin_read_errors: u64,
    pub origin_write_errors: u64,
    /// Writes that the origin failed when they bypassed the cache, and that the log took then.
    pub refused_writes_logged: u64,
    pub throttled_requests: u64,
    /// Writes that were answered from the memory buffer.
    pub buffered_writes: u64,
    /// Blocks that were read from it.
    pub buffer_blocks_read: u64,
    /// Tries to store a write of it that failed.
    pub buffered_write_errors: u64,
    /// Promotions that a write of their block came before (I11).
    pub promotions_overtaken: u64,
    /// Writes without a job that failed or came too late for their segment, and were logged anew.
    pub fast_writes_requeued: u64,
    /// Writes past the cache that had no job.
    pub past_writes: u64,
    pub bypasses: Bypasses,
    pub read_latency: Histogram,
    pub write_latency: Histogram,
    pub flush_latency: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let mut histogram = Histogram::default();
        for micros in 1..=10_000u64 {
            histogram.record(Nanos(micros * 1024));
        }
        let median = histogram.quantile_ns(0.5) as f64 / (5_000.0 * 1024.0);
        let high = histogram.quantile_ns(0.99) as f64 / (9_900.0 * 1024.0);
        assert!((0.87..1.14).contains(&median), "{median}");
        assert!((0.87..1.14).contains(&high), "{high}");
    }

    #[test]
    fn limits_double_and_what_is_below_them_is_counted() {
        let mut histogram = Histogram::default();
        let before = histogram.clone();
        for nanos in [0, 2047, 2048, 4095, 4096, u64::MAX] {
            histogram.record(Nanos(nanos));
        }
        let cumulative: Vec<(u64, u64)> = histogram.cumulative().collect();
        assert_eq!(cumulative[..3], [(2048, 2), (4096, 4), (8192, 5)]);
        assert_eq!(cumulative.last().unwrap(), &(2048 << 29, 5));
        assert_eq!(histogram.since(&before).count(), 6);
        assert_eq!(histogram.since(&histogram).quantile_ns(0.5), 0);
    }
}
