//! `commit = memory`: answered from memory, and nothing lost for it.

mod common;

use common::{Fate, Rig, Rng};
use forebay_engine::{Commit, Memory, Mode, RequestId, RequestKind, Settings};

const BLOCK: u64 = 4096;

fn settings() -> Settings {
    Settings {
        commit: Commit::Memory,
        ..Settings::default()
    }
}

fn rig() -> Rig {
    Rig::new(16 << 20, 64 << 20, settings(), Mode::Writeback)
}

fn block(value: u8) -> Vec<u8> {
    vec![value; BLOCK as usize]
}

/// The machine loses power: what is on the devices is all there is.
fn cut_power(mut rig: Rig) -> Rig {
    rig.ram.buffer_mut(0).fill(0);
    rig.ram.journal_mut(0).fill(0);
    rig.kill(settings(), Mode::Writeback)
}

#[test]
fn a_write_is_answered_before_any_device_has_it_and_outlives_the_daemon() {
    let mut rig = rig();
    // `write` lets no device do anything once there is an answer.
    rig.write(3 * BLOCK, &block(7), false);
    rig.write(9 * BLOCK, &[block(8), block(9)].concat(), false);
    assert!(rig.engine.is_buffered(rig.volume, 3 * BLOCK));
    assert_eq!(rig.engine.buffer_occupancy().1, 3);
    assert_eq!(rig.read(3 * BLOCK + 512, 1024), vec![7; 1024]);
    assert_eq!(rig.engine.stats().cache_data_read_bytes, 0);
    // The next daemon does not know this setting, and takes it over all the same.
    let mut rig = rig.kill(Settings::default(), Mode::Writeback);
    assert_eq!(rig.read(9 * BLOCK, 8192), [block(8), block(9)].concat());
    let mut rig = rig.kill(settings(), Mode::Writethrough);
    assert_eq!(rig.read(3 * BLOCK, 4096), block(7));
    rig.settle();
    assert_eq!(rig.engine.buffer_occupancy().1, 0);
    let mut rig = cut_power(rig);
    assert_eq!(rig.read(3 * BLOCK, 4096), block(7));
    assert_eq!(rig.read(10 * BLOCK, 4096), block(9));
}

#[test]
fn a_flush_waits_for_what_memory_has() {
    let mut rig = rig();
    rig.write(0, &block(1), false);
    let flush = rig.start(RequestKind::Flush, 0, 0, forebay_engine::Buf::EMPTY);
    assert!(rig.engine.next_ack().is_none());
    rig.finish(flush).unwrap();
    let mut rig = cut_power(rig);
    assert_eq!(rig.read(0, 4096), block(1));
}

#[test]
fn what_touches_a_buffered_block_comes_after_it() {
    let mut rig = rig();
    rig.write(5 * BLOCK, &block(1), false);
    let part = rig.ram.alloc(4096).unwrap().slice(0, 512);
    rig.ram.bytes_mut(part).fill(2);
    let kind = RequestKind::Write { fua: false };
    let partial = rig.start(kind, 5 * BLOCK + 512, 512, part);
    assert!(rig.engine.next_ack().is_none());
    rig.finish(partial).unwrap();
    let mut expected = block(1);
    expected[512..1024].fill(2);
    assert_eq!(rig.read(5 * BLOCK, 4096), expected);
    rig.write(5 * BLOCK, &block(3), false);
    assert_eq!(rig.read(4 * BLOCK, 8192), [block(0), block(3)].concat());
    rig.write(5 * BLOCK, &block(4), false);
    rig.simple(RequestKind::WriteZeroes { fua: false }, 5 * BLOCK, 4096);
    assert_eq!(rig.read(5 * BLOCK, 4096), block(0));
}

#[test]
fn more_than_fits_waits_for_room() {
    let mut rig = rig();
    let (capacity, _) = rig.engine.buffer_occupancy();
    let mut random = Rng(11);
    let mut expected = vec![0; 512];
    for value in 0..4 * capacity {
        let at = random.below(512);
        expected[at as usize] = value as u8;
        rig.write(at * BLOCK, &block(value as u8), false);
        if random.below(40) == 0 {
            rig.turn();
        }
    }
    let buffered = rig.engine.stats().buffered_writes;
    assert_eq!(buffered, 4 * capacity);
    let mut rig = rig.kill(settings(), Mode::Writeback);
    for (at, value) in expected.iter().enumerate() {
        assert_eq!(rig.read(at as u64 * BLOCK, 4096), block(*value), "{at}");
    }
    rig.drain();
    rig.simple(RequestKind::Flush, 0, 0);
    for (at, value) in expected.iter().enumerate() {
        assert_eq!(rig.origin.0[at * 4096..][..4096], block(*value), "{at}");
    }
}

#[test]
fn a_long_write_that_waits_for_room_is_not_overtaken() {
    let mut rig = rig();
    let (capacity, _) = rig.engine.buffer_occupancy();
    for at in 0..capacity {
        rig.write(at * BLOCK, &block(1), false);
    }
    let kind = RequestKind::Write { fua: false };
    let waiting = [(4000, 64), (5000, 1)].map(|(at, blocks)| {
        let buf = rig.ram.alloc(blocks * BLOCK as usize).unwrap();
        rig.start(kind, at * BLOCK, buf.len_bytes, buf)
    });
    let mut answered = Vec::new();
    while answered.len() < waiting.len() && rig.turn() {
        let acks = std::iter::from_fn(|| rig.engine.next_ack());
        answered.extend(acks.map(|ack| ack.id).filter(|id| waiting.contains(id)));
    }
    assert_eq!(answered, waiting);
}

fn start_write(rig: &mut Rig, at: u64, blocks: &[Vec<u8>]) -> RequestId {
    let data = blocks.concat();
    let buf = rig.ram.alloc(data.len()).unwrap();
    rig.ram.bytes_mut(buf).copy_from_slice(&data);
    let kind = RequestKind::Write { fua: false };
    rig.start(kind, at * BLOCK, buf.len_bytes, buf)
}

#[test]
fn a_write_that_waits_for_one_of_its_blocks_is_not_overtaken_in_the_others() {
    let mut rig = rig();
    rig.fate = |_| Fate::Held;
    rig.write(5 * BLOCK, &block(1), false);
    rig.turn();
    let earlier = start_write(&mut rig, 5, &[block(2), block(2)]);
    let later = start_write(&mut rig, 6, &[block(3)]);
    // Another is logged meanwhile, and both look whether they may go on.
    rig.fate = |_| Fate::Done;
    rig.write(20 * BLOCK, &block(4), false);
    while rig.turn() {}
    assert!(rig.engine.next_ack().is_none(), "both wait for block 5");
    rig.release();
    rig.finish(earlier).unwrap();
    rig.finish(later).unwrap();
    assert_eq!(rig.read(5 * BLOCK, 8192), [block(2), block(3)].concat());
}

#[test]
fn a_write_that_never_fits_does_not_wait_for_room() {
    let mut rig = rig();
    let (capacity, _) = rig.engine.buffer_occupancy();
    for at in 0..capacity {
        rig.write(at * BLOCK, &block(1), false);
    }
    let long: Vec<u8> = (0..=capacity).flat_map(|at| block(at as u8)).collect();
    rig.write(4000 * BLOCK, &long, false);
    rig.write(5000 * BLOCK, &block(2), false);
    assert_eq!(rig.engine.stats().buffered_writes, capacity + 1);
    assert_eq!(rig.read(4000 * BLOCK, long.len() as u32), long);
}

#[test]
fn write_back_reads_from_memory() {
    let mut rig = rig();
    for at in 0..64 {
        rig.write(at * BLOCK, &block(at as u8 + 1), false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    rig.drain();
    assert_eq!(rig.engine.stats().cache_data_read_bytes, 0);
    assert_eq!(rig.engine.stats().written_back_blocks, 64);
    assert_eq!(rig.origin.0[63 * 4096], 64);
}

#[test]
fn a_volume_goes_with_nothing_left_behind() {
    let mut rig = rig();
    rig.write(0, &block(1), false);
    assert!(rig.engine.remove_volume(rig.volume).is_err());
    assert_eq!(rig.engine.volume_blocks(rig.volume).unwrap().0, 1);
    rig.drain();
    rig.simple(RequestKind::Flush, 0, 0);
    rig.settle();
    rig.engine.remove_volume(rig.volume).unwrap();
    assert_eq!(rig.origin.0[0], 1);
}

#[test]
fn what_can_be_stored_nowhere_is_counted_until_it_is() {
    let mut rig = rig();
    let origin = std::mem::take(&mut rig.origin.0);
    rig.cache.0.clear();
    rig.write(0, &[block(1), block(2), block(3)].concat(), false);
    let flush = rig.start(RequestKind::Flush, 0, 0, forebay_engine::Buf::EMPTY);
    while rig.engine.wants_record().is_none() {
        assert!(
            rig.turn(),
            "the cache fails before anything else can be done"
        );
    }
    rig.engine.failure_recorded();
    rig.finish(flush).unwrap_err();
    assert!(rig.engine.stats().buffered_write_errors > 0);
    assert_eq!(rig.engine.buffer_stuck_blocks(), 3);
    assert_eq!(rig.read(BLOCK, 4096), block(2));
    rig.origin.0 = origin;
    rig.settle();
    assert_eq!(rig.engine.buffer_stuck_blocks(), 0);
    assert_eq!(rig.origin.0[2 * 4096], 3);
}
