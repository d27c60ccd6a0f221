//! Ids of operations in progress, each with a type of its own. An id is the place of its value in a
//! table ([`crate::slab::Slab`]), and is used again when the value has left it.

use crate::interface::OpId;
use crate::slab::SlabId;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub(crate) struct $name(u32);

            impl SlabId for $name {
                fn new(index: u32) -> $name {
                    $name(index)
                }

                fn index(self) -> u32 {
                    self.0
                }
            }
        )*
    };
}

ids! {
    /// A request that a client, or the memory buffer, has made.
    RequestIndex
    /// A write or a promotion of several steps.
    JobId
    /// A record of the log that is being filled or written.
    RecordId
    /// A run of blocks on its way to the origin.
    WritebackId
    /// A segment whose blocks reclaim retains.
    RetainId
    /// Blocks that are read ahead of a client.
    AheadId
    /// A write of the memory buffer on its way to the log, or a part of one.
    PartId
}

impl OpId {
    /// The bit of an operation that is timed.
    pub(crate) const TIMED: u32 = 1 << 31;
}

impl SlabId for OpId {
    fn new(index: u32) -> OpId {
        OpId(index)
    }

    fn index(self) -> u32 {
        self.0 & !OpId::TIMED
    }
}
