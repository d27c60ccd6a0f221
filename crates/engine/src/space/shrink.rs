//! Extents come and go while the shard runs.
//!
//! Segments of an added extent are free at once: nothing in them counts, since an extent has an
//! identity of its own. Segments to be removed are emptied first, in the order in which
//! segments are freed anyway (I2): every stream gives up its oldest segments until it has none of
//! those to be removed. Hot blocks are kept and dirty blocks move on, both into segments that stay.
//!
//! The shard needs free segments meanwhile (I18). So there are two steps. As long as too few of the
//! segments that stay are free, those to be removed are still used, after the others. Then all of
//! them are closed at once, and none of them is opened again. A segment that becomes
//! free then is removed. When all are removed, a superblock without them may be written: whatever a
//! recovery needs is below tails that are durable elsewhere (I8).
//!
//! Nothing of this is on the device before that superblock is. A crash, like a change of mind,
//! leaves the extents as they were.

use std::ops::Range;

use crate::format::geometry::MIN_SEGMENTS_FORMAT;
use crate::format::{SegmentId, Stream, Superblock};
use crate::interface::{Memory, Nanos};
use crate::map::ghost::Ghost;
use crate::origin::Origin;
use crate::planted::{self, Bug};
use crate::policy::Policy;
use crate::space::Space;
use crate::store::Store;
use crate::store::log::{RECLAIM_RESERVE, Segment, SegmentState};

/// Time between looks while nothing else happens.
const TICK: Nanos = Nanos(20_000_000);

/// Segments to be removed.
#[derive(Debug, Default)]
pub(crate) struct Shrink {
    ids: Vec<Range<u32>>,
    /// None of its segments is opened any more.
    are_closed: bool,
    next_look: Option<Nanos>,
}

impl Shrink {
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.ids.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.next_look
    }

    fn segments(&self) -> impl Iterator<Item = usize> + use<> {
        let ids = self.ids.clone();
        ids.into_iter().flatten().map(|id| id as usize)
    }
}

impl Space {
    /// See [`Engine::set_extents`](crate::Engine::set_extents).
    pub(crate) fn set_extents(&mut self, store: &mut Store, superblock: &Superblock) {
        let mut map = superblock.segment_map(store.log.shard);
        let before = store.log.segments.len();
        let end = before.max(superblock.extents.end_segment() as usize);
        if let Some(places) = store.log.map.places()
            && superblock.membership > 0
        {
            map.keep_places(places.clone());
        }
        // Segments that have left keep their ids.
        if let Some(places) = map.places_mut() {
            places.grow(end as u32);
        }
        store.log.free.stripe(None, false);
        store.log.segments.reserve_exact(end - before);
        store
            .log
            .segments
            .resize_with(end, || Segment::fresh(false));
        for (id, segment) in (0..).map(SegmentId).zip(&mut store.log.segments) {
            match (map.has(id), segment.state) {
                (true, SegmentState::Absent) => {
                    segment.state = SegmentState::Free;
                    store.log.free.push_back(id);
                }
                (false, SegmentState::Removed) => {
                    assert!(!segment.evicted, "segment {} would be read once more", id.0);
                    segment.state = SegmentState::Absent;
                }
                (false, SegmentState::Absent) | (true, _) => {}
                (false, state) => assert!(
                    planted::is(Bug::RetiredEarly) || planted::is(Bug::RetiredOpened),
                    "I8: segment {} left as {state:?}",
                    id.0
                ),
            }
        }
        store.log.map = map;
        store.log.note_devices(superblock);
        store.forget_evicted_on_lost_devices();
        store.log.stripe_free();
        self.begin_mirroring(store);
        store.log.geometry.segments_per_shard = end as u32;
        if end > before {
            let slots = store.log.geometry.slots();
            store.index.grow(slots);
            store.ghost = Ghost::of(slots as usize);
        }
        self.end_shrink(store);
    }

    /// See [`Engine::begin_shrink`](crate::Engine::begin_shrink).
    pub(crate) fn begin_shrink(
        &mut self,
        store: &mut Store,
        ids: Vec<Range<u32>>,
    ) -> Result<(), u32> {
        assert!(!self.shrink.is_active(), "one at a time");
        let removed: u32 = ids.iter().map(|ids| ids.end - ids.start).sum();
        let stay = (store.log.usable_segments() as u32).saturating_sub(removed);
        if stay < MIN_SEGMENTS_FORMAT {
            return Err(MIN_SEGMENTS_FORMAT);
        }
        self.shrink.ids = ids;
        for id in self.shrink.segments() {
            let segment = &mut store.log.segments[id];
            assert!(segment.state != SegmentState::Absent, "it is there");
            segment.removing = true;
        }
        store.log.leave_devices();
        if !store.log.has_pairs_to_stay(MIN_SEGMENTS_FORMAT) {
            self.end_shrink(store);
            return Err(MIN_SEGMENTS_FORMAT);
        }
        store.forget_renewal_answer();
        self.prefer_what_stays(store);
        store.reckon_capacity();
        store.stir();
        Ok(())
    }

    /// See [`Engine::shrinking`](crate::Engine::shrinking).
    pub(crate) fn shrinking(&self, store: &Store) -> Option<(u32, u32)> {
        if !self.shrink.is_active() {
            return None;
        }
        let mut left = 0;
        let mut all = 0;
        for id in self.shrink.segments() {
            all += 1;
            left += u32::from(!self.is_removed(store, id));
        }
        Some((left, all))
    }

    /// See [`Engine::cancel_shrink`](crate::Engine::cancel_shrink).
    pub(crate) fn cancel_shrink(&mut self, store: &mut Store) {
        for id in self.shrink.segments() {
            let segment = &mut store.log.segments[id];
            if segment.state == SegmentState::Removed && !segment.lost {
                segment.state = SegmentState::Free;
                store.log.free.push_back(SegmentId(id as u32));
            }
        }
        self.end_shrink(store);
    }

    fn is_removed(&self, store: &Store, id: usize) -> bool {
        match store.log.segments[id].state {
            SegmentState::Removed => true,
            // Empty is not enough.
            SegmentState::Waiting | SegmentState::BelowTail => planted::is(Bug::RetiredEarly),
            SegmentState::Free | SegmentState::Open => planted::is(Bug::RetiredOpened),
            _ => false,
        }
    }

    fn end_shrink(&mut self, store: &mut Store) {
        for id in self.shrink.segments() {
            store.log.segments[id].removing = false;
        }
        self.shrink = Shrink::default();
        store.log.leave_devices();
        store.forget_renewal_answer();
        store.reckon_capacity();
        store.stir();
    }

    fn prefer_what_stays(&mut self, store: &mut Store) {
        let segments = &store.log.segments;
        let is_removing = |id: SegmentId| segments[id.0 as usize].removing;
        store.log.free.put_last(is_removing);
    }

    /// Takes a segment that has become free. A segment that is being removed is not used again.
    pub(crate) fn shrink_or_free(&mut self, store: &mut Store, id: SegmentId) {
        let segment = store.log.segment(id);
        if segment.lost || (segment.removing && self.shrink.are_closed) {
            segment.state = SegmentState::Removed;
            return store.forget_evicted(id);
        }
        segment.state = SegmentState::Free;
        if store.log.segment(id).removing {
            store.log.free.push_back(id);
        } else {
            store.log.free.push_front(id);
        }
    }

    /// The number of free segments that stay, on which reclaim counts.
    pub(crate) fn free_that_stay(&self, store: &Store) -> usize {
        if !self.shrink.is_active() || self.shrink.are_closed {
            return store.log.free.len();
        }
        self.stay(store, store.log.free.iter())
    }

    fn stay(&self, store: &Store, ids: impl Iterator<Item = SegmentId>) -> usize {
        ids.filter(|id| !store.log.segments[id.0 as usize].removing)
            .count()
    }

    /// Segments being emptied, or empty, that will be free.
    pub(crate) fn to_be_free(&self, store: &Store) -> usize {
        if !self.shrink.is_active() {
            return self.reclaim.on_their_way();
        }
        let emptied = self.jobs.iter().map(|job| job.segment());
        self.stay(store, emptied) + self.stay(store, self.reclaim.emptied())
    }

    /// Reclaims the segments to be removed, once `target` of those that stay are free.
    pub(crate) fn advance_shrink(
        &mut self,
        store: &mut Store,
        policy: &mut Policy,
        origin: &mut Origin,
        now: Nanos,
        target: usize,
        memory: &mut dyn Memory,
    ) {
        let done = self.shrinking(store).is_some_and(|(left, _)| left == 0);
        self.shrink.next_look = (!done).then(|| now.after(TICK));
        if !self.shrink.are_closed {
            // A device that leaves whole is half of no pair any more; each other has its reserve.
            if self.free_that_stay(store) < target && !store.log.has_leaving_device() {
                return origin.writeback.hurry(now);
            }
            self.close_removing(store, now, memory);
        }
        for stream in Stream::ALL {
            while store.log.free.len() > RECLAIM_RESERVE + 1
                && self.holds_removing(store, stream)
                && self.can_reclaim(store, stream)
            {
                // A hot segment that stays only moves to the young end.
                let renews = stream == Stream::Main && self.renewal_is_due(store);
                if renews
                    && (self.renew_oldest(store, now, memory) || self.renewal_has_to_wait(store))
                {
                    break;
                }
                self.start_reclaim(store, policy, origin, now, stream, memory);
            }
        }
    }

    fn close_removing(&mut self, store: &mut Store, now: Nanos, memory: &mut dyn Memory) {
        self.shrink.are_closed = true;
        for id in self.shrink.segments() {
            let segment = &mut store.log.segments[id];
            if segment.state == SegmentState::Free && !planted::is(Bug::RetiredOpened) {
                segment.state = SegmentState::Removed;
                store.forget_evicted(SegmentId(id as u32));
            }
        }
        let segments = &store.log.segments;
        let is_free = |id: SegmentId| segments[id.0 as usize].state == SegmentState::Free;
        store.log.free.retain(is_free);
        for stream in Stream::ALL {
            if let Some(open) = store.log.streams[stream as usize].open
                && store.log.is_removing(open)
            {
                store.fill_segment(now, open, memory);
            }
        }
    }

    /// Whether a stream has segments to be removed that are neither being emptied nor empty.
    fn holds_removing(&self, store: &Store, stream: Stream) -> bool {
        let order = &store.log.streams[stream as usize].order;
        let rest = order.iter().skip(self.reclaim.emptying_or_waiting(stream));
        rest.into_iter().any(|id| store.log.is_removing(*id))
    }
}
