//! Knowledge of each volume from following it: the miss-ratio curve, and heat.

use anyhow::Result;
use serde::Serialize;

use crate::daemon::observe::heat::HeatRow;
use crate::daemon::state::Daemon;

/// Multiples of the cache for which it is said what they would give.
const FACTORS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];
/// Points of the curve, at most.
const POINTS: usize = 48;

/// A size of an LRU cache for this volume, and what it would do.
#[derive(Debug, Serialize)]
struct Point {
    size_bytes: u64,
    hit_ratio: f64,
    read_hit_ratio: f64,
    write_hit_ratio: f64,
}

/// A multiple of what the volume has of the cache.
#[derive(Debug, Serialize)]
struct Multiple {
    factor: f64,
    #[serde(flatten)]
    point: Point,
}

/// A volume, as shown.
#[derive(Debug, Serialize)]
pub(in crate::daemon) struct VolumeView {
    name: String,
    size_bytes: u64,
    /// Distinct data that was read or written, by the sample.
    footprint_bytes: u64,
    /// The volume's part of the cache: all of it if it is the only volume, else what it holds now.
    share_bytes: u64,
    curve: Vec<Point>,
    multiples: Vec<Multiple>,
    heat: Vec<HeatRow>,
}

impl Daemon {
    /// All volumes that are followed.
    pub(in crate::daemon) fn volume_views(&self) -> Result<Vec<VolumeView>> {
        let status = self.status()?;
        let capacity_bytes = status.cache.map_or(0, |cache| cache.capacity_bytes);
        let alone = status.volumes.len() == 1;
        let views = status.volumes.into_iter().filter_map(|volume| {
            let share_bytes = if alone {
                capacity_bytes
            } else {
                volume.cached_bytes
            };
            let slot = self.volume(&volume.name)?.slot;
            self.followed(slot, |followed| {
                let block_bytes = followed.block_bytes;
                let point = |point: forebay_trace::Point| Point {
                    size_bytes: point.size_blocks * block_bytes,
                    hit_ratio: point.hit_ratio,
                    read_hit_ratio: point.read_hit_ratio,
                    write_hit_ratio: point.write_hit_ratio,
                };
                let multiple = |factor: f64| {
                    let blocks = (share_bytes as f64 * factor) as u64 / block_bytes;
                    let point = point(followed.adviser.point(blocks.max(1)));
                    Multiple { factor, point }
                };
                let seen = followed.adviser.accesses() != (0, 0);
                let some = |points: usize| if seen { points } else { 0 };
                let factors = if share_bytes > 0 {
                    FACTORS.as_slice()
                } else {
                    &[]
                };
                VolumeView {
                    name: volume.name,
                    size_bytes: volume.size_bytes,
                    footprint_bytes: followed.adviser.footprint_blocks() * block_bytes,
                    share_bytes,
                    curve: followed
                        .adviser
                        .curve(some(POINTS))
                        .into_iter()
                        .map(point)
                        .collect(),
                    multiples: factors[..some(factors.len())]
                        .iter()
                        .map(|factor| multiple(*factor))
                        .collect(),
                    heat: followed.heat.rows(self.clock.now()),
                }
            })
        });
        Ok(views.collect())
    }
}
