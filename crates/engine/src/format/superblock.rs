//! The superblock: the identity of the cache and its volumes, in several copies.

mod encoding;
mod error;
mod fault;
mod membership;
mod reading;
mod space;
mod tables;
mod volumes;
mod writing;

use super::Sequence;
use super::cache_id::CacheId;
use super::extents::Extents;
use super::geometry::{BlockKey, Geometry};

pub use error::SuperblockError;
pub(crate) use error::{OLD_COPY, OUT, SPLIT};

/// Bytes of one copy.
pub const COPY_BYTES: usize = 64 << 10;
/// The number of copies; at most half of them are written between two flushes.
pub const COPIES: u64 = 4;
/// The distance from the start of a copy to that of the next, in bytes.
pub const COPY_STRIDE_BYTES: u64 = 256 << 10;
/// The longest name of a volume, in bytes.
pub const NAME_BYTES: usize = 64;
/// The most volumes a cache can have.
pub const MAX_VOLUMES: usize = 256;

/// A device of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheDevice {
    /// Its number, in addresses.
    pub number: u8,
    /// Never given twice in a cache, as a number can be; 0 for the device it was created on.
    pub serial: u32,
    /// Its size when it was added or last resized, in bytes.
    pub size_bytes: u64,
    /// The cache goes on without it: nothing on it counts, and nothing is written to it (I28).
    pub out: bool,
    /// No dirty data is on it alone, so that a start may do without it (I28).
    pub dispensable: bool,
    /// Which half of its copies of the superblock is known to be whole: 0 the even, 1 the odd
    /// ones. The others are written first. Not on the device.
    pub(crate) whole_half: u64,
}

/// Whether a volume's data may be in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VolumeState {
    /// Served, or to be served again: the cache may hold dirty data of it.
    Attached = 1,
    /// Taken off in order: nothing below the recorded epoch counts any more (I15).
    Detached = 2,
}

/// A volume as the cache knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Never given twice (I16).
    pub id: u32,
    /// The user's name for it, at most [`NAME_BYTES`] bytes.
    pub name: String,
    /// Its first block key; a multiple of the region.
    pub base: BlockKey,
    /// The number of keys set aside for it, so that the origin can grow.
    pub reserved_blocks: u64,
    /// The origin's size at the last attach, in bytes.
    pub size_bytes: u64,
    /// Whether it is attached.
    pub state: VolumeState,
    /// The mode last set, as its number.
    pub mode: u8,
    /// The fingerprint of the origin when it was last let go.
    pub fingerprint: [u8; 32],
    /// When the fingerprint was taken, seconds since 1970, 0 for never: an attach that was not
    /// ended in order leaves none.
    pub fingerprint_at: u64,
    /// Nothing of this volume from epochs below this one counts (I15).
    pub valid_from_epoch: u32,
}

/// The superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the cache.
    pub id: CacheId,
    /// Counts the writes of the superblock; the highest counts.
    pub sequence: u64,
    /// The epoch of the last attach (I1).
    pub epoch: u32,
    /// Everything from epochs below this one was decided by a recovery whose verdict is durable
    /// (I12).
    pub decided_epoch: u32,
    /// True if the volumes went on without the cache: its contents count only as far as a record
    /// outside of it says so (I15).
    pub abandoned: bool,
    /// The devices.
    pub devices: Vec<CacheDevice>,
    /// The id the next volume gets.
    pub next_volume_id: u32,
    /// The key the next volume starts at.
    pub next_base: BlockKey,
    /// The shape.
    pub geometry: Geometry,
    /// Where the segments are.
    pub extents: Extents,
    /// The serial that the next device or extent gets.
    pub next_serial: u32,
    /// Attached and detached volumes; detached ones whose data may still be in the log stay.
    pub volumes: Vec<VolumeRecord>,
    /// The number of devices that hold each dirty block: 1 or 2.
    pub copies: u8,
    /// Counts the changes of which devices are in the cache and of `copies`; 0 for a cache that
    /// never kept two copies.
    pub membership: u32,
    /// By shard: nothing of probation and main counts below this (I28). Empty if no device was lost.
    pub clean_from: Vec<Sequence>,
}

impl Superblock {
    /// The superblock of a new cache.
    #[must_use]
    pub fn new(id: CacheId, geometry: Geometry, device_bytes: u64) -> Superblock {
        Superblock {
            id,
            sequence: 0,
            epoch: 0,
            decided_epoch: 0,
            devices: vec![CacheDevice {
                number: 0,
                serial: 0,
                size_bytes: device_bytes,
                out: false,
                dispensable: false,
                whole_half: 0,
            }],
            next_volume_id: 1,
            next_base: BlockKey(0),
            geometry,
            extents: Extents::of_new(&geometry),
            next_serial: 1,
            abandoned: false,
            volumes: Vec::new(),
            copies: 1,
            membership: 0,
            clean_from: Vec::new(),
        }
    }
}
