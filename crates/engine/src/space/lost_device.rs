//! A cache device is lost, and the shard goes on with the others (I28). Then dirty data is copied to
//! two devices again, once there are two. In two steps, with the record between them:
//!
//! 1. *Leaving*: no segment is opened on the device any more, and what is open there is closed, as is
//!    what is open in probation and main. The number that the next entry gets goes on record: no
//!    segment of probation and main below it counts after a crash, so no later entry may be in one.
//! 2. The record is durable on the other devices. Until then no end of a write or flush reaches the
//!    shard (`forebay_cache`).
//! 3. *Lost*: segments with a copy elsewhere are there from now on. Clean blocks that were on the
//!    device alone are forgotten; no `Drop` is needed, since their entries count no more. Where an
//!    older entry may survive in the write stream, the block counts as cached until somebody reads
//!    or writes it, or its segment is reclaimed: then a `Drop` is logged, as for any block that
//!    cannot be read (I4).
//!
//! Segments of the write stream with one copy are emptied like those of an extent that leaves, oldest
//! first: dirty blocks are appended again, to two devices.

use crate::format::geometry::MIN_SEGMENTS_FORMAT;
use crate::format::{SegmentId, Sequence, Slot, Stream};
use crate::interface::{Memory, Nanos};
use crate::origin::Origin;
use crate::planted::{self, Bug};
use crate::policy::Policy;
use crate::space::Space;
use crate::store::Store;
use crate::store::log::{RECLAIM_RESERVE, SegmentState};

impl Space {
    /// See [`Engine::device_leaves`](crate::Engine::device_leaves).
    pub(crate) fn device_leaves(
        &mut self,
        store: &mut Store,
        now: Nanos,
        number: u8,
        may_close: bool,
        memory: &mut dyn Memory,
    ) -> Sequence {
        store.log.device_leaves(number);
        store.forget_evicted_on_lost_devices();
        for stream in Stream::ALL {
            if let Some(open) = store.log.streams[stream as usize].open
                && (stream != Stream::Write || store.log.is_partly_lost(open))
                && may_close
                && !store.failed_cache()
            {
                store.fill_segment(now, open, memory);
            }
        }
        store.reckon_capacity();
        store.stir();
        Sequence::new(store.log.epoch, store.log.next_number)
    }

    /// See [`Engine::device_lost`](crate::Engine::device_lost).
    pub(crate) fn device_lost(&mut self, store: &mut Store) {
        for id in (0..store.log.segments.len() as u32).map(SegmentId) {
            if !store.log.stays_somewhere(id) {
                forget_clean(store, id);
            }
        }
        // What is to leave is all that is left. The record of the loss names it, and no later one can
        // have it leave: no device would be left (`forebay_cache::control::Change`).
        if self.shrinking(store).is_some() && !store.log.has_pairs_to_stay(MIN_SEGMENTS_FORMAT) {
            self.cancel_shrink(store);
        }
        self.begin_mirroring(store);
        store.stir();
    }

    /// Has all dirty data on two devices from now on, if there are two.
    pub(crate) fn begin_mirroring(&mut self, store: &mut Store) {
        self.mirror_below = None;
        if store.log.keeps_two() {
            let next = Sequence::new(store.log.epoch, store.log.next_number);
            self.mirror_below = Some(next);
            store.say_tail_of_write_again();
        }
    }

    /// Whether dirty data may be on one device, and is to be on two.
    pub(crate) fn is_mirroring(&self, store: &Store) -> bool {
        self.mirror_below.is_some() || store.log.has_opened_alone()
    }

    /// Empties the oldest segments of the write stream, as long as one is left that has one copy.
    pub(crate) fn advance_mirroring(
        &mut self,
        store: &mut Store,
        policy: &mut Policy,
        origin: &mut Origin,
        now: Nanos,
        memory: &mut dyn Memory,
    ) {
        if store.log.take_opened_alone() {
            self.begin_mirroring(store);
        }
        let Some(below) = self.mirror_below else {
            return;
        };
        if let Some(open) = store.log.streams[Stream::Write as usize].open
            && store.log.segments[open.0 as usize].generation < below
            && !store.log.is_on_two(open)
        {
            store.fill_segment(now, open, memory);
        }
        while has_single(store, below) {
            let has_room = store.log.free.len() > RECLAIM_RESERVE + 1;
            if !has_room || !self.can_reclaim(store, Stream::Write) {
                return;
            }
            let oldest = self.oldest(store, Stream::Write).expect("there is one");
            if store.log.segments[oldest.0 as usize].generation >= below {
                break;
            }
            self.start_reclaim(store, policy, origin, now, Stream::Write, memory);
        }
        // Until the tail is durable a start without that device would miss an emptied segment.
        let is_durable = !self.reclaim.holds_of_write_below(below);
        if is_durable || planted::is(Bug::MirroredEarly) {
            self.mirror_below = None;
        }
    }
}

/// Whether a segment of the write stream below this generation has one copy.
fn has_single(store: &Store, below: Sequence) -> bool {
    let mut order = store.log.streams[Stream::Write as usize].order.iter();
    order
        .any(|id| store.log.segments[id.0 as usize].generation < below && !store.log.is_on_two(*id))
}

/// Takes the clean blocks of a segment out of the index that is nowhere any more, but for those whose
/// older entries would come back.
fn forget_clean(store: &mut Store, id: SegmentId) {
    let geometry = store.log.geometry;
    for in_segment in geometry.first_slot() as u16..geometry.slots_per_segment() as u16 {
        let slot: Slot = geometry.slot(id, in_segment);
        let flags = store.index.flags(slot);
        let key = store.index.key(slot);
        let survives = flags.shadows() & Stream::Write.bit() != 0;
        if flags.live() && !flags.dirty() && !survives {
            store.index.remove(key);
            store.slot_leaves(key, slot, flags);
        }
    }
    store.forget_evicted(id);
}

impl Store {
    /// Nobody reads an evicted block where it was, if its segment was free and is on a lost device.
    pub(crate) fn forget_evicted_on_lost_devices(&mut self) {
        for id in (0..self.log.segments.len() as u32).map(SegmentId) {
            let segment = &self.log.segments[id.0 as usize];
            if segment.lost && segment.state == SegmentState::Removed {
                self.forget_evicted(id);
            }
        }
    }

    /// The number of dirty blocks that are on one device, where they are to be on two.
    pub(crate) fn exposed_blocks(&self) -> u64 {
        if !self.log.has_two_copies() {
            return 0;
        }
        let order = self.log.streams[Stream::Write as usize].order.iter();
        let single = order.filter(|id| !self.log.is_on_two(**id));
        single
            .map(|id| &self.log.segments[id.0 as usize])
            .filter(|segment| segment.state != SegmentState::Free)
            .map(|segment| u64::from(segment.dirty))
            .sum()
    }
}
