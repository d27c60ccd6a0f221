//! State of the scrub: the reading of all that is stored, to compare it with its checksums
//! (`paths::scrub`).

use std::collections::VecDeque;

use crate::format::{SegmentId, Slot};
use crate::interface::{Buf, Nanos, RequestId};

/// The request in whose name a block is read again. No part of the memory buffer has this number.
pub(crate) const REQUEST: RequestId = RequestId(u64::MAX);
/// Slots read at a time.
pub(crate) const SPAN: u16 = 32;
/// The shortest time between two spans, however short the period.
pub(crate) const SHORTEST: Nanos = Nanos::MILLISECOND;
/// The most slots looked at for one that is worth reading, before others have their turn.
pub(crate) const MOST_LOOKED_AT: u32 = 16_384;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// The segment and the slot in it that is looked at next.
    pub(crate) segment: SegmentId,
    pub(crate) in_segment: u16,
    /// Of blocks on two devices the copy that is read, 0 or 1: passes take turns.
    pub(crate) copy: u8,
    /// When the next is read; none while something is, or if nothing is to be.
    pub(crate) due: Option<Nanos>,
    /// Slots whose contents were not what they should be, or that could not be read. Each is read
    /// again as a client's read of it would be.
    pub(crate) suspects: VecDeque<Slot>,
    /// A read of a span is in flight.
    pub(crate) is_reading: bool,
    pub(crate) again: Again,
}

/// The reading again of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Again {
    #[default]
    None,
    Reading(Buf, Slot),
    /// The buffer is to be given back.
    Ended(Buf),
}
