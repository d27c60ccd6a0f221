//! Volumes as block devices, `/dev/ublkbN`.
//!
//! | module | subject |
//! |---|---|
//! | [`export`] | making, taking over and taking away devices: the control plane's part |
//! | [`queue`] | requests of a device's queue on the thread that serves it |
//! | [`in_use`] | whether a device can be taken away |
//! | [`udev_name`] | what udev is told, for its own link to a device |

pub(crate) mod export;
pub(crate) mod in_use;
pub(super) mod queue;
mod udev_name;

use std::sync::Mutex;

/// Each queue takes so many requests at a time.
pub(crate) const DEPTH: u16 = 128;

/// The path of a block device.
pub(crate) fn path(number: u32) -> String {
    format!("/dev/ublkb{number}")
}

/// Whether volumes are block devices, and the order of what is done to those.
#[derive(Debug)]
pub(in crate::daemon) struct BlockDevices {
    /// If they are: the longest transfer, in bytes.
    pub(in crate::daemon) most_bytes: Option<u32>,
    /// Whether no more are made. Held by whoever makes a device, makes it larger or takes it away.
    pub(in crate::daemon) closed: Mutex<bool>,
}

impl BlockDevices {
    pub(in crate::daemon) fn new(most_bytes: Option<u32>) -> BlockDevices {
        BlockDevices {
            most_bytes,
            closed: Mutex::new(false),
        }
    }
}
