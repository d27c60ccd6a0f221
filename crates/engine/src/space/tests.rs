//! Tests of reclaim by itself, over a store.

use crate::format::{BlockKey, Stream};
use crate::origin::Origin;
use crate::policy::Policy;
use crate::rig::{BLOCK_BYTES, Rig, VOLUME};
use crate::settings::{Mode, Settings};
use crate::space::Space;
use crate::store::log::{RECLAIM_RESERVE, SegmentState};
use crate::store::op::Op;

struct Cleaner {
    rig: Rig,
    space: Space,
    policy: Policy,
    origin: Origin,
}

impl Cleaner {
    fn new() -> Cleaner {
        Cleaner::of(Rig::new(Mode::Writeback, Settings::default()))
    }

    /// Takes all free segments but so many.
    fn leaves_free(&mut self, count: usize) {
        self.rig.store.log.free.ids().truncate(count);
    }

    fn of(mut rig: Rig) -> Cleaner {
        Cleaner {
            space: Space::new(BLOCK_BYTES, &mut rig.ram),
            policy: Policy::new(rig.store.log.usable_slots(), &rig.store.settings),
            origin: Origin::new(BLOCK_BYTES, &mut rig.ram),
            rig,
        }
    }

    /// Fills most of the shard with dirty data that is durable.
    fn fill_with_dirty_data(&mut self, from: u64) {
        let segments = self.rig.store.log.usable_segments();
        self.fill(Stream::Write, from, segments * 6 / 10);
        self.rig.flush();
    }

    /// Fills so many segments of a stream. Returns the key after the last.
    fn fill(&mut self, stream: Stream, from: u64, segments: usize) -> u64 {
        let order = |rig: &Rig| rig.store.log.streams[stream as usize].order.len();
        let wanted = order(&self.rig) + segments;
        let mut key = from;
        while order(&self.rig) < wanted {
            assert!(self.rig.append(stream, key, 8));
            key += 8;
        }
        key
    }

    /// Has the origin take these blocks, so that they become clean.
    fn make_clean(&mut self, keys: std::ops::Range<u64>) {
        let store = &mut self.rig.store;
        store.origin_written(self.rig.now, VOLUME, BlockKey(keys.start), keys.end);
        for key in keys.map(BlockKey) {
            let slot = store.index.find(key).expect("it was appended");
            store.version_written(VOLUME, key, slot);
        }
        store.want_origin_flush(VOLUME);
        store.advance_origins(self.rig.now);
        self.rig.run();
    }

    fn holds(&self, key: u64) -> bool {
        self.rig.store.index.find(BlockKey(key)).is_some()
    }

    /// Reclaims and carries out the operations of that, once for each of so many turns.
    fn reclaim(&mut self, turns: usize) {
        for _ in 0..turns {
            let Rig {
                store, ram, now, ..
            } = &mut self.rig;
            self.space
                .advance_reclaim(store, &mut self.policy, &mut self.origin, *now, ram);
            store.advance_durability(*now, ram);
            while let Some(action) = self.rig.store.operations.next() {
                let Some(op) = self.rig.carry_out(action) else {
                    continue;
                };
                let Rig {
                    store, ram, now, ..
                } = &mut self.rig;
                match op {
                    Op::RetainRead(part) => {
                        self.space.retain_read_done(store, *now, part, Ok(()), ram);
                    }
                    Op::SegmentDiscard(segment) => self.space.segment_discarded(store, segment),
                    Op::Renewal(segment) => store.renewal_done(segment, Ok(()), ram),
                    other => panic!("reclaim asks for no {other:?}"),
                }
            }
            while let Some(ended) = self.rig.store.next_appended() {
                if let crate::map::locks::Owner::Retain(job) = ended.owner {
                    self.space.retained(job, ended.blocks, &mut self.rig.ram);
                }
            }
            self.rig.now.0 += 20_000_000;
        }
    }
}

#[test]
fn a_shard_with_room_reclaims_nothing() {
    let mut cleaner = Cleaner::new();
    cleaner.fill(Stream::Probation, 0, 2);
    let free = cleaner.rig.store.log.free.len();
    cleaner.reclaim(20);
    assert_eq!(cleaner.rig.store.log.free.len(), free);
    assert_eq!(cleaner.space.jobs(), 0);
}

#[test]
fn clean_blocks_that_nobody_used_leave_the_oldest_segment_first() {
    let mut cleaner = Cleaner::new();
    let next = cleaner.fill(Stream::Probation, 0, 3);
    let oldest = cleaner.rig.store.log.streams[Stream::Probation as usize].order[0];
    cleaner.leaves_free(5);
    cleaner.reclaim(200);
    assert!(cleaner.rig.store.index.find(BlockKey(0)).is_none());
    let youngest = BlockKey(next - 1);
    assert!(cleaner.rig.store.index.find(youngest).is_some());
    let state = cleaner.rig.store.log.segments[oldest.0 as usize].state;
    assert!(
        cleaner.rig.store.log.free.ids().contains(&oldest) || state == SegmentState::Open,
        "{oldest:?} is {state:?}"
    );
}

/// Nobody reads an evicted block where it was once that is on a lost device.
#[test]
fn blocks_that_were_evicted_are_forgotten_with_their_device() {
    let mut cleaner = Cleaner::new();
    cleaner.fill(Stream::Probation, 0, 3);
    cleaner.leaves_free(5);
    cleaner.reclaim(200);
    let evicted = cleaner.rig.store.evicted_slot(BlockKey(0));
    assert!(evicted.is_some(), "its segment is free, and holds it still");
    let Rig {
        store, ram, now, ..
    } = &mut cleaner.rig;
    cleaner.space.device_leaves(store, *now, 0, false, ram);
    assert_eq!(store.evicted_slot(BlockKey(0)), None);
}

#[test]
fn a_segment_with_dirty_blocks_is_not_free_before_they_have_a_copy() {
    let mut cleaner = Cleaner::new();
    cleaner.fill(Stream::Write, 0, 2);
    let dirty = cleaner.rig.store.stats.dirty_blocks;
    cleaner.rig.flush();
    cleaner.leaves_free(5);
    cleaner.reclaim(200);
    assert_eq!(
        cleaner.rig.store.stats.dirty_blocks, dirty,
        "I5: none is lost"
    );
    assert!(cleaner.rig.store.index.find(BlockKey(0)).is_some());
}

#[test]
fn a_few_dirty_blocks_do_not_cost_the_read_ones_their_place() {
    let mut cleaner = Cleaner::new();
    let next = cleaner.fill(Stream::Write, 0, 12);
    cleaner.rig.flush();
    cleaner.make_clean(3..next);
    let read = next + 8;
    cleaner.fill(Stream::Probation, read, 2);
    cleaner.leaves_free(RECLAIM_RESERVE + 2);
    cleaner.reclaim(200);
    assert!(!cleaner.holds(3), "clean, and the oldest");
    assert!(cleaner.holds(0) && cleaner.holds(read));
    assert_eq!(cleaner.rig.store.stats.dirty_blocks, 3, "I5");
}

#[test]
fn a_dirty_tail_is_copied_where_appends_would_wait_and_the_stream_is_mostly_clean() {
    let mut cleaner = Cleaner::new();
    let first = cleaner.fill(Stream::Write, 0, 2);
    let next = cleaner.fill(Stream::Write, first, 10);
    cleaner.rig.flush();
    cleaner.make_clean(first..next);
    let dirty = cleaner.rig.store.stats.dirty_blocks;
    cleaner.leaves_free(RECLAIM_RESERVE);
    cleaner.reclaim(200);
    assert_eq!(cleaner.rig.store.stats.dirty_blocks, dirty, "I5");
    assert!(cleaner.holds(0));
    assert!(cleaner.rig.store.log.free.len() > RECLAIM_RESERVE);
}

/// A burst of writes waits for the origin: blocks that were read again and again would come back
/// from there one by one.
#[test]
fn dirty_data_leaves_main_alone_as_long_as_the_origin_takes_it() {
    let mut cleaner = Cleaner::new();
    let next = cleaner.fill(Stream::Main, 0, 2);
    cleaner.fill_with_dirty_data(next);
    cleaner.leaves_free(RECLAIM_RESERVE);
    cleaner.reclaim(200);
    assert!(cleaner.holds(0) && cleaner.holds(next - 1));
    cleaner.origin.writeback.hold();
    cleaner.reclaim(200);
    assert!(!cleaner.holds(0), "there is no other room");
}

/// A segment of dirty data takes two places: three tenths of the segments are more than half of the
/// room.
#[test]
fn dirty_data_on_two_devices_leaves_main_alone_too() {
    let mut cleaner = Cleaner::of(Rig::on_two_devices(Mode::Writeback, Settings::default()));
    let segments = cleaner.rig.store.log.usable_segments();
    let next = cleaner.fill(Stream::Main, 0, 2);
    cleaner.fill(Stream::Write, next, segments * 3 / 10);
    cleaner.rig.flush();
    let free = &mut cleaner.rig.store.log.free;
    while free.len() > RECLAIM_RESERVE {
        free.take_pair();
    }
    cleaner.reclaim(200);
    assert!(cleaner.holds(0) && cleaner.holds(next - 1));
}

#[test]
fn main_makes_room_where_a_dirty_block_cannot_be_read_for_the_origin() {
    let mut cleaner = Cleaner::new();
    let next = cleaner.fill(Stream::Main, 0, 2);
    cleaner.fill_with_dirty_data(next);
    let store = &mut cleaner.rig.store;
    let slot = store.index.find(BlockKey(next)).expect("it was appended");
    for _ in 0..5 {
        store.unreadable.failed(BlockKey(next), slot);
    }
    store.log.free.ids().truncate(RECLAIM_RESERVE);
    cleaner.reclaim(200);
    assert!(!cleaner.holds(0));
}

#[test]
fn main_above_its_share_makes_room_for_dirty_data() {
    let mut cleaner = Cleaner::new();
    let segments = cleaner.rig.store.log.usable_segments();
    let next = cleaner.fill(Stream::Main, 0, segments * 3 / 10);
    cleaner.fill_with_dirty_data(next);
    cleaner.leaves_free(RECLAIM_RESERVE);
    cleaner.reclaim(200);
    assert!(!cleaner.holds(0));
}

/// The first segment of main is emptied because half of it was overwritten, and not because its
/// blocks were in main for long.
#[test]
fn blocks_of_main_stay_when_their_segment_is_emptied_for_its_unused_slots() {
    let mut cleaner = Cleaner::new();
    let next = cleaner.fill(Stream::Main, 0, 3);
    let oldest = cleaner.rig.store.log.streams[Stream::Main as usize].order[0];
    let is_in_oldest = |rig: &Rig, key: u64| {
        let slot = rig.store.index.find(BlockKey(key)).expect("it is cached");
        rig.store.log.geometry.segment_of(slot) == oldest
    };
    let first: Vec<u64> = (0..next)
        .filter(|key| is_in_oldest(&cleaner.rig, *key))
        .collect();
    for key in first.iter().step_by(2) {
        assert!(cleaner.rig.append(Stream::Write, *key, 1));
    }
    cleaner.rig.flush();
    cleaner.leaves_free(RECLAIM_RESERVE + 2);
    cleaner.reclaim(200);
    let order = &cleaner.rig.store.log.streams[Stream::Main as usize].order;
    assert_ne!(order[0], oldest);
    for key in first {
        assert!(cleaner.holds(key), "{key}");
    }
}
