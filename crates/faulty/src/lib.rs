//! Devices that fail on purpose, for tests of the built daemon: a directory whose files are
//! served by the test's own process (FUSE).
//!
//! A [`FaultyDevice`] has a volatile write cache, as a disk has: a write is durable after a flush
//! that began after it was done, and a flush that fails drops all that is volatile at its end.
//! The test fails reads, writes and flushes, delays them, takes the whole device away for a while
//! and cuts its power.
//!
//! The kernel lets no write of a file overlap with its flush (one lock holds both), so over a
//! mount a flush always begins after the writes before it are complete.
//!
//! ```no_run
//! use forebay_faulty::{Fault, Operation};
//! # fn main() -> std::io::Result<()> {
//! let devices = forebay_faulty::mount("/tmp/devices".as_ref(), &[("disk", 64 << 20)])?;
//! devices.device("disk").fail(Fault::of(Operation::Flush).times(1));
//! let disk = std::fs::File::options().write(true).open("/tmp/devices/disk")?;
//! assert!(disk.sync_data().is_err());
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod device;
mod directory;
mod fault;
mod medium;

pub use device::{FaultId, FaultyDevice, Snapshot};
pub use directory::{FaultyDevices, mount};
pub use fault::{Error, Fault, Operation};
