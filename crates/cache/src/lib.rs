//! Rules of a cache as a whole, beside those of a shard: requests cut over shards and joined again,
//! flushes of a device one at a time, failing as a whole, and what commands do to volumes
//! and space.
//!
//! Like the engine it does no I/O, has no clock and starts no threads: [`Host`] is one thread's
//! part, and what hosts tell each other is a [`Message`] that the driver delivers. The daemon and
//! the simulator are two drivers of it.
//!
//! | module | subject |
//! |---|---|
//! | `host` | one thread's part, and its calls |
//! | `requests`, `join` | a request cut into pieces, and joined |
//! | `flushes`, `gate` | flushes of devices, one at a time |
//! | `failure`, `abandonment` | the failure of the whole cache, and its record |
//! | `two_copies` | dirty data on two devices, and the loss of one |
//! | `resend` | changes that an origin forgets when it returns, and their way there again |
//! | `shared`, `message` | what hosts see at once, and what they tell each other |
//! | [`control`] | what commands do to volumes and space, step by step |
//! | `instruction` | what commands have hosts do |
//! | `shard`, `plain` | what decides: an engine, or its stand-in without a cache |

#![forbid(unsafe_code)]

mod abandonment;
mod awake;
pub mod control;
mod failure;
mod flushes;
mod frozen;
mod gate;
mod host;
mod instruction;
mod join;
mod loads;
mod message;
mod plain;
mod requests;
mod resend;
mod shard;
mod shared;
mod two_copies;
mod unheard;

pub use abandonment::{Abandonment, Reports};
pub use failure::Report;
pub use flushes::ControlFlush;
pub use host::{Host, Order};
pub use instruction::{Answer, Backlog, Instruction};
pub use join::{Joined, Unheard};
pub use message::Message;
pub use plain::Plain;
pub use requests::ClientRequest;
pub use resend::{Change, Resend};
pub use shard::Shard;
pub use shared::Shared;
pub use two_copies::{Loss, LossReport, LossReports};
