//! Misses of the engine and its writes for them, beside ideal block-granular S3-FIFO.
//!
//! The engine that ships, with its segments, streams and index, is driven access by access; only
//! its devices take no time. Rules as in published tables of miss ratios: each access is of one
//! block, reads and writes count alike and both insert, nothing is warmed up.

mod arguments;
mod report;
mod synthetic;
mod trace;

use forebay_engine::{Geometry, GeometryError, MIN_SEGMENTS, Settings, WritebackPolicy};
use forebay_trace::{Job, PolicyKind, simulate};
use forebay_virtual::Timeless;

pub use arguments::{USAGE, run};
pub use synthetic::Overwrites;
pub use trace::Trace;

const BLOCK_BYTES: u32 = 4096;

/// Results of the engine with a trace at one size, and of ideal S3-FIFO.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Blocks for which the cache has room.
    pub size_blocks: u64,
    /// All accesses.
    pub accesses: u64,
    /// Accesses that were not cached.
    pub misses: u64,
    /// Accesses that were misses or writes: each of them had to be written to the cache.
    pub inserted: u64,
    /// Blocks copied by reclaim.
    pub retained: u64,
    /// Segments renewed in place of being copied.
    pub renewed: u64,
    /// Share of the blocks' places in use, on average over the second half.
    pub used: f64,
    /// Bytes written to the cache device.
    pub written_bytes: u64,
    /// Of that, headers and summaries.
    pub metadata_bytes: u64,
    /// Misses of block-granular S3-FIFO with as many blocks.
    pub ideal_misses: u64,
}

impl Point {
    /// Misses for each access.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }

    /// Misses of ideal S3-FIFO for each access.
    #[must_use]
    pub fn ideal_miss_ratio(&self) -> f64 {
        self.ideal_misses as f64 / self.accesses.max(1) as f64
    }

    /// Bytes written to the cache device for each that had to be.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.written_bytes as f64 / (self.inserted.max(1) * u64::from(BLOCK_BYTES)) as f64
    }

    /// The part of that which is headers and summaries.
    #[must_use]
    pub fn metadata_part(&self) -> f64 {
        self.metadata_bytes as f64 / (self.inserted.max(1) * u64::from(BLOCK_BYTES)) as f64
    }

    /// Copies by reclaim for each block let in.
    #[must_use]
    pub fn copies_part(&self) -> f64 {
        self.retained as f64 / self.inserted.max(1) as f64
    }

    /// Bytes written to the cache device for each access.
    #[must_use]
    pub fn written_per_access(&self) -> f64 {
        self.written_bytes as f64 / self.accesses.max(1) as f64
    }
}

/// The shape of a one-shard cache with room for `blocks` blocks: the data places of all its
/// segments, those that reclaim keeps free included. Headers and summaries come on top, as they
/// do not exist in what it is compared with; the segments are as large as on a device of that
/// many blocks.
///
/// # Errors
/// Where such a cache cannot be made.
pub fn shape(blocks: u64) -> Result<Geometry, String> {
    let device_bytes = forebay_engine::DATA_OFFSET_BYTES + blocks * u64::from(BLOCK_BYTES);
    let shape = match Geometry::for_device(device_bytes, BLOCK_BYTES, Some(1), 1) {
        Ok(shape) => shape,
        // Headers and summaries come on top: a little less than the smallest device may do.
        Err(GeometryError::TooSmall { needed_bytes, .. }) => {
            Geometry::for_device(needed_bytes, BLOCK_BYTES, Some(1), 1)
                .map_err(|error| error.to_string())?
        }
        Err(error) => return Err(error.to_string()),
    };
    let places = data_places(&shape);
    let segments = u32::try_from(blocks / places).map_err(|error| error.to_string())?;
    if segments < MIN_SEGMENTS {
        return Err(format!(
            "a cache has at least {MIN_SEGMENTS} segments of {places} blocks, {} blocks together",
            u64::from(MIN_SEGMENTS) * places
        ));
    }
    Ok(Geometry {
        segments_per_shard: segments,
        ..shape
    })
}

/// Places for data in a segment, beside its summaries and one header.
fn data_places(shape: &Geometry) -> u64 {
    u64::from(shape.slots_per_segment() - shape.first_slot() - 1)
}

/// The settings that are measured unless others are asked for: dirty data is written back ahead
/// of reclaim, the rest is as it comes.
#[must_use]
pub fn settings() -> Settings {
    Settings {
        writeback_policy: WritebackPolicy::Cleaner,
        ..Settings::default()
    }
}

/// Drives the engine, and the ideal, with a trace.
///
/// # Errors
/// Where such a cache cannot be made.
pub fn measure(trace: &Trace, blocks: u64, settings: &Settings) -> Result<Point, String> {
    let shape = shape(blocks)?;
    let ideal = ideal_misses(trace, blocks, &[PolicyKind::S3Fifo], 1)[0];
    drive(trace, shape, blocks, settings, ideal)
}

/// Drives the engine with a trace; what the ideal would have done is known.
pub(crate) fn drive(
    trace: &Trace,
    shape: Geometry,
    blocks: u64,
    settings: &Settings,
    ideal_misses: u64,
) -> Result<Point, String> {
    let mut cache = Timeless::new(shape, settings.clone(), trace.footprint().max(1))?;
    let (mut misses, mut inserted) = (0, 0);
    let (mut used, mut looked, mut seen) = (0.0, 0u64, 0u64);
    for (block, write) in trace.accesses() {
        let hit = cache.access(u64::from(block), write);
        misses += u64::from(!hit);
        inserted += u64::from(!hit || write);
        seen += 1;
        if seen > trace.len() / 2 && seen % 1024 == 0 {
            let (cached, capacity) = cache.occupancy();
            used += cached as f64 / capacity as f64;
            looked += 1;
        }
    }
    let stats = cache.stats();
    let point = Point {
        size_blocks: blocks,
        accesses: trace.len(),
        misses,
        inserted,
        retained: stats.retained_blocks,
        renewed: stats.renewed_segments,
        used: used / looked.max(1) as f64,
        written_bytes: cache.cache_written_bytes(),
        metadata_bytes: stats.cache_metadata_written_bytes,
        ideal_misses,
    };
    Ok(point)
}

/// The misses of each of these ideal policies, with as many blocks.
pub(crate) fn ideal_misses(
    trace: &Trace,
    size_blocks: u64,
    policies: &[PolicyKind],
    threads: usize,
) -> Vec<u64> {
    let jobs = policies.iter().map(|&policy| Job {
        policy,
        size_blocks,
    });
    let jobs: Vec<Job> = jobs.collect();
    let found = simulate(trace.blocks(), &jobs, threads, 0, &|_| true);
    let found = found.expect("nobody stops it");
    found.iter().map(|outcome| outcome.misses).collect()
}
