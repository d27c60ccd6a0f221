//! The structures on the cache device, defined once. `docs/FORMAT.md` shows the same tables; a test
//! holds the two together.
//!
//! ```text
//! | superblock copies | extent: segments of all shards | extent … | …
//! segment: | summary slot 0 | summary slot 1 | record | record | …
//! record:  | header (4 KiB) | blocks …
//! ```
//! All numbers are little-endian. Every structure carries a magic, a version, the identity of its
//! cache (checksums are seeded with it), its own address and a CRC32C.

mod cache_id;
pub mod checkpoint;
pub mod codec;
pub mod entry;
pub mod extents;
pub mod geometry;
pub mod header;
mod places;
pub(crate) mod plausible;
pub mod sequence;
pub mod summary;
pub mod superblock;

pub use cache_id::CacheId;
pub use entry::{Entry, EntryList, RunEntry};
pub(crate) use extents::SegmentMap;
pub use extents::{Extent, Extents, Uncuttable};
pub(crate) use geometry::SlotsPerSegment;
pub use geometry::{
    BlockKey, DATA_OFFSET_BYTES, Geometry, GeometryError, MIN_SEGMENTS, SegmentId, Slot,
};
pub use header::{DurablePosition, Header, Link};
pub(crate) use places::Places;
pub use sequence::Sequence;
pub use summary::{Summary, SummaryKind};
pub use superblock::{
    CacheDevice, NAME_BYTES, Superblock, SuperblockError, VolumeRecord, VolumeState,
};

/// The version of summaries, and of the superblock of a cache that is as it was
/// created. A cache of a higher version is refused, not guessed at.
pub const FORMAT_VERSION: u16 = 1;

/// The version of a superblock that lists extents and devices.
pub const EXTENTS_VERSION: u16 = 2;

/// The version of the superblock of a cache that failed: no earlier program may take its
/// contents for the newest there are.
pub const ABANDONED_VERSION: u16 = 3;

/// The version of the superblock of a cache that keeps two copies of dirty data, or did: an
/// earlier program would take the second copies for free space.
pub const COPIES_VERSION: u16 = 4;

/// The unit of every metadata structure and the smallest block, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// The three streams of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Every new write; dirty data lives here alone (I17).
    Write = 0,
    /// First-time promotions.
    Probation = 1,
    /// Blocks that proved themselves.
    Main = 2,
}

impl Stream {
    /// The number of streams.
    pub const COUNT: usize = 3;
    /// All of them, in the order of their numbers.
    pub const ALL: [Stream; Stream::COUNT] = [Stream::Write, Stream::Probation, Stream::Main];

    /// The stream of this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Stream> {
        Stream::ALL.get(usize::from(number)).copied()
    }

    /// This stream's bit in a mask of streams.
    #[must_use]
    pub fn bit(self) -> u8 {
        1 << self as u8
    }
}
