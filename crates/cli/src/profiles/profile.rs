//! What a profile is made of.

use forebay_engine::{Mode, Settings};

use super::target::Target;
use crate::nearest::suggestion;

/// Another cache, as far as Forebay can be like it.
#[derive(Debug)]
pub(crate) struct Profile {
    /// What it is called on our command line.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) title: &'static str,
    /// Where its settings and their defaults are documented.
    pub(crate) source: &'static str,
    /// The mode of a volume that has none yet.
    pub(crate) mode: Mode,
    /// What belongs to its manner and has no name there.
    pub(super) base: fn(&mut Settings),
    /// What the base is, and what of its manner is not here.
    pub(crate) remarks: &'static [&'static str],
    /// Its settings, in the order in which they are applied: of two that change the same, the
    /// later wins.
    pub(crate) foreign: &'static [Foreign],
}

/// A setting of another cache.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// What it is called there.
    pub(crate) name: &'static str,
    /// What values it has there, with their unit.
    pub(crate) value: &'static str,
    /// What it is there unless somebody sets it.
    pub(crate) initial: Initial,
    pub(crate) meaning: Meaning,
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

/// What a foreign setting is here.
#[derive(Debug)]
pub(crate) enum Meaning {
    /// It changes settings of ours.
    Ours {
        /// Which, as `forebay set` or `forebay status` call them.
        ours: &'static [&'static str],
        /// How, in a sentence.
        how: &'static str,
        apply: fn(&mut Target, &str) -> Result<(), String>,
    },
    /// None, because of this.
    Nothing(&'static str),
}

impl Foreign {
    pub(super) const fn ours(
        name: &'static str,
        value: &'static str,
        initial: Initial,
        ours: &'static [&'static str],
        how: &'static str,
        apply: fn(&mut Target, &str) -> Result<(), String>,
    ) -> Foreign {
        Foreign {
            name,
            value,
            initial,
            meaning: Meaning::Ours { ours, how, apply },
        }
    }

    pub(super) const fn nothing(
        name: &'static str,
        value: &'static str,
        because: &'static str,
    ) -> Foreign {
        Foreign {
            name,
            value,
            initial: Initial::None,
            meaning: Meaning::Nothing(because),
        }
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
