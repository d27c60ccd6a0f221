//! Between the recovery of a cache and its volumes.

mod common;

use common::{BOOT, Ram, Rig};
use forebay_engine::{
    AttachOptions, Engine, Mode, Nanos, RequestKind, Settings, VolumeConfig, WritebackPolicy,
    attach,
};

/// Its dirty data is due, and there is no origin to write it to yet.
#[test]
fn a_volume_that_is_not_there_yet_holds_up_nobody() {
    let settings = Settings {
        writeback_policy: WritebackPolicy::Cleaner,
        ..Settings::default()
    };
    let mut rig = Rig::new(16 << 20, 64 << 20, settings.clone(), Mode::Writeback);
    for block in 0..100 {
        rig.write(block * 8192, &[7; 4096], false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    assert!(rig.engine.stats().dirty_blocks > 0);

    let mut ram = Ram::new(64 << 20);
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    let mut attached = attach(&mut rig.cache, &mut [], &options).unwrap();
    let record = attached.superblock.volumes[0].clone();
    let mut engine = Engine::new(settings, attached.shards.remove(0), BOOT, &mut ram);
    let dirty = engine.stats().dirty_blocks;
    assert!(dirty > 0);
    engine.advance(Nanos(1), &mut ram);
    assert!(engine.next_action().is_none());
    engine.add_volume(VolumeConfig {
        base: record.base,
        reserved_blocks: record.reserved_blocks,
        size_bytes: record.size_bytes,
        mode: Mode::Writeback,
    });
    engine.advance(Nanos::SECOND, &mut ram);
    assert!(engine.next_action().is_some());
}

/// A cache that failed before its volumes are there: a list without their blocks would say
/// that nothing is newer in it, in place of one that knows better.
#[test]
fn what_is_unsaved_is_not_listed_before_its_volume_is_there() {
    let settings = Settings::default();
    let mut rig = Rig::new(16 << 20, 64 << 20, settings.clone(), Mode::Writeback);
    rig.write(0, &[7; 4096], true);
    let mut ram = Ram::new(64 << 20);
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    let mut attached = attach(&mut rig.cache, &mut [], &options).unwrap();
    let record = attached.superblock.volumes[0].clone();
    let mut engine = Engine::new(settings, attached.shards.remove(0), BOOT, &mut ram);
    engine.fail_cache("a test");
    assert_eq!(engine.list_unsaved(), None);
    engine.add_volume(VolumeConfig {
        base: record.base,
        reserved_blocks: record.reserved_blocks,
        size_bytes: record.size_bytes,
        mode: Mode::Writeback,
    });
    let listed = engine.list_unsaved().expect("its volume is there");
    assert_eq!(
        listed.iter().map(|range| range.len_bytes).sum::<u64>(),
        4096
    );
}

/// I12: what an attach decided stays decided, and without the summary that says so the records of
/// the segment say more.
#[test]
fn a_verdict_that_rots_is_missed() {
    let mut rig = Rig::new(16 << 20, 64 << 20, Settings::default(), Mode::Writeback);
    rig.write(0, &[7; 4096], true);
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    for _ in 0..2 {
        attach(&mut rig.cache, &mut [], &options).expect("what was decided is there");
    }
    for page in rig.cache.0.chunks_exact_mut(4096) {
        if page.starts_with(b"FBSM") {
            page[100] ^= 1;
        }
    }
    let error = attach(&mut rig.cache, &mut [], &options).expect_err("a verdict is gone");
    assert!(error.to_string().contains("shard"), "{error}");
    let source = std::error::Error::source(&error).expect("the shard's error");
    let what = source.to_string();
    assert!(what.contains("the summary of segment"), "{what}");
}
