//! Writes past the cache of blocks that it knows nothing of.

mod common;

use std::collections::BTreeSet;

use common::{Fate, Rig};
use forebay_engine::{
    Action, Device, Memory, Mode, Nanos, Operation, RequestId, RequestKind, Settings,
};

const BLOCK: u32 = 4096;

fn rig(mode: Mode) -> Rig {
    Rig::new(64 << 20, 256 << 20, Settings::default(), mode)
}

fn writes_are_held(action: &Action) -> Fate {
    match (action.device, &action.operation) {
        (Device::Origin(_), Operation::Write { .. }) => Fate::Held,
        _ => Fate::Done,
    }
}

/// Begins a write of blocks with one letter.
fn begin(rig: &mut Rig, offset_bytes: u64, letter: u8, len_bytes: u32) -> RequestId {
    let buf = rig.ram.alloc(len_bytes as usize).unwrap();
    rig.ram.bytes_mut(buf).fill(letter);
    let kind = RequestKind::Write { fua: false };
    rig.start(kind, offset_bytes, len_bytes, buf)
}

/// The requests that end well from now on, when nothing more is to be done.
fn ended(rig: &mut Rig) -> BTreeSet<RequestId> {
    rig.pass(Nanos::SECOND);
    let acks = std::iter::from_fn(|| rig.engine.next_ack());
    acks.map(|ack| ack.result.map(|()| ack.id).expect("no failure"))
        .collect()
}

/// I11: the second is not sent while the first is on its way, also where both have parts of a block.
#[test]
fn writes_of_a_block_go_one_after_the_other() {
    for (second_at, len_bytes) in [(0, BLOCK), (2 * 4096, BLOCK), (512, 1024), (0, 4 * BLOCK)] {
        let mut rig = rig(Mode::Passthrough);
        rig.fate = writes_are_held;
        let first = begin(&mut rig, 0, 1, 4 * BLOCK);
        let second = begin(&mut rig, second_at, 2, len_bytes);
        let apart = begin(&mut rig, 1 << 20, 3, BLOCK);
        while rig.turn() {}
        let stats = rig.engine.stats();
        assert_eq!(stats.origin_written_bytes, 5 * u64::from(BLOCK));
        assert_eq!(stats.past_writes, 2, "the second is a job, which waits");
        rig.release();
        rig.fate = |_| Fate::Done;
        assert_eq!(ended(&mut rig), [first, second, apart].into());
        let at = second_at as usize;
        let written = &rig.origin.0[at..at + len_bytes as usize];
        assert!(written.iter().all(|byte| *byte == 2), "{second_at}");
    }
}

/// A promotion that began before holds what it read from the origin.
#[test]
fn a_promotion_does_not_bring_back_what_was_there() {
    let mut rig = rig(Mode::Readonly);
    rig.fate = |action| match action.operation {
        Operation::Read { .. } if matches!(action.device, Device::Origin(_)) => Fate::Held,
        _ => Fate::Done,
    };
    let buf = rig.ram.alloc(BLOCK as usize).unwrap();
    let read = rig.start(RequestKind::Read, 0, BLOCK, buf);
    rig.turn();
    let write = begin(&mut rig, 0, 7, BLOCK);
    rig.turn();
    rig.fate = |_| Fate::Done;
    rig.release();
    assert_eq!(ended(&mut rig), [read, write].into());
    assert_eq!(rig.read(0, BLOCK), vec![7; BLOCK as usize]);
}

/// Nothing else happens that would have the engine look whether a flush is due.
#[test]
fn its_origin_is_flushed_though_nobody_asks() {
    let mut rig = rig(Mode::Passthrough);
    for at in 0..4 {
        let id = begin(&mut rig, at << 20, 1, BLOCK);
        assert_eq!(rig.finish(id), Ok(()));
        rig.now = rig.now.after(Nanos(1_000_000));
    }
    assert_eq!(rig.engine.stats().past_writes, 4);
    assert_eq!(rig.engine.stats().origin_flushes, 0);
    rig.pass(Nanos::SECOND);
    assert_eq!(rig.engine.stats().origin_flushes, 1);
}

/// A write is always on its way, so that none is the last.
#[test]
fn its_origin_is_flushed_beside_writes_that_go_on() {
    let mut rig = rig(Mode::Passthrough);
    rig.fate = writes_are_held;
    begin(&mut rig, 0, 1, BLOCK);
    rig.turn();
    for at in 1..1000 {
        begin(&mut rig, at << 16, 1, BLOCK);
        // The one before ends, and the new one is held.
        rig.release();
        rig.turn();
        rig.now = rig.now.after(Nanos(10_000_000));
        while rig.engine.next_ack().is_some() {}
    }
    let stats = rig.engine.stats();
    assert_eq!(stats.past_writes, 1000);
    assert!(stats.origin_flushes > 0, "in ten seconds");
}
