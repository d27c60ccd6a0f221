//! Advice on a cache from a trace.

use serde::{Deserialize, Serialize};

use crate::accesses::Accesses;
use crate::policies::PolicyKind;
use crate::request::{Kind, Request};
use crate::runs::Runs;
use crate::shards::{RUNS, Shards};
use crate::simulate::{Job, simulate};
use forebay_random::mix;

/// The accesses of the miniature simulation for each block of the sample.
const MINIATURE: usize = 8;
/// The policies that are compared.
const COMPARED: [PolicyKind; 5] = [
    PolicyKind::S3Fifo,
    PolicyKind::Lru,
    PolicyKind::Arc,
    PolicyKind::Fifo,
    PolicyKind::Opt,
];

/// A point of the curve: results of a cache of that size, in shares of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The cache's size in blocks.
    pub size_blocks: u64,
    /// Hits for each access.
    pub hit_ratio: f64,
    /// Read hits for each read.
    pub read_hit_ratio: f64,
    /// Write hits for each write.
    pub write_hit_ratio: f64,
    /// Blocks read from the origin.
    pub origin_read_blocks: f64,
    /// Blocks written to the origin when writing back.
    pub write_back_blocks: f64,
}

/// The best treatment of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The cache saves the origin writes.
    WriteBack,
    /// It does not, but what is written is read again from the cache.
    WriteThrough,
    /// Written data is not read again soon.
    WriteAround,
}

impl Mode {
    /// The name by which `serve --mode` knows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::WriteBack => "writeback",
            Mode::WriteThrough => "writethrough",
            Mode::WriteAround => "writearound",
        }
    }
}

/// Advice on a cache for the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Results of a cache of the recommended size, by LRU.
    pub point: Point,
    /// The mode, by the rules in docs/advise.md.
    pub mode: Mode,
    /// Sequential runs from this many blocks on are better not cached; `None`: cache them all.
    pub cutoff_blocks: Option<u64>,
    /// Blocks read from and written to the origin, and written to the SSD, in that mode.
    pub origin_read_blocks: f64,
    /// Blocks written to the origin in that mode.
    pub origin_write_blocks: f64,
    /// Blocks written to the SSD in that mode.
    pub ssd_write_blocks: f64,
    /// Miss ratios by policy at that size, from a simulation in miniature.
    pub policies: Vec<(PolicyKind, f64)>,
}

/// Counts of the requests, and the advice that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Requests that read or wrote.
    pub requests: u64,
    /// Block reads.
    pub read_blocks: u64,
    /// Block writes.
    pub write_blocks: u64,
    /// Distinct blocks, by the sample.
    pub footprint_blocks: u64,
    /// From the first request to the last, if there are times.
    pub duration_seconds: Option<f64>,
    /// The sampling rate at the end.
    pub sampling_rate: f64,
    /// The number of blocks followed.
    pub sampled_blocks: usize,
    /// Results of LRU caches of rising size.
    pub curve: Vec<Point>,
    /// The recommendation.
    pub advice: Advice,
}

/// Watches a trace in bounded memory: a sample of its blocks and a part of its accesses.
#[derive(Debug)]
pub struct Adviser {
    shards: Shards,
    runs: Runs,
    /// Hashes of sampled accesses, for the simulation in miniature (Waldspurger et al., ATC 2017).
    miniature: Vec<u64>,
    most_miniature: usize,
    miniature_below: u64,
    requests: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
}

impl Adviser {
    /// Follows at most `most_samples` blocks. Dirty data is written back after `age_seconds`.
    #[must_use]
    pub fn new(most_samples: usize, age_seconds: u64) -> Adviser {
        Adviser {
            shards: Shards::new(most_samples, age_seconds.saturating_mul(1_000_000_000)),
            runs: Runs::default(),
            miniature: Vec::new(),
            most_miniature: most_samples.max(1) * MINIATURE,
            miniature_below: u64::MAX,
            requests: 0,
            first_ns: None,
            last_ns: None,
        }
    }

    /// Follows no more than one block in `n`, however few there are: the cost of seeing an access
    /// is then bounded too.
    #[must_use]
    pub fn at_most_one_in(mut self, n: u64) -> Adviser {
        self.shards.lower_rate(n);
        self.miniature_below = u64::MAX / n.max(1);
        self
    }

    /// Sees a request. Requests that move no data mean nothing here.
    pub fn see(&mut self, request: &Request) {
        if !request.kind.moves_data() {
            return;
        }
        self.requests += 1;
        if let Some(time) = request.time_ns {
            self.first_ns = Some(self.first_ns.map_or(time, |first| first.min(time)));
            self.last_ns = Some(self.last_ns.map_or(time, |last| last.max(time)));
        }
        let run = self.runs.class(request);
        // Wraps for an object of any number, which is an address only by name.
        let volume = mix(u64::from(request.volume) + 1);
        for block in request.first_block..request.first_block + u64::from(request.blocks) {
            let key = mix(block ^ volume);
            self.shards.access(key, request.kind, request.time_ns, run);
            self.remember(mix(key ^ 0x5bd1_e995));
        }
    }

    fn remember(&mut self, hash: u64) {
        if hash >= self.miniature_below {
            return;
        }
        self.miniature.push(hash);
        // A single busy block with a small hash outlasts several of these steps.
        while self.miniature.len() >= self.most_miniature {
            self.miniature_below /= 2;
            let below = self.miniature_below;
            self.miniature.retain(|&hash| hash < below);
        }
    }

    /// Requests seen.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Block reads and block writes seen.
    #[must_use]
    pub fn accesses(&self) -> (u64, u64) {
        (self.shards.reads, self.shards.writes)
    }

    /// The number of distinct blocks, by the sample.
    #[must_use]
    pub fn footprint_blocks(&self) -> u64 {
        self.shards.footprint().round() as u64
    }

    /// The sampling rate at the end, and how many blocks are followed.
    #[must_use]
    pub fn sampling(&self) -> (f64, usize) {
        (self.shards.rate(), self.shards.samples())
    }

    /// From the first request to the last, if the trace has times.
    #[must_use]
    pub fn duration_seconds(&self) -> Option<f64> {
        let nanos = self.last_ns?.checked_sub(self.first_ns?)?;
        (nanos > 0).then_some(nanos as f64 / 1e9)
    }

    /// The results of an LRU cache of `size_blocks`.
    #[must_use]
    pub fn point(&self, size_blocks: u64) -> Point {
        let (reads, writes) = (self.shards.reads as f64, self.shards.writes as f64);
        let read_hits = self.shards.read_hits_at(size_blocks);
        let write_hits = self.shards.write_hits_at(size_blocks);
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        Point {
            size_blocks,
            hit_ratio: share(read_hits + write_hits, reads + writes),
            read_hit_ratio: share(read_hits, reads),
            write_hit_ratio: share(write_hits, writes),
            origin_read_blocks: reads - read_hits,
            write_back_blocks: self.shards.write_backs_at(size_blocks),
        }
    }

    /// Points at `count` sizes up to the footprint, in equal steps of ratio from a thousandth on.
    #[must_use]
    pub fn curve(&self, count: usize) -> Vec<Point> {
        let footprint = self.shards.footprint().max(1.0);
        let mut points: Vec<Point> = (0..count)
            .map(|at| {
                let share = (at as f64 + 1.0 - count as f64) / (count as f64 - 1.0).max(1.0);
                self.point(((footprint * 1000f64.powf(share)).ceil() as u64).max(1))
            })
            .collect();
        points.dedup_by_key(|point| point.size_blocks);
        points
    }

    /// Everything in one: the curve at up to 40 sizes, and the advice for `size_blocks` or for the
    /// size that [`Adviser::advise`] chooses.
    #[must_use]
    pub fn findings(&self, size_blocks: Option<u64>) -> Findings {
        let (read_blocks, write_blocks) = self.accesses();
        let (sampling_rate, sampled_blocks) = self.sampling();
        Findings {
            requests: self.requests(),
            read_blocks,
            write_blocks,
            footprint_blocks: self.footprint_blocks(),
            duration_seconds: self.duration_seconds(),
            sampling_rate,
            sampled_blocks,
            curve: self.curve(40),
            advice: self.advise(size_blocks),
        }
    }

    /// The recommendation: for `size_blocks`, or for the smallest cache that has 95 % of the hits
    /// that any could have.
    #[must_use]
    pub fn advise(&self, size_blocks: Option<u64>) -> Advice {
        let best = self.point(self.footprint_blocks().max(1)).hit_ratio;
        let point = match size_blocks {
            Some(size) => self.point(size),
            None => self
                .curve(200)
                .into_iter()
                .find(|point| point.hit_ratio >= 0.95 * best)
                .unwrap_or_else(|| self.point(self.footprint_blocks().max(1))),
        };
        let mode = self.mode(&point);
        let (reads, writes) = (self.shards.reads as f64, self.shards.writes as f64);
        let promoted = point.origin_read_blocks;
        let (origin_write_blocks, ssd_write_blocks) = match mode {
            Mode::WriteBack => (point.write_back_blocks, promoted + writes),
            Mode::WriteThrough => (writes, promoted + writes),
            // Cached blocks are updated.
            Mode::WriteAround => (writes, promoted + point.write_hit_ratio * writes),
        };
        Advice {
            point,
            mode,
            cutoff_blocks: self.cutoff(&point),
            origin_read_blocks: promoted.min(reads),
            origin_write_blocks,
            ssd_write_blocks,
            policies: self.compare(point.size_blocks),
        }
    }

    fn mode(&self, point: &Point) -> Mode {
        let (reads, writes) = (self.shards.reads as f64, self.shards.writes as f64);
        let reread = self.shards.read_hits_of_writes.within(point.size_blocks);
        if writes > 0.0 && point.write_back_blocks <= 0.9 * writes {
            Mode::WriteBack
        } else if writes == 0.0 || reread >= 0.05 * reads {
            Mode::WriteThrough
        } else {
            Mode::WriteAround
        }
    }

    /// The shortest run of at least 256 blocks (1 MiB of 4 KiB) from which on accesses hit less
    /// than a quarter as often as the others, if that is at least a twentieth of the accesses.
    fn cutoff(&self, point: &Point) -> Option<u64> {
        let all: f64 = self.shards.run_accesses.iter().sum();
        (8..RUNS)
            .find(|&class| {
                let long: f64 = self.shards.run_accesses[class..].iter().sum();
                let hits = |runs: std::ops::Range<usize>| -> f64 {
                    let runs = &self.shards.run_hits[runs];
                    runs.iter().map(|run| run.within(point.size_blocks)).sum()
                };
                let (short, long_hits) = (all - long, hits(class..RUNS));
                let ratio = |hits: f64, of: f64| if of > 0.0 { hits / of } else { 0.0 };
                long >= 0.05 * all
                    && short > 0.0
                    && ratio(long_hits, long) < 0.25 * ratio(hits(0..class), short)
            })
            .map(|class| 1 << class)
    }

    fn compare(&self, size_blocks: u64) -> Vec<(PolicyKind, f64)> {
        let rate = self.miniature_below as f64 / u64::MAX as f64;
        let mut accesses = Accesses::default();
        for &hash in &self.miniature {
            let request = Request {
                time_ns: None,
                kind: Kind::Read,
                volume: 0,
                first_block: hash,
                blocks: 1,
            };
            if hash == u64::MAX || accesses.push(&request).is_err() {
                break;
            }
        }
        let size = ((size_blocks as f64 * rate).round() as u64).max(1);
        let jobs = COMPARED.map(|policy| Job {
            policy,
            size_blocks: size,
        });
        let outcomes = simulate(&accesses, &jobs, 1, 1, &|_| true).unwrap_or_default();
        outcomes
            .iter()
            .map(|outcome| (outcome.job.policy, outcome.miss_ratio()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
