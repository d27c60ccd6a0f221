//! Rot, while nobody compares hits, is found by the scrub (I23).

mod common;

use common::{Fate, Rig};
use forebay_engine::{Action, Device, Mode, Nanos, Operation, Settings, Verify};

const BLOCK: u64 = 4096;
/// Blocks that are cached.
const BLOCKS: u64 = 300;
const PERIOD: Nanos = Nanos(100 * Nanos::SECOND.0);

fn rig() -> Rig {
    let settings = Settings {
        verify: Verify::Background,
        scrub_period: PERIOD,
        age_limit: Nanos::NEVER,
        ..Settings::default()
    };
    let mut rig = Rig::new(16 << 20, 96 << 20, settings, Mode::Writeback);
    for block in 0..BLOCKS {
        rig.write(block * BLOCK, &contents(block), false);
    }
    rig
}

fn contents(block: u64) -> Vec<u8> {
    let number = (block + 1).to_le_bytes();
    number.iter().copied().cycle().take(4096).collect()
}

/// Changes a bit of a block where it is stored.
fn rot(rig: &mut Rig, block: u64) {
    let wanted = contents(block);
    let mut pages = rig.cache.0.chunks_exact_mut(4096);
    let page = pages.find(|page| **page == wanted[..]);
    page.expect("it is stored")[100] ^= 4;
}

/// Lets time pass until so many passes have ended.
fn pass(rig: &mut Rig, passes: u64) {
    let end = rig.engine.stats().scrub_passes + passes;
    for _ in 0..1_000_000 {
        if rig.engine.stats().scrub_passes >= end {
            while rig.turn() {}
            return;
        }
        if !rig.turn() {
            let deadline = rig.engine.next_deadline().expect("the scrub goes on");
            rig.now = deadline.max(rig.now.after(Nanos(1)));
        }
    }
    panic!("no pass ends");
}

#[test]
fn a_pass_reads_all_that_is_stored_once_in_its_time() {
    let mut rig = rig();
    pass(&mut rig, 1);
    // Segments that were open at its beginning count in the next.
    let (began, before) = (rig.now, rig.engine.stats().scrubbed_blocks);
    pass(&mut rig, 1);
    let scrubbed = rig.engine.stats().scrubbed_blocks - before;
    assert!((200..=BLOCKS).contains(&scrubbed), "{scrubbed} blocks");
    let took = rig.now.since(began);
    assert!(took <= PERIOD, "{took:?}");
    assert_eq!(rig.engine.stats().checksum_errors, 0);
}

#[test]
fn a_clean_block_that_rots_comes_from_the_origin_after_the_pass() {
    let mut rig = rig();
    rig.drain();
    rot(&mut rig, 40);
    assert_ne!(rig.read(40 * BLOCK, 4096), contents(40), "nobody compares");
    pass(&mut rig, 2);
    assert!(rig.engine.stats().checksum_errors > 0);
    assert_eq!(rig.read(40 * BLOCK, 4096), contents(40));
    assert_eq!(rig.read(41 * BLOCK, 4096), contents(41));
    assert_eq!(rig.engine.unreadable_blocks(rig.volume), 0);
}

#[test]
fn a_dirty_block_that_rots_is_an_error_and_never_reaches_the_origin() {
    let mut rig = rig();
    rot(&mut rig, 40);
    pass(&mut rig, 2);
    assert_eq!(rig.engine.unreadable_dirty(rig.volume).len(), 1);
    let buf = forebay_engine::Memory::alloc(&mut rig.ram, 4096).unwrap();
    let read = rig.start(forebay_engine::RequestKind::Read, 40 * BLOCK, 4096, buf);
    assert!(rig.finish(read).is_err(), "not what rotted");
    assert_eq!(
        rig.read_straight(40 * BLOCK, 4096),
        Err(forebay_engine::Failure::NotStraight)
    );
    rig.engine.set_draining(rig.volume, true);
    let read = rig.start(forebay_engine::RequestKind::Read, 40 * BLOCK, 4096, buf);
    assert!(rig.finish(read).is_err(), "it is as suspect as before");
    pass(&mut rig, 1);
    let at = 40 * BLOCK as usize;
    assert_eq!(rig.origin.0[at..at + 4096], [0; 4096], "as it was");
    assert_eq!(rig.origin.0[at + 4096..at + 8192], contents(41)[..]);
    // What replaces it is as good as ever.
    rig.write(40 * BLOCK, &contents(7), false);
    assert_eq!(rig.read(40 * BLOCK, 4096), contents(7));
}

#[test]
fn reads_that_fail_at_first_cost_nothing() {
    let mut rig = rig();
    rig.fate = |action: &Action| match (action.device, &action.operation) {
        (Device::Cache(_), Operation::Read { bufs, .. }) if bufs[0].len_bytes > 4096 => Fate::Fails,
        _ => Fate::Done,
    };
    pass(&mut rig, 2);
    assert_eq!(rig.engine.unreadable_blocks(rig.volume), 0);
    for block in 0..BLOCKS {
        let (cached, dirty) = rig.engine.block_state(rig.volume, block * BLOCK);
        assert!(cached && dirty, "block {block}");
    }
}

#[test]
fn a_period_that_leaves_no_time_is_refused() {
    let mut rig = rig();
    for scrub_period in [Nanos(0), Nanos(999_999_999)] {
        let settings = Settings {
            scrub_period,
            ..rig.engine.settings().clone()
        };
        assert!(rig.engine.set_settings(settings).is_err());
    }
}

#[test]
fn nothing_is_scrubbed_at_the_end() {
    let mut rig = rig();
    rig.engine.limit_writeback();
    let before = rig.engine.stats().scrubbed_blocks;
    for _ in 0..1000 {
        rig.now = rig.now.after(Nanos::SECOND);
        while rig.turn() {}
    }
    assert_eq!(rig.engine.stats().scrubbed_blocks, before);
}

#[test]
fn another_period_counts_at_once() {
    let mut rig = rig();
    while rig.turn() {}
    let settings = Settings {
        scrub_period: Nanos::SECOND,
        ..rig.engine.settings().clone()
    };
    rig.engine.set_settings(settings).unwrap();
    let began = rig.now;
    pass(&mut rig, 1);
    let took = rig.now.since(began);
    assert!(took <= Nanos(2 * Nanos::SECOND.0), "{took:?}");
}

#[test]
fn nothing_is_scrubbed_where_hits_are_compared() {
    let mut rig = rig();
    let settings = Settings {
        verify: Verify::Always,
        ..rig.engine.settings().clone()
    };
    rig.engine.set_settings(settings).unwrap();
    for _ in 0..1000 {
        rig.now = rig.now.after(Nanos::SECOND);
        while rig.turn() {}
    }
    assert_eq!(rig.engine.stats().scrubbed_blocks, 0);
}
