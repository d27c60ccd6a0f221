//! A client that reads in sequence finds what it asks for read already, and never anything old.

mod common;

use common::{Fate, Rig};
use forebay_engine::{Device, Mode, Operation, RequestKind, Settings};

const BLOCK: u64 = 4096;
const REQUEST: u64 = 8 * BLOCK;

/// The first two MiB are cached.
fn rig() -> Rig {
    let mut rig = Rig::new(32 << 20, 96 << 20, Settings::default(), Mode::Writeback);
    for request in 0..64 {
        rig.write(request * REQUEST, &[request as u8; REQUEST as usize], false);
    }
    rig
}

fn read(rig: &mut Rig, request: u64) {
    let data = rig.read(request * REQUEST, REQUEST as u32);
    assert_eq!(data, vec![request as u8; REQUEST as usize], "{request}");
}

fn served(rig: &Rig) -> u64 {
    rig.engine.stats().blocks_served_ahead
}

#[test]
fn a_sequence_is_read_ahead_and_each_block_once() {
    let mut rig = rig();
    for request in 0..48 {
        read(&mut rig, request);
    }
    let stats = rig.engine.stats();
    assert_eq!(stats.blocks_served_ahead, 45 * 8, "all but the first three");
    assert!(stats.blocks_read_ahead <= 49 * 8);
    let read = stats.cache_data_read_bytes / BLOCK;
    assert!(read <= 52 * 8, "{read} blocks for {}", 48 * 8);
    assert_eq!(stats.read_blocks_hit, 48 * 8);
    assert_eq!(stats.origin_read_bytes, 0);
}

#[test]
fn nothing_is_read_ahead_from_an_origin_or_for_who_jumps() {
    let mut rig = rig();
    for request in 64..80 {
        rig.read(request * REQUEST, REQUEST as u32);
    }
    let missed = rig.engine.stats().read_blocks_missed;
    assert_eq!(missed, 16 * 8);
    assert_eq!(rig.engine.stats().origin_read_bytes, 16 * REQUEST);
    for request in [0, 1, 5, 6, 9, 10, 3, 4] {
        read(&mut rig, request);
    }
    assert_eq!(rig.engine.stats().blocks_read_ahead, 0);
}

#[test]
fn what_was_written_since_is_read_again() {
    let mut rig = rig();
    for request in 0..8 {
        read(&mut rig, request);
    }
    let before = served(&rig);
    // The middle of the next, all of the one after, and of the third nothing is left.
    rig.write(8 * REQUEST + 2 * BLOCK, &[100; BLOCK as usize], false);
    rig.write(9 * REQUEST, &[101; REQUEST as usize], false);
    rig.simple(RequestKind::Discard, 10 * REQUEST, REQUEST as u32);
    let mut eighth = vec![8; REQUEST as usize];
    eighth[2 * BLOCK as usize..3 * BLOCK as usize].fill(100);
    assert_eq!(rig.read(8 * REQUEST, REQUEST as u32), eighth);
    assert_eq!(
        rig.read(9 * REQUEST, REQUEST as u32),
        [101; REQUEST as usize]
    );
    assert_eq!(
        rig.read(10 * REQUEST, REQUEST as u32),
        [0; REQUEST as usize]
    );
    assert_eq!(served(&rig), before);
    read(&mut rig, 11);
}

#[test]
fn what_cannot_be_read_ahead_is_read_when_it_is_asked_for() {
    let mut rig = rig();
    for request in 0..3 {
        read(&mut rig, request);
    }
    rig.fate = |action| match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Read { .. }) => common::Fate::Fails,
        _ => common::Fate::Done,
    };
    while rig.turn() {}
    rig.fate = |_| common::Fate::Done;
    assert!(rig.engine.stats().blocks_read_ahead > 0);
    for request in 3..8 {
        read(&mut rig, request);
    }
    assert_eq!(
        rig.engine.stats().cache_read_errors,
        0,
        "nobody asked for it"
    );
}

#[test]
fn memory_is_given_back() {
    let mut rig = rig();
    for request in 0..8 {
        read(&mut rig, request);
    }
    assert!(
        !rig.engine.is_idle(),
        "something is kept for the next request"
    );
    rig.settle();
    assert!(rig.engine.is_idle());
}

/// Whatever the length of its requests, a client's blocks are read once, but for those it did not
/// come for.
#[test]
fn requests_of_any_length_are_read_once() {
    for blocks in [2, 3, 24, 48, 96, 127, 128, 129, 256] {
        let mut rig = rig();
        let len_bytes = blocks * BLOCK;
        let requests = 512 * BLOCK / len_bytes;
        for request in 0..requests {
            let data = rig.read(request * len_bytes, len_bytes as u32);
            let of_block = |block: u64| data[(block * BLOCK) as usize];
            let right = |block: u64| of_block(block) == ((request * blocks + block) / 8) as u8;
            assert!((0..blocks).all(right), "{blocks} blocks, request {request}");
        }
        let stats = rig.engine.stats();
        let left = stats.blocks_read_ahead - stats.blocks_served_ahead;
        assert!(left <= 128, "{blocks} blocks each: {left} for nothing");
        let read = stats.cache_data_read_bytes / BLOCK;
        assert_eq!(read, requests * blocks + left, "{blocks} blocks each");
        let expected = if blocks > 128 {
            0
        } else {
            requests.saturating_sub(3) * blocks
        };
        assert_eq!(stats.blocks_served_ahead, expected, "{blocks} blocks each");
    }
}

#[test]
fn who_has_no_memory_gets_that_of_what_was_read_ahead() {
    let mut rig = rig();
    rig.drain();
    for request in 0..8 {
        read(&mut rig, request);
    }
    while rig.turn() {}
    rig.fate = |action| match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Read { .. }) => Fate::Held,
        _ => Fate::Done,
    };
    read(&mut rig, 8);
    while rig.turn() {}
    let free = rig.ram.free_bytes();
    let mut dropped = || rig.engine.drop_read_ahead(&mut rig.ram);
    assert!(dropped());
    assert!(dropped(), "one is still on its way");
    let in_memory = rig.ram.free_bytes() - free;
    assert_eq!(in_memory, 3 * REQUEST as usize);
    rig.release();
    assert_eq!(rig.ram.free_bytes() - free, 4 * REQUEST as usize);
    assert!(!rig.engine.drop_read_ahead(&mut rig.ram));
    rig.fate = |_| Fate::Done;
    read(&mut rig, 9);
}
