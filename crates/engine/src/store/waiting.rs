//! Work that waits in the store for room, for memory, or for its owner to be told.

use std::collections::VecDeque;

use crate::format::SegmentId;
use crate::ids::RecordId;
use crate::store::append::{AppendRun, Appended};
use crate::store::log::Version;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Writes that go out together with their header.
    pub(super) combined: VecDeque<AppendRun>,
    /// Runs that found no room.
    pub(super) runs: VecDeque<AppendRun>,
    /// Records whose header found no memory.
    pub(super) headers: Vec<RecordId>,
    /// Segments whose seal found no memory.
    pub(super) seals: Vec<SegmentId>,
    /// Versions that became clean while there was no room to say so.
    pub(super) cleans: VecDeque<Version>,
    /// Ends of appends that their owners have not been told of.
    pub(super) ended: VecDeque<Appended>,
}

impl Waiting {
    /// Whether nothing waits for room or memory.
    pub(super) fn is_empty(&self) -> bool {
        self.has_found_room() && self.combined.is_empty() && self.cleans.is_empty()
    }

    /// Whether no run, header or seal waits.
    pub(super) fn has_found_room(&self) -> bool {
        self.runs.is_empty() && self.headers.is_empty() && self.seals.is_empty()
    }
}
