//! Volumes whose origin is an RBD image of a real Ceph cluster, through `qemu-nbd`.
//!
//! `make ceph ROUNDS=100` installs the packages, kills that often, and fences half as often. Where
//! the packages are missing nothing is tested, and a line says so.

#[path = "../support/mod.rs"]
mod support;

mod cluster;

mod fenced;
mod hits;
mod kills;
mod recipe;

/// The number of kills: `CEPH_ROUNDS`, if it is set.
fn rounds() -> u64 {
    std::env::var("CEPH_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap())
}
