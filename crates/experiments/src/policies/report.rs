//! The figures as a table or as JSON.

use std::fmt::Write as _;

use super::Point;

/// A point with what it is of.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) trace: String,
    pub(crate) size_blocks: u64,
    pub(crate) policy: String,
    /// Or why there is none.
    pub(crate) point: Result<Point, String>,
}

const HEADING: &str = "\
| trace | blocks | policy | misses | ideal S3-FIFO | write amplification | of it headers and summaries | SSD bytes written per access | copies per block let in | renewed segments | share in use |
|---|---|---|---|---|---|---|---|---|---|---|
";

/// All rows.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = HEADING.to_owned();
    for row in rows {
        let Row {
            trace,
            size_blocks,
            policy,
            point,
        } = row;
        let figures = match point {
            Err(why) => format!("not possible: {why} | | | | | | |"),
            Ok(point) => format!(
                "{:.4} | {:.4} | {:.3} | {:.3} | {:.0} | {:.3} | {} | {:.3}",
                point.miss_ratio(),
                point.ideal_miss_ratio(),
                point.write_amplification(),
                point.metadata_part(),
                point.written_per_access(),
                point.copies_part(),
                point.renewed,
                point.used,
            ),
        };
        writeln!(text, "| {trace} | {size_blocks} | {policy} | {figures} |")
            .expect("a string takes everything");
    }
    text
}

/// Means and the worst of all rows of a policy.
pub(crate) fn summary(rows: &[Row], policy: &str) -> String {
    let points: Vec<&Point> = rows
        .iter()
        .filter(|row| row.policy == policy)
        .filter_map(|row| row.point.as_ref().ok())
        .collect();
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&Point) -> f64| points.iter().map(|point| of(point)).sum::<f64>() / count;
    let amplifications = points.iter().map(|point| point.write_amplification());
    format!(
        "{policy}: {} points, misses {:.4}, ideal S3-FIFO {:.4}; write amplification {:.3}, at worst {:.3}; {:.0} bytes written per access\n",
        points.len(),
        mean(Point::miss_ratio),
        mean(Point::ideal_miss_ratio),
        mean(Point::write_amplification),
        amplifications.fold(0.0, f64::max),
        mean(Point::written_per_access),
    )
}

/// All rows, one a line: names of traces and policies and reasons may need escaping.
pub(crate) fn json(rows: &[Row]) -> String {
    let items = rows.iter().map(|row| {
        let head = format!(
            "{{\"trace\":{},\"size_blocks\":{},\"policy\":{}",
            quoted(&row.trace),
            row.size_blocks,
            quoted(&row.policy)
        );
        match &row.point {
            Err(why) => format!("{head},\"not_possible\":{}}}", quoted(why)),
            Ok(point) => format!(
                "{head},\"accesses\":{},\"misses\":{},\"inserted\":{},\"miss_ratio\":{:.6},\"ideal_miss_ratio\":{:.6},\
                 \"written_bytes\":{},\"metadata_bytes\":{},\"write_amplification\":{:.4},\"written_bytes_per_access\":{:.2},\
                 \"retained_blocks\":{},\"renewed_segments\":{},\"share_in_use\":{:.4}}}",
                point.accesses,
                point.misses,
                point.inserted,
                point.miss_ratio(),
                point.ideal_miss_ratio(),
                point.written_bytes,
                point.metadata_bytes,
                point.write_amplification(),
                point.written_per_access(),
                point.retained,
                point.renewed,
                point.used,
            ),
        }
    });
    let items: Vec<String> = items.collect();
    format!("{{\"results\":[\n{}\n]}}\n", items.join(",\n"))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => {
                write!(quoted, "\\u{:04x}", control as u32).expect("a string takes everything");
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
