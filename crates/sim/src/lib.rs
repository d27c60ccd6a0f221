//! Deterministic simulation of Forebay: the shards of a real engine over simulated devices that
//! fail, lie and lose power, clients whose every sector names itself, and a reference model that
//! knows what each read may return.
//!
//! A 64-bit seed gives a [`Plan`] (configuration, workload, faults, crashes) and the schedule of
//! the devices; [`run`] carries it out. A plan gives an identical run each time, to the last event.
#![forbid(unsafe_code)]

pub mod device;
pub mod disk;
pub mod generate;
pub mod memory;
pub mod model;
mod outcome;
pub mod payload;
pub mod plan;
mod quiet;
pub mod rng;
pub mod script;
mod search;
mod shrink;
mod states;
mod world;

pub use outcome::{Counts, Outcome, Violation};
pub use plan::{Config, Crash, FaultRates, Plan, Step};
pub use script::Script;
pub use search::{Report, search};
pub use shrink::shrink;
pub use world::{Options, run};
