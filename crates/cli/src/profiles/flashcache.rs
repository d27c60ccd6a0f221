//! flashcache.

use forebay_engine::{Commit, Mode, Replacement};

use super::profile::{Foreign, Initial, Profile};
use super::value::{cutoff, number, switch, word};

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
    base: |settings| settings.commit = Commit::Write,
    remarks: &[
        "flashcache has no default mode (`flashcache_create -p` must be given); the profile's is writeback.",
        "flashcache writes a block's metadata before it acknowledges a write that makes it dirty: commit `write`.",
        "flashcache's write-through and write-around caches are cold after a restart; Forebay's are not.",
    ],
    foreign: &[
        Foreign::ours(
            "cache_mode",
            "back, thru or around (flashcache_create -p)",
            Initial::None,
            &["mode"],
            "The mode of every volume that has none of its own. Forebay's writearound updates blocks that are cached, where flashcache drops them: that is `readonly`.",
            |target, text| {
                let modes = [
                    ("back", Mode::Writeback),
                    ("thru", Mode::Writethrough),
                    ("around", Mode::Readonly),
                ];
                target.mode = Some(word(text, &modes)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "cache_all",
            "0 or 1",
            Initial::Left("1"),
            &["mode"],
            "0 is mode `passthrough`; 1 changes nothing.",
            |target, text| {
                if !switch(text)? {
                    target.mode = Some(Mode::Passthrough);
                }
                Ok(())
            },
        ),
        Foreign::ours(
            "write_only_cache",
            "0 or 1 (flashcache_create -w)",
            Initial::Left("0"),
            &["admission"],
            "1 is admission touch-15, which comes nearest to never; 0 changes nothing.",
            |target, text| {
                if switch(text)? {
                    target.keep_reads_out();
                }
                Ok(())
            },
        ),
        Foreign::ours(
            "skip_seq_thresh_kb",
            "KiB; 0 for never",
            Initial::Taken("0"),
            &["sequential-cutoff"],
            "The same: the rest of a longer sequential stream bypasses the cache.",
            |target, text| {
                let kib = number(text, 0..=u64::from(u32::MAX))?;
                target.settings.sequential_cutoff_bytes = cutoff(kib << 10);
                Ok(())
            },
        ),
        Foreign::ours(
            "dirty_thresh_pct",
            "percent of each set, 10 to 90; what is outside is taken as the nearer of them, there as here",
            Initial::Taken("20"),
            &["dirty-low"],
            "Write-back begins above it, of the cache and not of each set.",
            |target, text| {
                let percent = number(text, 0..=100)?;
                if !(10..=90).contains(&percent) {
                    target
                        .notes
                        .push(format!("{percent} is taken as {}", percent.clamp(10, 90)));
                }
                target.set_dirty_low(percent.clamp(10, 90));
                Ok(())
            },
        ),
        Foreign::ours(
            "fallow_delay",
            "seconds; 0 for never",
            Initial::Taken("900"),
            &["age"],
            "What is dirty for so long is written back. flashcache counts from the last use of a block, Forebay from when it was written.",
            |target, text| {
                target.set_age_or_never(number(text, 0..=u64::from(u32::MAX))?);
                Ok(())
            },
        ),
        Foreign::ours(
            "max_clean_ios_total",
            "writes of 4 KiB",
            Initial::Left("4"),
            &["writeback-depth", "writeback-run"],
            "How much write-back is under way at once, 64 KiB to 256 MiB; the profile leaves that to Forebay.",
            |target, text| {
                target.set_writeback_bytes(number(text, 1..=u64::from(u32::MAX))? * 4096);
                Ok(())
            },
        ),
        Foreign::ours(
            "lru_promote_thresh",
            "hits",
            Initial::Left("2"),
            &["promotion-hits"],
            "So many hits move a block to the stream of those that proved themselves, 3 at most; the profile leaves that to Forebay.",
            |target, text| {
                let hits = number(text, 1..=u64::from(u16::MAX))?;
                if hits > 3 {
                    target.notes.push(format!("{hits} hits are taken as 3"));
                }
                target.settings.promotion_hits = hits.min(3) as u8;
                Ok(())
            },
        ),
        Foreign::ours(
            "lru_hot_pct",
            "percent, 0 to 100",
            Initial::Left("75"),
            &["probation"],
            "The rest is the share of blocks on probation, 1 to 50 %; the profile leaves that to Forebay.",
            |target, text| {
                let warm = 100 - number(text, 0..=100)?;
                if !(1..=50).contains(&warm) {
                    target.notes.push(format!(
                        "{warm} % on probation is taken as {} %",
                        warm.clamp(1, 50)
                    ));
                }
                target.settings.probation_percent = warm.clamp(1, 50) as u8;
                Ok(())
            },
        ),
        Foreign::ours(
            "reclaim_policy",
            "0 (FIFO) or 1 (LRU)",
            Initial::Left("0"),
            &["replacement"],
            "1 is `clock`, which keeps what was hit since it was last looked at. The profile leaves the choice to Forebay.",
            |target, text| {
                target.set_replacement(text, &[("0", Replacement::Fifo), ("1", Replacement::Clock)])
            },
        ),
        Foreign::nothing("fallow_clean_speed", "writes a second and set", NO_SETS),
        Foreign::nothing("max_clean_ios_set", "writes", NO_SETS),
        Foreign::nothing(
            "clean_on_read_miss",
            "0 or 1",
            "room is made ahead of need, by reclaim of whole segments, not by a miss",
        ),
        Foreign::nothing(
            "clean_on_write_miss",
            "0 or 1",
            "room is made ahead of need, by reclaim of whole segments, not by a miss",
        ),
        Foreign::nothing(
            "new_style_write_merge",
            "0 or 1",
            "write-back merges neighbours always",
        ),
        Foreign::nothing(
            "fast_remove",
            "0 or 1",
            "`forebay stop` never writes dirty data back, and `forebay stop --drain` always does",
        ),
        Foreign::nothing("do_sync", "0 or 1", DRAINS),
        Foreign::nothing("stop_sync", "0 or 1", DRAINS),
        Foreign::nothing("zero_stats", "0 or 1", STATISTICS),
        Foreign::nothing("io_latency_hist", "0 or 1", STATISTICS),
        Foreign::nothing("max_pids", "processes", NO_PROCESSES),
        Foreign::nothing("do_pid_expiry", "0 or 1", NO_PROCESSES),
        Foreign::nothing("pid_expiry_secs", "seconds", NO_PROCESSES),
        Foreign::nothing(
            "block_size",
            "sectors or KiB (flashcache_create -b)",
            "it is chosen when the cache is made: `forebay create --block-size`",
        ),
        Foreign::nothing(
            "cache_size",
            "sectors, or with k, m or g (flashcache_create -s)",
            "the cache is as long as its device: give it a partition",
        ),
        Foreign::nothing(
            "md_block_size",
            "sectors (flashcache_create -m)",
            "metadata is in the log, with the data it describes",
        ),
        Foreign::nothing(
            "disk_associativity",
            "blocks (flashcache_create -d)",
            NO_SETS,
        ),
    ],
};
