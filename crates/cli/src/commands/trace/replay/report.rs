//! Report of a replay, for people and for programs.

use std::fmt::Write;

use forebay_engine::Mode;
use forebay_virtual::Traffic;
use serde_json::{Value, json};

use super::operations::Operations;
use super::tally::{Side, Tally};
use crate::args::ReplayArgs;
use crate::units::{Speed, duration, latency, ratio, share, size};

/// A replay that ends so much behind its time, and this part of its length, is one of a saturated
/// target; less is a burst.
const LEAST_DELAY_NS: u64 = 100_000_000;
const MOST_DELAY_PART: u64 = 20;

/// Figures that only a simulation knows.
pub(super) struct Simulated {
    pub(super) mode: Mode,
    pub(super) cache_bytes: u64,
    pub(super) origin_bytes: u64,
    /// Hit and missed.
    pub(super) read_blocks: (u64, u64),
    /// Hit and missed.
    pub(super) write_blocks: (u64, u64),
    pub(super) traffic: Traffic,
    pub(super) dirty_bytes: u64,
}

/// Everything about a replay that has ended.
pub(super) struct Report {
    trace: String,
    pub(super) target: String,
    speed: Speed,
    depth: u16,
    left_out: u64,
    skipped: u64,
    dropped: u64,
    pub(super) tally: Tally,
    pub(super) simulated: Option<Simulated>,
}

impl Report {
    pub(super) fn new(
        args: &ReplayArgs,
        target: String,
        operations: &Operations,
        tally: Tally,
    ) -> Report {
        Report {
            trace: args.file.display().to_string(),
            target,
            speed: args.speed,
            depth: args.depth,
            left_out: operations.left_out,
            skipped: operations.skipped(),
            dropped: operations.dropped(),
            tally,
            simulated: None,
        }
    }

    fn seconds(&self) -> f64 {
        self.tally.took_ns as f64 / 1e9
    }

    fn requests(&self) -> u64 {
        let tally = &self.tally;
        tally.read.requests + tally.write.requests + tally.other.requests
    }

    /// Whether the target gets requests faster than it answers: durations are then those of a queue
    /// that grows. Nothing at the highest speed, which is to find out how fast that is.
    fn saturated(&self) -> Option<bool> {
        let last_ns = self.tally.behind.last_ns;
        let is_behind = last_ns >= LEAST_DELAY_NS && last_ns > self.tally.took_ns / MOST_DELAY_PART;
        (self.speed != Speed::Max).then_some(is_behind)
    }

    /// The report as a JSON object.
    pub(super) fn document(&self) -> Value {
        let tally = &self.tally;
        let side = |side: &Side| self.side_document(side);
        let behind = (self.speed != Speed::Max).then(|| {
            json!({
                "mean_ns": tally.behind.mean_ns(),
                "most_ns": tally.behind.most_ns,
                "last_ns": tally.behind.last_ns,
            })
        });
        json!({
            "trace": self.trace,
            "target": self.target,
            "speed": self.speed.to_string(),
            "depth": self.depth,
            "requests": self.requests(),
            "failed": tally.failed(),
            "left_out": self.left_out,
            "skipped": self.skipped,
            "dropped_when_recorded": self.dropped,
            "seconds": self.seconds(),
            "interrupted": tally.interrupted,
            "read": side(&tally.read),
            "write": side(&tally.write),
            "other": side(&tally.other),
            "behind": behind,
            "saturated": self.saturated(),
            "simulated": self.simulated.as_ref().map(simulated_document),
        })
    }

    fn side_document(&self, side: &Side) -> Value {
        let seconds = self.seconds().max(1e-9);
        json!({
            "requests": side.requests,
            "failed": side.failed,
            "bytes": side.bytes,
            "requests_per_second": side.requests as f64 / seconds,
            "bytes_per_second": side.bytes as f64 / seconds,
            "mean_ns": side.latency.mean_ns(),
            "p50_ns": quantile(side, 0.5),
            "p90_ns": quantile(side, 0.9),
            "p99_ns": quantile(side, 0.99),
            "p999_ns": quantile(side, 0.999),
            "longest_ns": side.longest_ns,
        })
    }

    /// A table.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} requests on {} in {}\n\n",
            self.requests(),
            self.target,
            duration(self.seconds())
        );
        let _ = writeln!(
            text,
            "{:<8}{:>10} {:>10} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "requests", "/s", "bytes/s", "mean", "p50", "p99", "p99.9", "longest"
        );
        let tally = &self.tally;
        for (name, side) in [
            ("reads", &tally.read),
            ("writes", &tally.write),
            ("others", &tally.other),
        ] {
            if side.requests > 0 {
                self.row(&mut text, name, side);
            }
        }
        text.push('\n');
        self.remarks(&mut text);
        if let Some(simulated) = &self.simulated {
            simulated_text(&mut text, simulated);
        }
        text
    }

    fn row(&self, text: &mut String, name: &str, side: &Side) {
        let seconds = self.seconds().max(1e-9);
        let _ = writeln!(
            text,
            "{name:<8}{:>10} {:>10.0} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
            side.requests,
            side.requests as f64 / seconds,
            size((side.bytes as f64 / seconds) as u64),
            latency(side.latency.mean_ns()),
            latency(quantile(side, 0.5)),
            latency(quantile(side, 0.99)),
            latency(quantile(side, 0.999)),
            latency(side.longest_ns),
        );
    }

    fn remarks(&self, text: &mut String) {
        let behind = &self.tally.behind;
        if self.speed != Speed::Max {
            let _ = writeln!(
                text,
                "Sent after their time: {} in the mean, {} at most, {} at the end",
                latency(behind.mean_ns()),
                latency(behind.most_ns),
                latency(behind.last_ns)
            );
        }
        if self.saturated() == Some(true) {
            let whose = if self.simulated.is_some() {
                "The simulated devices are"
            } else {
                "The target is"
            };
            let _ = writeln!(
                text,
                "{whose} SATURATED: more is sent than is answered, so that the durations above are those of \
                 the queue. For the durations of the cache replay more slowly (--speed), or only a part"
            );
        }
        for (count, what) in [
            (self.tally.failed(), "requests failed"),
            (
                self.left_out,
                "requests left out: not wanted, or nothing the target can do",
            ),
            (self.skipped, "malformed entries left out"),
            (self.dropped, "requests are missing in the recording"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "{count} {what}");
            }
        }
    }
}

/// No more than the longest, which is exact.
fn quantile(side: &Side, part: f64) -> u64 {
    side.latency.quantile_ns(part).min(side.longest_ns)
}

fn hit_ratio((hit, missed): (u64, u64)) -> Option<f64> {
    ratio(hit, hit + missed)
}

fn both(simulated: &Simulated) -> (u64, u64) {
    let (reads, writes) = (simulated.read_blocks, simulated.write_blocks);
    (reads.0 + writes.0, reads.1 + writes.1)
}

fn simulated_document(simulated: &Simulated) -> Value {
    let traffic = &simulated.traffic;
    json!({
        "mode": simulated.mode.name(),
        "cache_size_bytes": simulated.cache_bytes,
        "origin_size_bytes": simulated.origin_bytes,
        "hit_ratio": hit_ratio(both(simulated)),
        "read_hit_ratio": hit_ratio(simulated.read_blocks),
        "write_hit_ratio": hit_ratio(simulated.write_blocks),
        "cache_read_bytes": traffic.cache_read_bytes,
        "cache_written_bytes": traffic.cache_write_bytes,
        "cache_metadata_written_bytes": traffic.metadata_bytes,
        "origin_read_bytes": traffic.origin_read_bytes,
        "origin_written_bytes": traffic.origin_write_bytes,
        "dirty_bytes": simulated.dirty_bytes,
    })
}

/// Where writes go to the origin at once, what is not clean waits for the origin's flush only.
fn words_for_dirty(mode: Mode) -> &'static str {
    if mode == Mode::Writeback {
        "dirty"
    } else {
        "written to the origin and not yet flushed there"
    }
}

fn simulated_text(text: &mut String, simulated: &Simulated) {
    let traffic = &simulated.traffic;
    let hits = |(hit, missed): (u64, u64)| share(hit, hit + missed);
    let _ = writeln!(
        text,
        "Simulated: {} of cache, {}, origin of {}",
        size(simulated.cache_bytes),
        simulated.mode.name(),
        size(simulated.origin_bytes)
    );
    let _ = writeln!(
        text,
        "Hits: {} of all blocks, {} of those read, {} of those written",
        hits(both(simulated)),
        hits(simulated.read_blocks),
        hits(simulated.write_blocks)
    );
    let _ = writeln!(
        text,
        "Cache device: {} read, {} written; origin: {} read, {} written; {} {} at the end",
        size(traffic.cache_read_bytes),
        size(traffic.cache_write_bytes),
        size(traffic.origin_read_bytes),
        size(traffic.origin_write_bytes),
        size(simulated.dirty_bytes),
        words_for_dirty(simulated.mode)
    );
}
