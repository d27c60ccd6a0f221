//! The health of a cache device, as it says itself.

use serde::{Deserialize, Serialize};

/// From this share of its life on a device is to be replaced.
pub(crate) const LIFE_TO_REPLACE_PERCENT: u64 = 90;

/// Health of a device; whatever it does not say is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceHealth {
    pub(crate) model: Option<String>,
    /// Warnings of the device about itself, in words.
    pub(crate) warnings: Vec<String>,
    /// The share of its rated writes that is behind it: more than 100 is possible.
    pub(crate) life_used_percent: Option<u64>,
    pub(crate) spare_percent: Option<u64>,
    pub(crate) media_errors: Option<u64>,
    pub(crate) temperature_celsius: Option<i64>,
    pub(crate) power_on_hours: Option<u64>,
    /// Everything that was ever written to it.
    pub(crate) written_bytes: Option<u64>,
}

impl DeviceHealth {
    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == DeviceHealth::default()
    }

    /// The end that is near, if it is.
    pub(crate) fn trouble(&self) -> Option<String> {
        if !self.warnings.is_empty() {
            return Some(format!("warns of itself: {}", self.warnings.join(", ")));
        }
        let used = self.life_used_percent?;
        (used >= LIFE_TO_REPLACE_PERCENT).then(|| format!("has {used} % of its life behind it"))
    }

    /// `3 % of its life used, spare 100 %, media errors 0, 38 °C, on for 1234 h`.
    pub(crate) fn in_words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        if !self.warnings.is_empty() {
            words.push(format!("WARNS: {}", self.warnings.join(", ")));
        }
        let mut add = |value: Option<String>| words.extend(value);
        let used = self.life_used_percent;
        add(used.map(|used| format!("{used} % of its life used")));
        add(self.spare_percent.map(|spare| format!("spare {spare} %")));
        add(self
            .media_errors
            .map(|errors| format!("media errors {errors}")));
        add(self
            .temperature_celsius
            .map(|degrees| format!("{degrees} °C")));
        add(self.power_on_hours.map(|hours| format!("on for {hours} h")));
        let written = self.written_bytes;
        add(written.map(|bytes| format!("{} written in all", crate::units::size(bytes))));
        words.join(", ")
    }
}

/// Health in words, of one that may not be known.
pub(crate) fn in_words(health: Option<&DeviceHealth>) -> String {
    health.map_or_else(|| "not known".to_owned(), DeviceHealth::in_words)
}
