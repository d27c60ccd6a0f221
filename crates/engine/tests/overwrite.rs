//! Many writes at a time of what was written before and has moved on since.

mod common;

use common::{Rig, Rng};
use forebay_engine::{Memory, Mode, Nanos, RequestKind, Settings};

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
        // No stream, which would go past the cache.
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
