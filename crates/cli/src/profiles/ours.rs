//! Our settings by name, in words.

use forebay_engine::{Nanos, Settings};

use super::target::NEVER;
use crate::units;

/// All that a profile can change, by the name of `forebay set` where it has one.
pub(crate) fn ours(settings: &Settings) -> Vec<(&'static str, String)> {
    let percent = |percent: u8| format!("{percent} %");
    let or_off = |size: Option<u64>| size.map_or("off".to_owned(), units::size);
    let limit = |time: Option<Nanos>| time.map_or("off".to_owned(), time_of);
    vec![
        ("commit", settings.commit.name().to_owned()),
        ("admission", settings.read_admission.to_string()),
        ("write-admission", settings.write_admission.to_string()),
        ("congestion-read", limit(settings.congestion_read)),
        ("congestion-write", limit(settings.congestion_write)),
        ("write-budget", or_off(settings.write_budget_bytes_per_day)),
        (
            "sequential-cutoff",
            or_off(settings.sequential_cutoff_bytes),
        ),
        ("memory-buffer", units::size(settings.memory_buffer_bytes)),
        ("replacement", settings.replacement.name().to_owned()),
        ("retain", percent(settings.retain_percent)),
        ("writeback", settings.writeback_policy.name().to_owned()),
        ("dirty-low", percent(settings.dirty_low_percent)),
        ("dirty-high", percent(settings.dirty_high_percent)),
        ("dirty-limit", percent(settings.dirty_limit_percent)),
        ("age", age(settings.age_limit)),
        ("record-delay", time_of(settings.record_delay)),
        ("writeback-depth", settings.writeback_depth.to_string()),
        (
            "writeback-run",
            units::size(u64::from(settings.writeback_run_bytes)),
        ),
        ("probation-share", percent(settings.probation_percent)),
        ("promotion-hits", settings.promotion_hits.to_string()),
        (
            "discard-freed-segments",
            if settings.discard_freed_segments {
                "yes"
            } else {
                "no"
            }
            .to_owned(),
        ),
    ]
}

/// What differs between two, by name, as it is in the second.
pub(super) fn differences(old: &Settings, new: &Settings) -> Vec<(&'static str, String)> {
    let before = ours(old);
    let mut after = ours(new);
    after.retain(|now| !before.contains(now));
    after
}

fn age(age: Nanos) -> String {
    match age {
        NEVER => "never".to_owned(),
        _ => format!("{} s", age.0 / Nanos::SECOND.0),
    }
}

fn time_of(time: Nanos) -> String {
    match time.0 {
        0 => "0 ms".to_owned(),
        nanos => units::latency(nanos),
    }
}
