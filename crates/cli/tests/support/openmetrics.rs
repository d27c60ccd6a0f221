//! A strict reader of OpenMetrics text, as Prometheus reads it.

use std::collections::{BTreeMap, BTreeSet};

/// A sample: its name, its labels in order, its value.
type Sample<'a> = (&'a str, Vec<(&'a str, String)>, f64);

/// Checks a whole page, or panics with the line that is wrong.
pub(crate) fn check(page: &str) {
    let body = page.strip_suffix("# EOF\n").expect("the end");
    let mut announced = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut family: Option<(&str, &str)> = None;
    let mut samples: Vec<Sample<'_>> = Vec::new();
    for line in body.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            let sample = sample(line);
            let (name, labels, _) = &sample;
            let (of, kind) = family.expect("a family");
            let end = name.strip_prefix(of);
            let end = end.unwrap_or_else(|| panic!("{line}: not of the family {of}"));
            let fitting: &[&str] = match kind {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                "gauge" => &[""],
                other => panic!("{other} is no type"),
            };
            assert!(fitting.contains(&end), "{line}: in a {kind}");
            let names: BTreeSet<&str> = labels.iter().map(|(label, _)| *label).collect();
            assert_eq!(names.len(), labels.len(), "{line}: a label twice");
            let key = (*name, labels.clone());
            assert!(series.insert(key), "{line}: a series twice");
            samples.push(sample);
            continue;
        };
        let (word, rest) = comment.split_once(' ').unwrap();
        let (name, rest) = rest.split_once(' ').unwrap();
        if word == "TYPE" {
            finish(family, &samples);
            samples.clear();
            assert!(announced.insert(name), "{line}: announced twice");
            family = Some((name, rest));
        } else {
            assert_eq!(family.unwrap().0, name, "{line}");
            assert!(samples.is_empty(), "{line}: behind samples");
            assert!(
                word == "HELP" || (word == "UNIT" && name.ends_with(&format!("_{rest}"))),
                "{line}"
            );
        }
    }
    finish(family, &samples);
}

/// Parses a line, and nothing but what the format allows.
fn sample(line: &str) -> Sample<'_> {
    let name_end = line.find(['{', ' ']).unwrap();
    let name = &line[..name_end];
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(fits) && !name.as_bytes()[0].is_ascii_digit()
    };
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    let mut rest = &line[name_end..];
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, behind) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let (text, behind) = value(behind, line);
            labels.push((label, text));
            if let Some(behind) = behind.strip_prefix(',') {
                rest = behind;
                continue;
            }
            rest = behind.strip_prefix('}').expect("the end of the labels");
            break;
        }
    }
    let number = rest.strip_prefix(' ').expect("a blank");
    let number: f64 = number
        .parse()
        .unwrap_or_else(|_| panic!("{line}: no number"));
    (name, labels, number)
}

/// A label's value up to its closing quote, and what is behind it.
fn value<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, other @ ('"' | '\\'))) => value.push(other),
                _ => panic!("{line}: an escape that there is not"),
            },
            other => value.push(other),
        }
    }
    panic!("{line}: a value without an end")
}

/// Counters never fall below 0, and histograms add up.
fn finish(family: Option<(&str, &str)>, samples: &[Sample<'_>]) {
    let Some((name, kind)) = family else { return };
    if kind == "counter" {
        let below = samples.iter().find(|(_, _, value)| *value < 0.0);
        assert!(below.is_none(), "{below:?}");
    }
    if kind != "histogram" {
        return;
    }
    #[derive(Default)]
    struct Histogram {
        buckets: Vec<(f64, f64)>,
        count: Option<f64>,
        sum: Option<f64>,
    }
    let mut histograms: BTreeMap<Vec<(&str, String)>, Histogram> = BTreeMap::new();
    for (sample, labels, value) in samples {
        let (limits, labels): (Vec<_>, Vec<_>) = labels
            .iter()
            .cloned()
            .partition(|(label, _)| *label == "le");
        let histogram = histograms.entry(labels).or_default();
        match &sample[name.len()..] {
            "_bucket" => {
                let limit = limits[0].1.replace("+Inf", "inf").parse().unwrap();
                histogram.buckets.push((limit, *value));
            }
            "_count" => histogram.count = Some(*value),
            _ => histogram.sum = Some(*value),
        }
    }
    for (labels, histogram) in histograms {
        let buckets = &histogram.buckets;
        let rise = buckets
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        assert!(rise, "{name} {labels:?}: {buckets:?}");
        let last = buckets.last().expect("a bucket");
        assert!(last.0.is_infinite(), "{name} {labels:?}: no +Inf");
        assert_eq!(Some(last.1), histogram.count, "{name} {labels:?}");
        assert!(
            histogram.sum.is_some_and(|sum| sum >= 0.0),
            "{name} {labels:?}"
        );
    }
}
