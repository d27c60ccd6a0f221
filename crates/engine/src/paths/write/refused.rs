//! A write that was to bypass the cache, and that the origin failed. In write-back mode the log takes
//! it, if nothing but speed spoke against that: a client whose write would have been logged hears of no
//! error either.
//!
//! The origin's answer stands where a budget or share is spent, where dirty data is at its mark or the
//! log is short of room, and for zeroes and discards. Parts of blocks need a read of the origin.

use crate::bypass::BypassReason;
use crate::ids::JobId;
use crate::interface::{Failure, Nanos, RequestKind};
use crate::jobs::write::{Order, Stage};
use crate::parts::Engine;
use crate::settings::mode::Writes;

impl Engine {
    /// Has a write begin anew in the log that failed on the origin. Returns whether it does.
    ///
    /// The origin has some of it, or none: its older copies were dropped durably before (I4), and the
    /// entries to come are newer.
    pub(super) fn log_takes_refused(&mut self, now: Nanos, job: JobId) -> bool {
        let state = self.write_job(job);
        let failed_there = state.failure == Some(Failure::Io)
            && !state.bypassing.is_empty()
            && state.logged.is_empty()
            && state.order != Order::Alone;
        if !failed_there || !state.bypass.is_some_and(is_by_choice) {
            return false;
        }
        let (request, blocks) = (state.request, state.end.0 - state.first.0);
        // Memory of a client's own is asked for again, with a copy.
        let is_data =
            matches!(request.kind, RequestKind::Write { .. }) && !request.buf.is_of_client();
        let is_logged = self.store.volume(request.volume).config.mode.writes() == Writes::Log;
        let has_room = self.origin.throttle.is_empty() && !self.store.dirty_is_high();
        if !is_data || !is_logged || !has_room || self.store.failed_cache() {
            return false;
        }
        let (store, volume) = (&self.store, request.volume);
        if !self.policy.has_leave(store, now, volume, blocks) {
            return false;
        }
        self.store.stats.refused_writes_logged += 1;
        let state = self.write_job(job);
        (state.failure, state.through) = (None, false);
        state.logged = std::mem::take(&mut state.bypassing);
        state.stage = Stage::Preparing;
        true
    }
}

/// Whether a write bypassed the cache for the sake of speed, or of what is worth a place in it.
fn is_by_choice(reason: BypassReason) -> bool {
    matches!(
        reason,
        BypassReason::Sequential
            | BypassReason::OriginSooner
            | BypassReason::Congested
            | BypassReason::Admission
    )
}
