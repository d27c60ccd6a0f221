//! A record counts when those before it in its segment do (I13), and nothing counts that does so
//! only after the cache failed (I22).

mod common;

use common::{Fate, Rig};
use forebay_engine::{Commit, Memory, Mode, RequestId, RequestKind, Settings};

fn start_write(rig: &mut Rig, offset_bytes: u64, value: u8) -> RequestId {
    let buf = rig.ram.alloc(4096).unwrap();
    rig.ram.bytes_mut(buf).fill(value);
    let kind = RequestKind::Write { fua: false };
    rig.start(kind, offset_bytes, 4096, buf)
}

#[test]
fn what_waits_for_an_earlier_record_when_the_cache_fails_is_not_answered_as_stored() {
    let settings = Settings {
        commit: Commit::Write,
        ..Settings::default()
    };
    let mut rig = Rig::new(16 << 20, 16 << 20, settings, Mode::Writeback);
    rig.fate = |_| Fate::Held;
    let first = start_write(&mut rig, 0, 1);
    rig.turn();
    rig.fate = |_| Fate::Done;
    let second = start_write(&mut rig, 4096, 2);
    while rig.turn() {}
    assert!(
        rig.engine.next_ack().is_none(),
        "its record waits for the first"
    );
    rig.engine.cache_flush_failed();
    rig.release();
    rig.turn();
    assert!(rig.engine.wants_record().is_some());
    rig.engine.list_unsaved().expect("the volume is there");
    rig.engine.failure_recorded();
    rig.finish(first).unwrap_err();
    assert_eq!(rig.engine.volume_blocks(rig.volume).unwrap().0, 0);
    rig.finish(second).unwrap_err();
}
