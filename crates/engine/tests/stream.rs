//! A long sequential write after a random one: the cache fills, and the writer goes on.

mod common;

use common::{Rig, Rng};
use forebay_engine::{Admission, BypassReason, Mode, Nanos, RequestKind, Settings, VolumeSettings};

#[test]
fn a_stream_that_bypasses_a_full_cache_goes_on() {
    let mut rig = Rig::new(64 << 20, 256 << 20, Settings::default(), Mode::Writeback);
    let mut rng = Rng(7);
    for run in 0..256u64 {
        rig.read(run << 17, 128 << 10);
    }
    for _ in 0..20_000 {
        rig.write(rng.below(8192) << 12, &[7; 4096], false);
        rig.now = rig.now.after(Nanos(50_000));
    }
    let data = vec![9; 128 << 10];
    for run in 0..1024u64 {
        rig.write((64 << 20) + (run << 17), &data, false);
        rig.now = rig.now.after(Nanos(300_000));
    }
    rig.simple(RequestKind::Flush, 0, 0);
    assert_eq!(rig.read((64 << 20) + (1023 << 17), 128 << 10), data);
}

/// Write-back has dozens of long runs under way; what it reads for them at the same time is what
/// a client's request waits for.
#[test]
fn write_back_reads_piece_by_piece_beside_a_stream() {
    let mut rig = Rig::new(64 << 20, 256 << 20, Settings::default(), Mode::Writeback);
    let data = vec![9; 128 << 10];
    for run in 0..200u64 {
        rig.write(run << 17, &data, false);
        rig.now = rig.now.after(Nanos(10_000_000));
    }
    assert!(rig.engine.stats().written_back_blocks > 0, "it goes on");
    let beside = rig.most_read_bytes;
    assert!(beside <= 128 << 10, "{beside} bytes at once");
    let mut rig = rig.kill(Settings::default(), Mode::Writeback);
    rig.engine.set_draining(rig.volume, true);
    rig.now = rig.now.after(Nanos::SECOND);
    rig.turn();
    let alone = rig.most_read_bytes;
    assert!(alone > 1 << 20, "nobody is there: {alone} bytes at once");
}

/// A disk takes long writes about as fast as write-back brings them there; shorter ones it takes
/// faster when write-back has sorted them.
#[test]
fn above_the_mark_long_writes_bypass_the_cache_and_short_ones_do_not() {
    let settings = Settings {
        dirty_low_percent: 50,
        dirty_high_percent: 60,
        ..Settings::default()
    };
    let mut rig = Rig::new(64 << 20, 256 << 20, settings, Mode::Writeback);
    let (_, capacity_blocks) = rig.engine.occupancy();
    let mut written = 0;
    while rig.engine.stats().dirty_blocks * 100 < capacity_blocks * 60 {
        // Every other place, so that nothing is a stream.
        rig.write(written << 18, &[1; 128 << 10], false);
        written += 1;
    }
    let past = |rig: &Rig| {
        rig.engine
            .stats()
            .bypasses
            .written_blocks(BypassReason::DirtyLimit)
    };
    assert_eq!(past(&rig), 0);
    let long = vec![2; 1 << 20];
    rig.write(200 << 20, &long, false);
    assert_eq!(past(&rig), 256);
    rig.write(220 << 20, &[3; 512 << 10], false);
    rig.write(230 << 20, &[4; 4096], false);
    assert_eq!(past(&rig), 256);
    assert_eq!(rig.read(200 << 20, 1 << 20), long);
    // I5: what is dirty is never bypassed.
    rig.write(0, &long, false);
    assert_eq!(past(&rig), 256);
    assert_eq!(rig.read(0, 1 << 20), long);
}

/// A volume with a cut-off and an admission of its own is not held to the cache's.
#[test]
fn settings_of_a_volume_go_before_those_of_the_cache() {
    let settings = Settings {
        sequential_cutoff_bytes: Some(64 << 10),
        write_admission: Admission::SECOND_TOUCH,
        ..Settings::default()
    };
    let mut rig = Rig::new(64 << 20, 256 << 20, settings, Mode::Writeback);
    let past = |rig: &Rig, reason| rig.engine.stats().bypasses.written_blocks(reason);
    rig.write(0, &[1; 128 << 10], false);
    assert_eq!(past(&rig, BypassReason::Sequential), 32);
    rig.write(8 << 20, &[1; 4096], false);
    assert_eq!(past(&rig, BypassReason::Admission), 1);
    let own = VolumeSettings {
        sequential_cutoff_bytes: Some(None),
        read_admission: None,
        write_admission: Some(Admission::ALWAYS),
        ..VolumeSettings::default()
    };
    rig.engine.set_volume_settings(rig.volume, own);
    rig.write(16 << 20, &[1; 128 << 10], false);
    rig.write(24 << 20, &[1; 4096], false);
    assert_eq!(past(&rig, BypassReason::Sequential), 32);
    assert_eq!(past(&rig, BypassReason::Admission), 1);
    // The cache's hold again, and a volume may ask more than they do.
    rig.engine
        .set_volume_settings(rig.volume, VolumeSettings::default());
    rig.write(32 << 20, &[1; 128 << 10], false);
    assert_eq!(past(&rig, BypassReason::Sequential), 64);
    rig.engine.set_settings(Settings::default()).unwrap();
    let own = VolumeSettings {
        sequential_cutoff_bytes: Some(Some(4096)),
        read_admission: Some(Admission::SECOND_TOUCH),
        write_admission: None,
        ..VolumeSettings::default()
    };
    rig.engine.set_volume_settings(rig.volume, own);
    rig.write(40 << 20, &[1; 8192], false);
    assert_eq!(past(&rig, BypassReason::Sequential), 66);
    rig.read(48 << 20, 4096);
    let read = rig
        .engine
        .stats()
        .bypasses
        .read_blocks(BypassReason::Admission);
    assert_eq!(read, 1);
}
