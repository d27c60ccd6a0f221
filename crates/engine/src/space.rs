//! Space: how segments come back, and how a shard grows and shrinks.

mod choice;
mod demand;
mod kept;
pub(crate) mod lost_device;
mod partners;
pub(crate) mod reclaim;
mod renew;
pub(crate) mod shrink;
#[cfg(test)]
mod tests;

use crate::format::{BlockKey, Sequence};
use crate::ids::RetainId;
use crate::interface::Memory;
use crate::slab::Slab;
use crate::space::demand::Demand;
use crate::space::kept::KeptCopies;
use crate::space::partners::Partners;
use crate::space::reclaim::{Reclaim, RetainJob};
use crate::space::shrink::Shrink;
use crate::spare::Spare;

/// Segments on their way out, and those that are to leave the shard.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) shrink: Shrink,
    reclaim: Reclaim,
    demand: Demand,
    kept: KeptCopies,
    partners: Partners,
    /// Segments that are being emptied.
    jobs: Slab<RetainId, Box<RetainJob>>,
    spare: Spare,
    /// Segments of the write stream below this are emptied until all that are left have two copies.
    pub(crate) mirror_below: Option<Sequence>,
}

impl Space {
    /// That of a shard with blocks of this size.
    pub(crate) fn new(block_bytes: usize, memory: &mut dyn Memory) -> Space {
        Space {
            shrink: Shrink::default(),
            reclaim: Reclaim::default(),
            demand: Demand::default(),
            kept: KeptCopies::default(),
            partners: Partners::default(),
            jobs: Slab::default(),
            spare: Spare::new(block_bytes, memory),
            mirror_below: None,
        }
    }

    /// The number of segments being emptied.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// The number of blocks from `first` to before `end` that are being copied.
    pub(crate) fn copied_between(&self, first: BlockKey, end: BlockKey) -> usize {
        let keys = self.jobs.iter().flat_map(|job| job.keys());
        keys.filter(|key| (first..end).contains(key)).count()
    }
}
