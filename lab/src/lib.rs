//! Forebay beside the kernel's caches, on the same devices, in the same guest, with the same
//! workloads. `lab/README.md` says what it does and how.
#![forbid(unsafe_code)]

pub mod clock;
pub mod command;
pub mod cost;
pub mod count;
pub mod cpio;
pub mod device;
pub mod event;
pub mod experiments;
pub mod fio;
pub mod guest;
pub mod kvm;
pub mod lab;
pub mod leftovers;
pub mod name;
pub mod page;
pub mod prepare;
pub mod realtime;
pub mod report;
pub mod result;
pub mod run;
#[cfg(test)]
mod scratch;
pub mod snapshot;
pub mod statistics;
pub mod synced;
pub mod systems;
