//! The write-back policies beside each other, as charts of text and a table.

use std::fmt::Write as _;

use crate::writeback::{BUCKET_SECONDS, Bucket, PHASES, PolicyResult, variation};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn tables(text: &mut String, results: &[PolicyResult]) {
    // Writing to a string does not fail.
    let _ = write_tables(text, results);
}

fn write_tables(text: &mut String, results: &[PolicyResult]) -> std::fmt::Result {
    writeln!(text, "### Write-back policies\n")?;
    writeln!(
        text,
        "A column is {BUCKET_SECONDS} s. The phases: {}.\n",
        PHASES
            .map(|phase| format!("{} ({} s)", phase.name, phase.seconds))
            .join(", ")
    )?;
    charts(text, results, "Dirty data, % of the cache", |bucket| {
        bucket.dirty_percent
    })?;
    charts(text, results, "Written back, MiB/s", |bucket| {
        bucket.written_mib_s
    })?;
    writeln!(
        text,
        "| phase | policy | dirty, % | written back, MiB/s | its variation | reads' p99, ms, worst {BUCKET_SECONDS} s | writes' p99, ms, worst {BUCKET_SECONDS} s |\n|---|---|---|---|---|---|---|"
    )?;
    for (number, phase) in PHASES.iter().enumerate() {
        for result in results {
            let buckets = result.phase(number);
            let (rate, spread) = variation(buckets, |bucket| bucket.written_mib_s);
            let most = |get: fn(&Bucket) -> f64| buckets.iter().map(get).fold(0.0, f64::max);
            let least = |get: fn(&Bucket) -> f64| buckets.iter().map(get).fold(f64::MAX, f64::min);
            writeln!(
                text,
                "| {} | {} | {:.1}–{:.1} | {rate:.2} | {:.0} % | {:.2} | {:.2} |",
                phase.name,
                result.policy,
                least(|bucket| bucket.dirty_percent),
                most(|bucket| bucket.dirty_percent),
                spread * 100.0,
                most(|bucket| bucket.read_p99_ms),
                most(|bucket| bucket.write_p99_ms),
            )?;
        }
    }
    writeln!(text)
}

fn charts(
    text: &mut String,
    results: &[PolicyResult],
    title: &str,
    get: fn(&Bucket) -> f64,
) -> std::fmt::Result {
    let highest = results
        .iter()
        .flat_map(|result| &result.buckets)
        .map(get)
        .fold(f64::MIN_POSITIVE, f64::max);
    writeln!(text, "{title} (a full bar is {highest:.1}):\n\n```")?;
    for result in results {
        let bars: String = result
            .buckets
            .iter()
            .map(|bucket| BARS[(get(bucket) / highest * 7.0).round() as usize])
            .collect();
        writeln!(text, "{:>9} {bars}", result.policy)?;
    }
    writeln!(text, "```\n")
}
