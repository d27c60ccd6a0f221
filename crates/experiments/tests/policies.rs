//! The engine's replacement, driven by loads from a seed: marks it must not fall back behind.

use forebay_engine::{Replacement, Settings};
use forebay_experiments::policies::{Overwrites, Point, Trace, measure, settings, shape};
use forebay_trace::Format;

const BLOCKS: u64 = 4096;

fn run(load: Overwrites, settings: &Settings) -> Point {
    let trace = load.trace(BLOCKS).expect("not too long");
    measure(&trace, BLOCKS, settings).expect("a cache of 4096 blocks")
}

const SKEWED: Overwrites = Overwrites {
    theta: Some(1.2),
    write_percent: 10,
    span_percent: 500,
};

fn with(replacement: Replacement) -> Settings {
    Settings {
        replacement,
        ..settings()
    }
}

#[test]
fn the_default_misses_about_as_seldom_as_the_ideal_and_writes_little_more() {
    let point = run(SKEWED, &settings());
    assert!(
        point.miss_ratio() < point.ideal_miss_ratio() + 0.02,
        "{point:?}"
    );
    assert!(point.write_amplification() < 1.5, "{point:?}");
    assert!(point.used > 0.5, "space is left unused: {point:?}");
}

#[test]
fn each_policy_does_what_its_name_says() {
    let [adaptive, s3_fifo, fifo, clock, two_q] = [
        Replacement::Adaptive,
        Replacement::S3Fifo,
        Replacement::Fifo,
        Replacement::Clock,
        Replacement::TwoQ,
    ]
    .map(|replacement| run(SKEWED, &with(replacement)));
    assert_eq!((fifo.retained, fifo.renewed), (0, 0), "nothing stays");
    for better in [&adaptive, &s3_fifo, &clock, &two_q] {
        assert!(better.retained > 0, "{better:?}");
        assert!(better.misses < fifo.misses, "{better:?} {fifo:?}");
    }
}

#[test]
fn of_what_goes_round_a_larger_part_stays() {
    let round = BLOCKS as usize * 6 / 5;
    let reads = (0..round).cycle().take(round * 12);
    let reads: String = reads.map(|block| format!("{block}\n")).collect();
    let trace = Trace::read(reads.as_bytes(), Format::Blocks).expect("block numbers");
    let [adaptive, fixed] = [Replacement::Adaptive, Replacement::S3Fifo]
        .map(|policy| measure(&trace, BLOCKS, &with(policy)).expect("a cache of 4096 blocks"));
    assert!(
        adaptive.miss_ratio() < fixed.miss_ratio() - 0.05,
        "{adaptive:?} {fixed:?}"
    );
}

#[test]
fn copies_keep_to_their_limit() {
    let load = Overwrites {
        theta: None,
        write_percent: 50,
        span_percent: 90,
    };
    let at = |retain_percent| {
        run(
            load,
            &Settings {
                retain_percent,
                ..settings()
            },
        )
    };
    let [none, some, many] = [0, 20, 100].map(at);
    assert!(none.copies_part() < 0.01, "{none:?}");
    // A fifth of what is let in, and what half a cache could save up.
    assert!((0.1..0.28).contains(&some.copies_part()), "{some:?}");
    assert!(many.copies_part() > some.copies_part(), "{many:?}");
    // Past some point more copies save no more misses.
    assert!(some.misses < none.misses && many.misses < none.misses);
    assert!(some.write_amplification() < 2.0, "{some:?}");
}

#[test]
fn a_cache_that_cannot_be_made_is_refused() {
    let said = shape(1000).expect_err("too small");
    assert!(said.contains("at least 64 segments"), "{said}");
    assert!(shape(1856).is_ok());
}
