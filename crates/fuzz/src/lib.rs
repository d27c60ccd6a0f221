//! Fuzzing of everything that takes bytes from outside: forged inputs by the million, the same for
//! a seed on every machine.
//!
//! | module | subject |
//! |---|---|
//! | [`campaign`] | the run over a range of seeds: count, speed, what was accepted, what failed |
//! | [`expected_panics`] | panics that are caught, noted and not printed |
//! | [`mutate`] | changes to valid bytes: flipped, cut, spliced, repeated, extreme numbers |
//! | [`time_limit`] | inputs that take too long, or never end |
//!
//! Surfaces are test programs, `tests/` here and `src/fuzz/` of the binary; `make fuzz` runs them.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod expected_panics;
pub mod mutate;
pub mod time_limit;

pub use campaign::{Outcome, Surface, run};
/// The allocator that each harness declares as its global one.
pub use forebay_io::Counting;
pub use forebay_random::SplitMix64;
