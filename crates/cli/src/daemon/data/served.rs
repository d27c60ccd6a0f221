//! Shards, devices and volumes that a thread of the data path serves.

use std::sync::Arc;
use std::time::Instant;

use forebay_engine::{BlockKey, Mode, Nanos, VolumeConfig};
use forebay_io::{Emulation, RealDevice};

use super::rate::RateLimit;
use crate::device::attach::Origin;

/// The daemon's one clock for all threads, so that times can be compared.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Clock(pub(in crate::daemon) Instant);

impl Clock {
    pub(in crate::daemon) fn now(self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}

/// A device with the timing of another, if that is wanted.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct TimedDevice {
    pub(in crate::daemon) device: Arc<RealDevice>,
    pub(in crate::daemon) emulation: Option<Emulation>,
}

/// A volume as the data path knows it.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct ServedVolume {
    pub(in crate::daemon) config: VolumeConfig,
    pub(in crate::daemon) origin: TimedDevice,
    /// For all threads one.
    pub(in crate::daemon) rate: Arc<RateLimit>,
}

impl ServedVolume {
    /// A volume without a cache.
    pub(in crate::daemon) fn new(origin: &Origin, emulation: Option<Emulation>) -> ServedVolume {
        ServedVolume {
            config: plain_config(origin.size_bytes()),
            origin: TimedDevice {
                device: Arc::clone(&origin.opened.device),
                emulation,
            },
            rate: Arc::default(),
        }
    }
}

/// A volume of a daemon without a cache.
pub(in crate::daemon) fn plain_config(size_bytes: u64) -> VolumeConfig {
    VolumeConfig {
        base: BlockKey(0),
        reserved_blocks: size_bytes.div_ceil(4096),
        size_bytes,
        mode: Mode::Passthrough,
    }
}
