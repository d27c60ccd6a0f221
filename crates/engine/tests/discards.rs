//! Segments that are discarded before they are used again.

mod common;

use common::{Fate, Rig};
use forebay_engine::{Action, Device, Memory, Mode, Nanos, Operation, RequestKind, Settings};

const BLOCK: usize = 4096;

fn discards_are_held(action: &Action) -> Fate {
    match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Discard { .. }) => Fate::Held,
        _ => Fate::Done,
    }
}

/// A segment whose discard is on its way will be free. Reclaim that did not count it emptied all
/// others meanwhile.
#[test]
fn slow_discards_do_not_empty_the_cache() {
    let settings = Settings {
        discard_freed_segments: true,
        ..Settings::default()
    };
    let mut rig = Rig::new(64 << 20, 256 << 20, settings, Mode::Writeback);
    for run in 0..600 {
        rig.read(run << 17, 128 << 10);
    }
    rig.pass(Nanos(5 * Nanos::SECOND.0));
    let (cached, _) = rig.engine.occupancy();
    rig.fate = discards_are_held;
    let buf = rig.ram.alloc(BLOCK).unwrap();
    let blocks = 768;
    for block in 0..blocks {
        let place = (200 << 20) + block * 3 * BLOCK as u64;
        rig.start(RequestKind::Write { fua: false }, place, BLOCK as u32, buf);
        let answered = (0..2000).any(|turn| {
            if !rig.turn() {
                rig.now = rig.now.after(Nanos(1_000_000));
            }
            if turn % 500 == 499 {
                rig.release();
            }
            rig.engine.next_ack().is_some()
        });
        assert!(answered, "block {block}");
    }
    let (left, _) = rig.engine.occupancy();
    assert!(left + 2 * blocks >= cached, "{left} of {cached} are left");
}
