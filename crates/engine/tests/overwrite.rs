//! Many writes at a time of what was written before and has moved on since.

mod common;

use common::{Fate, Rig, Rng};
use forebay_engine::{Device, Memory, Mode, Nanos, Operation, RequestKind, Settings};

const BLOCK: u64 = 4096;

/// The blocks have been in the write stream, and are in the main stream now.
fn rig_with_blocks_in_main(blocks: u64) -> Rig {
    let mut rig = Rig::new(32 << 20, 96 << 20, Settings::default(), Mode::Writeback);
    let mut rng = Rng(3);
    let write = |rig: &mut Rig, block: u64| rig.write(block * BLOCK, &[1; BLOCK as usize], false);
    for block in 0..blocks {
        write(&mut rig, block);
    }
    rig.drain();
    for _ in 0..3 {
        for block in 0..blocks {
            rig.read(block * BLOCK, BLOCK as u32);
        }
    }
    for _ in 0..12 {
        for _ in 0..1000 {
            write(&mut rig, blocks + rng.below(16_000));
        }
        rig.drain();
    }
    rig.settle();
    rig
}

/// Segments fill up while data is on its way to them: that alone is no reason to write it again.
#[test]
fn writes_at_the_same_time_are_written_once() {
    let blocks = 1024;
    let mut rig = rig_with_blocks_in_main(blocks);
    let before = rig.engine.stats().clone();
    for write in 0..blocks / 8 {
        // No stream, which would bypass the cache.
        let run = write * 37 % (blocks / 8);
        let buf = rig.ram.alloc(8 * BLOCK as usize).unwrap();
        rig.ram.bytes_mut(buf).fill(2);
        let kind = RequestKind::Write { fua: false };
        rig.start(kind, run * 8 * BLOCK, 8 * BLOCK as u32, buf);
    }
    let mut answered = 0;
    while answered < blocks / 8 {
        rig.turn();
        rig.now = rig.now.after(Nanos(100_000));
        while let Some(ack) = rig.engine.next_ack() {
            assert_eq!(ack.result, Ok(()));
            answered += 1;
        }
    }
    let after = rig.engine.stats();
    assert!(after.write_blocks_hit - before.write_blocks_hit > blocks / 2);
    let retained = after.retained_blocks - before.retained_blocks;
    let written = after.cache_data_written_bytes - before.cache_data_written_bytes;
    assert_eq!(written / BLOCK, blocks + retained);
    assert_eq!(rig.read(500 * BLOCK, BLOCK as u32), vec![2; 4096]);
}

/// Data takes long, and what it replaces is carried on by reclaim meanwhile, into a younger
/// segment: the data has to go above it (I2).
#[test]
fn a_write_that_a_copy_overtook_is_written_again() {
    let settings = Settings {
        dirty_low_percent: 60,
        ..Settings::default()
    };
    let mut rig = Rig::new(32 << 20, 96 << 20, settings, Mode::Writeback);
    let (slow, others) = (0, 1..40);
    for block in 0..others.end {
        rig.write(block * BLOCK, &[1; BLOCK as usize], false);
    }
    rig.fate = |action| match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Write { .. }) => Fate::Held,
        _ => Fate::Done,
    };
    let buf = rig.ram.alloc(BLOCK as usize).unwrap();
    rig.ram.bytes_mut(buf).fill(2);
    let write = RequestKind::Write { fua: false };
    let write = rig.start(write, slow * BLOCK, BLOCK as u32, buf);
    rig.turn();
    // The copy in the cache stays the only one.
    rig.fate = |action| match (action.device, &action.operation) {
        (Device::Origin(_), Operation::Write { .. }) => Fate::Fails,
        _ => Fate::Done,
    };
    for block in others.cycle() {
        rig.write(block * BLOCK, &[3; BLOCK as usize], false);
        if rig.engine.stats().retained_blocks > 0 {
            break;
        }
    }
    while rig.turn() {}
    assert_eq!(rig.engine.stats().fast_writes_requeued, 0);
    rig.release();
    assert_eq!(rig.finish(write), Ok(()));
    assert_eq!(rig.engine.stats().fast_writes_requeued, 1);
    assert_eq!(rig.read(slow * BLOCK, BLOCK as u32), vec![2; 4096]);
    let mut rig = rig.kill(Settings::default(), Mode::Writeback);
    assert_eq!(rig.read(slow * BLOCK, BLOCK as u32), vec![2; 4096]);
}
