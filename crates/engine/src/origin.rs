//! Origins: volumes, what of them is written and not flushed, and how dirty data gets there.

mod pace;
pub(crate) mod throttle;
pub(crate) mod volume;
pub(crate) mod writeback;
mod writeback_reads;
