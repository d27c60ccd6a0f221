//! Charts as SVG, drawn with the page's colours.

use std::fmt::Write as _;

use super::figure;
use super::html::escape;

/// A bar: its name, its length, and its ends over repetitions.
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) value: f64,
    pub(super) ends: (f64, f64),
    pub(super) colour: usize,
}

const WIDTH: f64 = 320.0;
const NAMES: f64 = 104.0;
const FIGURES: f64 = 50.0;
const STEP: f64 = 18.0;

/// Horizontal bars from zero; the figures stand behind them.
pub(super) fn bars(bars: &[Bar<'_>], label: &str) -> String {
    let most = bars.iter().map(|bar| bar.ends.1).fold(0.0, f64::max);
    let room = WIDTH - NAMES - FIGURES;
    let scale = if most > 0.0 { room / most } else { 0.0 };
    let height = bars.len() as f64 * STEP + 2.0;
    let mut svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    );
    for (index, bar) in bars.iter().enumerate() {
        let top = index as f64 * STEP + 2.0;
        let middle = top + STEP / 2.0 - 1.0;
        let length = (bar.value * scale).max(0.5);
        let (from, to) = (NAMES + bar.ends.0 * scale, NAMES + bar.ends.1 * scale);
        write!(
            svg,
            "<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>\
             <rect class=\"c{}\" x=\"{NAMES}\" y=\"{top}\" width=\"{length:.1}\" height=\"{}\" rx=\"2\"/>\
             <text class=\"figure\" x=\"{:.1}\" y=\"{}\">{}</text>",
            NAMES - 6.0,
            middle + 4.0,
            escape(bar.name),
            bar.colour,
            STEP - 4.0,
            NAMES + to.max(length + NAMES) - NAMES + 4.0,
            middle + 4.0,
            figure(bar.value)
        )
        .expect("a string takes everything");
        if to - from > 1.0 {
            write!(
                svg,
                "<path class=\"ends\" d=\"M{from:.1} {middle}H{to:.1}\"/>"
            )
            .expect("a string takes everything");
        }
    }
    svg + "</svg>"
}

/// A line over time.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: &'a [(f64, f64)],
    pub(super) colour: usize,
}

/// Lines over seconds, from zero, with a key.
pub(super) fn lines(lines: &[Line<'_>], label: &str, unit: &str) -> String {
    let (width, height, left, below) = (640.0, 240.0, 56.0, 22.0);
    let points = || lines.iter().flat_map(|line| line.points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let most = points().map(|point| point.1).fold(1.0, f64::max);
    let x = |at: f64| left + at / last * (width - left - 8.0);
    let y = |value: f64| 8.0 + (1.0 - value / most) * (height - 8.0 - below);
    let mut svg = format!(
        "<svg class=\"lines\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    );
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        write!(
            svg,
            "<path class=\"grid\" d=\"M{left} {0:.1}H{width}\"/><text class=\"name\" x=\"{1}\" y=\"{2:.1}\">{3}</text>\
             <text class=\"tick\" x=\"{4:.1}\" y=\"{5}\">{6} s</text>",
            y(most * share),
            left - 6.0,
            y(most * share) + 4.0,
            figure(most * share),
            x(last * share).min(width - 24.0),
            height - 6.0,
            figure(last * share)
        )
        .expect("a string takes everything");
    }
    for line in lines {
        let path: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1} {:.1}", x(point.0), y(point.1)))
            .collect();
        write!(
            svg,
            "<path class=\"line s{}\" d=\"M{}\"/>",
            line.colour,
            path.join("L")
        )
        .expect("a string takes everything");
    }
    svg.push_str("</svg><p class=\"key\">");
    for line in lines {
        write!(
            svg,
            "<span><i class=\"b{}\"></i>{}</span> ",
            line.colour,
            escape(line.name)
        )
        .expect("a string takes everything");
    }
    svg + &format!("({})</p>", escape(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fits_and_names_are_escaped() {
        let bar = |name, value| Bar {
            name,
            value,
            ends: (value, value * 2.0),
            colour: 1,
        };
        let svg = bars(&[bar("<a>", 10.0), bar("b", 5.0)], "x");
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"));
        assert!(svg.contains("H270.0"), "{svg}");
    }

    #[test]
    fn nothing_at_all_is_drawn_without_dividing_by_it() {
        let svg = lines(&[], "x", "MiB") + &bars(&[], "x");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
