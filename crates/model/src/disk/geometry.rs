//! Where addresses lie on the platters, and how long the arm takes to get there.

use super::DiskParameters;

/// A place on the platters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    /// Tracks from the outer edge.
    track: u64,
    /// Turn of the platters from their mark that brings it under the head, in nanoseconds.
    angle_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    start: u64,
    first_track: u64,
    track_bytes: u64,
    bytes_per_ns: f64,
    ns_per_byte: f64,
}

#[derive(Debug)]
pub(super) struct Geometry {
    zones: Vec<Zone>,
    zone_bytes: u64,
    rotation_ns: u64,
    seek_min_ns: f64,
    /// Seek time grows with the square root of the distance; this is its factor for one track.
    seek_ns_per_root_track: f64,
}

/// A wait this close to a whole turn is rounding, not a missed sector.
const ROUNDING_NS: u64 = 2_000;

impl Geometry {
    pub(super) fn new(parameters: &DiskParameters) -> Geometry {
        assert!(
            parameters.size_bytes > 0 && parameters.rotation_ns > 0,
            "a disk has a size"
        );
        assert!(
            parameters.inner_bytes_per_second > 0.0,
            "a rate is positive"
        );
        assert!(
            parameters.outer_bytes_per_second > 0.0,
            "a rate is positive"
        );
        let count = parameters.zones.max(1) as u64;
        let zone_bytes = parameters.size_bytes.div_ceil(count);
        let mut zones = Vec::with_capacity(count as usize);
        let mut first_track = 0;
        for index in 0..count {
            // Each zone holds as much as any other, so rates follow the square root of the
            // address: the area of a ring is what holds data, its radius is what sets the rate.
            let fraction = (index as f64 + 0.5) / count as f64;
            let outer = parameters.outer_bytes_per_second.powi(2);
            let inner = parameters.inner_bytes_per_second.powi(2);
            let rate = if index == 0 {
                parameters.outer_bytes_per_second
            } else {
                (outer - fraction * (outer - inner)).sqrt()
            };
            let track_bytes = ((rate * parameters.rotation_ns as f64 / 1e9) as u64).max(1);
            zones.push(Zone {
                start: index * zone_bytes,
                first_track,
                track_bytes,
                bytes_per_ns: rate / 1e9,
                ns_per_byte: 1e9 / rate,
            });
            first_track += zone_bytes.div_ceil(track_bytes);
        }
        let span_ns = parameters
            .seek_max_ns
            .saturating_sub(parameters.seek_min_ns) as f64;
        Geometry {
            zones,
            zone_bytes,
            rotation_ns: parameters.rotation_ns,
            seek_min_ns: parameters.seek_min_ns as f64,
            seek_ns_per_root_track: span_ns / (first_track as f64).sqrt(),
        }
    }

    fn zone(&self, offset: u64) -> &Zone {
        let last = self.zones.len() - 1;
        &self.zones[((offset / self.zone_bytes) as usize).min(last)]
    }

    pub(super) fn spot(&self, offset: u64) -> Spot {
        let zone = self.zone(offset);
        let inside = offset - zone.start;
        let in_track = inside % zone.track_bytes;
        Spot {
            track: zone.first_track + inside / zone.track_bytes,
            angle_ns: in_track * self.rotation_ns / zone.track_bytes,
        }
    }

    /// Seek and rotation from one place to another, starting at `now_ns`.
    pub(super) fn access_ns(&self, now_ns: u64, from: Spot, to: Spot) -> u64 {
        let tracks = from.track.abs_diff(to.track);
        // Tracks follow each other skewed by a switch of heads, so the next one costs no seek.
        let seek_ns = if tracks <= 1 {
            0
        } else {
            (self.seek_min_ns + self.seek_ns_per_root_track * (tracks as f64).sqrt()) as u64
        };
        let under_head_ns = (now_ns + seek_ns) % self.rotation_ns;
        let wait_ns = if to.angle_ns >= under_head_ns {
            to.angle_ns - under_head_ns
        } else {
            to.angle_ns + self.rotation_ns - under_head_ns
        };
        if self.rotation_ns - wait_ns <= ROUNDING_NS {
            seek_ns
        } else {
            seek_ns + wait_ns
        }
    }

    pub(super) fn transfer_ns(&self, offset: u64, len_bytes: u64) -> u64 {
        (len_bytes as f64 * self.zone(offset).ns_per_byte) as u64
    }

    pub(super) fn bytes_in(&self, offset: u64, time_ns: u64) -> u64 {
        (time_ns as f64 * self.zone(offset).bytes_per_ns) as u64
    }
}
