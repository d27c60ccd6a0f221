//! Settings that volumes have of their own, other ones in each life of the daemon.

use forebay_engine::{Admission, Nanos, VolumeSettings};

use super::World;
use crate::rng::Rng;

const OWN_PURPOSE: u64 = 61;

impl World<'_> {
    /// The settings that a volume has of its own in this life, if it has any. Shares are small enough
    /// to be reached, and large enough to be in the way.
    pub(super) fn own_settings(&self, volume: u16) -> Option<VolumeSettings> {
        let purpose = OWN_PURPOSE + self.boot_of_daemon * 64 + u64::from(volume);
        let mut rng = Rng::of(self.plan.schedule, purpose);
        if !rng.percent(self.plan.config.own_percent) {
            return None;
        }
        let admissions = [None, None, Some(Admission::ALWAYS), "touch-3".parse().ok()];
        Some(VolumeSettings {
            sequential_cutoff_bytes: rng.pick(&[None, None, Some(None), Some(Some(64 << 10))]),
            read_admission: rng.pick(&admissions),
            write_admission: rng.pick(&admissions),
            age_limit: rng.pick(&[None, Some(Nanos(0)), Some(Nanos(50_000_000))]),
            least_share_percent: rng.pick(&[None, Some(5), Some(15)]),
            most_share_percent: rng.pick(&[None, Some(1), Some(20), Some(60)]),
        })
    }
}
