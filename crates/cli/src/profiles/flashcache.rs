//! flashcache.

use forebay_engine::Mode;

use super::profile::{Left, MOST, NONE, Profile, Taken, Words, number, rows};

const NO_SETS: &str = "any block can be anywhere in the cache: there are no sets";
const NO_PROCESSES: &str = "requests over NBD and ublk do not say which process they are of";
const DRAINS: &str = "it is a command and no setting: `forebay drain`, which Ctrl-C ends";
const STATISTICS: &str = "counters are of the daemon's life and begin with it, latencies among them; `forebay status` shows them";

/// Facebook's kernel module.
pub(super) const PROFILE: Profile = Profile {
    name: "flashcache",
    title: "flashcache, Facebook's kernel module",
    source: "doc/flashcache-sa-guide.txt and src/flashcache_procfs.c of github.com/facebookarchive/flashcache",
    mode: Mode::Writeback,
    base: "commit=write",
    remarks: &[
        "flashcache has no default mode (`flashcache_create -p` must be given); the profile's is writeback.",
        "flashcache writes a block's metadata before it acknowledges a write that makes it dirty: commit `write`.",
        "flashcache's write-through and write-around caches are cold after a restart; Forebay's are not.",
    ],
    foreign: rows! {
        "cache_mode": "back, thru or around (flashcache_create -p)", NONE,
            Words(&[("back", "mode=writeback"), ("thru", "mode=writethrough"), ("around", "mode=readonly")]),
            "The mode of every volume that has none of its own. Forebay's writearound updates blocks that are cached, where flashcache drops them: that is `readonly`.";
        "cache_all": "0 or 1", Left("1"),
            Words(&[("0", "mode=passthrough"), ("1", "")]),
            "0 is mode `passthrough`; 1 changes nothing.";
        "write_only_cache": "0 or 1 (flashcache_create -w)", Left("0"),
            Words(&[("0", ""), ("1", "admission=touch-15")]),
            "1 is admission touch-15, which comes nearest to never; 0 changes nothing.";
        "skip_seq_thresh_kb": "KiB; 0 for never", Taken("0"),
            number(0, MOST).zero("sequential-cutoff=off").sets("sequential-cutoff={}K"),
            "The rest of a longer sequential stream bypasses the cache, as there.";
        "dirty_thresh_pct": "percent of each set, 10 to 90; what is outside is taken as the nearer of them, there as here", Taken("20"),
            number(0, 100).within(10, 90, "{} is taken as {}").sets("dirty-low={}"),
            "Write-back begins above it, of the cache and not of each set.";
        "fallow_delay": "seconds; 0 for never", Taken("900"),
            number(0, MOST).zero("age=never").sets("age={}s"),
            "Data that is dirty for so long is written back. flashcache counts from the last use of a block, Forebay from when it was written.";
        "max_clean_ios_total": "writes of 4 KiB", Left("4"),
            number(1, MOST).times(4096).sets("writeback-bytes={}"),
            "Write-back in flight, 64 KiB to 64 MiB; the profile leaves that to Forebay.";
        "lru_promote_thresh": "hits", Left("2"),
            number(1, 65_535).within(1, 3, "{} hits are taken as {}").sets("promotion-hits={}"),
            "So many hits move a block to the stream of those that proved themselves, 3 at most; the profile leaves that to Forebay.";
        "lru_hot_pct": "percent, 0 to 100", Left("75"),
            number(0, 100).rest_of(100).within(1, 50, "{} % on probation is taken as {} %").sets("probation={}"),
            "The rest is the share of blocks on probation, 1 to 50 %; the profile leaves that to Forebay.";
        "reclaim_policy": "0 (FIFO) or 1 (LRU)", Left("0"),
            Words(&[("0", "replacement=fifo"), ("1", "replacement=clock")]),
            "1 is `clock`, which keeps what was hit since it was last looked at. The profile leaves the choice to Forebay.";
        "fallow_clean_speed": "writes a second and set", NO_SETS;
        "max_clean_ios_set": "writes", NO_SETS;
        "clean_on_read_miss": "0 or 1", "room is made ahead of need, by reclaim of whole segments, not by a miss";
        "clean_on_write_miss": "0 or 1", "room is made ahead of need, by reclaim of whole segments, not by a miss";
        "new_style_write_merge": "0 or 1", "write-back merges neighbours always";
        "fast_remove": "0 or 1", "`forebay stop` never writes dirty data back, and `forebay stop --drain` always does";
        "do_sync": "0 or 1", DRAINS;
        "stop_sync": "0 or 1", DRAINS;
        "zero_stats": "0 or 1", STATISTICS;
        "io_latency_hist": "0 or 1", STATISTICS;
        "max_pids": "processes", NO_PROCESSES;
        "do_pid_expiry": "0 or 1", NO_PROCESSES;
        "pid_expiry_secs": "seconds", NO_PROCESSES;
        "block_size": "sectors or KiB (flashcache_create -b)", "it is chosen when the cache is made: `forebay create --block-size`";
        "cache_size": "sectors, or with k, m or g (flashcache_create -s)", "the cache is as long as its device: give it a partition";
        "md_block_size": "sectors (flashcache_create -m)", "metadata is in the log, with the data it describes";
        "disk_associativity": "blocks (flashcache_create -d)", NO_SETS;
    },
};
