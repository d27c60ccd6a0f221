//! gflash.

use forebay_engine::{Commit, Mode};

use super::profile::Profile;

/// A cache for FreeBSD, known from a comparison.
pub(super) const PROFILE: Profile = Profile {
    name: "gflash",
    title: "gflash, a cache for FreeBSD, known from a comparison of 2015",
    source: "no public documentation of its settings is known; its figures are in docs/experiments.md",
    mode: Mode::Writeback,
    base: |settings| settings.commit = Commit::Memory,
    remarks: &[
        "In the comparison it cached everything, in write-back; so does the profile, with Forebay's defaults for all else.",
        "It acknowledges writes from a buffer in memory that is mirrored on the SSD: commit `memory`, from a buffer that outlives the daemon and drains to the SSD at once. In the comparison that buffer was 4 GiB; here it is as large as `memory-buffer` says.",
    ],
    foreign: &[],
};
