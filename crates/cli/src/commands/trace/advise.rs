//! `forebay advise`.

use std::fmt::Write;

use anyhow::{Context, Result, anyhow};
use forebay_trace::{Adviser, Findings, Format, Point};
use serde_json::{Value, json};

use super::html;
use super::input::each_request;
use super::progress::Progress;
use crate::args::{AdviseArgs, TraceFileArgs};
use crate::client::{Client, understood};
use crate::failure::{self, Usage, wrong_usage};
use crate::output::line;
use crate::units::{duration, size};

const DAY_SECONDS: f64 = 86_400.0;
/// From less than this nothing is said about a day: an hour, a little less from its first request
/// to its last.
const ENOUGH_SECONDS: f64 = 3540.0;
/// From a running volume less than this is too little to recommend anything from.
const LEAST_SECONDS: f64 = 600.0;
const LEAST_REQUESTS: u64 = 10_000;
/// A size with fewer hits than this is shown as 0.0 %.
const SHOWN_HITS: f64 = 0.0005;
/// With fewer hits than this in the largest cache, hits are no reason for one.
const FEW_HITS: f64 = 0.01;

/// Subject of the advice.
pub(super) enum Subject {
    /// A trace, by the name of its file.
    Trace(String),
    /// A volume of a running daemon.
    Volume(String),
}

impl Subject {
    pub(super) fn name(&self) -> &str {
        match self {
            Subject::Trace(name) | Subject::Volume(name) => name,
        }
    }
}

/// The advice and its basis.
pub(super) struct Report {
    pub(super) subject: Subject,
    pub(super) block_size: u64,
    /// Malformed entries of a trace, or requests that the daemon did not see.
    pub(super) skipped: u64,
    pub(super) findings: Findings,
    pub(super) duration: Option<f64>,
    pub(super) ssd_tbw: f64,
    /// A size was given: what is said of it is no recommendation.
    pub(super) of_given_size: bool,
}

impl Report {
    /// Says why nothing is recommended yet. A trace is as long as whoever took it wanted.
    pub(super) fn too_little(&self) -> Option<String> {
        let seconds = self.duration.unwrap_or(0.0);
        let requests = self.findings.requests;
        let is_enough = seconds >= LEAST_SECONDS && requests >= LEAST_REQUESTS;
        if is_enough || self.of_given_size || matches!(self.subject, Subject::Trace(_)) {
            return None;
        }
        Some(format!(
            "Too little was seen to recommend a cache: {} and {requests} requests, of {} and {LEAST_REQUESTS}. \
             Ask again after the usual load; --size tells the hits of one size so far.",
            duration(seconds),
            duration(LEAST_SECONDS),
        ))
    }

    /// Points of the curve with the recommended one among them, and whether a point is that. Sizes
    /// that are too small for any hit are left out.
    pub(super) fn points(&self) -> Vec<(Point, bool)> {
        let chosen = self
            .too_little()
            .is_none()
            .then_some(self.findings.advice.point);
        let is_chosen =
            |point: &Point| chosen.is_some_and(|it| it.size_blocks == point.size_blocks);
        let curve = self.findings.curve.iter().filter(|point| !is_chosen(point));
        let mut points: Vec<Point> = curve.copied().chain(chosen).collect();
        points.sort_by_key(|point| point.size_blocks);
        let has_hits = |point: &Point| point.hit_ratio >= SHOWN_HITS;
        let first = points
            .iter()
            .position(|point| has_hits(point) || is_chosen(point));
        // The last size without hits shows where they begin.
        let skipped = first.unwrap_or(points.len()).saturating_sub(1);
        let shown = points.into_iter().skip(skipped);
        shown.map(|point| (point, is_chosen(&point))).collect()
    }

    /// Bytes a day of so many blocks in the whole trace; unknown without times, and after too
    /// short a time.
    pub(super) fn per_day(&self, blocks: f64) -> Option<f64> {
        let duration = self.duration.filter(|seconds| *seconds >= ENOUGH_SECONDS)?;
        Some(blocks * self.block_size as f64 * DAY_SECONDS / duration)
    }

    /// Until the SSD has been written as much as its maker allows.
    pub(super) fn years(&self) -> Option<f64> {
        let per_day = self.per_day(self.findings.advice.ssd_write_blocks)?;
        (per_day > 0.0).then(|| self.ssd_tbw * 1e12 / per_day / 365.25)
    }

    /// Why there is nothing to be said about a day.
    fn no_day(&self) -> String {
        match self.duration {
            Some(seconds) => format!(
                "not known: {} were seen, and a day is not told from less than an hour",
                duration(seconds)
            ),
            None => "not known: the trace has no times (give --duration)".to_owned(),
        }
    }

    /// Whether blocks come again often enough for a cache to answer for them.
    pub(super) fn is_reused(&self) -> bool {
        let ratios = self.findings.curve.iter().map(|point| point.hit_ratio);
        ratios.fold(0.0, f64::max) >= FEW_HITS
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
    let report = match args.format {
        Some(format) => of_trace(args, format)?,
        None => of_volume(args)?,
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

fn of_trace(args: &AdviseArgs, format: Format) -> Result<Report> {
    if !(1024..=1 << 24).contains(&args.samples) {
        return Err(Usage("--samples must be from 1024 to 16777216".to_owned()).into());
    }
    let trace = TraceFileArgs {
        file: args.subject.clone(),
        format,
        block_size: args.block_size,
        skip_bad: args.skip_bad,
    };
    let progress = Progress::start()?;
    let mut adviser = Adviser::new(args.samples, args.age);
    let read = each_request(&trace, &progress, |request| {
        adviser.see(request);
        Ok(())
    })?;
    if adviser.requests() == 0 {
        return Err(anyhow!(
            "{} has no read or write request in the format {format}",
            trace.file.display()
        ));
    }
    let findings = adviser.findings(args.size.map(|bytes| (bytes / trace.block_size).max(1)));
    Ok(Report {
        subject: Subject::Trace(trace.file.display().to_string()),
        block_size: trace.block_size,
        skipped: read.skipped,
        duration: args.duration.or(findings.duration_seconds),
        findings,
        ssd_tbw: args.ssd_tbw,
        of_given_size: args.size.is_some(),
    })
}

fn of_volume(args: &AdviseArgs) -> Result<Report> {
    let name = args.subject.display().to_string();
    let mut client = Client::serving(args.control.as_deref(), &[&name])?;
    let asked = client.ask("Advise", &json!({ "name": name, "size_bytes": args.size }));
    let mut answer = match asked {
        Err(error) if error.is::<Usage>() && args.subject.is_file() => wrong_usage!(
            "{}; if the file {name} is meant, say in which --format it is",
            failure::describe(&error)
        ),
        asked => asked?,
    };
    let findings: Findings = understood(answer["findings"].take())?;
    Ok(Report {
        subject: Subject::Volume(name),
        block_size: answer["block_size_bytes"].as_u64().unwrap_or(4096).max(1),
        skipped: answer["missed_requests"].as_u64().unwrap_or(0),
        duration: findings.duration_seconds,
        findings,
        ssd_tbw: args.ssd_tbw,
        of_given_size: args.size.is_some(),
    })
}

fn document(report: &Report) -> Value {
    let findings = &report.findings;
    let advice = &report.findings.advice;
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
    let curve: Vec<Value> = report.findings.curve.iter().map(point).collect();
    let policies: Vec<Value> = advice
        .policies
        .iter()
        .map(|(policy, ratio)| json!({"policy": policy.name(), "miss_ratio": ratio}))
        .collect();
    let (subject, skipped) = match report.subject {
        Subject::Trace(_) => ("trace", "skipped"),
        Subject::Volume(_) => ("volume", "missed_requests"),
    };
    let recommendation = json!({
        "worthwhile": report.is_reused(),
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
    });
    let too_little = report.too_little();
    json!({
        subject: report.subject.name(),
        skipped: report.skipped,
        "block_size_bytes": report.block_size,
        "requests": findings.requests,
        "read_blocks": findings.read_blocks,
        "write_blocks": findings.write_blocks,
        "footprint_blocks": findings.footprint_blocks,
        "duration_seconds": report.duration,
        "sampling_rate": findings.sampling_rate,
        "sampled_blocks": findings.sampled_blocks,
        "curve": curve,
        "recommendation": too_little.is_none().then_some(recommendation),
        "too_little_seen": too_little,
    })
}

/// Blocks the origin moves for each that it would move without a cache.
pub(super) fn origin_load(report: &Report) -> f64 {
    let Findings {
        read_blocks,
        write_blocks,
        advice,
        ..
    } = &report.findings;
    let moved = (read_blocks + write_blocks) as f64;
    (advice.origin_read_blocks + advice.origin_write_blocks) / moved.max(1.0)
}

/// The recommendation as pairs of words, for the terminal and the page.
pub(super) fn rows(report: &Report) -> Vec<(&'static str, String)> {
    let advice = &report.findings.advice;
    let point = &advice.point;
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let per_day = |blocks: f64| match report.per_day(blocks) {
        Some(bytes) => format!("{} a day", size(bytes as u64)),
        None => report.no_day(),
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

const NO_REUSE: &str = "
A cache does not help this load: hardly a block is asked for twice, so that a cache of any size
would have next to no hits. Only bursts of writes could gain, from write-back. What follows is for
the case that this changes.
";

fn text(report: &Report) -> String {
    let findings = &report.findings;
    let mut text = format!(
        "{} requests: {} block reads, {} block writes, about {} of distinct blocks\n",
        findings.requests,
        findings.read_blocks,
        findings.write_blocks,
        size(report.bytes(findings.footprint_blocks))
    );
    match (&report.subject, report.duration) {
        (Subject::Volume(name), Some(seconds)) => {
            let _ = writeln!(text, "To volume {name}, in {}.", duration(seconds));
        }
        (Subject::Trace(_), Some(seconds)) => {
            let _ = writeln!(text, "In {}.", duration(seconds));
        }
        (_, None) => {}
    }
    let rate = findings.sampling_rate * 100.0;
    let _ = writeln!(text, "Sampled: {rate:.1} % of the blocks.");
    match (&report.subject, report.skipped) {
        (_, 0) => {}
        (Subject::Trace(_), left) => {
            let _ = writeln!(text, "{left} malformed entries left out.");
        }
        (Subject::Volume(_), missed) => {
            let _ = writeln!(text, "{missed} requests came too fast to be seen.");
        }
    }
    if let Some(why) = report.too_little() {
        let _ = writeln!(text, "\n{why}");
    } else {
        recommend(&mut text, report);
    }
    plot(&mut text, report);
    text
}

fn recommend(text: &mut String, report: &Report) {
    if !report.is_reused() {
        text.push_str(NO_REUSE);
    }
    text.push_str("\nRecommended:\n");
    for (what, value) in rows(report) {
        let _ = writeln!(text, "  {what:<20}{value}");
    }
    text.push_str("\nMiss ratio at that size, by policy (a simulation in miniature):\n ");
    for (policy, ratio) in &report.findings.advice.policies {
        let _ = write!(text, " {policy} {ratio:.3} ");
    }
    text.push('\n');
}

fn plot(text: &mut String, report: &Report) {
    let points = report.points();
    let has_hits = points
        .iter()
        .any(|(point, _)| point.hit_ratio >= SHOWN_HITS);
    if !has_hits {
        text.push_str("\nNo size of the cache would have had a hit in a thousand, by LRU.\n");
        return;
    }
    text.push_str("\nBy LRU, by size of the cache (* recommended):\n");
    let _ = writeln!(
        text,
        "{:>12} {:>7} {:>7} {:>7}  hits of all",
        "size", "all", "reads", "writes"
    );
    for (point, is_chosen) in points {
        let bar = "#".repeat((point.hit_ratio * 40.0).round() as usize);
        let _ = writeln!(
            text,
            "{:>12} {:>6.1}% {:>6.1}% {:>6.1}% {}|{bar:<40}|",
            size(report.bytes(point.size_blocks)),
            point.hit_ratio * 100.0,
            point.read_hit_ratio * 100.0,
            point.write_hit_ratio * 100.0,
            if is_chosen { '*' } else { ' ' }
        );
    }
}

#[cfg(test)]
mod tests {
    use forebay_trace::{Kind, Request};

    use super::*;

    /// A volume of which `rounds` times 100 blocks were read, each block in each round, one round
    /// in a second.
    fn seen(rounds: u64) -> Report {
        let mut adviser = Adviser::new(1 << 16, 30);
        for at in 0..rounds * 100 {
            adviser.see(&Request {
                time_ns: Some(at * 10_000_000),
                kind: Kind::Read,
                volume: 0,
                first_block: at % 100,
                blocks: 1,
            });
        }
        let findings = adviser.findings(None);
        Report {
            subject: Subject::Volume("sdb".to_owned()),
            block_size: 4096,
            skipped: 0,
            duration: findings.duration_seconds,
            findings,
            ssd_tbw: 600.0,
            of_given_size: false,
        }
    }

    #[test]
    fn nothing_is_recommended_before_enough_was_seen() {
        let early = text(&seen(300));
        assert!(early.contains("5 min 00 s and 30000 requests, of 10 min 00 s and 10000"));
        assert!(
            !early.contains("Recommended:") && !early.contains(" *|"),
            "{early}"
        );
        assert!(document(&seen(300))["recommendation"].is_null());
        let of_size = Report {
            of_given_size: true,
            ..seen(300)
        };
        assert!(text(&of_size).contains("expected hits"));
        let later = document(&seen(700));
        assert!(later["recommendation"]["mode"].is_string() && later["too_little_seen"].is_null());
    }

    #[test]
    fn the_star_is_at_the_size_that_the_text_names() {
        let report = seen(700);
        let said = text(&report);
        let named = size(report.bytes(report.findings.advice.point.size_blocks));
        let starred: Vec<&str> = said.lines().filter(|line| line.contains(" *|")).collect();
        assert!(
            said.contains(&format!("  size                {named}\n")),
            "{said}"
        );
        assert_eq!(starred.len(), 1, "{said}");
        assert!(starred[0].trim_start().starts_with(&named), "{said}");
        let empty = said
            .lines()
            .filter(|line| line.contains("  0.0%    0.0%    0.0%"));
        assert!(empty.count() <= 1, "{said}");
    }

    #[test]
    fn a_load_without_reuse_has_no_rows_of_nothing() {
        let said = text(&seen(1));
        assert!(said.contains("No size of the cache"), "{said}");
        assert!(!said.contains("0.0%"), "{said}");
    }
}
