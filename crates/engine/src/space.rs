//! Space: how segments come back, and how a shard grows and shrinks.

pub(crate) mod reclaim;
mod renew;
pub(crate) mod shrink;
