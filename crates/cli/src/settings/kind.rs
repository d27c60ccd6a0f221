//! Kinds of settings: the reading and showing of values.

use std::ops::RangeInclusive;

use forebay_engine::{Nanos, Settings};
use serde_json::{Value, json};

use crate::units::{
    self, Age, Budget, Cutoff, Limit, parse_percent, parse_size_with_unit, parse_time,
};

/// A number of the engine's settings, whatever its width.
pub(super) struct Number {
    pub(super) get: fn(&Settings) -> u64,
    /// Of a value within the range of its kind, which its width has room for.
    pub(super) set: fn(&mut Settings, u64),
}

/// The kind of a setting, and its place in the engine.
pub(super) enum Kind {
    /// A word of several.
    Word {
        get: fn(&Settings) -> String,
        set: fn(&mut Settings, &str) -> Result<(), String>,
    },
    Count(RangeInclusive<u64>, Number),
    Percent(fn(&mut Settings) -> &mut u8),
    Size(RangeInclusive<u64>, Number),
    /// A size or `off`.
    Cutoff(fn(&mut Settings) -> &mut Option<u64>),
    /// A size a day or `off`.
    Budget(fn(&mut Settings) -> &mut Option<u64>),
    /// A time or `off`.
    Limit(fn(&mut Settings) -> &mut Option<Nanos>),
    /// A time up to this one.
    Delay(Nanos, fn(&mut Settings) -> &mut Nanos),
    /// Seconds, or a time.
    Age(fn(&mut Settings) -> &mut Nanos),
    Switch(fn(&mut Settings) -> &mut bool),
}

impl Kind {
    /// Reads a value into its place.
    pub(super) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        match self {
            Kind::Word { set, .. } => set(settings, text)?,
            Kind::Count(range, number) => (number.set)(settings, count(text, range.clone())?),
            Kind::Percent(place) => *place(settings) = parse_percent(text)?,
            Kind::Size(range, number) => (number.set)(settings, size(text, range.clone())?),
            Kind::Cutoff(place) => *place(settings) = text.parse::<Cutoff>()?.0,
            Kind::Budget(place) => *place(settings) = text.parse::<Budget>()?.0,
            Kind::Limit(place) => *place(settings) = text.parse::<Limit>()?.0,
            Kind::Delay(most, place) => {
                let delay = parse_time(text)?;
                if delay > *most {
                    return Err(format!("`{text}` is more than {}", time(*most)));
                }
                *place(settings) = delay;
            }
            Kind::Age(place) => *place(settings) = text.parse::<Age>()?.0,
            Kind::Switch(place) => *place(settings) = switch(text)?,
        }
        Ok(())
    }

    /// The value for people, as [`Kind::set`] reads it.
    pub(super) fn show(&self, settings: &mut Settings) -> String {
        let or_off = |bytes: Option<u64>| bytes.map_or("off".to_owned(), units::size);
        match self {
            Kind::Word { get, .. } => get(settings),
            Kind::Count(_, number) => (number.get)(settings).to_string(),
            Kind::Percent(place) => format!("{} %", place(settings)),
            Kind::Size(_, number) => units::size((number.get)(settings)),
            Kind::Cutoff(place) | Kind::Budget(place) => or_off(*place(settings)),
            Kind::Limit(place) => place(settings).map_or("off".to_owned(), time),
            Kind::Delay(_, place) => time(*place(settings)),
            Kind::Age(place) => match *place(settings) {
                Age::NEVER => "never".to_owned(),
                age => time(age),
            },
            Kind::Switch(place) => if *place(settings) { "yes" } else { "no" }.to_owned(),
        }
    }

    /// The value for programs, in the unit of its name there.
    pub(super) fn json(&self, settings: &mut Settings) -> Value {
        match self {
            Kind::Word { get, .. } => json!(get(settings)),
            Kind::Count(_, number) | Kind::Size(_, number) => json!((number.get)(settings)),
            Kind::Percent(place) => json!(place(settings)),
            Kind::Cutoff(place) | Kind::Budget(place) => json!(place(settings)),
            Kind::Limit(place) => json!(place(settings).map(|limit| limit.0 / 1_000)),
            Kind::Delay(_, place) => json!(place(settings).0 / Nanos::MILLISECOND.0),
            Kind::Age(place) => json!(place(settings).0 / Nanos::SECOND.0),
            Kind::Switch(place) => json!(place(settings)),
        }
    }

    /// Whether its values are words of a list.
    pub(super) fn is_word(&self) -> bool {
        matches!(self, Kind::Word { .. } | Kind::Switch(_))
    }

    /// The placeholder of a value in the help of an option.
    pub(super) fn placeholder(&self) -> &'static str {
        match self {
            Kind::Word { .. } => "WORD",
            Kind::Count(..) => "N",
            Kind::Percent(_) => "PERCENT",
            Kind::Size(..) | Kind::Cutoff(_) | Kind::Budget(_) => "SIZE",
            Kind::Limit(_) | Kind::Delay(..) | Kind::Age(_) => "TIME",
            Kind::Switch(_) => "YES|NO",
        }
    }
}

/// Reads a number within a range.
pub(super) fn count(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| range.contains(count));
    let (least, most) = range.into_inner();
    count.ok_or_else(|| format!("`{text}` is not a whole number from {least} to {most}"))
}

/// Reads a size within a range.
pub(super) fn size(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let bytes = parse_size_with_unit(text)?;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (units::size(*range.start()), units::size(*range.end()));
    Err(format!("`{text}` is not from {least} to {most}"))
}

/// Reads a share within a range.
pub(super) fn percent(text: &str, range: RangeInclusive<u8>) -> Result<u64, String> {
    let percent = parse_percent(text)?;
    if range.contains(&percent) {
        return Ok(percent.into());
    }
    let (least, most) = range.into_inner();
    Err(format!("`{text}` is not from {least} to {most} percent"))
}

/// Exactly, so that it can be given again.
fn time(time: Nanos) -> String {
    let (number, unit) = match time.0 {
        nanos if nanos.is_multiple_of(Nanos::SECOND.0) => (nanos / Nanos::SECOND.0, "s"),
        nanos if nanos.is_multiple_of(Nanos::MILLISECOND.0) => (nanos / Nanos::MILLISECOND.0, "ms"),
        nanos => (nanos / 1_000, "us"),
    };
    format!("{number} {unit}")
}

/// A configuration file has `true` and `false`.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("`{text}` is not yes or no")),
    }
}
