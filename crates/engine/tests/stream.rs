//! A long sequential write after a random one: the cache fills, and the writer goes on.

mod common;

use common::{Rig, Rng};
use forebay_engine::{Mode, Nanos, RequestKind, Settings};

#[test]
fn a_stream_past_a_full_cache_goes_on() {
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
