//! Tests of the store by itself: no request, no job, no policy.

use crate::format::{BlockKey, Stream};
use crate::ids::JobId;
use crate::rig::{Rig, shape};
use crate::settings::{Mode, Settings};
use crate::slab::SlabId;
use crate::store::append::run_cost_bytes;
use crate::store::durability::Waiter;
use crate::store::log::{Claim, SegmentState};
use crate::store::op::PlacedRun;

fn rig() -> Rig {
    Rig::new(Mode::Writeback, Settings::default())
}

#[test]
fn an_entry_is_durable_after_its_header_and_a_flush_and_not_before() {
    let mut rig = rig();
    assert!(rig.append(Stream::Write, 5, 3));
    let slot = rig.store.index.find(BlockKey(6)).expect("indexed");
    assert!(!rig.store.log.is_durable(slot));
    assert!(!rig.store.all_durable());
    let waiter = Waiter::Job(JobId::new(9));
    rig.store.await_durable(rig.store.last_number(), waiter);
    rig.store.advance_durability(rig.now, &mut rig.ram);
    // I7: the flush is asked for when the header is on the device.
    let header = rig.store.operations.next().expect("a header");
    assert_eq!(shape(&header), ("write", true));
    assert!(rig.store.operations.next().is_none());
    assert!(rig.carry_out(header).is_none());
    let flush = rig.store.operations.next().expect("a flush");
    assert_eq!(shape(&flush), ("flush", true));
    assert!(!rig.store.log.is_durable(slot));
    rig.store.operations.end(flush.op, true);
    let told = rig.store.cache_flush_done(rig.now, Ok(()));
    assert_eq!(told, Some(vec![waiter]));
    assert!(rig.store.log.is_durable(slot));
    assert!(rig.store.all_durable());
}

#[test]
fn a_failed_flush_makes_nothing_durable_and_gives_the_cache_up() {
    let mut rig = rig();
    assert!(rig.append(Stream::Write, 5, 1));
    rig.store.want_durable(rig.store.last_number());
    rig.store.advance_durability(rig.now, &mut rig.ram);
    let header = rig.store.operations.next().expect("a header");
    assert!(rig.carry_out(header).is_none());
    let flush = rig.store.operations.next().expect("a flush");
    rig.store.operations.end(flush.op, true);
    let result = Err(crate::interface::DeviceError::Io);
    assert_eq!(rig.store.cache_flush_done(rig.now, result), None);
    assert!(rig.store.failed_cache());
    let slot = rig.store.index.find(BlockKey(5)).expect("indexed");
    assert!(!rig.store.log.is_durable(slot));
}

#[test]
fn a_run_takes_slots_of_the_open_record_alone() {
    let mut rig = rig();
    assert!(
        rig.store.reserve_run(Stream::Write, 2).is_none(),
        "none is open"
    );
    assert!(rig.append(Stream::Write, 0, 1));
    let (record, slot) = rig.store.reserve_run(Stream::Write, 2).expect("it is open");
    let run = PlacedRun {
        key: BlockKey(40),
        count: 2,
        record,
        slot,
    };
    let before = rig.store.last_number();
    let ends = rig.store.publish_run(&run, true, &[1, 2], &mut rig.ram);
    assert!(!ends, "the record is not closing");
    assert_eq!(rig.store.last_number(), before + 2, "I1: a number for each");
    let slots = rig.store.log.geometry.slots_per_segment() as u16;
    assert!(rig.store.reserve_run(Stream::Write, slots).is_none());
    let reserved = rig.store.log.records.at(record).reserved_bytes;
    assert_eq!(reserved, 0, "{} bytes were set aside", run_cost_bytes(2));
}

#[test]
fn what_finds_no_room_waits_and_is_placed_in_order() {
    let mut rig = rig();
    let kept: Vec<_> = rig
        .store
        .log
        .free
        .ids()
        .drain(Claim::Client.leaves()..)
        .collect();
    rig.begin_append(Stream::Write, 1, 1);
    rig.begin_append(Stream::Write, 2, 1);
    assert!(!rig.store.has_placed_all());
    assert!(rig.store.operations.next().is_none());
    rig.store.log.free.ids().extend(kept);
    rig.store.retry_backlog(rig.now, &mut rig.ram);
    assert!(rig.store.has_placed_all());
    rig.run();
    let slots = [1, 2].map(|key| rig.store.index.find(BlockKey(key)).expect("indexed"));
    assert!(slots[0] < slots[1]);
}

#[test]
fn a_promotion_that_finds_no_room_ends_and_waits_for_none() {
    let mut rig = rig();
    rig.store.log.free.ids().truncate(Claim::Client.leaves());
    assert!(!rig.append(Stream::Probation, 1, 1));
    assert!(rig.store.has_placed_all());
}

#[test]
fn a_full_segment_is_sealed_and_the_next_one_is_linked_to_it() {
    let mut rig = rig();
    let slots = rig.store.log.geometry.slots_per_segment() as u64;
    for key in 0..slots {
        assert!(rig.append(Stream::Write, key, 1));
    }
    rig.flush();
    let order = &rig.store.log.streams[Stream::Write as usize].order;
    let (first, second) = (order[0], order[1]);
    let sealed = &rig.store.log.segments[first.0 as usize];
    assert_eq!(sealed.state, SegmentState::Sealed);
    let generation = sealed.generation;
    let previous = rig.store.log.filling(second).previous.expect("a link");
    assert_eq!((previous.segment, previous.generation), (first, generation));
}

#[test]
fn a_dropped_block_leaves_the_index_and_says_so_in_its_stream() {
    let mut rig = rig();
    assert!(rig.append(Stream::Probation, 3, 1));
    let before = rig.store.last_number();
    let number = rig
        .store
        .drop_block(rig.now, BlockKey(3), false, &mut rig.ram);
    assert_eq!(number, Some(before + 1), "I3: a Drop was numbered");
    assert!(rig.store.index.find(BlockKey(3)).is_none());
    let again = rig
        .store
        .drop_block(rig.now, BlockKey(4), false, &mut rig.ram);
    assert_eq!(again, Some(0), "nothing of it is in the log");
}

#[test]
fn counts_of_dirty_and_live_blocks_follow_what_is_replaced() {
    let mut rig = rig();
    assert!(rig.append(Stream::Write, 0, 4));
    assert!(rig.append(Stream::Write, 2, 4));
    assert_eq!(rig.store.stats.dirty_blocks, 6);
    let segment = rig.store.log.streams[Stream::Write as usize].order[0];
    let segment = &rig.store.log.segments[segment.0 as usize];
    assert_eq!((segment.live, segment.dirty), (6, 6));
    assert_eq!(
        rig.store.volumes[0].as_ref().map(|v| v.dirty_blocks),
        Some(6)
    );
}
