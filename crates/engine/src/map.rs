//! The map of a shard: the slot of each block, the owners of blocks, and the blocks that cannot be
//! read.

pub(crate) mod ghost;
pub(crate) mod index;
pub(crate) mod locks;
pub(crate) mod origin_locks;
mod owners;
mod ranges;
pub(crate) mod unreadable;
