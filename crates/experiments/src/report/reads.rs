//! The table of long cached reads.

use super::markdown::line;
use crate::reads::ReadsResult;

fn load(result: &ReadsResult) -> String {
    let order = match result.in_sequence {
        true => "in sequence",
        false => "in no order",
    };
    format!("{} KiB {order}, depth {}", result.request_kib, result.depth)
}

/// A load in one line.
#[must_use]
pub fn reads_line(result: &ReadsResult) -> String {
    format!(
        "cached reads: {} over a {}: SSD {:.0}, origin {:.0}, cache device alone {:.0}, both {:.0} KiB/s ({:.3}), {:.1} % from the origin",
        load(result),
        result.origin_name,
        result.ssd.read.kibps,
        result.origin.read.kibps,
        result.alone.read.kibps,
        result.both.read.kibps,
        result.ratio(),
        result.origin_percent,
    )
}

pub(super) fn table(text: &mut String, results: &[ReadsResult]) {
    if results.is_empty() {
        return;
    }
    line(text, "### Long reads of clean cached blocks\n");
    line(
        text,
        "| origin | read | SSD, KiB/s | origin, KiB/s | cache device alone, KiB/s | both, KiB/s | of the cache device alone | from the origin, % |\n|---|---|---|---|---|---|---|---|",
    );
    for result in results {
        line(
            text,
            &format!(
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.3} | {:.1} |",
                result.origin_name,
                load(result),
                result.ssd.read.kibps,
                result.origin.read.kibps,
                result.alone.read.kibps,
                result.both.read.kibps,
                result.ratio(),
                result.origin_percent,
            ),
        );
    }
    line(text, "");
}
