//! A write of whole blocks into the log: what is known of it.

use crate::format::BlockKey;
use crate::interface::{Failure, Nanos};

/// A write of whole blocks on its way into the log.
#[derive(Debug)]
pub(crate) struct QuickWrite {
    pub(crate) name: u32,
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    pub(crate) outstanding: u16,
    pub(crate) failure: Option<Failure>,
    /// Not when it was submitted: a write that was held until there was less dirty data says
    /// nothing of the cache device.
    pub(crate) started: Nanos,
}

impl QuickWrite {
    /// Whether all its blocks were logged, or cannot be.
    pub(crate) fn is_logged(&self) -> bool {
        self.outstanding == 0
    }
}
