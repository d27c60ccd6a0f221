//! Space: where segments are, and what is added to it and taken from it.

use super::{CacheDevice, Superblock, SuperblockError};
use crate::format::Places;
use crate::format::extents::{Extent, MAX_DEVICES, MAX_EXTENTS, SegmentMap};
use crate::format::geometry::Geometry;

impl Superblock {
    /// Where a shard's segments are.
    pub(crate) fn segment_map(&self, shard: u16) -> SegmentMap {
        let mut map = SegmentMap::new(self.id, shard, &self.geometry, &self.extents);
        if self.membership > 0 {
            map.keep_places(Places::own(self.geometry.segments_per_shard));
        }
        map
    }

    /// The number of segments that a shard would gain from a stretch of a device.
    #[must_use]
    pub fn segments_in(&self, bytes: u64) -> u32 {
        u32::try_from(bytes / self.geometry.row_bytes()).unwrap_or(u32::MAX)
    }

    /// Adds the space that a device has behind its last extent, up to `end_bytes`; it is used when
    /// this superblock is written. Returns the number of segments that each shard gains.
    ///
    /// # Errors
    /// If that is none, or more than a cache can have.
    pub fn grow(&mut self, device: u8, end_bytes: u64) -> Result<u32, SuperblockError> {
        let start_bytes = self.extents.end_bytes(device, &self.geometry);
        let segments = self.segments_in(end_bytes.saturating_sub(start_bytes));
        if segments == 0 {
            return Err(SuperblockError::Full(
                "there is no room for another segment of each shard on the device",
            ));
        }
        let mut extents = self.extents.clone();
        extents.add(
            Extent {
                serial: self.next_serial,
                device,
                alternates: true,
                start_bytes,
                first_segment: 0,
                segments,
                since_epoch: if self.membership > 0 { self.epoch } else { 0 },
            },
            &self.geometry,
        );
        if extents.iter().count() > MAX_EXTENTS {
            return Err(SuperblockError::Full(
                "the cache has been resized too often for another piece: remove a device and add it again",
            ));
        }
        let geometry = Geometry {
            segments_per_shard: extents.end_segment(),
            ..self.geometry
        };
        geometry.validate()?;
        self.next_serial += 1;
        (self.geometry, self.extents) = (geometry, extents);
        if let Some(record) = self.devices.iter_mut().find(|on| on.number == device) {
            record.size_bytes = record.size_bytes.max(end_bytes);
        }
        Ok(segments)
    }

    /// Adds a device, which holds nothing yet (see [`Superblock::grow`]), and says its number.
    ///
    /// # Errors
    /// If the cache has as many as it can.
    pub fn add_device(&mut self, size_bytes: u64) -> Result<u8, SuperblockError> {
        let taken = |number: &u8| self.devices.iter().any(|on| on.number == *number);
        let Some(number) = (0..MAX_DEVICES as u8).find(|number| !taken(number)) else {
            return Err(SuperblockError::Full(
                "the cache has 16 devices already: remove one first",
            ));
        };
        self.devices.push(CacheDevice {
            number,
            serial: self.next_serial,
            size_bytes,
            out: false,
            // All free segments can be on it, so that one for dirty data may be opened there alone.
            dispensable: false,
            whole_half: 0,
        });
        self.devices.sort_by_key(|on| on.number);
        self.next_serial += 1;
        Ok(number)
    }

    /// Takes segments away that every shard has emptied, and devices that hold none then.
    pub fn shrink(&mut self, gone: &[std::ops::Range<u32>]) {
        self.extents = self.extents.without(gone, &self.geometry);
        self.geometry.segments_per_shard = self.extents.end_segment();
        let extents = &self.extents;
        self.devices
            .retain(|on| extents.iter().any(|extent| extent.device == on.number));
    }
}
