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
    /// Failures that its client is to hear of.
    pub(crate) unheard: Option<Unheard>,
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
    /// Failures that this answer tells of.
    pub unheard: Option<Unheard>,
}

/// Failures of a volume's flushes that an answer tells of (I10). When it has gone out, the driver says
/// [`crate::Host::heard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unheard {
    pub(crate) volume: VolumeSlot,
    /// The last of them.
    pub(crate) last: u64,
}

impl<T> Joined<T> {
    /// The answer to a request that was refused before it came to any shard.
    #[must_use]
    pub fn refused(payload: T, failure: Failure) -> Joined<T> {
        Joined {
            payload,
            result: Err(failure),
            bypassed: false,
            unheard: None,
        }
    }
}
