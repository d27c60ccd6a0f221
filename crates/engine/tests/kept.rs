//! Long writes go to the origin from memory, and nothing old with them.

mod common;

use common::Rig;
use forebay_engine::{Mode, Nanos, RequestKind, Settings};

const PIECE: u64 = 128 << 10;

fn rig() -> Rig {
    let settings = Settings {
        dirty_low_percent: 1,
        ..Settings::default()
    };
    Rig::new(64 << 20, 256 << 20, settings, Mode::Writeback)
}

/// Writes pieces from here to there, one after the other.
fn stream(rig: &mut Rig, pieces: std::ops::Range<u64>, value: u8) {
    for piece in pieces {
        rig.write(piece * PIECE, &[value; PIECE as usize], false);
        rig.now = rig.now.after(Nanos(400_000));
    }
}

#[test]
fn a_long_write_is_not_read_again_for_the_origin() {
    let mut rig = rig();
    stream(&mut rig, 0..200, 7);
    let stats = rig.engine.stats();
    let kept_bytes = stats.kept_blocks_written * 4096;
    assert!(kept_bytes > 8 << 20, "{kept_bytes} bytes from memory");
    assert_eq!(stats.cache_data_read_bytes, 0);
    rig.simple(RequestKind::Flush, 0, 0);
    rig.drain();
    let written = 200 * PIECE as usize;
    assert!(rig.origin.0[..written].iter().all(|byte| *byte == 7));
    assert_eq!(rig.engine.stats().written_back_blocks, 200 * PIECE / 4096);
    assert!(rig.engine.is_idle(), "no memory is held for nothing");
}

#[test]
fn a_copy_of_what_was_written_again_is_dropped() {
    let mut rig = rig();
    // Too little for the flush that makes it durable: all of it is kept.
    stream(&mut rig, 0..60, 1);
    assert_eq!(rig.engine.stats().written_back_blocks, 0);
    rig.write(17 * PIECE + 4096, &[2; 4096], false);
    rig.simple(RequestKind::Discard, 30 * PIECE, PIECE as u32);
    rig.simple(RequestKind::Flush, 0, 0);
    rig.drain();
    let at = (17 * PIECE) as usize;
    assert_eq!(rig.origin.0[at..at + 4096], [1; 4096]);
    assert_eq!(rig.origin.0[at + 4096..at + 8192], [2; 4096]);
    assert_eq!(rig.origin.0[at + 8192], 1);
    let at = (30 * PIECE) as usize;
    assert!(
        rig.origin.0[at..at + PIECE as usize]
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn short_and_scattered_writes_are_not_kept() {
    let mut rig = rig();
    for i in 0..200 {
        rig.write((i * 37 % 200) * 3 * PIECE, &[1; PIECE as usize], false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    rig.drain();
    assert_eq!(rig.engine.stats().kept_blocks_written, 0);
}
