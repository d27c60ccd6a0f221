//! The advice as a page that needs nothing from elsewhere.

use std::fmt::Write;

use forebay_trace::Point;

use super::advise::{Report, rows};
use crate::units::size;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;

/// The page: recommendation, curve, the curve's figures.
pub(super) fn page(report: &Report) -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<title>Forebay: advice on a cache</title><style>\
body{font:15px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left}\
.n{text-align:right}svg{width:100%;height:auto}</style></head><body>\n",
    );
    let _ = writeln!(
        page,
        "<h1>Advice on a cache for {}</h1>",
        escape(report.subject.name())
    );
    let too_little = report.too_little();
    if let Some(why) = &too_little {
        let _ = writeln!(page, "<p><b>{}</b></p>", escape(why));
    } else if !report.is_reused() {
        page.push_str(
            "<p><b>A cache does not help this load: hardly a block is asked for twice.</b></p>\n",
        );
    }
    page.push_str("<table>\n");
    let rows = rows(report).into_iter();
    for (what, value) in rows.filter(|_| too_little.is_none()) {
        let _ = writeln!(page, "<tr><th>{what}</th><td>{}</td></tr>", escape(&value));
    }
    page.push_str("</table>\n<h2>Hit ratio by size, LRU</h2>\n");
    chart(&mut page, report);
    page.push_str(
        "<table><tr><th class=n>size</th><th class=n>all</th><th class=n>reads</th>\
<th class=n>writes</th></tr>\n",
    );
    for (point, _) in report.points() {
        let _ = writeln!(
            page,
            "<tr><td class=n>{}</td><td class=n>{:.1} %</td><td class=n>{:.1} %</td>\
<td class=n>{:.1} %</td></tr>",
            size(report.bytes(point.size_blocks)),
            point.hit_ratio * 100.0,
            point.read_hit_ratio * 100.0,
            point.write_hit_ratio * 100.0
        );
    }
    page.push_str("</table></body></html>\n");
    page
}

/// Sizes to the right in equal steps of ratio, hit ratios upwards.
fn chart(page: &mut String, report: &Report) {
    let log = |blocks: u64| (blocks.max(1) as f64).ln();
    let first = report
        .findings
        .curve
        .first()
        .map_or(0.0, |point| log(point.size_blocks));
    let last = report
        .findings
        .curve
        .last()
        .map_or(1.0, |point| log(point.size_blocks));
    let span = (last - first).max(f64::MIN_POSITIVE);
    let x = |blocks: u64| ((log(blocks) - first) / span).clamp(0.0, 1.0) * WIDTH;
    let y = |ratio: f64| (1.0 - ratio) * HEIGHT;
    let _ = write!(
        page,
        "<svg viewBox=\"-40 -10 {} {}\" role=img aria-label=\"hit ratio by size\">",
        WIDTH + 60.0,
        HEIGHT + 40.0
    );
    for tenth in (0..=10).step_by(2) {
        let at = y(f64::from(tenth) / 10.0);
        let _ = write!(
            page,
            "<path d=\"M0 {at}H{WIDTH}\" stroke=\"#ddd\"/>\
<text x=-36 y={at} font-size=12>{}%</text>",
            tenth * 10
        );
    }
    type Curve = (&'static str, &'static str, fn(&Point) -> f64);
    let curves: [Curve; 3] = [
        ("all", "#000", |point| point.hit_ratio),
        ("reads", "#06c", |point| point.read_hit_ratio),
        ("writes", "#c60", |point| point.write_hit_ratio),
    ];
    for (at, (name, colour, ratio)) in curves.into_iter().enumerate() {
        let mut path = String::new();
        for point in &report.findings.curve {
            let _ = write!(path, " {:.1},{:.1}", x(point.size_blocks), y(ratio(point)));
        }
        let _ = write!(
            page,
            "<polyline points=\"{}\" fill=none stroke=\"{colour}\" stroke-width=2 />\
<text x=\"{}\" y={} fill=\"{colour}\" font-size=13>{name}</text>",
            path.trim_start(),
            at * 60 + 10,
            HEIGHT + 24.0
        );
    }
    if report.too_little().is_some() {
        page.push_str("</svg>\n");
        return;
    }
    let marked = x(report.findings.advice.point.size_blocks);
    let _ = writeln!(
        page,
        "<path d=\"M{marked:.1} 0V{HEIGHT}\" stroke=\"#090\" stroke-dasharray=\"4 4\"/>\
<text x=\"{}\" y={} fill=\"#090\" font-size=13>recommended: {}</text></svg>",
        200,
        HEIGHT + 24.0,
        size(report.bytes(report.findings.advice.point.size_blocks))
    );
}

/// A file's name may be anything.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
