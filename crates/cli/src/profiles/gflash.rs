//! gflash.

use forebay_engine::Mode;

use super::profile::Profile;

/// A cache for FreeBSD, known from a comparison.
pub(super) const PROFILE: Profile = Profile {
    name: "gflash",
    title: "gflash, a cache for FreeBSD, known from a comparison of 2015",
    source: "the comparison of 22 jobs in docs/experiments.md, with its figures in crates/experiments/data/jobs-2015.csv; gflash's own settings are not public",
    mode: Mode::Writeback,
    base: "commit=memory memory-buffer=4G admission=second-touch",
    remarks: &[
        "gflash acknowledges writes from a buffer in memory that is mirrored on the SSD: commit `memory`. The buffer of the comparison was 4 GiB: memory-buffer. It is in /dev/shm; `memory-buffer` in `[settings]` makes it smaller.",
        "gflash caches what is read for the second time: job 1 reads 8 GiB and writes nothing to the SSD, job 2 reads them again and writes them all. The profile admits reads at the second touch, and every write, as jobs 6 to 14 did.",
        "gflash never had more dirty data than its buffer holds. Dirty limits are shares of the cache here, and stay Forebay's.",
    ],
    foreign: &[],
};
