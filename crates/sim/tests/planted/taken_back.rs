//! I14: promises that were taken back stay so.
//!
//! 1. Data is written to segment A, and flushed. Then blocks are read, and cached in segment B. Headers
//!    of B say how far A is durable.
//! 2. A header of A rots. The start is refused, and an administrator accepts the damage: A ends before
//!    it, which the summary of each segment says from then on.
//! 3. The summary of B rots. Its headers are all that is left of B, and still promise what was in A.

#[path = "../../../engine/tests/common/mod.rs"]
mod common;

use std::ops::Range;

use common::{BOOT, Disk, Rig};
use forebay_engine::{
    AttachError, AttachOptions, Mode, Nanos, RecoveryError, RequestKind, Settings, attach,
};

const ORIGIN_BYTES: usize = 64 << 20;
/// Headers of A after the first: what is before one that rots stays.
const ROTTEN: Range<usize> = 1..5;
const NONE: [String; 0] = [];

/// The damage that a start after a power cut finds.
fn damage(cache: &mut Disk, accepts: bool) -> Vec<String> {
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: accepts,
        without_missing: false,
        from_checkpoint: true,
    };
    match attach(cache, &mut [], &options) {
        Err(AttachError::Shard {
            source: RecoveryError::Damaged(damage),
            ..
        }) => damage,
        result => {
            drop(result.expect("nothing else is wrong"));
            Vec::new()
        }
    }
}

/// A cache with both segments, after a power cut.
fn written() -> Disk {
    let settings = Settings {
        promotion_hits: 1,
        ..Settings::default()
    };
    let mut rig = Rig::new(16 << 20, ORIGIN_BYTES, settings, Mode::Writeback);
    for block in 0..8 {
        rig.write(block * 8192, &[block as u8 + 1; 4096], false);
        rig.pass(Nanos(60_000_000));
    }
    rig.simple(RequestKind::Flush, 0, 0);
    rig.pass(Nanos(200_000_000));
    for block in 0..8 {
        for _ in 0..3 {
            rig.read((32 << 20) + block * 65536, 4096);
        }
        rig.pass(Nanos(60_000_000));
    }
    rig.simple(RequestKind::Flush, 0, 0);
    rig.pass(Nanos(2_000_000_000));
    rig.cache
}

fn rot(cache: &mut Disk, page: usize) {
    cache.0[page + 60] ^= 1;
}

/// Counts the headers of A after whose rot a start misses again what was accepted as lost.
pub(crate) fn false_promises() -> usize {
    let cache = written();
    let headers = cache.pages(b"FBRH");
    let is_missed = |header: &usize| {
        let mut cache = cache.clone();
        rot(&mut cache, *header);
        assert_eq!(damage(&mut cache.clone(), false).len(), 1);
        assert_eq!(damage(&mut cache, true), NONE);
        assert_eq!(damage(&mut cache.clone(), false), NONE, "it is accepted");
        let summaries = cache.pages(b"FBSM");
        let [_, of_b] = summaries[..] else {
            panic!("a summary of each segment, and not {summaries:?}");
        };
        rot(&mut cache, of_b);
        damage(&mut cache, false).len() > 1
    };
    headers[ROTTEN].iter().filter(|at| is_missed(at)).count()
}
