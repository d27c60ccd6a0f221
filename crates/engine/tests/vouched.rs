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

/// Twelve records of four blocks with one flush behind them, and then this long nothing.
fn written(idle: Nanos) -> Disk {
    let settings = Settings::default();
    let mut rig = Rig::new(16 << 20, 64 << 20, settings, Mode::Writeback);
    for record in 0..RECORDS {
        for block in 0..BLOCKS {
            let at = (record * BLOCKS + block) * 2 * 4096;
            rig.write(at, &[record as u8 + 1; 4096], false);
        }
        let end = rig.now.after(Nanos(60_000_000));
        pass(&mut rig, end);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    let end = rig.now.after(idle);
    pass(&mut rig, end);
    rig.cache
}

/// Lets time pass as a driver does that sleeps until the next deadline.
fn pass(rig: &mut Rig, end: Nanos) {
    loop {
        while rig.turn() {}
        match rig.engine.next_deadline() {
            Some(deadline) if deadline < end => rig.now = deadline.max(rig.now.after(Nanos(1))),
            _ => break,
        }
    }
    rig.now = end;
    while rig.turn() {}
}

/// Where the headers are.
fn headers(cache: &Disk) -> Vec<usize> {
    let pages = (0..cache.0.len()).step_by(4096);
    pages
        .filter(|at| cache.0[*at..].starts_with(b"FBRH"))
        .collect()
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
    let headers = headers(&cache);
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
    let count = |idle| headers(&written(Nanos(idle))).len();
    let busy = count(50_000_000);
    assert_eq!(count(200_000_000), busy + 1);
    assert_eq!(count(2_000_000_000), busy + 1);
}
