//! Metadata written to the cache device.

use forebay_engine::{Commit, RequestKind, Settings};

use crate::Figure;
use crate::rig::Rig;

pub(crate) fn measure() -> Result<Vec<Figure>, String> {
    let (blocks, operations) = depth_one_writes();
    Ok(vec![
        Figure::new(
            "metadata: % of data, 128 KiB sequential, commit = flush",
            sequential(128 << 10),
            1.0,
        ),
        Figure::new(
            "metadata: % of data, 4 KiB random, commit = flush",
            random(),
            f64::INFINITY,
        ),
        Figure::new(
            "metadata: blocks for each write, depth 1, commit = write",
            blocks,
            1.0,
        ),
        Figure::new(
            "operations for each write, depth 1, commit = write",
            operations,
            1.0,
        ),
    ])
}

fn share(rig: &Rig) -> f64 {
    let stats = rig.engine.stats();
    stats.cache_metadata_written_bytes as f64 * 100.0 / stats.cache_data_written_bytes as f64
}

/// In percent of the data, over four times the cache.
fn sequential(len_bytes: u32) -> f64 {
    let cache_bytes = 1u64 << 30;
    let mut rig = Rig::new(cache_bytes, 1 << 40, Settings::default());
    for i in 0..cache_bytes * 4 / u64::from(len_bytes) {
        rig.request(
            RequestKind::Write { fua: false },
            i * u64::from(len_bytes),
            len_bytes,
        );
    }
    share(&rig)
}

fn random() -> f64 {
    let mut rig = Rig::new(1 << 30, 128 << 20, Settings::default());
    for i in 0..200_000u64 {
        rig.request(
            RequestKind::Write { fua: false },
            (i * 7919 % 32_749) * 4096,
            4096,
        );
    }
    share(&rig)
}

/// Header blocks and operations on the cache device for each 4 KiB write that waits for the write
/// before, between seals. Seals come once a segment and are counted apart, in the share of
/// metadata.
fn depth_one_writes() -> (f64, f64) {
    let settings = Settings {
        commit: Commit::Write,
        ..Settings::default()
    };
    let mut rig = Rig::new(1 << 30, 128 << 20, settings);
    let writes = 100u64;
    for i in 0..8 {
        rig.request(RequestKind::Write { fua: false }, i * 8192, 4096);
    }
    let before = rig.engine.stats().cache_metadata_written_bytes;
    rig.cache_operations = 0;
    for i in 0..writes {
        rig.request(
            RequestKind::Write { fua: false },
            (i * 7919 % 32_749) * 4096,
            4096,
        );
    }
    let metadata = rig.engine.stats().cache_metadata_written_bytes - before;
    (
        metadata as f64 / 4096.0 / writes as f64,
        rig.cache_operations as f64 / writes as f64,
    )
}
