//! A client's request, cut into one piece for each stretch of a shard, and answered when all of
//! those are.

use forebay_engine::{Failure, VolumeSlot};

/// A request and the pieces it waits for.
#[derive(Debug)]
pub(crate) struct Join<T> {
    pub(crate) payload: T,
    pub(crate) volume: VolumeSlot,
    pub(crate) outstanding: u32,
    pub(crate) failure: Option<Failure>,
    /// A flush still follows (a trim with FUA).
    pub(crate) flush_after: bool,
    /// A piece is on the origin alone, or was read from it.
    pub(crate) bypassed: bool,
    /// The origin's mark when it came. A flush of the origin that fails meanwhile may have lost
    /// what is done already, and whoever hears of that flush does not know of this write yet (I10).
    pub(crate) origin_mark: u64,
    pub(crate) is_flush: bool,
    /// It is a flush that a client asked for, and that hears for all.
    pub(crate) hears: bool,
    /// Its answer says that something is kept.
    pub(crate) promises: bool,
    /// Failures of a flush that its client is yet to hear of.
    pub(crate) reports: u32,
}

/// A request that is answered.
#[derive(Debug)]
pub struct Joined<T> {
    /// The payload it was submitted with.
    pub payload: T,
    /// The first failure of its pieces.
    pub result: Result<(), Failure>,
    /// Of a write: some of it bypassed the cache. Of a read: the origin had a part in it.
    pub bypassed: bool,
}
