//! `forebay advise`.

use std::fmt::Write;

use anyhow::{Context, Result, anyhow};
use forebay_trace::{Advice, Adviser, Point};
use serde_json::{Value, json};

use super::html;
use super::input::each_request;
use super::progress::Progress;
use crate::args::AdviseArgs;
use crate::failure::Usage;
use crate::output::line;
use crate::units::size;

const DAY_SECONDS: f64 = 86_400.0;

/// What the advice is based on, and the advice.
pub(super) struct Report<'a> {
    pub(super) trace: String,
    pub(super) block_size: u64,
    pub(super) skipped: u64,
    pub(super) adviser: &'a Adviser,
    pub(super) advice: Advice,
    pub(super) curve: Vec<Point>,
    pub(super) duration: Option<f64>,
    pub(super) ssd_tbw: f64,
}

impl Report<'_> {
    /// Bytes a day of so many blocks in the whole trace; unknown without times.
    pub(super) fn per_day(&self, blocks: f64) -> Option<f64> {
        let duration = self.duration?;
        Some(blocks * self.block_size as f64 * DAY_SECONDS / duration)
    }

    /// Until the SSD has been written as much as its maker allows.
    pub(super) fn years(&self) -> Option<f64> {
        let per_day = self.per_day(self.advice.ssd_write_blocks)?;
        (per_day > 0.0).then(|| self.ssd_tbw * 1e12 / per_day / 365.25)
    }

    pub(super) fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_size)
    }
}

pub(crate) fn run(args: &AdviseArgs) -> Result<()> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(args.ssd_tbw) || !args.duration.is_none_or(positive) {
        return Err(Usage("--ssd-tbw and --duration must be above 0".to_owned()).into());
    }
    if !(1024..=1 << 24).contains(&args.samples) {
        return Err(Usage("--samples must be from 1024 to 16777216".to_owned()).into());
    }
    let progress = Progress::start()?;
    let mut adviser = Adviser::new(args.samples, args.age);
    let read = each_request(&args.trace, &progress, |request| {
        adviser.see(request);
        Ok(())
    })?;
    if adviser.requests() == 0 {
        return Err(anyhow!(
            "{} has no read or write request in the format {}",
            args.trace.file.display(),
            args.trace.format
        ));
    }
    let wanted = args
        .size
        .map(|bytes| (bytes / args.trace.block_size).max(1));
    let report = Report {
        trace: args.trace.file.display().to_string(),
        block_size: args.trace.block_size,
        skipped: read.skipped,
        advice: adviser.advise(wanted),
        curve: adviser.curve(40),
        duration: args.duration.or(adviser.duration_seconds()),
        ssd_tbw: args.ssd_tbw,
        adviser: &adviser,
    };
    if let Some(path) = &args.html {
        std::fs::write(path, html::page(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        line(document(&report));
    } else {
        line(text(&report).trim_end());
    }
    Ok(())
}

fn document(report: &Report) -> Value {
    let (reads, writes) = report.adviser.accesses();
    let (rate, samples) = report.adviser.sampling();
    let advice = &report.advice;
    let point = |point: &Point| {
        json!({
            "size_blocks": point.size_blocks,
            "size_bytes": report.bytes(point.size_blocks),
            "hit_ratio": point.hit_ratio,
            "miss_ratio": 1.0 - point.hit_ratio,
            "read_hit_ratio": point.read_hit_ratio,
            "write_hit_ratio": point.write_hit_ratio,
            "origin_read_blocks": point.origin_read_blocks,
            "write_back_blocks": point.write_back_blocks,
        })
    };
    let curve: Vec<Value> = report.curve.iter().map(point).collect();
    let policies: Vec<Value> = advice
        .policies
        .iter()
        .map(|(policy, ratio)| json!({"policy": policy.name(), "miss_ratio": ratio}))
        .collect();
    json!({
        "trace": report.trace,
        "block_size_bytes": report.block_size,
        "requests": report.adviser.requests(),
        "skipped": report.skipped,
        "read_blocks": reads,
        "write_blocks": writes,
        "footprint_blocks": report.adviser.footprint_blocks(),
        "duration_seconds": report.duration,
        "sampling_rate": rate,
        "sampled_blocks": samples,
        "curve": curve,
        "recommendation": {
            "size_blocks": advice.point.size_blocks,
            "size_bytes": report.bytes(advice.point.size_blocks),
            "mode": advice.mode.name(),
            "policy": "s3-fifo",
            "sequential_cutoff_bytes": advice.cutoff_blocks.map(|blocks| report.bytes(blocks)),
            "expected": point(&advice.point),
            "policies": policies,
            "origin_read_blocks": advice.origin_read_blocks,
            "origin_write_blocks": advice.origin_write_blocks,
            "origin_load": origin_load(report),
            "ssd_write_bytes_per_day": report.per_day(advice.ssd_write_blocks),
            "ssd_tbw": report.ssd_tbw,
            "years_of_life": report.years(),
        },
    })
}

/// Blocks the origin moves for each that it would move without a cache.
pub(super) fn origin_load(report: &Report) -> f64 {
    let (reads, writes) = report.adviser.accesses();
    let advice = &report.advice;
    (advice.origin_read_blocks + advice.origin_write_blocks) / ((reads + writes) as f64).max(1.0)
}

/// The recommendation as pairs of words, for the terminal and the page.
pub(super) fn rows(report: &Report) -> Vec<(&'static str, String)> {
    let advice = &report.advice;
    let point = &advice.point;
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let per_day = |blocks: f64| match report.per_day(blocks) {
        Some(bytes) => format!("{} a day", size(bytes as u64)),
        None => "not known: the trace has no times (give --duration)".to_owned(),
    };
    let cutoff = match advice.cutoff_blocks {
        Some(blocks) => size(report.bytes(blocks)),
        None => "off".to_owned(),
    };
    let years = match report.years() {
        Some(years) => format!("{years:.1} years of an SSD for {} TB", report.ssd_tbw),
        None => "not known".to_owned(),
    };
    vec![
        ("size", size(report.bytes(point.size_blocks))),
        ("mode", advice.mode.name().to_owned()),
        ("policy", "s3-fifo (what the cache runs)".to_owned()),
        ("sequential cut-off", cutoff),
        (
            "expected hits",
            format!(
                "{} of all, {} of reads, {} of writes",
                percent(point.hit_ratio),
                percent(point.read_hit_ratio),
                percent(point.write_hit_ratio)
            ),
        ),
        (
            "origin load",
            format!("{} of that without a cache", percent(origin_load(report))),
        ),
        ("SSD written", per_day(advice.ssd_write_blocks)),
        ("SSD life", years),
    ]
}

fn text(report: &Report) -> String {
    let (reads, writes) = report.adviser.accesses();
    let (rate, _) = report.adviser.sampling();
    let mut text = format!(
        "{} requests: {reads} block reads, {writes} block writes, about {} of distinct blocks\n",
        report.adviser.requests(),
        size(report.bytes(report.adviser.footprint_blocks()))
    );
    let _ = writeln!(text, "Sampled: {:.1} % of the blocks.", rate * 100.0);
    if report.skipped > 0 {
        let _ = writeln!(text, "{} malformed entries left out.", report.skipped);
    }
    text.push_str("\nRecommended:\n");
    for (what, value) in rows(report) {
        let _ = writeln!(text, "  {what:<20}{value}");
    }
    text.push_str("\nMiss ratio at that size, by policy (a simulation in miniature):\n ");
    for (policy, ratio) in &report.advice.policies {
        let _ = write!(text, " {policy} {ratio:.3} ");
    }
    text.push_str("\n\nBy LRU, by size of the cache (* recommended):\n");
    let _ = writeln!(
        text,
        "{:>12} {:>7} {:>7} {:>7}  hits of all",
        "size", "all", "reads", "writes"
    );
    let near = nearest(report);
    for (at, point) in report.curve.iter().enumerate() {
        let bar = "#".repeat((point.hit_ratio * 40.0).round() as usize);
        let _ = writeln!(
            text,
            "{:>12} {:>6.1}% {:>6.1}% {:>6.1}% {}|{bar:<40}|",
            size(report.bytes(point.size_blocks)),
            point.hit_ratio * 100.0,
            point.read_hit_ratio * 100.0,
            point.write_hit_ratio * 100.0,
            if at == near { '*' } else { ' ' }
        );
    }
    text
}

/// The point of the curve that is nearest to the recommended size from above.
fn nearest(report: &Report) -> usize {
    let wanted = report.advice.point.size_blocks;
    report
        .curve
        .iter()
        .position(|point| point.size_blocks >= wanted)
        .unwrap_or(report.curve.len().saturating_sub(1))
}
