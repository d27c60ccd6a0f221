//! What is to be on record of a cache that is given up.

use std::time::Instant;

use forebay_cache::{Abandonment, GivenUp};

/// What is to be on record, and is not yet.
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
