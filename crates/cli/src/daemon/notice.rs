//! Notices to the main thread.

use std::sync::mpsc::{Receiver, Sender};

use forebay_cache::Report;

/// Fate of block devices when the daemon stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Devices {
    /// Unused devices are taken away, the others wait for the next daemon.
    KeepUsed,
    /// All wait for the next daemon.
    Keep,
}

/// A notice that the main thread waits for.
pub(in crate::daemon) enum Notice {
    /// SIGINT or SIGTERM, or SIGUSR1, which keeps the block devices.
    Signal(Devices),
    /// SIGHUP: the configuration is read again.
    Reload,
    /// `forebay stop`: the result goes to the first channel once all is done; the second is closed
    /// when the client was told.
    Stop {
        done: Sender<Result<(), String>>,
        told: Receiver<()>,
        devices: Devices,
    },
    /// The cache failed, which is to be on record as far as this worker knows (I15).
    CacheFailed { worker: usize, report: Report },
    /// A worker cannot go on.
    Failed { worker: usize, reason: String },
}
