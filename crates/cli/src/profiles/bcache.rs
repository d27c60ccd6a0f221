//! bcache.

use forebay_engine::Mode;

use super::profile::{DIRTY_HIGH, Left, MOST, Profile, SizeBelow, Taken, Words, number, rows};

const NO_RATE: &str =
    "the rate that keeps dirty data at dirty-low is found without settings of its own";
const NO_BTREE: &str =
    "there is no btree and no garbage collection: the log's segments are reclaimed in order";
const NO_COUNT: &str = "errors are not counted against a limit: an unreadable clean block is read from the origin, and a write that fails is tried elsewhere before the cache fails";
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
    base: "writeback=rate",
    remarks: &[
        "bcache's cache sets share one SSD among several backing devices, with some settings for each of them; here most settings are of the cache, and `forebay set --volume` has those of a volume.",
        "bcache writes back at a rate that keeps dirty data at writeback_percent: write-back policy `rate`.",
        "While the SSD is congested bcache lowers its sequential cut-off step by step; here all that can bypass the cache does.",
    ],
    foreign: rows! {
        "cache_mode": "writethrough, writeback, writearound or none", Left("writethrough"),
            Words(&[("writethrough", "mode=writethrough"), ("writeback", "mode=writeback"), ("writearound", "mode=readonly"), ("none", "mode=passthrough")]),
            "The mode of every volume that has none of its own. bcache's `writearound` drops what is cached of a written block, which is `readonly`; `none` is `passthrough`.";
        "sequential_cutoff": "bytes with k, M or G as 4.0M; 0 for never", Taken("4.0M"),
            SizeBelow("4G", "sequential-cutoff={}"),
            "A longer sequential stream bypasses the cache, as there.";
        "congested_read_threshold_us": "microseconds; 0 for never", Taken("2000"),
            number(0, MOST).zero("congestion-read=off").sets("congestion-read={}us"),
            "While hits take longer, misses are not promoted.";
        "congested_write_threshold_us": "microseconds; 0 for never", Taken("20000"),
            number(0, MOST).zero("congestion-write=off").sets("congestion-write={}us"),
            "While writes into the cache take longer, others go to the origin.";
        "cutoff_writeback": "percent, 0 to 70 (parameter bch_cutoff_writeback of the module)", Taken("40"),
            number(0, 70).sets("dirty-high={}"),
            "Above it bcache lets only sync writes become dirty; here writes slow down, and long sequential ones bypass.";
        "cutoff_writeback_sync": "percent, 1 to 90 (parameter bch_cutoff_writeback_sync of the module)", Taken("70"),
            number(1, 90).sets("dirty-limit={}"),
            "No more dirty data than this.";
        "writeback_percent": "percent, 0 to cutoff_writeback", Taken("10"),
            number(0, DIRTY_HIGH).zero("dirty-low=0 writeback=cleaner").sets("dirty-low={} writeback=rate"),
            "The dirty data that write-back keeps (policy `rate`); with 0 it writes everything back at once (policy `cleaner`).";
        "writeback_delay": "seconds", Taken("30"),
            number(0, MOST).sets("age={}s"),
            "bcache begins so long after the first dirty data in a clean cache; here it is the age at which policies `threshold` and `timed` write a part of the log back.";
        "journal_delay_ms": "milliseconds, 1 to 65535", Taken("100"),
            number(1, 65_535).sets("record-delay={}ms"),
            "An entry waits no longer in memory unless a flush comes first, as there.";
        "discard": "0 or 1", Taken("0"),
            Words(&[("0", "discard-freed=no"), ("1", "discard-freed=yes")]),
            "The SSD is told of each free segment, where bcache tells it of a bucket.";
        "cache_replacement_policy": "lru, fifo or random", Left("lru"),
            Words(&[("lru", "replacement=clock"), ("fifo", "replacement=fifo"), ("random", "replacement=fifo")]),
            "`lru` is `clock`, which keeps what was hit since it was last looked at; `random` is `fifo`, which looks at use as little. The profile leaves the choice to Forebay.";
        "writeback_running": "0 or 1", "write-back cannot be switched off; to keep data dirty raise writeback_percent and writeback_delay";
        "writeback_rate": "sectors a second", NO_RATE;
        "writeback_rate_minimum": "sectors a second", NO_RATE;
        "writeback_rate_update_seconds": "seconds", NO_RATE;
        "writeback_rate_i_term_inverse": "a number", NO_RATE;
        "writeback_rate_p_term_inverse": "a number", NO_RATE;
        "writeback_rate_fp_term_low": "a number", NO_RATE;
        "writeback_rate_fp_term_mid": "a number", NO_RATE;
        "writeback_rate_fp_term_high": "a number", NO_RATE;
        "idle_max_writeback_rate": "0 or 1", "without other users of the origin write-back always has all of it";
        "writeback_consider_fragment": "0 or 1", "segments are reclaimed with what is live in them, so dirty data scattered over many holds up nothing";
        "writeback_metadata": "0 or 1", "requests over NBD and ublk do not say that they are of a file system's metadata";
        "readahead": "bytes", "what was not asked for is not read from an origin: the file system above reads ahead itself";
        "readahead_cache_policy": "all or meta-only", "requests over NBD and ublk do not say that they read ahead";
        "sequential_merge": "0 or 1", "sequential streams are always found over several requests";
        "data_csum": "0 or 1", "every block has a CRC32C; `verify` is the setting that says when it is compared";
        "synchronous": "0 or 1", "the log is always written in order";
        "io_error_limit": "errors", NO_COUNT;
        "io_error_halflife": "requests", NO_COUNT;
        "io_disable": "0 or 1", "it is bcache's own emergency state; `forebay status` says if the cache was abandoned";
        "errors": "unregister or panic", "a cache that fails is left, and its volumes go on without it; the machine is never stopped";
        "stop_when_cache_set_failed": "auto or always", "a volume goes on without its cache and answers errors only where dirty data is lost";
        "gc_after_writeback": "0 or 1", NO_BTREE;
        "copy_gc_enabled": "0 or 1", NO_BTREE;
        "btree_shrinker_disabled": "0 or 1", NO_BTREE;
        "trigger_gc": "anything", NO_BTREE;
        "prune_cache": "a number", NO_BTREE;
        "gc_always_rewrite": "0 or 1", NO_BTREE;
        "key_merging_disabled": "0 or 1", NO_BTREE;
        "expensive_debug_checks": "0 or 1", "invariants are checked always, in every build";
        "verify": "0 or 1", "it compares the cache with the origin; `verify` here is about checksums of cached blocks";
        "bypass_torture_test": "0 or 1", "it is a test of bcache's own code";
        "bucket_size": "bytes", "a segment's size follows from the cache's when it is made";
        "block_size": "bytes", "it is chosen when the cache is made: `forebay create --block-size`";
        "label": "a name", "a volume's name is given when it is first attached: --name";
        "size": "bytes", "a volume is as long as its origin";
        "flash_vol_create": "bytes", "a volume always has an origin: use a part of the SSD as it is instead";
        "attach": "a cache set", A_COMMAND;
        "detach": "anything", A_COMMAND;
        "running": "0 or 1", A_COMMAND;
        "stop": "anything", A_COMMAND;
        "unregister": "anything", A_COMMAND;
        "clear_stats": "anything", STATISTICS;
    },
};
