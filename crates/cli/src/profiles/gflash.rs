//! gflash.

use forebay_engine::Mode;

use super::Profile;

/// A cache for FreeBSD, known from a comparison.
pub(super) const PROFILE: Profile = Profile {
    name: "gflash",
    title: "gflash, a cache for FreeBSD, known from a comparison of 2015",
    source: "no public documentation of its settings is known; its figures are in docs/experiments.md",
    mode: Mode::Writeback,
    base: |_| (),
    remarks: &[
        "In the comparison it cached everything, in write-back; so does the profile, with Forebay's defaults for all else.",
        "Its write buffer in memory, from which it acknowledges writes and which is mirrored, is not here (`commit = memory`): commit is `flush`, from the cache device.",
    ],
    foreign: &[],
};
