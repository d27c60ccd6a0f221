//! An hour of what the daemon did, in memory: a sample each second, [`SAMPLES`] of them, 346 kB
//! at most.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use serde::Serialize;

use crate::lock::lock;
use crate::report::status::{Lately, Status, Times, Traffic};
use crate::wall_clock::since_1970;

/// The number of samples kept.
const SAMPLES: usize = 3600;
/// Length of "lately", in samples.
const MINUTE: usize = 60;

const COLUMNS: [&str; 21] = [
    "read_bytes_per_second",
    "written_bytes_per_second",
    "reads_per_second",
    "writes_per_second",
    "flushes_per_second",
    "read_p50_seconds",
    "read_p99_seconds",
    "write_p50_seconds",
    "write_p99_seconds",
    "flush_p99_seconds",
    "read_hit_ratio",
    "write_hit_ratio",
    "cached_bytes",
    "dirty_bytes",
    "written_back_bytes_per_second",
    "promoted_bytes_per_second",
    "bypassed_bytes_per_second",
    "cache_read_bytes_per_second",
    "cache_written_bytes_per_second",
    "origin_read_bytes_per_second",
    "origin_written_bytes_per_second",
];

/// A second of the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    unix_seconds: f64,
    /// In the order of the columns; an unknown value is not a number.
    values: [f32; COLUMNS.len()],
}

const _: () = assert!(size_of::<Sample>() * SAMPLES <= 346_000);

/// A part of the history: an array for each column. Unknown values (a ratio of nothing) are null in
/// JSON.
#[derive(Debug, Serialize)]
pub(in crate::daemon) struct Columns {
    /// Another with each start of the daemon.
    pub(super) started_unix_seconds: f64,
    pub(super) unix_seconds: Vec<f64>,
    pub(super) columns: std::collections::BTreeMap<&'static str, Vec<f32>>,
}

/// The history.
#[derive(Debug)]
pub(in crate::daemon) struct History {
    started_unix_seconds: f64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Sample>,
    /// Counters since the start, as they were at each sample of the last minute.
    minute: VecDeque<Lately>,
}

impl History {
    pub(in crate::daemon) fn new() -> History {
        History {
            started_unix_seconds: since_1970().as_secs_f64(),
            kept: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Samples after a moment.
    pub(in crate::daemon) fn after(&self, unix_seconds: f64) -> Columns {
        let kept = self.lock();
        let wanted = || {
            let samples = kept.samples.iter();
            samples.filter(|sample| sample.unix_seconds > unix_seconds)
        };
        let column = |at: usize| wanted().map(|sample| sample.values[at]).collect();
        Columns {
            started_unix_seconds: self.started_unix_seconds,
            unix_seconds: wanted().map(|sample| sample.unix_seconds).collect(),
            columns: COLUMNS
                .iter()
                .enumerate()
                .map(|(at, name)| (*name, column(at)))
                .collect(),
        }
    }

    /// The minute before this status.
    pub(in crate::daemon) fn lately(&self, status: &Status) -> Lately {
        let whole = Lately::whole(status);
        let kept = self.lock();
        // A daemon that is younger has all of its time behind it, what came before the first
        // sample too.
        let earlier = kept.minute.front().filter(|_| kept.minute.len() == MINUTE);
        earlier.map_or(whole, |earlier| whole.since(earlier))
    }

    /// Keeps a sample; the oldest goes.
    pub(super) fn push(&self, sample: Sample, counters: Lately) {
        let mut kept = self.lock();
        if kept.samples.len() == SAMPLES {
            kept.samples.pop_front();
        }
        kept.samples.push_back(sample);
        if kept.minute.len() == MINUTE {
            kept.minute.pop_front();
        }
        kept.minute.push_back(counters);
    }
}

/// Makes a sample of two looks at the counters.
pub(super) fn sample(before: (&Status, &Times), now: (&Status, &Times)) -> Sample {
    let (old, new) = (&before.0.traffic, &now.0.traffic);
    let seconds = (now.0.uptime_seconds - before.0.uptime_seconds).max(0.001);
    let cache = now.0.cache.as_ref();
    let block_bytes = now.0.block_bytes();
    let more = |get: fn(&Traffic) -> u64| get(new).saturating_sub(get(old)) as f64;
    let rate = |get: fn(&Traffic) -> u64| (more(get) / seconds) as f32;
    let block_rate = |get: fn(&Traffic) -> u64| (more(get) * block_bytes as f64 / seconds) as f32;
    let ratio = |hit: f64, missed: f64| (hit / (hit + missed)) as f32;
    let quantile = |now: &forebay_engine::Histogram, before, share| {
        let times = now.since(before);
        if times.count() == 0 {
            return f32::NAN;
        }
        (times.quantile_ns(share) as f64 / 1e9) as f32
    };
    let (was, is) = (before.1, now.1);
    let client = |looked_up: fn(&Traffic) -> u64, origin: fn(&Traffic) -> u64| {
        // Without a cache what clients ask for is what the origin is asked for.
        if cache.is_some() {
            block_rate(looked_up)
        } else {
            rate(origin)
        }
    };
    let values = [
        client(
            |traffic| traffic.read_blocks_hit + traffic.read_blocks_missed,
            |traffic| traffic.origin_read_bytes,
        ),
        client(
            |traffic| traffic.write_blocks_hit + traffic.write_blocks_missed,
            |traffic| traffic.origin_written_bytes,
        ),
        rate(|traffic| traffic.read_requests),
        rate(|traffic| traffic.write_requests),
        rate(|traffic| traffic.flush_requests),
        quantile(&is.read, &was.read, 0.5),
        quantile(&is.read, &was.read, 0.99),
        quantile(&is.write, &was.write, 0.5),
        quantile(&is.write, &was.write, 0.99),
        quantile(&is.flush, &was.flush, 0.99),
        ratio(
            more(|traffic| traffic.read_blocks_hit),
            more(|traffic| traffic.read_blocks_missed),
        ),
        ratio(
            more(|traffic| traffic.write_blocks_hit),
            more(|traffic| traffic.write_blocks_missed),
        ),
        cache.map_or(f32::NAN, |cache| cache.cached_bytes as f32),
        cache.map_or(f32::NAN, |cache| cache.dirty_bytes as f32),
        block_rate(|traffic| traffic.written_back_blocks),
        block_rate(|traffic| traffic.promoted_blocks),
        block_rate(|traffic| traffic.bypassed.iter().map(|past| past.blocks).sum()),
        rate(|traffic| traffic.cache_read_bytes),
        rate(|traffic| traffic.cache_data_written_bytes + traffic.cache_metadata_written_bytes),
        rate(|traffic| traffic.origin_read_bytes),
        rate(|traffic| traffic.origin_written_bytes),
    ];
    Sample {
        unix_seconds: since_1970().as_secs_f64(),
        values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Status {
        let mut status = crate::report::status::example();
        status.uptime_seconds = seconds;
        status
    }

    #[test]
    fn a_sample_is_of_what_came_between() {
        let (before, mut now) = (at(10.0), at(12.0));
        now.traffic.read_requests += 200;
        now.traffic.read_blocks_hit += 30;
        now.traffic.read_blocks_missed += 10;
        let (old, mut new) = (Times::default(), Times::default());
        new.read.record(forebay_engine::Nanos(1 << 20));
        let sample = sample((&before, &old), (&now, &new));
        let value = |name: &str| {
            let at = COLUMNS.iter().position(|column| *column == name).unwrap();
            sample.values[at]
        };
        assert_eq!(value("reads_per_second"), 100.0);
        assert_eq!(value("read_hit_ratio"), 0.75);
        assert_eq!(value("read_bytes_per_second"), 20.0 * 4096.0);
        assert!(value("write_hit_ratio").is_nan());
        assert!((0.0009..0.0013).contains(&value("read_p99_seconds")));
        assert!(value("write_p99_seconds").is_nan());
    }

    #[test]
    fn an_hour_is_kept_and_a_minute_is_lately() {
        let history = History::new();
        for second in 0..SAMPLES + 100 {
            let mut status = at(second as f64);
            // Some before the first sample.
            status.traffic.failed_requests = second as u64 + 5;
            let sample = Sample {
                unix_seconds: second as f64,
                values: [f32::NAN; COLUMNS.len()],
            };
            if second == MINUTE / 2 {
                let lately = history.lately(&status);
                assert_eq!((lately.seconds, lately.failed_requests), (30.0, 35));
            }
            history.push(sample, Lately::whole(&status));
        }
        let all = history.after(0.0);
        assert_eq!(all.unix_seconds.len(), SAMPLES);
        assert_eq!(all.unix_seconds[0], 100.0);
        assert_eq!(history.after(SAMPLES as f64 + 97.0).unix_seconds.len(), 2);
        let mut status = at((SAMPLES + 100) as f64);
        status.traffic.failed_requests = (SAMPLES + 100) as u64 + 5;
        let lately = history.lately(&status);
        assert_eq!((lately.seconds, lately.failed_requests), (60.0, 60));
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.contains("\"dirty_bytes\":[null,null"), "{text:.200}");
    }
}
