//! Miss-ratio curves of an LRU cache from a sample of the blocks: SHARDS (Waldspurger et al., FAST
//! 2015), of fixed size, with the correction for the sampling error of hot blocks (SHARDS-adj).
//!
//! A block is sampled if the hash of its address is below a threshold, so that all of its accesses
//! are or none. Distances between the sample's accesses, divided by the rate, are distances in the
//! trace. When the sample is full the threshold falls.

use std::collections::{BinaryHeap, HashMap};

use crate::fenwick::Fenwick;
use crate::histogram::Histogram;
use crate::request::Kind;
use forebay_random::mix;

/// The number of the hash's values; the rate is the threshold divided by it.
const WHOLE: u64 = 1 << 32;
/// Lengths of sequential runs are told apart by powers of two.
pub(crate) const RUNS: usize = 24;

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The position of the last access, on which the tree has its mark.
    last: usize,
    last_was_write: bool,
    /// When the unwritten data became so; `None` without any.
    dirty_since: Option<u64>,
    /// The largest cache that would have evicted the block since it was last written.
    evicted_below: u64,
}

/// Findings of the sample about caches of every size, in weights of block accesses.
#[derive(Debug)]
pub(crate) struct Shards {
    most_samples: usize,
    threshold: u64,
    samples: HashMap<u64, Sample>,
    by_hash: BinaryHeap<(u64, u64)>,
    marks: Fenwick,
    now: usize,
    age_ns: u64,
    /// Accesses in all, sampled or not.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// The cache from which on an access hits.
    pub(crate) read_hits: Histogram,
    pub(crate) write_hits: Histogram,
    /// Read hits on what was last written.
    pub(crate) read_hits_of_writes: Histogram,
    /// Hits by the length of the sequential run that they were part of.
    pub(crate) run_hits: Vec<Histogram>,
    pub(crate) run_accesses: [f64; RUNS],
    /// Accesses to blocks not seen before.
    first_reads: f64,
    first_writes: f64,
    /// Writes that each reach the origin, whatever the size, and those that do in a cache no larger.
    write_backs: f64,
    write_backs_below: Histogram,
}

impl Shards {
    /// A sample of at most `most_samples` blocks; dirty data is written back at `age_ns`.
    pub(crate) fn new(most_samples: usize, age_ns: u64) -> Shards {
        Shards {
            most_samples: most_samples.max(1),
            threshold: WHOLE,
            samples: HashMap::new(),
            by_hash: BinaryHeap::new(),
            marks: Fenwick::new(most_samples.max(1) * 4),
            now: 0,
            age_ns,
            reads: 0,
            writes: 0,
            read_hits: Histogram::default(),
            write_hits: Histogram::default(),
            read_hits_of_writes: Histogram::default(),
            run_hits: vec![Histogram::default(); RUNS],
            run_accesses: [0.0; RUNS],
            first_reads: 0.0,
            first_writes: 0.0,
            write_backs: 0.0,
            write_backs_below: Histogram::default(),
        }
    }

    /// Samples at most one block in `n`. For a sample that is still empty.
    pub(crate) fn lower_rate(&mut self, n: u64) {
        self.threshold = self.threshold.min((WHOLE / n.max(1)).max(1));
    }

    pub(crate) fn rate(&self) -> f64 {
        self.threshold as f64 / WHOLE as f64
    }

    pub(crate) fn samples(&self) -> usize {
        self.samples.len()
    }

    /// The number of distinct blocks of the trace.
    pub(crate) fn footprint(&self) -> f64 {
        self.samples.len() as f64 / self.rate()
    }

    /// A read or a write. `key` is a hash of the block's address without collisions to speak of.
    pub(crate) fn access(&mut self, key: u64, kind: Kind, time_ns: Option<u64>, run: usize) {
        match kind {
            Kind::Write => self.writes += 1,
            _ => self.reads += 1,
        }
        let hash = mix(key) & (WHOLE - 1);
        if hash >= self.threshold {
            return;
        }
        if self.now == self.marks.len() {
            self.renumber();
        }
        let weight = 1.0 / self.rate();
        self.run_accesses[run] += weight;
        let now = self.now;
        self.now += 1;
        let before = self.samples.get(&key).copied();
        let mut sample = match before {
            Some(sample) => self.reuse(sample, kind, run),
            None => {
                match kind {
                    Kind::Write => self.first_writes += weight,
                    _ => self.first_reads += weight,
                }
                self.by_hash.push((hash, key));
                Sample {
                    last: now,
                    last_was_write: false,
                    dirty_since: None,
                    evicted_below: 0,
                }
            }
        };
        if kind == Kind::Write {
            self.write(&mut sample, time_ns.unwrap_or(0));
        }
        sample.last = now;
        sample.last_was_write = kind == Kind::Write;
        self.marks.set(now);
        self.samples.insert(key, sample);
        if self.samples.len() > self.most_samples {
            self.lower_threshold();
        }
    }

    /// An access to a block of the sample: it hits in every cache larger than the number of other
    /// blocks since.
    fn reuse(&mut self, mut sample: Sample, kind: Kind, run: usize) -> Sample {
        let weight = 1.0 / self.rate();
        let others = self.samples.len() as u32 - self.marks.up_to(sample.last);
        self.marks.unset(sample.last);
        let needs = (f64::from(others) * weight) as u64 + 1;
        if kind == Kind::Write {
            self.write_hits.add(needs, weight);
        } else {
            self.read_hits.add(needs, weight);
            if sample.last_was_write {
                self.read_hits_of_writes.add(needs, weight);
            }
        }
        self.run_hits[run].add(needs, weight);
        sample.evicted_below = sample.evicted_below.max(needs);
        sample
    }

    /// Whether the data before was written back by now: because it was old, or in the caches from
    /// which it was evicted.
    fn write(&mut self, sample: &mut Sample, now: u64) {
        let weight = 1.0 / self.rate();
        match sample.dirty_since {
            None => {
                self.write_backs += weight;
                sample.dirty_since = Some(now);
            }
            Some(since) if now.saturating_sub(since) >= self.age_ns => {
                self.write_backs += weight;
                sample.dirty_since = Some(now);
            }
            Some(_) => self.write_backs_below.add(sample.evicted_below, weight),
        }
        sample.evicted_below = 0;
    }

    /// Drops the block of the highest hash, and whatever shares that hash.
    fn lower_threshold(&mut self) {
        let Some(&(highest, _)) = self.by_hash.peek() else {
            return;
        };
        self.threshold = highest.max(1);
        while let Some(&(hash, key)) = self.by_hash.peek() {
            if hash < self.threshold {
                break;
            }
            self.by_hash.pop();
            if let Some(sample) = self.samples.remove(&key) {
                self.marks.unset(sample.last);
            }
        }
    }

    /// The positions are used up: the blocks keep their order and get the lowest ones.
    fn renumber(&mut self) {
        let mut order: Vec<(usize, u64)> = self
            .samples
            .iter()
            .map(|(&key, sample)| (sample.last, key))
            .collect();
        order.sort_unstable();
        self.marks.clear();
        for (position, (_, key)) in order.iter().enumerate() {
            self.marks.set(position);
            if let Some(sample) = self.samples.get_mut(key) {
                sample.last = position;
            }
        }
        self.now = order.len();
    }

    /// Read hits in a cache of `size` blocks. Accesses that the sample has too many or too few are
    /// taken to be accesses to few very hot blocks, which hit (SHARDS-adj).
    pub(crate) fn read_hits_at(&self, size: u64) -> f64 {
        let seen = self.read_hits.total() + self.first_reads;
        let adjusted = self.read_hits.within(size) + self.reads as f64 - seen;
        adjusted.clamp(0.0, self.reads as f64)
    }

    /// Write hits in a cache of `size` blocks, adjusted as for reads.
    pub(crate) fn write_hits_at(&self, size: u64) -> f64 {
        let seen = self.write_hits.total() + self.first_writes;
        let adjusted = self.write_hits.within(size) + self.writes as f64 - seen;
        adjusted.clamp(0.0, self.writes as f64)
    }

    /// Blocks written to the origin by a write-back cache of `size` blocks.
    pub(crate) fn write_backs_at(&self, size: u64) -> f64 {
        let evicted = self.write_backs_below.total() - self.write_backs_below.within(size);
        (self.write_backs + evicted).clamp(0.0, self.writes as f64)
    }
}
