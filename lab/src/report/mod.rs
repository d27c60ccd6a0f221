//! Findings of an experiment, as Markdown and as JSON.

mod markdown;
mod summary;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub use summary::{Cell, Row, Summary, SystemSummary};

use crate::experiments::Experiment;
use crate::result::RunResult;

/// Writes both beside the results they are made of; returns the path of the Markdown.
///
/// # Errors
/// If the results cannot be read or a file cannot be written.
pub fn write(experiment: &Experiment, directory: &Path) -> anyhow::Result<PathBuf> {
    let results = RunResult::load_all(directory)?;
    anyhow::ensure!(
        !results.is_empty(),
        "there are no results in {}; run the experiment first",
        directory.display()
    );
    let summary = Summary::of(experiment, &results);
    let json = serde_json::to_string_pretty(&summary)? + "\n";
    for (name, text) in [
        ("report.json", json),
        ("report.md", markdown::render(&summary)),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(directory.join("report.md"))
}

/// A number as people read it: three digits that matter.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let whole = format!("{value:.0}");
        let mut grouped = String::new();
        for (index, digit) in whole.chars().enumerate() {
            let left = whole.len() - index;
            if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped
    } else if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A throughput of so many KiB a second.
fn throughput(kib_s: f64) -> String {
    figure(kib_s / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_matter() {
        let cases = [
            (1_234_567.0, "1,234,567"),
            (999.6, "1000"),
            (165.3, "165"),
            (16.53, "16.5"),
            (0.653, "0.65"),
            (0.0, "0"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }
}
