//! Profiles: a row for each setting of the other cache, and the conversion of its values to ours.
//! Settings of ours are written as for `forebay set`, `KEY=VALUE`, several with spaces between.

use forebay_engine::Mode;

use super::target::Target;
use crate::nearest::suggestion;
use crate::units::parse_size;

/// Another cache, as far as Forebay can be like it.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Name on our command line.
    pub(crate) name: &'static str,
    /// The cache in a few words.
    pub(crate) title: &'static str,
    /// Where its settings and their defaults are documented.
    pub(crate) source: &'static str,
    /// The mode of a volume that has none yet.
    pub(crate) mode: Mode,
    /// Properties of the other cache that have no name there, as settings of ours.
    pub(super) base: &'static str,
    /// Remarks on the base, and on properties of the other cache that are not here.
    pub(crate) remarks: &'static [&'static str],
    /// Its settings, in the order in which they are applied: of two that change the same, the
    /// later wins.
    pub(crate) foreign: &'static [Foreign],
}

/// A setting of another cache.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// Name in the other cache.
    pub(crate) name: &'static str,
    /// Values in the other cache, with their unit.
    pub(crate) value: &'static str,
    /// Value in the other cache unless somebody sets it.
    pub(crate) initial: Initial,
    pub(super) meaning: Meaning,
    /// Effect here, in a sentence; of a setting that means nothing, why.
    pub(crate) how: &'static str,
}

/// The default of a foreign setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initial {
    /// Part of the profile.
    Taken(&'static str),
    /// Known, but with the profile ours stays as it is.
    Left(&'static str),
    /// There is none, or it does not matter.
    None,
}

pub(super) use Initial::{Left, Taken};
pub(super) use Meaning::{SizeBelow, Words};
pub(super) const NONE: Initial = Initial::None;

/// Meaning of a foreign setting's values here.
#[derive(Debug)]
pub(super) enum Meaning {
    Nothing,
    /// Words, and settings of ours for each.
    Words(&'static [(&'static str, &'static str)]),
    Number(Number),
    /// A size less than this one, which takes the place of `{}`.
    SizeBelow(&'static str, &'static str),
}

/// A whole number, and the settings of ours that it becomes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    range: (u64, u64),
    zero: Option<&'static str>,
    rest_of: Option<u64>,
    within: Option<(u64, u64, &'static str)>,
    times: u64,
    sets: &'static str,
}

/// As large as such numbers can be.
pub(super) const MOST: u64 = u32::MAX as u64;
/// As large as `dirty-high` is now.
pub(super) const DIRTY_HIGH: u64 = u64::MAX;

pub(super) const fn number(least: u64, most: u64) -> Number {
    Number {
        range: (least, most),
        zero: None,
        rest_of: None,
        within: None,
        times: 1,
        sets: "",
    }
}

impl Number {
    /// For 0 it sets these instead.
    pub(super) const fn zero(self, sets: &'static str) -> Number {
        Number {
            zero: Some(sets),
            ..self
        }
    }

    /// It counts what is left of so many.
    pub(super) const fn rest_of(self, whole: u64) -> Number {
        Number {
            rest_of: Some(whole),
            ..self
        }
    }

    /// Takes a value outside of these limits as the nearer of them, with a note that names both.
    pub(super) const fn within(self, least: u64, most: u64, note: &'static str) -> Number {
        Number {
            within: Some((least, most, note)),
            ..self
        }
    }

    pub(super) const fn times(self, times: u64) -> Number {
        Number { times, ..self }
    }

    /// It sets these, with the number for each `{}`.
    pub(super) const fn sets(self, sets: &'static str) -> Meaning {
        Meaning::Number(Number { sets, ..self })
    }

    fn apply(&self, target: &mut Target, text: &str) -> Result<(), String> {
        let (least, most) = match self.range {
            (least, DIRTY_HIGH) => (least, target.settings.dirty_high_percent.into()),
            range => range,
        };
        let read = text.trim().parse().ok();
        let Some(number) = read.filter(|number| (least..=most).contains(number)) else {
            return Err(format!(
                "`{text}` is not a whole number from {least} to {most}"
            ));
        };
        if let Some(sets) = self.zero.filter(|_| number == 0) {
            return target.assign(sets);
        }
        let number = self.rest_of.map_or(number, |whole| whole - number);
        let taken = match self.within {
            Some((least, most, note)) if !(least..=most).contains(&number) => {
                let taken = number.clamp(least, most);
                let note = note.replacen("{}", &number.to_string(), 1);
                target
                    .notes
                    .push(note.replacen("{}", &taken.to_string(), 1));
                taken
            }
            _ => number,
        };
        target.assign(&self.sets.replace("{}", &(taken * self.times).to_string()))
    }
}

impl Foreign {
    /// Whether it means anything here.
    pub(crate) fn has_meaning(&self) -> bool {
        !matches!(self.meaning, Meaning::Nothing)
    }

    /// Changes our settings as this value asks for.
    ///
    /// # Errors
    /// Says what the values are.
    pub(super) fn apply(&self, target: &mut Target, text: &str) -> Result<(), String> {
        match &self.meaning {
            Meaning::Nothing => Ok(()),
            Meaning::Number(number) => number.apply(target, text),
            Meaning::Words(words) => {
                let found = words.iter().find(|(word, _)| *word == text.trim());
                let Some((_, sets)) = found else {
                    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                    return Err(format!("`{text}` is not one of {}", known.join(", ")));
                };
                match sets.strip_prefix('!') {
                    Some(note) => target.notes.push(format!("`{text}` {note}")),
                    None => target.assign(sets)?,
                }
                Ok(())
            }
            Meaning::SizeBelow(most, sets) => {
                let bytes = parse_size(text)?;
                if bytes >= parse_size(most)? {
                    return Err(format!("`{text}` is not less than {most}"));
                }
                target.assign(&sets.replace("{}", &format!("{bytes}B")))
            }
        }
    }

    /// Which settings of ours it changes.
    pub(crate) fn ours(&self) -> Vec<&'static str> {
        let sets: Vec<&'static str> = match &self.meaning {
            Meaning::Nothing => Vec::new(),
            Meaning::Words(words) => words.iter().map(|(_, sets)| *sets).collect(),
            Meaning::Number(number) => vec![number.sets, number.zero.unwrap_or("")],
            Meaning::SizeBelow(_, sets) => vec![*sets],
        };
        let mut ours = Vec::new();
        for one in sets.iter().filter(|sets| !sets.starts_with('!')) {
            for key in one.split_whitespace().flat_map(keys_of) {
                if !ours.contains(&key) {
                    ours.push(key);
                }
            }
        }
        ours
    }
}

fn keys_of(assignment: &'static str) -> Vec<&'static str> {
    match assignment.split('=').next() {
        Some("writeback-bytes") => vec!["writeback-depth", "writeback-run"],
        Some(key) => vec![key.trim_start_matches('?')],
        None => Vec::new(),
    }
}

impl Profile {
    /// Its setting of this name.
    ///
    /// # Errors
    /// Names the nearest.
    pub(super) fn setting(&self, name: &str) -> Result<&'static Foreign, String> {
        let found = self.foreign.iter().find(|foreign| foreign.name == name);
        found.ok_or_else(|| {
            if self.foreign.is_empty() {
                return format!("no setting of {} is publicly documented", self.name);
            }
            let names = self.foreign.iter().map(|foreign| foreign.name);
            format!(
                "{} has no setting `{name}`{} (`forebay profile show {}` lists all)",
                self.name,
                suggestion(name, names),
                self.name
            )
        })
    }
}

/// The rows of a profile, `NAME: VALUES, DEFAULT, MEANING, HOW;`, or without a meaning
/// `NAME: VALUES, WHY;`.
macro_rules! rows {
    ($($name:literal: $value:literal, $($rest:expr),+;)*) => {
        &[$($crate::profiles::profile::row!($name, $value, $($rest),+)),*]
    };
}

macro_rules! row {
    ($name:literal, $value:literal, $why:expr) => {
        $crate::profiles::profile::row!(
            $name,
            $value,
            $crate::profiles::profile::NONE,
            $crate::profiles::profile::Meaning::Nothing,
            $why
        )
    };
    ($name:literal, $value:literal, $initial:expr, $meaning:expr, $how:expr) => {
        $crate::profiles::profile::Foreign {
            name: $name,
            value: $value,
            initial: $initial,
            meaning: $meaning,
            how: $how,
        }
    };
}
pub(super) use {row, rows};
