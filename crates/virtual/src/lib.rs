//! Forebay's engine over models of its devices, in virtual time.
//!
//! The engine that ships is driven as the daemon's loop drives it, with processor time charged. A
//! run gives its figures again to the digit. No payload is kept: every block is zeroes.
//!
//! | module | subject |
//! |---|---|
//! | [`System`] | what serves requests in virtual time: [`Cached`], or a [`Bare`] device |
//! | [`Timeless`] | the engine over devices that take no time: only its decisions |
//! | [`CpuCost`] | what processor time is charged |
//! | [`Blank`], [`ZeroMemory`] | a cache device and buffers without payload |
#![forbid(unsafe_code)]

mod blank;
mod cached;
mod cpu;
mod memory;
mod shard;
mod system;
mod timeless;

pub use blank::Blank;
pub use cached::{Cached, Setup, Traffic};
pub use cpu::CpuCost;
pub use memory::ZeroMemory;
pub use system::{Access, Answer, Bare, System};
pub use timeless::Timeless;
