//! The two tables in a copy of the superblock: of devices and extents, and of what a cache says that
//! keeps two copies of dirty data.

use std::collections::BTreeMap;

use super::COPY_BYTES;
use super::{CacheDevice, Superblock};
use crate::format::Sequence;
use crate::format::codec::{Reader, Writer};
use crate::format::extents::{Extent, Extents, MAX_DEVICES, MAX_EXTENTS};
use crate::format::geometry::Geometry;

/// Where the table of devices and extents starts in a copy.
pub(super) const TABLE_OFFSET: usize = 40 << 10;
const TABLE_FIXED_BYTES: usize = 1 + 1 + 2 + 4 + 4;
const DEVICE_BYTES: usize = 1 + 3 + 4 + 8;
/// Where the table of a cache that keeps two copies of dirty data starts in a copy.
pub(super) const COPIES_OFFSET: usize = 48 << 10;
const COPIES_FIXED_BYTES: usize = 1 + 1 + 2 + 4;
const MAX_SHARDS: usize = 256;
const _: () = assert!(
    TABLE_OFFSET + TABLE_FIXED_BYTES + MAX_DEVICES * DEVICE_BYTES + MAX_EXTENTS * Extent::BYTES
        <= COPIES_OFFSET
);
const SINCE_BYTES: usize = 4 + 4;
const _: () = assert!(
    COPIES_OFFSET + COPIES_FIXED_BYTES + MAX_SHARDS * Sequence::BYTES + MAX_EXTENTS * SINCE_BYTES
        <= COPY_BYTES
);

impl Superblock {
    pub(super) fn encode_table(&self, on: &CacheDevice, table: &mut [u8]) {
        let mut out = Writer::new(table);
        out.u8(on.number);
        out.u8(self.devices.len() as u8);
        out.u16(self.extents.iter().count() as u16);
        out.u32(on.serial);
        out.u32(self.next_serial);
        for device in &self.devices {
            out.u8(device.number);
            out.u8(u8::from(device.out));
            out.u8(u8::from(device.dispensable));
            out.u8(0);
            out.u32(device.serial);
            out.u64(device.size_bytes);
        }
        for extent in self.extents.iter() {
            extent.encode(&mut out);
        }
    }

    pub(super) fn encode_copies(&self, table: &mut [u8]) {
        let mut out = Writer::new(table);
        let since = self.extents.iter().filter(|extent| extent.since_epoch > 0);
        let since: BTreeMap<u32, u32> = since
            .map(|extent| (extent.serial, extent.since_epoch))
            .collect();
        out.u8(self.copies);
        out.u8(since.len() as u8);
        out.u16(self.clean_from.len() as u16);
        out.u32(self.membership);
        for from in &self.clean_from {
            from.encode(&mut out);
        }
        for (serial, epoch) in since {
            out.u32(serial);
            out.u32(epoch);
        }
    }
}

/// The table of a cache that keeps two copies of dirty data, or did.
pub(super) struct CopiesTable {
    pub(super) copies: u8,
    pub(super) membership: u32,
    pub(super) clean_from: Vec<Sequence>,
    /// Serials of extents, and the epochs from which on something is in them.
    pub(super) since: Vec<(u32, u32)>,
}

impl CopiesTable {
    pub(super) fn of_one_copy() -> CopiesTable {
        CopiesTable {
            copies: 1,
            membership: 0,
            clean_from: Vec::new(),
            since: Vec::new(),
        }
    }

    /// `None` if it makes no sense.
    pub(super) fn decode(table: &[u8]) -> Option<CopiesTable> {
        let mut input = Reader::new(table);
        let copies = input.u8();
        let extents = usize::from(input.u8());
        let count = usize::from(input.u16());
        let membership = input.u32();
        if count > MAX_SHARDS || extents > MAX_EXTENTS {
            return None;
        }
        let clean_from = (0..count).map(|_| Sequence::decode(&mut input)).collect();
        let since = (0..extents).map(|_| (input.u32(), input.u32())).collect();
        Some(CopiesTable {
            copies,
            membership,
            clean_from,
            since,
        })
    }
}

/// The table of devices and extents of a copy.
pub(super) struct Table {
    /// The device that the copy is on.
    pub(super) on: CacheDevice,
    pub(super) next_serial: u32,
    pub(super) devices: Vec<CacheDevice>,
    pub(super) extents: Vec<Extent>,
}

impl Table {
    pub(super) fn of_version_1(geometry: &Geometry, size_bytes: u64) -> Table {
        let on = CacheDevice {
            number: 0,
            serial: 0,
            size_bytes,
            out: false,
            dispensable: false,
            whole_half: 0,
        };
        Table {
            on,
            next_serial: 1,
            devices: vec![on],
            extents: Extents::of_version_1(geometry).iter().copied().collect(),
        }
    }

    /// `None` if it makes no sense.
    pub(super) fn decode(table: &[u8]) -> Option<Table> {
        let mut input = Reader::new(table);
        let number = input.u8();
        let device_count = input.u8();
        let extent_count = input.u16();
        let serial = input.u32();
        let next_serial = input.u32();
        if usize::from(device_count) > MAX_DEVICES || usize::from(extent_count) > MAX_EXTENTS {
            return None;
        }
        let mut devices = Vec::new();
        for _ in 0..device_count {
            let number = input.u8();
            let is_out = input.u8() != 0;
            let dispensable = input.u8() == 1;
            input.u8();
            devices.push(CacheDevice {
                number,
                serial: input.u32(),
                size_bytes: input.u64(),
                out: is_out,
                dispensable,
                whole_half: 0,
            });
        }
        let extents: Vec<Extent> = (0..extent_count)
            .map(|_| Extent::decode(&mut input))
            .collect();
        let known = |number: u8| devices.iter().any(|device| device.number == number);
        if input.overran() || !extents.iter().all(|extent| known(extent.device)) {
            return None;
        }
        let on = *devices
            .iter()
            .find(|on| (on.number, on.serial) == (number, serial))?;
        Some(Table {
            on,
            next_serial,
            devices,
            extents,
        })
    }
}
