//! dm-cache, and LVM's name for it, lvmcache.

use forebay_engine::Mode;

use super::profile::{Left, MOST, Profile, Taken, Words, number, rows};

const IGNORED_THERE: &str =
    "dm-cache itself ignores it since Linux 4.6, where smq took the place of mq";
const SMQ: &str = "!changes nothing: what stays is decided by the setting replacement";

/// The Linux kernel's device-mapper cache.
pub(super) const PROFILE: Profile = Profile {
    name: "dm-cache",
    title: "dm-cache, the Linux kernel's device-mapper cache, and lvmcache",
    source: "Documentation/admin-guide/device-mapper/cache.rst and cache-policies.rst, drivers/md/dm-cache-policy-smq.c of Linux",
    mode: Mode::Writeback,
    base: "admission=second-touch write-admission=second-touch dirty-low=75 dirty-high=90 dirty-limit=90 age=1s record-delay=1s",
    remarks: &[
        "smq promotes what its hotspot queue has seen repeatedly; the profile admits reads and writes at the second touch.",
        "smq keeps 25 % of a busy cache clean and cleans everything when the device is idle; the profile writes back above 75 %, and what is a second old while the origin is idle.",
        "dm-cache commits its metadata with each flush and every second; so does the profile (commit `flush`, record-delay 1 s).",
        "dm-cache moves blocks of 32 KiB to 1 GiB as a whole; Forebay's blocks are 4 to 64 KiB (`forebay create --block-size`).",
        "dm-cache has no upper limit of dirty data; 90 % is the most here.",
        "Volumes that LVM made are in write-through: lvmcache's default is not dm-cache's.",
    ],
    foreign: rows! {
        "cache_mode": "writeback, writethrough or passthrough (a feature argument; LVM's --cachemode)", Left("writeback"),
            Words(&[("writeback", "mode=writeback"), ("writethrough", "mode=writethrough"), ("passthrough", "mode=passthrough")]),
            "The mode of every volume that has none of its own.";
        "policy": "default, smq, mq or cleaner (LVM's --cachepolicy)", Left("smq"),
            Words(&[("default", SMQ), ("smq", SMQ), ("mq", SMQ), ("cleaner", "mode=passthrough writeback=cleaner")]),
            "`cleaner` is mode `passthrough` and write-back policy `cleaner`: all that is dirty is written back and nothing new comes in. The others change nothing: smq and mq rank blocks in many queues, for which a block would be written again at each step; `replacement` says what there is instead.";
        "migration_threshold": "sectors of 512 bytes; 0 is not possible here", Taken("2048"),
            number(1, MOST).times(512).sets("writeback-bytes={}"),
            "Write-back in flight, 64 KiB to 64 MiB. Promotions are not limited: they cost no read of the origin that was not asked for.";
        "sequential_threshold": "a number of requests", IGNORED_THERE;
        "random_threshold": "a number of requests", IGNORED_THERE;
        "read_promote_adjustment": "a number", IGNORED_THERE;
        "write_promote_adjustment": "a number", IGNORED_THERE;
        "discard_promote_adjustment": "a number", IGNORED_THERE;
        "block_size": "sectors of 512 bytes (LVM's --chunksize)", "it is chosen when the cache is made: `forebay create --block-size`";
        "metadata2": "no value", "there is no metadata device: the log on the cache device is all there is";
        "no_discard_passdown": "no value", "a discard goes to the origin in time or becomes zeroes in the log, whichever its contract needs";
        "invalidate_cblocks": "ranges of cache blocks", "blocks have no fixed place in the cache; a discard of the volume's range drops them";
    },
};
