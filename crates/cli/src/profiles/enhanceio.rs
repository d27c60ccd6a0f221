//! EnhanceIO.

use forebay_engine::{Commit, Mode, Replacement};

use super::profile::{Foreign, Initial, Profile};
use super::value::{number, word};

const NO_SETS: &str = "any block can be anywhere in the cache: there are no sets";

/// STEC's kernel module, made of flashcache.
pub(super) const PROFILE: Profile = Profile {
    name: "enhanceio",
    title: "EnhanceIO, STEC's kernel module, made of flashcache",
    source: "README.txt, CLI/eio_cli and Driver/enhanceio/eio.h of github.com/stec-inc/EnhanceIO",
    mode: Mode::Writethrough,
    base: |settings| settings.commit = Commit::Write,
    remarks: &[
        "EnhanceIO acknowledges a write when it is on the SSD with its metadata: commit `write`.",
        "EnhanceIO caches sequential streams as all else; so does the profile.",
        "EnhanceIO serves the origin under its own name; a volume has one of its own, /dev/forebay/NAME.",
        "EnhanceIO begins to clean at the high threshold and ends at the low one; here write-back begins above the low one, and writes slow down at the high one.",
    ],
    foreign: &[
        Foreign::ours(
            "mode",
            "wb, wt or ro (eio_cli -m)",
            Initial::Left("wt"),
            &["mode"],
            "The mode of every volume that has none of its own: writeback, writethrough, readonly.",
            |target, text| {
                let modes = [
                    ("wb", Mode::Writeback),
                    ("wt", Mode::Writethrough),
                    ("ro", Mode::Readonly),
                ];
                target.mode = Some(word(text, &modes)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "dirty_high_threshold",
            "percent, 0 to 100",
            Initial::Taken("30"),
            &["dirty-high", "dirty-limit"],
            "Writes slow down above it; no more than 10 % beyond it becomes dirty.",
            |target, text| {
                let percent = number(text, 0..=100)?;
                target.set_dirty_high(percent);
                let high = u64::from(target.settings.dirty_high_percent);
                target.set_dirty_limit((high + 10).min(90));
                Ok(())
            },
        ),
        Foreign::ours(
            "dirty_low_threshold",
            "percent, 0 to dirty_high_threshold",
            Initial::Taken("10"),
            &["dirty-low"],
            "The dirty data that write-back leaves.",
            |target, text| {
                let most = u64::from(target.settings.dirty_high_percent);
                target.set_dirty_low(number(text, 0..=most)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "time_based_clean_interval",
            "minutes, 0 to 720; 0 for never; there 1 for each 16 GiB of cache, which the profile takes as 1",
            Initial::Taken("1"),
            &["age"],
            "What is dirty for so long is written back; EnhanceIO cleans everything once in that time.",
            |target, text| {
                target.set_age_or_never(number(text, 0..=720)? * 60);
                Ok(())
            },
        ),
        Foreign::ours(
            "policy",
            "lru, fifo or rand (eio_cli -p)",
            Initial::Left("lru"),
            &["replacement"],
            "`lru` is `clock`, which keeps what was hit since it was last looked at; `rand` is `fifo`, which looks at use as little. The profile leaves the choice to Forebay.",
            |target, text| {
                target.set_replacement(
                    text,
                    &[
                        ("lru", Replacement::Clock),
                        ("fifo", Replacement::Fifo),
                        ("rand", Replacement::Fifo),
                    ],
                )
            },
        ),
        Foreign::nothing("dirty_set_high_threshold", "percent of a set", NO_SETS),
        Foreign::nothing("dirty_set_low_threshold", "percent of a set", NO_SETS),
        Foreign::nothing(
            "autoclean_threshold",
            "requests in flight, 0 to 1024",
            "write-back waits for a quiet origin by itself, not for a count of requests",
        ),
        Foreign::nothing(
            "do_clean",
            "0, 1 or 2",
            "it is a command and no setting: `forebay drain`, which Ctrl-C ends",
        ),
        Foreign::nothing(
            "mem_limit_pct",
            "percent of memory",
            "the index needs 16 bytes for each block and is whole; buffers have --memory",
        ),
        Foreign::nothing(
            "zero_stats",
            "0 or 1",
            "counters are of the daemon's life and begin with it; `forebay status` shows them",
        ),
        Foreign::nothing(
            "control",
            "0 to 7",
            "it switches debugging and EnhanceIO's own commands; `--log-level` is ours",
        ),
        Foreign::nothing(
            "invalidate",
            "a sector",
            "a discard of the volume's range drops its blocks from the cache",
        ),
        Foreign::nothing(
            "block_size",
            "2048, 4096 or 8192 bytes (eio_cli -b)",
            "it is chosen when the cache is made: `forebay create --block-size`",
        ),
        Foreign::nothing("associativity", "blocks of a set", NO_SETS),
    ],
};
