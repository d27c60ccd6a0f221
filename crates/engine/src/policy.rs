//! Policies: which blocks are let in, where they go, which of them stay.

pub(crate) mod admission;
pub(crate) mod clock_hand;
pub(crate) mod replacement;
#[cfg(test)]
mod tests;
pub(crate) mod touches;
pub(crate) mod trials;

use crate::policy::admission::Gate;
use crate::policy::clock_hand::MainHand;
use crate::policy::replacement::Allowance;
use crate::policy::trials::Trials;
use crate::settings::Settings;

/// The state that decides about admission and replacement. Questions about the shard are asked of
/// its store.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) gate: Gate,
    pub(crate) trials: Trials,
    hand: MainHand,
    allowance: Allowance,
}

impl Policy {
    /// The policies of a shard with so many slots.
    pub(crate) fn new(slots: usize, settings: &Settings) -> Policy {
        let mut gate = Gate::default();
        gate.set(settings, [false; 2], slots);
        Policy {
            gate,
            trials: Trials::new(slots, settings),
            hand: MainHand::default(),
            allowance: Allowance::new(slots, settings.retain_percent),
        }
    }
}
