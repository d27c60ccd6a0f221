//! The figures as a table.

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
