//! Random workloads, faults and crashes from 2,000 seeds, each run twice.

use std::time::Duration;

use forebay_sim::search;

/// The last seed; `make soak` goes on from there for as long as it is told.
const LAST: u64 = 1999;
/// On a slow machine fewer seeds are run rather than longer.
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn two_thousand_seeds_without_a_violation() {
    let report = search(0, LAST, LIMIT, 1, true, 2);
    println!(
        "{} seeds, {} operations in {:?}",
        report.seeds, report.operations, report.elapsed
    );
    for (seed, violation) in &report.failures {
        println!("seed {seed}: {violation:?}");
        println!("cargo run --release -p forebay-sim -- replay {seed} --trace --shrink");
    }
    assert!(
        report.failures.is_empty(),
        "seeds failed; the commands above replay them"
    );
    assert!(
        report.seeds > 100,
        "only {} seeds in {LIMIT:?}",
        report.seeds
    );
}
