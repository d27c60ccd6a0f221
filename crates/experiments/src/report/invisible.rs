//! Waits beside write-back, as a table and in lines.

use super::markdown::line;
use crate::invisible::{InvisibleResult, Waits};

/// A client in one line.
#[must_use]
pub fn invisible_line(result: &InvisibleResult) -> String {
    let beside = |waits: Waits| {
        format!(
            "{:.0} us ({:.2}) at {:.1} MiB/s",
            waits.p99_us,
            result.ratio(waits),
            waits.written_mib_s
        )
    };
    format!(
        "invisible: {}: p99 {:.0} us alone, beside write-back {}, beside a drain {}",
        result.client.name,
        result.without.p99_us,
        beside(result.writeback),
        beside(result.drain),
    )
}

/// All clients, a row for each run.
pub(super) fn table(text: &mut String, results: &[InvisibleResult]) {
    if results.is_empty() {
        return;
    }
    line(text, "### Waits beside write-back\n");
    line(
        text,
        "| client | beside | requests | p50, µs | p99, µs | p99.9, µs | p99 to without | written back, MiB/s |\n|---|---|---|---|---|---|---|---|",
    );
    for result in results {
        let runs = [
            ("nothing", result.without),
            ("write-back", result.writeback),
            ("a drain", result.drain),
        ];
        for (beside, waits) in runs {
            line(
                text,
                &format!(
                    "| {} | {beside} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} |",
                    result.client.name,
                    waits.requests,
                    waits.p50_us,
                    waits.p99_us,
                    waits.p999_us,
                    result.ratio(waits),
                    waits.written_mib_s,
                ),
            );
        }
    }
    line(text, "");
}
