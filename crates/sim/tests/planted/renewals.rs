//! I19: renewals of blocks that are being overwritten, of which an older copy is in probation.
//!
//! Blocks that a renewal leaves out disappear with its summary. If the data that supersedes such a
//! block is lost in a power cut, an older copy of the block is the newest there is. So each
//! schedule reads blocks, which are in probation from then on, and writes a few of each segment's:
//! written blocks are clean soon, move on to main, and are renewed there. Too few blocks of a
//! segment of probation are written for it to be the deadest.
//!
//! A flush has to begin that was on its way when the renewal was numbered, and began too early to
//! cover the last write of one of its blocks. Of 12,000 schedules 217 come to that. Power was cut at
//! each of their operations: four schedules read what is too old then.

use std::ops::Range;

use forebay_engine::{Commit, Nanos, Settings};
use forebay_sim::plan::Latency;
use forebay_sim::rng::Rng;
use forebay_sim::{Config, Options, Plan, Step, run};

/// Schedules, and the operations around the moment.
const FOUND: [(u64, Range<u64>); 4] = [
    (785, 348..376),
    (7_388, 785..813),
    (9_462, 494..522),
    (10_881, 290..318),
];

/// Power cuts that are tried.
pub(crate) const CUTS: u64 = 4 * 28;

/// After how many of the power cuts something is read that is too old.
pub(crate) fn stale_reads() -> usize {
    let is_stale = |(schedule, crash_at): &(u64, u64)| {
        let options = Options {
            crash_at: Some((*crash_at, true)),
            ..Options::default()
        };
        run(&plan(*schedule), options).violation.is_some()
    };
    let cuts = FOUND
        .into_iter()
        .flat_map(|(schedule, operations)| operations.map(move |operation| (schedule, operation)));
    cuts.filter(is_stale).count()
}

fn plan(schedule: u64) -> Plan {
    let mut rng = Rng::of(schedule, 77);
    let settings = Settings {
        commit: Commit::Flush,
        dirty_low_percent: 0,
        dirty_high_percent: 0,
        dirty_limit_percent: 90,
        age_limit: Nanos(1_000_000),
        record_delay: Nanos(100_000_000),
        retain_percent: 100,
        probation_percent: 50,
        promotion_hits: 1,
        renew_percent: 1,
        ..Settings::default()
    };
    // Slots of a segment, how many of them hold blocks, and how many of these are written.
    let (slots, held, written) =
        rng.pick(&[(8, 5, 1), (16, 13, 4), (16, 13, 3), (12, 9, 2), (12, 9, 3)]);
    let segments = rng.pick(&[1, 2, 3, 5]);
    let read = held * segments;
    let others = rng.pick(&[1, 5, 10, 20]);
    let blocks = read + others;
    let mut config = Config {
        settings,
        volume_sectors: vec![blocks * 8],
        depth: rng.pick(&[4, 16]) as usize,
        pace: rng.pick(&[1, 3, 10]),
        cache_latency: Latency {
            least_ns: 20_000,
            spread_ns: rng.pick(&[100_000, 1_000_000, 3_000_000]),
            spikes: 0,
        },
        ..Config::default()
    };
    config.geometry.segments_per_shard = rng.pick(&[12, 13, 14, 16]) as u32;
    config.geometry.segment_bytes = slots * 4096;
    let mut steps: Vec<_> = (0..read)
        .flat_map(|block| [read_block(block), Step::Settle])
        .collect();
    let write_percent = rng.pick(&[30, 50, 70]);
    let flush_percent = rng.pick(&[3, 10, 20]);
    for _ in 0..rng.between(60, 400) {
        let hot = if rng.percent(if others == 1 { 95 } else { 40 }) {
            rng.below(segments) * held + rng.below(written)
        } else {
            read + rng.below(others)
        };
        steps.push(if rng.percent(flush_percent) {
            Step::Flush { volume: 0 }
        } else if rng.percent(4) {
            let ms = rng.pick(&[1, 5, 600]);
            Step::Pass { ms }
        } else if rng.percent(write_percent) {
            write_block(hot)
        } else if rng.percent(80) {
            read_block(hot)
        } else {
            read_block(rng.below(blocks))
        });
    }
    Plan::script(config, steps, schedule)
}

fn read_block(block: u64) -> Step {
    Step::Read {
        volume: 0,
        sector: block * 8,
        count: 8,
    }
}

fn write_block(block: u64) -> Step {
    Step::Write {
        volume: 0,
        sector: block * 8,
        count: 8,
        fua: false,
    }
}
