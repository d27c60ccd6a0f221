//! bcache.

use forebay_engine::{Mode, Replacement, WritebackPolicy};

use super::profile::{Foreign, Initial, Profile};
use super::value::{limit_us, millis, number, switch, word};
use crate::units::parse_size;

const NO_RATE: &str =
    "the rate that keeps dirty data at dirty-low is found without settings of its own";
const NO_BTREE: &str =
    "there is no btree and no garbage collection: the log's segments are reclaimed in order";
const NO_COUNT: &str = "errors are not counted against a limit: an unreadable clean block is read from the origin, and a write that fails is tried elsewhere before the cache is given up";
const A_COMMAND: &str =
    "it is a command and no setting: `forebay attach`, `detach`, `stop`, or `serve` again";
const STATISTICS: &str =
    "counters are of the daemon's life and begin with it; `forebay status` shows them";

/// The Linux kernel's block layer cache.
pub(super) const PROFILE: Profile = Profile {
    name: "bcache",
    title: "bcache, the Linux kernel's block layer cache",
    source: "Documentation/admin-guide/bcache.rst and drivers/md/bcache of Linux",
    mode: Mode::Writethrough,
    base: |settings| settings.writeback_policy = WritebackPolicy::Rate,
    remarks: &[
        "bcache's cache sets share one SSD among several backing devices, with some settings for each of them; here every setting is of the cache.",
        "bcache writes back at a rate that keeps dirty data at writeback_percent: write-back policy `rate`.",
        "While the SSD is congested bcache lowers its sequential cut-off step by step; here all that can go past the cache goes past it.",
    ],
    foreign: &[
        Foreign::ours(
            "cache_mode",
            "writethrough, writeback, writearound or none",
            Initial::Left("writethrough"),
            &["mode"],
            "The mode of every volume that has none of its own. bcache's `writearound` drops what is cached of a written block, which is `readonly`; `none` is `passthrough`.",
            |target, text| {
                let modes = [
                    ("writethrough", Mode::Writethrough),
                    ("writeback", Mode::Writeback),
                    ("writearound", Mode::Readonly),
                    ("none", Mode::Passthrough),
                ];
                target.mode = Some(word(text, &modes)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "sequential_cutoff",
            "bytes with k, M or G as 4.0M; 0 for never",
            Initial::Taken("4.0M"),
            &["sequential-cutoff"],
            "The same: a longer sequential stream bypasses the cache.",
            |target, text| {
                let bytes = parse_size(text)?;
                if bytes > u64::from(u32::MAX) {
                    return Err(format!("`{text}` is not less than 4G"));
                }
                target.settings.sequential_cutoff_bytes = super::value::cutoff(bytes);
                Ok(())
            },
        ),
        Foreign::ours(
            "congested_read_threshold_us",
            "microseconds; 0 for never",
            Initial::Taken("2000"),
            &["congestion-read"],
            "While hits take longer, misses are not promoted.",
            |target, text| {
                target.settings.congestion_read = limit_us(text)?;
                Ok(())
            },
        ),
        Foreign::ours(
            "congested_write_threshold_us",
            "microseconds; 0 for never",
            Initial::Taken("20000"),
            &["congestion-write"],
            "While writes into the cache take longer, others go to the origin.",
            |target, text| {
                target.settings.congestion_write = limit_us(text)?;
                Ok(())
            },
        ),
        Foreign::ours(
            "cutoff_writeback",
            "percent, 0 to 70 (parameter bch_cutoff_writeback of the module)",
            Initial::Taken("40"),
            &["dirty-high"],
            "Above it bcache lets only sync writes become dirty; here writes slow down, and long sequential ones bypass.",
            |target, text| {
                target.set_dirty_high(number(text, 0..=70)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "cutoff_writeback_sync",
            "percent, 1 to 90 (parameter bch_cutoff_writeback_sync of the module)",
            Initial::Taken("70"),
            &["dirty-limit"],
            "No more dirty data than this.",
            |target, text| {
                target.set_dirty_limit(number(text, 1..=90)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "writeback_percent",
            "percent, 0 to cutoff_writeback",
            Initial::Taken("10"),
            &["dirty-low", "writeback"],
            "The dirty data that write-back keeps (policy `rate`); with 0 it writes everything back at once (policy `cleaner`).",
            |target, text| {
                let most = u64::from(target.settings.dirty_high_percent);
                let percent = number(text, 0..=most)?;
                target.set_dirty_low(percent);
                target.settings.writeback_policy = match percent {
                    0 => WritebackPolicy::Cleaner,
                    _ => WritebackPolicy::Rate,
                };
                Ok(())
            },
        ),
        Foreign::ours(
            "writeback_delay",
            "seconds",
            Initial::Taken("30"),
            &["age"],
            "bcache begins so long after the first dirty data in a clean cache; here it is the age at which policies `threshold` and `timed` write a part of the log back.",
            |target, text| {
                let seconds = number(text, 0..=u64::from(u32::MAX))?;
                target.settings.age_limit = millis(seconds * 1_000);
                Ok(())
            },
        ),
        Foreign::ours(
            "journal_delay_ms",
            "milliseconds, 1 to 65535",
            Initial::Taken("100"),
            &["record-delay"],
            "The same: an entry waits no longer in memory unless a flush comes first.",
            |target, text| {
                target.settings.record_delay = millis(number(text, 1..=65_535)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "discard",
            "0 or 1",
            Initial::Taken("0"),
            &["discard-freed"],
            "The same: the SSD is told what is free, a segment where bcache does it for a bucket.",
            |target, text| {
                target.settings.discard_freed_segments = switch(text)?;
                Ok(())
            },
        ),
        Foreign::ours(
            "cache_replacement_policy",
            "lru, fifo or random",
            Initial::Left("lru"),
            &["replacement"],
            "`lru` is `clock`, which keeps what was hit since it was last looked at; `random` is `fifo`, which looks at use as little. The profile leaves the choice to Forebay.",
            |target, text| {
                target.set_replacement(
                    text,
                    &[
                        ("lru", Replacement::Clock),
                        ("fifo", Replacement::Fifo),
                        ("random", Replacement::Fifo),
                    ],
                )
            },
        ),
        Foreign::nothing(
            "writeback_running",
            "0 or 1",
            "write-back cannot be switched off; to keep data dirty raise writeback_percent and writeback_delay",
        ),
        Foreign::nothing("writeback_rate", "sectors a second", NO_RATE),
        Foreign::nothing("writeback_rate_minimum", "sectors a second", NO_RATE),
        Foreign::nothing("writeback_rate_update_seconds", "seconds", NO_RATE),
        Foreign::nothing("writeback_rate_i_term_inverse", "a number", NO_RATE),
        Foreign::nothing("writeback_rate_p_term_inverse", "a number", NO_RATE),
        Foreign::nothing("writeback_rate_fp_term_low", "a number", NO_RATE),
        Foreign::nothing("writeback_rate_fp_term_mid", "a number", NO_RATE),
        Foreign::nothing("writeback_rate_fp_term_high", "a number", NO_RATE),
        Foreign::nothing(
            "idle_max_writeback_rate",
            "0 or 1",
            "without other users of the origin write-back always has all of it",
        ),
        Foreign::nothing(
            "writeback_consider_fragment",
            "0 or 1",
            "segments are reclaimed with what is live in them, so dirty data scattered over many holds up nothing",
        ),
        Foreign::nothing(
            "writeback_metadata",
            "0 or 1",
            "requests over NBD and ublk do not say that they are of a file system's metadata",
        ),
        Foreign::nothing(
            "readahead",
            "bytes",
            "what was not asked for is not read from an origin: the file system above reads ahead itself",
        ),
        Foreign::nothing(
            "readahead_cache_policy",
            "all or meta-only",
            "requests over NBD and ublk do not say that they read ahead",
        ),
        Foreign::nothing(
            "sequential_merge",
            "0 or 1",
            "sequential streams are always found over several requests",
        ),
        Foreign::nothing(
            "data_csum",
            "0 or 1",
            "every block is checked against its CRC32C, always",
        ),
        Foreign::nothing(
            "synchronous",
            "0 or 1",
            "the log is always written in order",
        ),
        Foreign::nothing("io_error_limit", "errors", NO_COUNT),
        Foreign::nothing("io_error_halflife", "requests", NO_COUNT),
        Foreign::nothing(
            "io_disable",
            "0 or 1",
            "it is bcache's own emergency state; `forebay status` says if the cache was given up",
        ),
        Foreign::nothing(
            "errors",
            "unregister or panic",
            "a cache that fails is given up and its volumes go on without it; the machine is never stopped",
        ),
        Foreign::nothing(
            "stop_when_cache_set_failed",
            "auto or always",
            "a volume goes on without its cache and answers errors only where dirty data is lost",
        ),
        Foreign::nothing("gc_after_writeback", "0 or 1", NO_BTREE),
        Foreign::nothing("copy_gc_enabled", "0 or 1", NO_BTREE),
        Foreign::nothing("btree_shrinker_disabled", "0 or 1", NO_BTREE),
        Foreign::nothing("trigger_gc", "anything", NO_BTREE),
        Foreign::nothing("prune_cache", "a number", NO_BTREE),
        Foreign::nothing("gc_always_rewrite", "0 or 1", NO_BTREE),
        Foreign::nothing("key_merging_disabled", "0 or 1", NO_BTREE),
        Foreign::nothing(
            "expensive_debug_checks",
            "0 or 1",
            "invariants are checked always, in every build",
        ),
        Foreign::nothing(
            "verify",
            "0 or 1",
            "every block is checked when it is read from the cache, always",
        ),
        Foreign::nothing(
            "bypass_torture_test",
            "0 or 1",
            "it is a test of bcache's own code",
        ),
        Foreign::nothing(
            "bucket_size",
            "bytes",
            "a segment's size follows from the cache's when it is made",
        ),
        Foreign::nothing(
            "block_size",
            "bytes",
            "it is chosen when the cache is made: `forebay create --block-size`",
        ),
        Foreign::nothing(
            "label",
            "a name",
            "a volume's name is given when it is first attached: --name",
        ),
        Foreign::nothing("size", "bytes", "a volume is as long as its origin"),
        Foreign::nothing(
            "flash_vol_create",
            "bytes",
            "a volume always has an origin: use a part of the SSD as it is instead",
        ),
        Foreign::nothing("attach", "a cache set", A_COMMAND),
        Foreign::nothing("detach", "anything", A_COMMAND),
        Foreign::nothing("running", "0 or 1", A_COMMAND),
        Foreign::nothing("stop", "anything", A_COMMAND),
        Foreign::nothing("unregister", "anything", A_COMMAND),
        Foreign::nothing("clear_stats", "anything", STATISTICS),
    ],
};
