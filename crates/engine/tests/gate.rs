//! Admission: blocks that are let into the cache, and blocks that are not although there is room.

mod common;

use common::Rig;
use forebay_engine::{Admission, BypassReason, Mode, Nanos, Settings};

const BLOCK: u64 = 4096;

fn rig(settings: Settings, mode: Mode) -> Rig {
    Rig::new(16 << 20, 64 << 20, settings, mode)
}

fn is_cached(rig: &Rig, block: u64) -> bool {
    rig.engine.block_state(rig.volume, block * BLOCK).0
}

#[test]
fn reads_and_writes_are_counted_apart() {
    let settings = Settings {
        read_admission: Admission::nth_touch(3).unwrap(),
        write_admission: Admission::SECOND_TOUCH,
        ..Settings::default()
    };
    let mut rig = rig(settings, Mode::Writeback);
    for (touch, cached) in [(1, false), (2, false), (3, true)] {
        rig.read(5 * BLOCK, BLOCK as u32);
        assert_eq!(is_cached(&rig, 5), cached, "touch {touch}");
    }
    rig.write(9 * BLOCK, &[1; 4096], false);
    assert!(!is_cached(&rig, 9));
    assert_eq!(
        rig.origin.0[9 * 4096],
        1,
        "the first write went to the origin"
    );
    rig.write(9 * BLOCK, &[2; 4096], false);
    assert_eq!(rig.engine.block_state(rig.volume, 9 * BLOCK), (true, true));
    rig.write(9 * BLOCK, &[3; 4096], false);
    assert_eq!(
        rig.origin.0[9 * 4096],
        1,
        "what is dirty stays in the cache"
    );
    assert_eq!(rig.read(9 * BLOCK, 4096), [3; 4096]);
    let bypasses = &rig.engine.stats().bypasses;
    assert_eq!(bypasses.read_blocks(BypassReason::Admission), 2);
    assert_eq!(bypasses.written_blocks(BypassReason::Admission), 1);
    let last = bypasses.last(BypassReason::Admission).unwrap();
    assert_eq!(
        (last.offset_bytes, last.len_bytes, last.write),
        (9 * BLOCK, BLOCK, true)
    );
}

#[test]
fn a_spent_budget_turns_away_what_can_go_to_the_origin() {
    let settings = Settings {
        write_budget_bytes_per_day: Some(24 << 20),
        ..Settings::default()
    };
    let mut rig = rig(settings, Mode::Writeback);
    for block in 0..1024 {
        rig.write(block * BLOCK, &[7; 4096], false);
    }
    let past = |rig: &Rig| {
        rig.engine
            .stats()
            .bypasses
            .written_blocks(BypassReason::WriteBudget)
    };
    let spent = 1024 - past(&rig);
    assert!((200..=260).contains(&spent), "{spent} blocks for 1 MiB");
    let dirty = (0..1024).filter(|block| is_cached(&rig, *block)).count() as u64;
    assert_eq!(dirty, spent);
    assert_eq!(rig.read(1000 * BLOCK, 4096), [7; 4096]);
    assert_eq!(rig.read(3000 * BLOCK, 4096), [0; 4096]);
    assert_eq!(
        rig.engine
            .stats()
            .bypasses
            .read_blocks(BypassReason::WriteBudget),
        1
    );
    rig.write(0, &[8; 4096], false);
    assert_eq!(
        rig.read(0, 4096),
        [8; 4096],
        "a dirty block is never passed by (I5)"
    );
    assert_eq!(rig.engine.block_state(rig.volume, 0), (true, true));
    let before = past(&rig);
    rig.now = rig.now.after(Nanos(7200 * Nanos::SECOND.0));
    rig.write(2000 * BLOCK, &[7; 4096], false);
    assert_eq!(past(&rig), before, "an hour's budget has come in");
}

#[test]
fn names_of_admissions_are_read_and_written() {
    for name in ["always", "second-touch", "touch-3", "touch-15"] {
        assert_eq!(name.parse::<Admission>().unwrap().to_string(), name);
    }
    assert_eq!("touch-2".parse(), Ok(Admission::SECOND_TOUCH));
    for wrong in ["never", "touch-0", "touch-16", "touch-", "touch-300"] {
        assert!(
            wrong.parse::<Admission>().unwrap_err().contains("touch"),
            "{wrong}"
        );
    }
}
