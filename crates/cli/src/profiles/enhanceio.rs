//! EnhanceIO.

use forebay_engine::Mode;

use super::profile::{DIRTY_HIGH, Left, Profile, Taken, Words, number, rows};

const NO_SETS: &str = "any block can be anywhere in the cache: there are no sets";

/// STEC's kernel module, made of flashcache.
pub(super) const PROFILE: Profile = Profile {
    name: "enhanceio",
    title: "EnhanceIO, STEC's kernel module, made of flashcache",
    source: "README.txt, CLI/eio_cli and Driver/enhanceio/eio.h of github.com/stec-inc/EnhanceIO",
    mode: Mode::Writethrough,
    base: "commit=write",
    remarks: &[
        "EnhanceIO acknowledges a write when it is on the SSD with its metadata: commit `write`.",
        "EnhanceIO caches sequential streams as all else; so does the profile.",
        "EnhanceIO serves the origin under its own name; a volume has one of its own, /dev/forebay/NAME.",
        "EnhanceIO begins to clean at the high threshold and ends at the low one; here write-back begins above the low one, and writes slow down at the high one.",
    ],
    foreign: rows! {
        "mode": "wb, wt or ro (eio_cli -m)", Left("wt"),
            Words(&[("wb", "mode=writeback"), ("wt", "mode=writethrough"), ("ro", "mode=readonly")]),
            "The mode of every volume that has none of its own: writeback, writethrough, readonly.";
        "dirty_high_threshold": "percent, 0 to 100", Taken("30"),
            number(0, 100).sets("dirty-high={} dirty-limit=+10"),
            "Writes slow down above it; no more than 10 % beyond it becomes dirty.";
        "dirty_low_threshold": "percent, 0 to dirty_high_threshold", Taken("10"),
            number(0, DIRTY_HIGH).sets("dirty-low={}"),
            "The dirty data that write-back leaves.";
        "time_based_clean_interval": "minutes, 0 to 720; 0 for never; there 1 for each 16 GiB of cache, which the profile takes as 1", Taken("1"),
            number(0, 720).zero("age=never").sets("age={}min"),
            "Data that is dirty for so long is written back; EnhanceIO cleans everything once in that time.";
        "policy": "lru, fifo or rand (eio_cli -p)", Left("lru"),
            Words(&[("lru", "replacement=clock"), ("fifo", "replacement=fifo"), ("rand", "replacement=fifo")]),
            "`lru` is `clock`, which keeps what was hit since it was last looked at; `rand` is `fifo`, which looks at use as little. The profile leaves the choice to Forebay.";
        "dirty_set_high_threshold": "percent of a set", NO_SETS;
        "dirty_set_low_threshold": "percent of a set", NO_SETS;
        "autoclean_threshold": "requests in flight, 0 to 1024", "write-back waits for a quiet origin by itself, not for a count of requests";
        "do_clean": "0, 1 or 2", "it is a command and no setting: `forebay drain`, which Ctrl-C ends";
        "mem_limit_pct": "percent of memory", "the index needs 16 bytes for each block and is whole; buffers have --memory";
        "zero_stats": "0 or 1", "counters are of the daemon's life and begin with it; `forebay status` shows them";
        "control": "0 to 7", "it switches debugging and EnhanceIO's own commands; `--log-level` is ours";
        "invalidate": "a sector", "a discard of the volume's range drops its blocks from the cache";
        "block_size": "2048, 4096 or 8192 bytes (eio_cli -b)", "it is chosen when the cache is made: `forebay create --block-size`";
        "associativity": "blocks of a set", NO_SETS;
    },
};
