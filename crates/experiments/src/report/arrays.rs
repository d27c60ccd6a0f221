//! The table of writes to arrays.

use super::markdown::line;
use crate::arrays::ArrayResult;

pub(super) fn table(text: &mut String, results: &[ArrayResult]) {
    let Some(first) = results.first() else {
        return;
    };
    line(text, "### Writes to arrays of four disks\n");
    let scale = first.scale;
    line(text, &format!("Everything is {scale} times smaller.\n"));
    line(
        text,
        "| array | cache on | write | bare, KiB/s | Forebay, KiB/s | of the array | stripes in part, bare, % | behind Forebay, % |\n|---|---|---|---|---|---|---|---|",
    );
    for result in results {
        let partial = |percent: f64| match result.level {
            "RAID5" => format!("{percent:.0}"),
            _ => "-".to_owned(),
        };
        let ssds = if result.ssds == 1 { "SSD" } else { "SSDs" };
        line(
            text,
            &format!(
                "| {} | {} {ssds} | {} {} KiB | {:.0} | {:.0} | {:.3} | {} | {} |",
                result.level,
                result.ssds,
                if result.in_sequence {
                    "in sequence"
                } else {
                    "in no order"
                },
                result.request_kib,
                result.bare.write.kibps,
                result.cached.write.kibps,
                result.ratio(),
                partial(result.partial_percent.0),
                partial(result.partial_percent.1),
            ),
        );
    }
    line(text, "");
}
