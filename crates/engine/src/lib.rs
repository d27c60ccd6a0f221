//! The engine of Forebay: every decision of the cache, and no I/O.
#![forbid(unsafe_code)]

mod interface;
pub use interface::*;
