//! The built daemon, with two shards on two threads, over devices that fail on purpose: every
//! block that was acknowledged is checked, in every commit mode.
//!
//! `FAULTS_ROUNDS=100` runs each scenario that often, with other seeds. Where FUSE cannot be used
//! nothing is tested, and a line says so.

#[path = "../support/mod.rs"]
mod support;

mod ledger;
mod world;

mod failed_cache;
mod flushes;
mod lost;
mod medium;
mod origin_errors;
mod reasons;
mod second_signal;
