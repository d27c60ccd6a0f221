//! Timing models of a hard disk, a solid-state drive, and an array of either.
//!
//! Pure state machines in virtual nanoseconds: they read no clock and move no data. The daemon
//! puts one in front of a real device to give it the speed of a slower one; the simulator runs
//! whole experiments on them in virtual time, repeatable to the digit.
//!
//! The presets are calibrated against published measurements of real drives; the crate's tests
//! hold them to it.
#![forbid(unsafe_code)]

mod array;
mod completions;
mod disk;
mod options;
mod ssd;

pub use array::{Array, ArrayCounters, Level};
pub use disk::{Disk, DiskParameters};
pub use options::{ModelOptions, OptionError};
pub use ssd::{Fill, Ssd, SsdParameters};

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Transfers from the device.
    Read,
    /// Transfers to the device.
    Write,
    /// Empties the device's volatile write cache. Has no range.
    Flush,
    /// Tells the device that a range is unused.
    Discard,
}

/// A command as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The kind.
    pub kind: Kind,
    /// Where it starts, in bytes.
    pub offset_bytes: u64,
    /// Its length, in bytes.
    pub len_bytes: u64,
    /// Force unit access: a write that completes only when it is durable.
    pub fua: bool,
}

impl Command {
    /// A read of a range in bytes.
    #[must_use]
    pub fn read(offset_bytes: u64, len_bytes: u64) -> Command {
        Command {
            kind: Kind::Read,
            offset_bytes,
            len_bytes,
            fua: false,
        }
    }

    /// A write of a range in bytes.
    #[must_use]
    pub fn write(offset_bytes: u64, len_bytes: u64) -> Command {
        Command {
            kind: Kind::Write,
            offset_bytes,
            len_bytes,
            fua: false,
        }
    }

    /// A discard of a range in bytes.
    #[must_use]
    pub fn discard(offset_bytes: u64, len_bytes: u64) -> Command {
        Command {
            kind: Kind::Discard,
            offset_bytes,
            len_bytes,
            fua: false,
        }
    }

    /// A flush.
    #[must_use]
    pub fn flush() -> Command {
        Command {
            kind: Kind::Flush,
            offset_bytes: 0,
            len_bytes: 0,
            fua: false,
        }
    }
}

/// A device that exists in time only.
///
/// The caller moves time forward: `now_ns` never decreases from one call to the next (an earlier
/// one is taken for the latest seen). Every command submitted comes out of [`pop_done`] exactly
/// once, in order of completion time.
///
/// [`pop_done`]: DeviceModel::pop_done
pub trait DeviceModel: Send {
    /// Hands over a command under a name of the caller's choosing.
    fn submit(&mut self, now_ns: u64, id: u64, command: Command);
    /// When something next happens inside the device, or `None` when it is at rest. Not every
    /// event completes a command: call [`DeviceModel::advance`] and look again.
    fn next_event_ns(&self) -> Option<u64>;
    /// Lets everything happen that happens up to `now_ns`.
    fn advance(&mut self, now_ns: u64);
    /// The next command that completed by `now_ns`, with the time at which it did.
    fn pop_done(&mut self, now_ns: u64) -> Option<(u64, u64)>;
}

const NS_PER_SECOND: f64 = 1e9;

/// The time that `len_bytes` take at a rate, in nanoseconds.
fn transfer_ns(len_bytes: u64, bytes_per_second: f64) -> u64 {
    (len_bytes as f64 * NS_PER_SECOND / bytes_per_second) as u64
}
