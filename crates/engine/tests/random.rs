//! Random requests against a plain copy of the volume, over daemon crashes, in every mode.

mod common;

use common::{Rig, Rng};
use forebay_engine::{Commit, Mode, RequestKind, Settings};

const ORIGIN_BYTES: u64 = 24 << 20;

fn run(seed: u64, commit: Commit, modes: &[Mode], steps: usize) {
    let settings = Settings {
        commit,
        ..Settings::default()
    };
    let mut rng = Rng(seed * 2 + 1);
    let mut rig = Rig::new(12 << 20, ORIGIN_BYTES as usize, settings.clone(), modes[0]);
    let mut model = vec![0u8; ORIGIN_BYTES as usize];
    let mut mode = modes[0];
    for step in 0..steps {
        let longest = if rng.below(4) == 0 { 512 } else { 16 };
        let sectors = 1 + rng.below(longest);
        let len = sectors * 512;
        let offset = rng.below((ORIGIN_BYTES - len) / 512) * 512;
        let range = offset as usize..(offset + len) as usize;
        match rng.below(100) {
            0..40 => {
                let data: Vec<u8> = (0..len)
                    .map(|i| (step as u64 * 31 + i / 512) as u8)
                    .collect();
                rig.write(offset, &data, rng.below(10) == 0);
                model[range].copy_from_slice(&data);
            }
            40..80 => {
                let data = rig.read(offset, len as u32);
                assert!(
                    data == model[range],
                    "seed {seed} step {step}: read of {len} at {offset} differs"
                );
            }
            80..85 => rig.simple(RequestKind::Flush, 0, 0),
            85..90 => {
                rig.simple(RequestKind::WriteZeroes { fua: false }, offset, len as u32);
                model[range].fill(0);
            }
            90..93 => {
                // The driver of this test zeroes what is discarded, in whole blocks.
                let (start, end) = (offset.next_multiple_of(4096), (offset + len) / 4096 * 4096);
                rig.simple(RequestKind::Discard, offset, len as u32);
                if start < end {
                    model[start as usize..end as usize].fill(0);
                }
            }
            93..95 => rig.simple(RequestKind::Prefetch, offset, len as u32),
            95..97 => {
                mode = modes[rng.below(modes.len() as u64) as usize];
                rig.engine.set_mode(rig.volume, mode);
            }
            97..99 if step % 7 == 0 => {
                let before = rig.engine.volume_blocks(rig.volume).unwrap();
                rig = rig.kill(settings.clone(), mode);
                let after = rig.engine.volume_blocks(rig.volume).unwrap();
                // A hint that a block is clean may still have waited for room.
                let dirtier = after.0.checked_sub(before.0);
                assert!(
                    dirtier.is_some_and(|more| more < 200),
                    "seed {seed} step {step}: {before:?} {after:?} dirty"
                );
                // What was evicted from a segment that is not free yet comes back.
                assert!(
                    before.1 <= after.1,
                    "seed {seed} step {step}: {before:?} {after:?} cached"
                );
            }
            _ => {
                rig.settle();
            }
        }
    }
    rig.drain();
    rig.simple(RequestKind::Flush, 0, 0);
    assert!(
        rig.origin.0 == model,
        "seed {seed}: after a drain the origin is whole by itself"
    );
    let stats = rig.engine.stats();
    assert!(
        stats.failed_requests == 0 && stats.checksum_errors == 0,
        "{stats:?}"
    );
}

#[test]
fn writeback_with_commit_flush() {
    for seed in 0..6 {
        run(seed, Commit::Flush, &[Mode::Writeback], 4000);
    }
}

#[test]
fn writeback_with_commit_write() {
    for seed in 0..6 {
        run(seed, Commit::Write, &[Mode::Writeback], 4000);
    }
}

#[test]
fn every_mode_and_live_switches() {
    let modes = Mode::NAMES.map(|(mode, _)| mode);
    for seed in 0..10 {
        run(
            seed,
            if seed % 2 == 0 {
                Commit::Flush
            } else {
                Commit::Write
            },
            &modes,
            4000,
        );
    }
}
