//! The engine of Forebay: every decision of the cache, and no I/O.
#![forbid(unsafe_code)]

pub mod format;
mod interface;

pub use format::{BlockKey, CacheId, Geometry, Stream, Superblock};
pub use interface::*;
