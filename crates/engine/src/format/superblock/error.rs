//! Why a device cannot be used as a cache, in words.

use super::COPIES;
use crate::format::COPIES_VERSION;
use crate::format::geometry::GeometryError;
use crate::storage::DeviceError;

/// The message about a device that was left behind.
pub(crate) const OLD_COPY: &str = "it is an old copy of one of the cache's devices: the cache was attached since, with what was in its place then. Give that device, or a copy of all of them from one moment; nothing was changed";
/// The message about two devices that are a split.
pub(crate) const SPLIT: &str = "both went on, each without the other: what was written to one of them is not on the other. Decide which of them counts, start with that one alone, and take the other as an empty one (`forebay cache replace OTHER OTHER --force`)";
/// The message about a device that the cache went on without.
pub(crate) const OUT: &str = "it is out of the cache: it failed or was missing, and the cache went on without it. Leave it out, or erase it and add it as a new device (`forebay cache add`)";

/// Why a device cannot be used as a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// No copy can be read as ours and the place is not blank.
    #[error("no Forebay cache here: none of the {COPIES} superblock copies is valid{detail}")]
    NotACache {
        /// A hint at what was found instead.
        detail: &'static str,
    },
    /// All copies are zero.
    #[error("the device is blank: it holds no cache")]
    Blank,
    /// A newer program wrote it.
    #[error(
        "the cache has format version {found}, this program knows version {COPIES_VERSION}: use a newer forebay"
    )]
    Newer {
        /// Its version.
        found: u16,
    },
    /// The cache has several devices, and not all were given.
    #[error(
        "the cache has {count} devices, and number {number} is not among those given: give all of them"
    )]
    Incomplete {
        /// The number of a device that is missing.
        number: u8,
        /// The number of devices.
        count: usize,
    },
    /// The cache has several devices, and this device holds the contents that it had before the
    /// last attach.
    #[error("{} (device number {number})", OLD_COPY)]
    Stale {
        /// Its number.
        number: u8,
    },
    /// The cache goes on without this device.
    #[error("{} (device number {number})", OUT)]
    Out {
        /// Its number.
        number: u8,
    },
    /// Two devices went on, each without the other.
    #[error("devices number {one} and {other}: {}", SPLIT)]
    Split {
        /// The number of the first.
        one: u8,
        /// The number of the second.
        other: u8,
    },
    /// The device shrank.
    #[error(
        "the device has {found_bytes} bytes, the cache on it was made for {recorded_bytes}: it was cut short, or is not the same device. A file gets its size back with `truncate -s {recorded_bytes} FILE`; nothing is lost by that, and what was cut off, if anything was there, is then named as damage"
    )]
    Truncated {
        /// Its size now.
        found_bytes: u64,
        /// Its size when it was added or last resized.
        recorded_bytes: u64,
    },
    /// Its checksum is right, and it says what no superblock can say.
    #[error(
        "the superblock is malformed: {0}. No forebay wrote that: restore the cache device from a copy, or create the cache anew (what was only in it is lost then)"
    )]
    Malformed(&'static str),
    /// The shape in it cannot be.
    #[error("the superblock describes an impossible cache: {0}")]
    Geometry(#[from] GeometryError),
    /// The device failed.
    #[error("cannot read or write the superblock: {0}")]
    Device(#[from] DeviceError),
    /// No room for another volume.
    #[error("{0}")]
    Full(&'static str),
}
