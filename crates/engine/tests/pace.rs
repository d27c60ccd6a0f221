//! Rate-controlled write-back beside clients: what was written back at other times is no debt.

mod common;

use common::Rig;
use forebay_engine::{Mode, Nanos, RequestKind, Settings, WritebackPolicy};

const BLOCK: u64 = 4096;
const STEP: Nanos = Nanos(10_000_000);

/// Time passes while a client reads what is cached.
fn busy(rig: &mut Rig, seconds: u64) {
    for _ in 0..seconds * 100 {
        rig.now = rig.now.after(STEP);
        rig.read(0, BLOCK as u32);
    }
}

#[test]
fn it_goes_on_after_a_time_without_pace() {
    let threshold = Settings {
        dirty_low_percent: 1,
        ..Settings::default()
    };
    let mut rig = Rig::new(64 << 20, 256 << 20, threshold.clone(), Mode::Writeback);
    let dirty = |rig: &Rig| rig.engine.stats().dirty_blocks;
    for block in 0..9_000 {
        rig.write(block * BLOCK, &[1; BLOCK as usize], false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    busy(&mut rig, 40);
    assert_eq!(dirty(&rig), 0, "all is old by now");
    let rate = Settings {
        writeback_policy: WritebackPolicy::Rate,
        ..threshold
    };
    rig.engine.set_settings(rate).unwrap();
    for block in 20_000..21_000 {
        rig.write(block * BLOCK, &[2; BLOCK as usize], false);
    }
    busy(&mut rig, 10);
    let before = dirty(&rig);
    assert!(before > 700, "paced: {before} blocks");
    busy(&mut rig, 100);
    assert!(
        dirty(&rig) < before / 2,
        "{} of {before} blocks",
        dirty(&rig)
    );
}
