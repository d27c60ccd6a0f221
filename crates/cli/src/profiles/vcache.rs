//! vCache.

use forebay_engine::{Commit, Mode};

use super::profile::Profile;

/// A cache of which next to nothing is public.
pub(super) const PROFILE: Profile = Profile {
    name: "vcache",
    title: "vCache, a proprietary cache for servers",
    source: "no public documentation of its settings or defaults is known",
    mode: Mode::Writethrough,
    base: |settings| settings.commit = Commit::Write,
    remarks: &[
        "As nothing of its manner is public, the profile is the careful one: write-through, everything cached, commit `write`.",
    ],
    foreign: &[],
};
