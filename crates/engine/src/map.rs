//! The map of a shard: which slot holds a block, who may change that, and what of it cannot be read.

pub(crate) mod ghost;
pub(crate) mod index;
pub(crate) mod locks;
pub(crate) mod origin_locks;
mod owners;
pub(crate) mod unreadable;
