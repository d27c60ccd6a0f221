//! Hurry: write-back for room in the log. Reclaim frees the write stream's oldest segment when
//! nothing in it is dirty, or when copies of what is dirty have a place.

use crate::interface::Nanos;
use crate::origin::Origin;
use crate::origin::writeback::{FOREGROUND, Writeback};
use crate::store::Store;

/// Nobody has waited for room for so long: clients of the origin come first again.
const HURRY_LASTS: Nanos = Nanos(500_000_000);

/// Whether reclaim wants the write stream's tail clean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hurry {
    #[default]
    No,
    /// It can do without for a while, by copying: clients of the origin come first.
    InPortions,
    /// It waits.
    AtOnce,
}

impl Writeback {
    /// Reclaim waits for the write stream's tail to become clean.
    pub(crate) fn hurry(&mut self, now: Nanos) {
        (self.hurry, self.hurried_at) = (Hurry::AtOnce, now);
    }

    pub(super) fn hurries_in_portions(&self) -> bool {
        self.hurry == Hurry::InPortions
    }

    /// Notes whether jobs wait for room.
    pub(crate) fn note_waiting_jobs(&mut self, any: bool) {
        self.jobs_wait = any;
    }
}

impl Origin {
    /// Hurries write-back for room in the log. A client that writes past the cache, or in sequence
    /// into it, keeps the origin as long as nobody waits for room: its long write would go at the
    /// pace of random blocks.
    ///
    /// `copies_pay`: reclaim gets room by copying meanwhile.
    pub(crate) fn make_room(&mut self, store: &Store, now: Nanos, copies_pay: bool) {
        if copies_pay && self.writeback.may_begin_what_nobody_waits_for() {
            if self.writeback.hurry != Hurry::AtOnce {
                (self.writeback.hurry, self.writeback.hurried_at) = (Hurry::InPortions, now);
            }
            return;
        }
        let appends_wait = !store.has_placed_all() || store.has_combined();
        let is_waited_for = self.writeback.jobs_wait || appends_wait;
        let is_written = store.origin_is_written(now, FOREGROUND) || self.writeback.has_stream(now);
        if is_waited_for {
            self.writeback.sweep.turn_to_tail();
        }
        if is_waited_for || !is_written {
            self.writeback.hurry(now);
        }
    }

    /// Ends a hurry for which nobody has asked lately: what is left of its sweep is not worth the
    /// origin of a client.
    pub(super) fn end_hurry(&mut self, store: &Store, now: Nanos) {
        let is_over = now.since(self.writeback.hurried_at) > HURRY_LASTS;
        if is_over && Origin::a_client_comes_back(store, now) {
            self.writeback.hurry = Hurry::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, VOLUME};
    use crate::settings::{Mode, Settings};

    #[test]
    fn room_is_made_beside_a_write_past_the_cache_only_where_somebody_waits() {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        let mut origin = Origin::new(4096, &mut rig.ram);
        let mut hurries = |rig: &Rig, jobs_wait| {
            origin.writeback.hurry = Hurry::No;
            origin.writeback.note_waiting_jobs(jobs_wait);
            origin.make_room(&rig.store, rig.now, false);
            origin.writeback.hurry == Hurry::AtOnce
        };
        assert!(hurries(&rig, false));
        rig.now = Nanos::SECOND;
        rig.store.volume(VOLUME).foreground_reads = 1;
        assert!(
            hurries(&rig, false),
            "readers wait for a disk as for an SSD"
        );
        rig.store.volume(VOLUME).client_writes(rig.now);
        rig.store.volume(VOLUME).client_has_written(rig.now);
        assert!(!hurries(&rig, false));
        assert!(hurries(&rig, true));
        rig.now = rig.now.after(FOREGROUND);
        assert!(hurries(&rig, false));
        origin.writeback.client_writes(rig.now);
        origin.writeback.hurry = Hurry::No;
        origin.make_room(&rig.store, rig.now, false);
        assert!(
            origin.writeback.hurry == Hurry::No,
            "a stream into the cache"
        );
    }

    #[test]
    fn copies_spare_the_origin_unless_all_that_is_begun_is_waited_for() {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        let mut origin = Origin::new(4096, &mut rig.ram);
        origin.writeback.note_waiting_jobs(true);
        origin.make_room(&rig.store, rig.now, true);
        assert!(origin.writeback.hurries_in_portions());
        origin.writeback.limit_writeback();
        origin.make_room(&rig.store, rig.now, true);
        assert_eq!(
            origin.writeback.hurry,
            Hurry::AtOnce,
            "a stop would never end"
        );
        rig.store.volume(VOLUME).client_writes(rig.now);
        rig.store.volume(VOLUME).client_has_written(rig.now);
        rig.now = rig.now.after(HURRY_LASTS);
        origin.end_hurry(&rig.store, rig.now);
        assert_eq!(origin.writeback.hurry, Hurry::AtOnce);
        rig.now.0 += 1;
        origin.end_hurry(&rig.store, rig.now);
        assert_eq!(origin.writeback.hurry, Hurry::No);
    }
}
