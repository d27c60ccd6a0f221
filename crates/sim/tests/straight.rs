//! Reads straight into readers' memory, hits that nobody compares, and the scrub, over the seeds that
//! have them.

use forebay_sim::{Options, generate, run};

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
