//! Published comparisons of SSD caches, repeated with Forebay in virtual time.
//!
//! The engine that ships is driven over models of the devices the comparisons used, at full size
//! and with processor time charged. A run gives its figures again to the digit. No payload is kept:
//! every block is zeroes.
#![forbid(unsafe_code)]

pub mod after;
pub mod arrays;
pub mod burst;
mod conditions;
pub mod crossvalidate;
pub mod day;
mod devices;
pub mod invisible;
pub mod jobs;
pub mod limit;
mod load;
pub mod mail;
pub mod memory;
pub mod pauses;
pub mod policies;
pub mod published;
mod quantile;
pub mod raid;
mod random;
pub mod reads;
pub mod report;
pub mod through;
pub mod writeback;

pub use conditions::{
    missed_by_after, missed_by_burst, missed_by_day, missed_by_invisible, missed_by_jobs,
    missed_by_limit, missed_by_memory, missed_by_pauses, missed_by_reads, missed_by_through,
};
pub use load::{Limit, Load, Order, Outcome, Side};
