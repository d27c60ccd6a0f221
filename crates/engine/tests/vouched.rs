//! Flushed data that rots later is missed (I14), whichever header it is, even if nothing was
//! written after it: the S9 of a review, in which every header from the flush on was lost without
//! a word.

mod common;

use common::{BOOT, Disk, Ram, Rig};
use forebay_engine::{
    AttachError, AttachOptions, Mode, Nanos, RecoveryError, RequestKind, Settings, attach,
};

const RECORDS: u64 = 12;
const BLOCKS: u64 = 4;
const HEADER: &[u8] = b"FBRH";

/// Twelve records of four blocks with one flush behind them, and then this long nothing.
fn written(idle: Nanos) -> Disk {
    let settings = Settings::default();
    let mut rig = Rig::new(16 << 20, 64 << 20, settings, Mode::Writeback);
    for record in 0..RECORDS {
        for block in 0..BLOCKS {
            let at = (record * BLOCKS + block) * 2 * 4096;
            rig.write(at, &[record as u8 + 1; 4096], false);
        }
        rig.pass(Nanos(60_000_000));
    }
    rig.simple(RequestKind::Flush, 0, 0);
    rig.pass(idle);
    rig.cache
}

/// Whether rot is missed, or everything is there all the same.
fn is_missed_or_harmless(cache: &Disk) -> bool {
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    // The power was cut: there is no ring.
    match attach(&mut cache.clone(), &mut [], &options) {
        Err(AttachError::Shard {
            source: RecoveryError::Damaged(_),
            ..
        }) => return true,
        result => drop(result.unwrap()),
    }
    let ram = Ram::new(64 << 20);
    let origin = Disk(vec![0; 64 << 20]);
    let mut rig = Rig::attach(
        cache.clone(),
        origin,
        ram,
        Settings::default(),
        Mode::Writeback,
    );
    (0..RECORDS * BLOCKS).all(|block| {
        let wanted = (block / BLOCKS) as u8 + 1;
        rig.read(block * 2 * 4096, 4096) == [wanted; 4096]
    })
}

#[test]
fn whichever_header_rots_after_a_flush_is_missed() {
    let cache = written(Nanos(200_000_000));
    let headers = cache.pages(HEADER);
    assert!(headers.len() as u64 > RECORDS / 2, "{headers:?}");
    for at in headers {
        let mut rotted = cache.clone();
        rotted.0[at + 60] ^= 1;
        assert!(
            is_missed_or_harmless(&rotted),
            "the header at {at:#x} rotted"
        );
    }
}

/// A flush leads to a single header, and to nothing more until something is written.
#[test]
fn idle_time_costs_one_header_for_a_flush() {
    let count = |idle| written(Nanos(idle)).pages(HEADER).len();
    let busy = count(50_000_000);
    assert_eq!(count(200_000_000), busy + 1);
    assert_eq!(count(2_000_000_000), busy + 1);
}
