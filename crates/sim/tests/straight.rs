//! Reads straight into readers' memory, hits that nobody compares, and the scrub, over the seeds that
//! have them.

use forebay_engine::{Nanos, Verify};
use forebay_sim::plan::eager_settings;
use forebay_sim::{Config, Options, Plan, Step, generate, run};

const SEEDS: std::ops::Range<u64> = 30_000_001..30_000_201;

#[test]
fn what_goes_straight_is_what_was_written() {
    let (mut straight, mut written, mut refused, mut scrubbed) = (0, 0, 0, 0);
    for seed in SEEDS {
        let outcome = run(&generate::plan(seed), Options::default());
        assert_eq!(outcome.violation, None, "seed {seed}");
        straight += outcome.counts.get("reads that went straight");
        written += outcome.counts.get("writes that went straight");
        refused += outcome.counts.get("requests that did not go straight");
        scrubbed += outcome.counts.get("blocks scrubbed");
    }
    // Enough of each that these runs say something about it.
    assert!(straight > 5_000, "{straight} reads went straight");
    assert!(written > 500, "{written} writes went straight");
    assert!(refused > 5_000, "{refused} requests were made again");
    assert!(scrubbed > 50_000, "{scrubbed} blocks were scrubbed");
}

/// Of two devices one has a bit flipped, and both are asked in turn: the scrub has to ask the one that
/// is wrong, not the one that answers sooner.
#[test]
fn what_rots_on_one_of_two_devices_is_mended_within_two_passes() {
    let mut rotten = 0;
    for place in 0..40 {
        let mut settings = eager_settings();
        settings.verify = Verify::Background;
        settings.scrub_period = Nanos::SECOND;
        let mut config = Config {
            settings,
            volume_sectors: vec![512],
            cache_devices: 2,
            copies: 2,
            first_copies: 2,
            alternates: true,
            failing_device: Some(1),
            ..Config::default()
        };
        config.geometry.segments_per_shard = 24;
        let write = |at: u64| Step::Write {
            volume: 0,
            sector: at * 64,
            count: 64,
            fua: true,
        };
        let read = |at: u64| Step::Read {
            volume: 0,
            sector: at * 64,
            count: 64,
        };
        let rot = Step::Rot {
            place: place * 7919,
            metadata: false,
        };
        let mut steps: Vec<Step> = (0..4).map(write).collect();
        steps.extend([Step::Pass { ms: 50 }, rot, Step::Pass { ms: 2100 }]);
        steps.extend((0..4).map(read));
        let plan = Plan {
            config,
            steps: (0..).zip(steps).collect(),
            schedule: place,
        };
        let outcome = run(&plan, Options::default());
        assert_eq!(outcome.violation, None, "place {place}");
        let found = outcome.counts.get("rot in data");
        let mended = outcome.counts.get("blocks mended");
        assert!(mended >= found, "place {place}: what rotted is not mended");
        rotten += found;
    }
    assert!(rotten > 10, "{rotten} blocks rotted");
}
