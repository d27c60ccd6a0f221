//! Stripes of origins, the same in each life of the daemon.

use forebay_engine::Stripe;

use super::World;
use crate::rng::Rng;

const STRIPE_PURPOSE: u64 = 67;
/// Shares of plans with a stripe at all, and of their volumes, in percent.
const PLANS: u64 = 40;
const VOLUMES: u64 = 70;

impl World<'_> {
    /// The stripe of a volume's origin, if it has one: shorter than a run or longer, and seldom with
    /// borders inside blocks.
    pub(super) fn stripe(&self, volume: u16) -> Option<Stripe> {
        if !Rng::of(self.plan.schedule, STRIPE_PURPOSE).percent(PLANS) {
            return None;
        }
        let purpose = STRIPE_PURPOSE + (1 << 32) + u64::from(volume);
        let mut rng = Rng::of(self.plan.schedule, purpose);
        if !rng.percent(VOLUMES) {
            return None;
        }
        let unit_bytes = rng.pick(&[512, 4096, 4096, 65_536, 65_536, 65_536]);
        let len_bytes = unit_bytes * rng.pick(&[2, 3, 3, 5, 24]);
        Stripe::new(len_bytes, unit_bytes * rng.below(32))
    }
}
