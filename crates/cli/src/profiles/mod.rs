//! Profiles: Forebay in the manner of another cache, with that cache's settings under their own
//! names and in their own units.
//!
//! | module | subject |
//! |---|---|
//! | one for each cache | what its profile sets, and what each of its settings means here |
//! | [`apply`] | a profile and the settings given for it, made into ours; one setting, live |
//! | [`target`] | what they change, and how neighbouring limits make way |
//! | [`value`] | values as those caches write them |
//! | [`mod@ours`] | our settings by name, to say what changed |

mod apply;
mod bcache;
mod dm_cache;
mod dm_writecache;
mod enhanceio;
mod flashcache;
mod gflash;
mod open_cas;
mod ours;
mod target;
#[cfg(test)]
mod tests;
mod value;
mod vcache;

use forebay_engine::{Mode, Settings};

pub(crate) use apply::{Fault, Given, change};
pub(crate) use ours::ours;
use target::Target;

use crate::nearest::suggestion;

/// All profiles, in the order in which they are listed.
pub(crate) const ALL: [&Profile; 8] = [
    &bcache::PROFILE,
    &dm_cache::PROFILE,
    &dm_writecache::PROFILE,
    &flashcache::PROFILE,
    &enhanceio::PROFILE,
    &gflash::PROFILE,
    &vcache::PROFILE,
    &open_cas::PROFILE,
];

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
    base: fn(&mut Settings),
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

/// The mode of a volume that has none yet.
pub(crate) fn first_mode(profile: Option<&Profile>) -> Mode {
    profile.map_or(Mode::Writethrough, |profile| profile.mode)
}

impl Foreign {
    const fn ours(
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

    const fn nothing(name: &'static str, value: &'static str, because: &'static str) -> Foreign {
        Foreign {
            name,
            value,
            initial: Initial::None,
            meaning: Meaning::Nothing(because),
        }
    }
}

impl Profile {
    /// The profile of this name.
    ///
    /// # Errors
    /// Names the nearest, and all.
    pub(crate) fn named(name: &str) -> Result<&'static Profile, String> {
        let names = || ALL.iter().map(|profile| profile.name);
        let found = ALL.iter().find(|profile| profile.name == name);
        found.copied().ok_or_else(|| {
            format!(
                "there is no profile `{name}`{} (there are: {})",
                suggestion(name, names()),
                names().collect::<Vec<_>>().join(", ")
            )
        })
    }

    /// Its setting of this name.
    ///
    /// # Errors
    /// Names the nearest.
    fn setting(&self, name: &str) -> Result<&'static Foreign, String> {
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

    /// Our settings in its manner.
    pub(crate) fn settings(&self) -> Settings {
        self.apply(&[])
            .map(|applied| applied.settings)
            .unwrap_or_default()
    }
}
