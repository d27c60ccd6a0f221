//! The record of a cache that is given up, as its reports come in.

use std::time::Instant;

use forebay_cache::{Abandonment, GivenUp};

/// A record that is still to be made.
pub(in crate::daemon) struct GivingUp {
    pub(in crate::daemon) reports: GivenUp,
    pub(super) pending: Option<(Abandonment, Instant)>,
    pub(super) was_told: bool,
}

impl GivingUp {
    pub(in crate::daemon) fn new(workers: usize) -> GivingUp {
        GivingUp {
            reports: GivenUp::new(workers),
            pending: None,
            was_told: false,
        }
    }
}
