//! The command line of the comparison.

use std::fs::File;
use std::str::FromStr;

use forebay_engine::{Replacement, Settings};
use forebay_trace::Format;

use super::report::{self, Row};
use super::{Overwrites, Trace, measure, settings};

/// Help of the command.
pub const USAGE: &str = "usage: forebay-experiments policies [NAME=FORMAT:FILE...] [options]
Drives the engine with the block accesses of traces, its devices taking no time, and compares what
it misses and writes with ideal block-granular S3-FIFO. FORMAT as for `forebay trace simulate`.
  --sizes LIST        cache sizes, in blocks or percent of the distinct blocks (1%,5%,10%,20%)
  --synthetic BLOCKS  overwrites over spans of 0.5 to 5 times a cache of so many blocks, too
  --replacement LIST  policies: adaptive, s3-fifo, fifo, clock, 2q (adaptive)
  --retain LIST       copies allowed for each hundred blocks let in (as set by default)
  --probation N       the share of blocks on probation, in percent (as set by default)
  --promotion N       hits that lead from there to main (as set by default)
  --renew N           hot share of a segment from which on it is renewed, in percent; 101 for never
Each combination of policy and copies is one row for each trace and size.";

struct Arguments {
    traces: Vec<(String, Format, String)>,
    sizes: Vec<Size>,
    synthetic_blocks: Option<u64>,
    /// With what each is called.
    settings: Vec<(String, Settings)>,
}

#[derive(Clone, Copy)]
enum Size {
    Blocks(u64),
    Percent(u64),
}

impl Size {
    fn blocks(self, footprint: u64) -> u64 {
        match self {
            Size::Blocks(blocks) => blocks,
            Size::Percent(percent) => footprint * percent / 100,
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bad = |_| format!("`{text}` is not a size: 20000 or 10%");
        match text.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .map_err(bad)
                .and_then(|percent| match percent {
                    1..=100 => Ok(Size::Percent(percent)),
                    _ => Err(format!("`{text}` is not from 1 to 100 %")),
                }),
            None => text.parse().map(Size::Blocks).map_err(bad),
        }
    }
}

/// Runs the comparison and returns what is to be printed.
///
/// # Errors
pub fn run(
    words: impl Iterator<Item = String>,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<String, String> {
    let arguments = parse(words)?;
    let mut rows = Vec::new();
    for (name, format, path) in &arguments.traces {
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        let trace = Trace::read(file, *format).map_err(|error| format!("{path}: {error}"))?;
        for size in &arguments.sizes {
            let blocks = size.blocks(trace.footprint());
            rows.extend(measured(&arguments, name, &trace, blocks, progress));
        }
    }
    if let Some(blocks) = arguments.synthetic_blocks {
        for load in Overwrites::all() {
            let trace = load.trace(blocks)?;
            rows.extend(measured(&arguments, &load.name(), &trace, blocks, progress));
        }
    }
    let mut text = report::table(&rows);
    for (name, _) in &arguments.settings {
        text.push_str(&report::summary(&rows, name));
    }
    Ok(text)
}

fn measured(
    arguments: &Arguments,
    name: &str,
    trace: &Trace,
    size_blocks: u64,
    progress: &(dyn Fn(&str) + Sync),
) -> Vec<Row> {
    let rows = arguments.settings.iter().map(|(policy, settings)| {
        progress(&format!("{name}, {size_blocks} blocks, {policy}"));
        Row {
            trace: name.to_owned(),
            size_blocks,
            policy: policy.clone(),
            point: measure(trace, size_blocks, settings),
        }
    });
    rows.collect()
}

fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut traces = Vec::new();
    let mut sizes = "1%,5%,10%,20%".to_owned();
    let mut replacement = Replacement::Adaptive.name().to_owned();
    let mut retain = None;
    let mut synthetic_blocks = None;
    let mut base = settings();
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--sizes" => sizes = value()?,
            "--replacement" => replacement = value()?,
            "--retain" => retain = Some(value()?),
            "--synthetic" => synthetic_blocks = Some(number(&word, &value()?)?),
            "--probation" => base.probation_percent = number(&word, &value()?)?,
            "--promotion" => base.promotion_hits = number(&word, &value()?)?,
            "--renew" => base.renew_percent = number(&word, &value()?)?,
            _ if word.starts_with('-') => return Err(format!("`{word}` is not understood")),
            _ => traces.push(trace(&word)?),
        }
    }
    if traces.is_empty() && synthetic_blocks.is_none() {
        return Err("there is nothing to measure: name a trace, or --synthetic".to_owned());
    }
    let retain = retain.unwrap_or_else(|| base.retain_percent.to_string());
    Ok(Arguments {
        traces,
        sizes: sizes.split(',').map(str::parse).collect::<Result<_, _>>()?,
        synthetic_blocks,
        settings: combinations(&base, &replacement, &retain)?,
    })
}

fn combinations(
    base: &Settings,
    replacement: &str,
    retain: &str,
) -> Result<Vec<(String, Settings)>, String> {
    let mut all = Vec::new();
    for policy in replacement.split(',') {
        for percent in retain.split(',') {
            let settings = Settings {
                replacement: policy.parse()?,
                retain_percent: number("--retain", percent)?,
                ..base.clone()
            };
            settings.validate()?;
            let name = match retain.contains(',') {
                true => format!("{policy}, {percent} copies"),
                false => policy.to_owned(),
            };
            all.push((name, settings));
        }
    }
    Ok(all)
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option}: `{text}` is not a whole number that fits"))
}

fn trace(word: &str) -> Result<(String, Format, String), String> {
    let parts = word.split_once('=').and_then(|(name, rest)| {
        let (format, path) = rest.split_once(':')?;
        Some((name, format, path))
    });
    let (name, format, path) =
        parts.ok_or(format!("`{word}` is not a trace: it is NAME=FORMAT:FILE"))?;
    Ok((name.to_owned(), format.parse()?, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        run(words.iter().map(|word| (*word).to_owned()), &|_| ()).expect_err("not a good command")
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (words, what) in [
            (&[][..], "nothing to measure"),
            (&["x=nosuch:y"], "`nosuch` is no trace format"),
            (&["x"], "it is NAME=FORMAT:FILE"),
            (&["x=blocks:/nosuch/file"], "/nosuch/file: "),
            (
                &["--sizes", "0%", "x=blocks:y"],
                "`0%` is not from 1 to 100 %",
            ),
            (
                &["--replacement", "lru", "--synthetic", "5"],
                "unknown replacement policy `lru`",
            ),
            (
                &["--probation", "90", "--synthetic", "5"],
                "probation share 90 %",
            ),
            (&["--sizes"], "--sizes needs a value"),
            (&["--what"], "`--what` is not understood"),
        ] {
            assert!(said(words).contains(what), "{words:?}: {}", said(words));
        }
    }
}
