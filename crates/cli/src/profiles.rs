//! Profiles: Forebay in the manner of another cache, with that cache's settings under their own
//! names and in their own units.
//!
//! | module | subject |
//! |---|---|
//! | a file for each cache | its table: the settings of its profile, the meaning of its own here |
//! | [`mod@profile`] | the parts of a profile, and the reading of a row of it |
//! | [`apply`] | a profile and the settings given for it, made into ours; a setting, live |
//! | [`target`] | their changes, and how neighbouring limits make way |

mod apply;
mod bcache;
mod dm_cache;
mod dm_writecache;
mod enhanceio;
mod flashcache;
mod gflash;
mod open_cas;
mod profile;
mod target;
#[cfg(test)]
mod tests;
mod vcache;

use forebay_engine::{Mode, Settings};

pub(crate) use apply::{Fault, Given, change};
pub(crate) use profile::{Foreign, Initial, Profile};

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

/// The mode of a volume that has none yet.
pub(crate) fn first_mode(profile: Option<&Profile>) -> Mode {
    profile.map_or(Mode::Writethrough, |profile| profile.mode)
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

    /// Our settings in its manner.
    pub(crate) fn settings(&self) -> Settings {
        self.apply(&[])
            .map(|applied| applied.settings)
            .unwrap_or_default()
    }
}
