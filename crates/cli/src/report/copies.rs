//! Which device of a cache may die now, in words (I28).

use serde::{Deserialize, Serialize};

use crate::report::status::CacheStatus;
use crate::units::size;

/// A device that the cache goes on without, until it is removed or replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostDeviceStatus {
    /// Where it is or was, if anybody knows.
    pub(crate) path: Option<String>,
    pub(crate) number: u8,
}

impl LostDeviceStatus {
    /// `/dev/nvme1n1`, or `device number 1`.
    pub(crate) fn in_words(&self) -> String {
        match &self.path {
            Some(path) => path.clone(),
            None => format!("device number {}", self.number),
        }
    }
}

/// Where dirty data is that is to be on two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// It is to be on one.
    One,
    /// All of it is on two.
    Two,
    /// Some is on one still, and is copied.
    Copying,
    /// The cache has one device.
    Alone,
}

impl CacheStatus {
    /// Where its dirty data is.
    pub(crate) fn copies(&self) -> Copies {
        match (self.copies, self.devices.len()) {
            (0 | 1, _) => Copies::One,
            (_, 0 | 1) => Copies::Alone,
            _ if self.exposed_bytes > 0 || self.is_copying => Copies::Copying,
            _ => Copies::Two,
        }
    }

    /// Which device may die now; nothing to say of a cache that keeps one copy.
    pub(crate) fn may_die(&self) -> Option<String> {
        match self.copies() {
            Copies::One => None,
            Copies::Two => Some(format!(
                "dirty data is on two devices: any one of the {} may die now",
                self.devices.len()
            )),
            Copies::Copying => Some(format!(
                "{} of dirty data are on one device still, and are being copied: no device may die now",
                size(self.exposed_bytes)
            )),
            Copies::Alone => Some(format!(
                "dirty data is on {} alone: it may not die now",
                self.device
            )),
        }
    }

    /// `/dev/nvme1n1 (lost), ...`, if there is any.
    pub(crate) fn lost_in_words(&self) -> Option<String> {
        let lost: Vec<String> = self.lost.iter().map(LostDeviceStatus::in_words).collect();
        (!lost.is_empty()).then(|| lost.join(", "))
    }
}
