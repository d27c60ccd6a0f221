//! Long writes have their checksums made while the device has them, or when they have ended.

mod common;

use std::cell::Cell;

use common::{Fate, Rig};
use forebay_engine::{
    Action, CHECKSUMMED_LATER_BYTES, Device, Failure, Memory, Mode, Operation, RequestKind,
    Settings,
};

/// It fits into a segment of the smallest caches.
const LEN_BYTES: u32 = 64 << 10;

fn long_writes_are_held(action: &Action) -> Fate {
    match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Write { bufs, .. })
            if bufs[0].len_bytes >= CHECKSUMMED_LATER_BYTES =>
        {
            Fate::Held
        }
        _ => Fate::Done,
    }
}

thread_local! {
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
}

fn the_first_long_write_fails(action: &Action) -> Fate {
    match long_writes_are_held(action) {
        Fate::Held if !HAS_FAILED.replace(true) => Fate::Fails,
        _ => Fate::Done,
    }
}

/// A cache whose write stream has an open record, as a write has no job of its own then.
fn rig() -> Rig {
    let mut rig = Rig::new(64 << 20, 256 << 20, Settings::default(), Mode::Writeback);
    rig.write(0, &[9; 4096], false);
    rig
}

/// Reads a write of this length whose memory changed while the device had it, and had not taken
/// anything yet.
fn changed_in_flight(len_bytes: u32, made_meanwhile: bool) -> Result<u8, Failure> {
    let mut rig = rig();
    let buf = rig.ram.alloc(len_bytes as usize).unwrap();
    rig.ram.bytes_mut(buf).fill(1);
    rig.fate = long_writes_are_held;
    let kind = RequestKind::Write { fua: false };
    let id = rig.start(kind, 1 << 20, len_bytes, buf);
    rig.turn();
    if made_meanwhile {
        rig.engine.checksum_long_writes(&rig.ram);
    }
    rig.ram.bytes_mut(buf).fill(2);
    rig.release();
    rig.finish(id).unwrap();
    let id = rig.start(RequestKind::Read, 1 << 20, len_bytes, buf);
    rig.finish(id).map(|()| rig.ram.bytes(buf)[0])
}

#[test]
fn the_checksums_are_of_what_the_memory_held_when_they_were_made() {
    for len_bytes in [CHECKSUMMED_LATER_BYTES, LEN_BYTES] {
        assert_eq!(changed_in_flight(len_bytes, false), Ok(2));
        assert_eq!(changed_in_flight(len_bytes, true), Err(Failure::Io));
    }
}

#[test]
fn a_long_write_whose_transfer_fails_is_made_again_elsewhere_with_its_checksums() {
    for made_meanwhile in [false, true] {
        let mut rig = rig();
        let buf = rig.ram.alloc(LEN_BYTES as usize).unwrap();
        rig.ram.bytes_mut(buf).fill(7);
        let kind = RequestKind::Write { fua: false };
        let id = rig.start(kind, 1 << 20, LEN_BYTES, buf);
        if made_meanwhile {
            rig.engine.checksum_long_writes(&rig.ram);
        }
        HAS_FAILED.set(false);
        rig.fate = the_first_long_write_fails;
        rig.finish(id).unwrap();
        assert_eq!(rig.engine.stats().cache_write_errors, 1);
        rig.simple(RequestKind::Flush, 0, 0);
        let mut rig = rig.kill(Settings::default(), Mode::Writeback);
        assert_eq!(rig.read(1 << 20, LEN_BYTES), vec![7; LEN_BYTES as usize]);
        assert!(rig.engine.stats().read_blocks_hit > 0);
    }
}
