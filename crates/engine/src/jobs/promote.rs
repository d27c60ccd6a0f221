//! The state of a promotion of several blocks.

use crate::format::BlockKey;
use crate::interface::{Buf, VolumeSlot};
use crate::store::op::Reader;

/// A promotion in progress. It owns its blocks until they are indexed or a write takes them.
#[derive(Debug)]
pub(crate) struct PromoteJob {
    pub(crate) volume: VolumeSlot,
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    pub(crate) buf: Buf,
    pub(crate) reader: Option<Reader>,
    pub(crate) outstanding: u16,
}

impl PromoteJob {
    /// Notes that this many blocks are being appended.
    pub(crate) fn awaits(&mut self, blocks: u16) {
        self.outstanding = blocks;
    }
}
