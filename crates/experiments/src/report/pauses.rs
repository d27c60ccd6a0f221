//! The table of bursts with pauses.

use super::markdown::line;
use crate::pauses::PausesResult;

/// A load in one line.
#[must_use]
pub fn pauses_line(result: &PausesResult) -> String {
    format!(
        "bursts with pauses: {} KiB in no order to a {}: {:.0}, Forebay {:.0} KiB/s, {:.3} of the array",
        result.request_kib,
        result.level,
        result.bare_kibps,
        result.cached_kibps,
        result.ratio(),
    )
}

pub(super) fn table(text: &mut String, results: &[PausesResult]) {
    if results.is_empty() {
        return;
    }
    line(text, "### Bursts of long writes to arrays, with pauses\n");
    line(
        text,
        "| array | write | bare, KiB/s | Forebay, KiB/s | of the array |\n|---|---|---|---|---|",
    );
    for result in results {
        line(
            text,
            &format!(
                "| {} | {} KiB in no order | {:.0} | {:.0} | {:.3} |",
                result.level,
                result.request_kib,
                result.bare_kibps,
                result.cached_kibps,
                result.ratio(),
            ),
        );
    }
    line(text, "");
}
