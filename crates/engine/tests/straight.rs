//! Reads into a client's own memory, and writes from there: what goes straight, and that a try changes
//! nothing else.

mod common;

use common::{Fate, Rig};
use forebay_engine::{Commit, Device, Failure, Mode, Operation, RequestKind, Settings, Verify};

const BLOCK: u64 = 4096;

fn settings(verify: Verify) -> Settings {
    Settings {
        verify,
        ..Settings::default()
    }
}

/// The first 64 blocks are cached, each filled with its number.
fn rig(settings: Settings, mode: Mode) -> Rig {
    let mut rig = Rig::new(32 << 20, 96 << 20, settings, mode);
    for block in 0..64 {
        rig.write(block * BLOCK, &[block as u8; BLOCK as usize], false);
    }
    rig
}

#[test]
fn hits_go_straight_where_nobody_compares_them() {
    let mut rig = rig(settings(Verify::Background), Mode::Writeback);
    assert_eq!(rig.read_straight(5 * BLOCK, 4096), Ok(vec![5; 4096]));
    let several = rig.read_straight(8 * BLOCK, 4 * 4096).unwrap();
    let right: Vec<u8> = (8..12).flat_map(|block| [block; 4096]).collect();
    assert_eq!(several, right);
    assert_eq!(rig.engine.stats().read_blocks_hit, 5);
    assert_eq!(rig.engine.stats().straight_requests, 2);
    assert_eq!(rig.engine.stats().origin_read_bytes, 0);
}

#[test]
fn nothing_goes_straight_that_is_to_be_compared() {
    let mut rig = rig(settings(Verify::Always), Mode::Writeback);
    assert!(!rig.engine.may_read_straight(rig.volume));
    for (block, len) in [(5, 4096), (8, 4 * 4096), (70, 4096), (60, 8 * 4096)] {
        let refused = rig.read_straight(block * BLOCK, len);
        assert_eq!(refused, Err(Failure::NotStraight), "block {block}");
    }
    assert_eq!(rig.engine.stats().failed_requests, 0, "nobody was answered");
}

#[test]
fn what_is_not_stored_whole_needs_copies() {
    let mut rig = rig(settings(Verify::Background), Mode::Writeback);
    rig.simple(RequestKind::WriteZeroes { fua: false }, 3 * BLOCK, 4096);
    for (offset, len) in [
        (3 * BLOCK, 4096),       // zeroes
        (2 * BLOCK, 3 * 4096),   // some of it
        (5 * BLOCK + 512, 4096), // parts of two blocks
        (5 * BLOCK, 512),        // a part of one
        (70 * BLOCK, 4096),      // not cached
        (62 * BLOCK, 4 * 4096),  // half of it cached
    ] {
        let refused = rig.read_straight(offset, len);
        assert_eq!(refused, Err(Failure::NotStraight), "{offset}");
        let copied = rig.read(offset, len);
        let right = |at: usize| match (offset + at as u64) / BLOCK {
            3 => 0,
            block if block < 64 => block as u8,
            _ => 0,
        };
        assert!(
            (0..len as usize).all(|at| copied[at] == right(at)),
            "{offset}"
        );
    }
}

#[test]
fn a_read_past_the_cache_goes_straight_but_for_dirty_blocks() {
    let mut rig = rig(settings(Verify::Always), Mode::Writeback);
    rig.drain();
    rig.write(7 * BLOCK, &[77; 4096], false);
    rig.engine.set_mode(rig.volume, Mode::Passthrough);
    assert_eq!(rig.read_straight(5 * BLOCK + 512, 2048), Ok(vec![5; 2048]));
    assert!(rig.engine.stats().origin_read_bytes >= 2048);
    assert_eq!(
        rig.read_straight(7 * BLOCK, 4096),
        Err(Failure::NotStraight)
    );
    assert_eq!(
        rig.read_straight(6 * BLOCK, 2 * 4096),
        Err(Failure::NotStraight)
    );
    assert_eq!(rig.read(7 * BLOCK, 4096), [77; 4096]);
}

#[test]
fn what_is_in_memory_alone_is_not_passed_by() {
    let of_memory = Settings {
        commit: Commit::Memory,
        ..settings(Verify::Background)
    };
    let mut rig = rig(of_memory, Mode::Writeback);
    rig.settle();
    rig.fate = |action| match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Write { .. }) => Fate::Held,
        _ => Fate::Done,
    };
    rig.write(70 * BLOCK, &[55; 4096], false);
    assert_eq!(
        rig.read_straight(70 * BLOCK, 4096),
        Err(Failure::NotStraight)
    );
    assert_eq!(rig.read(70 * BLOCK, 4096), [55; 4096]);
}

#[test]
fn a_device_that_cannot_read_there_is_asked_again_with_copies() {
    let mut rig = rig(settings(Verify::Background), Mode::Writeback);
    rig.fate = |action| match &action.operation {
        Operation::Read { bufs, .. } if bufs[0].is_of_client() => Fate::Fails,
        _ => Fate::Done,
    };
    for (block, len) in [(5, 4096), (8, 4 * 4096)] {
        let refused = rig.read_straight(block * BLOCK, len);
        assert_eq!(refused, Err(Failure::NotStraight));
        assert_eq!(rig.read(block * BLOCK, len)[0], block as u8);
    }
    let (cached, dirty) = rig.engine.block_state(rig.volume, 5 * BLOCK);
    assert!(cached && dirty, "nothing counts as damaged by that");
}

#[test]
fn a_sequence_of_one_request_at_a_time_is_read_ahead_as_ever() {
    let mut rig = rig(settings(Verify::Background), Mode::Writeback);
    for request in 0..8 {
        let offset = request * 4 * BLOCK;
        if rig.read_straight(offset, 4 * 4096).is_err() {
            rig.read(offset, 4 * 4096);
        }
    }
    assert!(rig.engine.stats().blocks_served_ahead >= 4 * 4);
}

#[test]
fn a_write_past_the_cache_goes_straight_but_for_dirty_blocks() {
    let mut rig = rig(settings(Verify::Always), Mode::Writeback);
    assert_eq!(
        rig.write_straight(70 * BLOCK, &[1; 4096]),
        Err(Failure::NotStraight),
        "it is to be logged"
    );
    rig.drain();
    rig.write(7 * BLOCK, &[77; 4096], false);
    rig.engine.set_mode(rig.volume, Mode::Passthrough);
    assert!(rig.engine.may_write_straight(rig.volume));
    // Cached and clean, in part, and not cached.
    for (offset, len) in [
        (5 * BLOCK, 4096),
        (9 * BLOCK + 512, 1024),
        (70 * BLOCK, 8192),
    ] {
        rig.write_straight(offset, &vec![99; len]).unwrap();
        let on_origin = &rig.origin.0[offset as usize..][..len];
        assert!(on_origin.iter().all(|byte| *byte == 99), "{offset}");
        assert_eq!(rig.read(offset, len as u32), vec![99; len]);
    }
    let before = rig.origin.0[6 * BLOCK as usize..8 * BLOCK as usize].to_vec();
    for (offset, len) in [(7 * BLOCK, 4096), (6 * BLOCK, 8192)] {
        let refused = rig.write_straight(offset, &vec![98; len]);
        assert_eq!(refused, Err(Failure::NotStraight));
    }
    assert_eq!(rig.origin.0[6 * BLOCK as usize..8 * BLOCK as usize], before);
    assert_eq!(rig.read(7 * BLOCK, 4096), [77; 4096]);
}

#[test]
fn a_write_that_an_origin_cannot_take_from_there_is_made_again_with_copies() {
    let mut rig = rig(settings(Verify::Always), Mode::Passthrough);
    rig.fate = |action| match &action.operation {
        Operation::Write { bufs, .. } if bufs[0].is_of_client() => Fate::Fails,
        _ => Fate::Done,
    };
    let refused = rig.write_straight(5 * BLOCK, &[99; 4096]);
    assert_eq!(refused, Err(Failure::NotStraight));
    rig.write(5 * BLOCK, &[99; 4096], false);
    assert_eq!(rig.read(5 * BLOCK, 4096), [99; 4096]);
    assert_eq!(rig.engine.stats().failed_requests, 0, "nobody was answered");
}
