//! The record of a cache that failed, as its reports come in.

use std::time::Instant;

use forebay_cache::{Abandonment, Reports};

/// A record that is still to be made.
pub(in crate::daemon) struct FailureRecord {
    pub(in crate::daemon) reports: Reports,
    pub(super) pending: Option<(Abandonment, Instant)>,
    pub(super) was_told: bool,
}

impl FailureRecord {
    pub(in crate::daemon) fn new(workers: usize) -> FailureRecord {
        FailureRecord {
            reports: Reports::new(workers),
            pending: None,
            was_told: false,
        }
    }
}
