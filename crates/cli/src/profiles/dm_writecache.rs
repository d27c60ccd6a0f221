//! dm-writecache.

use forebay_engine::Mode;

use super::profile::{Left, MOST, NONE, Profile, Taken, Words, number, rows};

const PMEM_ONLY: &str =
    "there, too, it concerns persistent memory only, which is no cache device here";

/// The Linux kernel's device-mapper cache of writes.
pub(super) const PROFILE: Profile = Profile {
    name: "dm-writecache",
    title: "dm-writecache, the Linux kernel's device-mapper cache of writes",
    source: "Documentation/admin-guide/device-mapper/writecache.rst and drivers/md/dm-writecache.c of Linux",
    mode: Mode::Writeback,
    base: "admission=touch-15 dirty-high=90 dirty-limit=90 age=never",
    remarks: &[
        "dm-writecache never caches what is read; admission touch-15 comes nearest to that.",
        "Written blocks stay cached here after they were written back, until their room is needed.",
        "dm-writecache lets writes wait when it is full; the profile lets 90 % be dirty, and long sequential writes then bypass the cache.",
    ],
    foreign: rows! {
        "high_watermark": "percent, 0 to 100", Taken("50"),
            number(0, 100).sets("dirty-low={}"),
            "Write-back begins above it.";
        "low_watermark": "percent, 0 to 100", "write-back ends at the share of dirty data at which it begins; there is no second mark";
        "writeback_jobs": "blocks of 4 KiB; 0 for any number", Taken("0"),
            number(0, MOST).zero("writeback-bytes=67108864").times(4096).sets("writeback-bytes={}"),
            "Write-back in flight, 64 KiB to 64 MiB.";
        "autocommit_time": "milliseconds, 1 to 3600000", Taken("1000"),
            number(1, 3_600_000).sets("record-delay={}ms"),
            "An entry waits no longer in memory unless a flush comes first, as there.";
        "max_age": "milliseconds, 1 to 86400000; without it never", NONE,
            number(1, 86_400_000).sets("age={}ms"),
            "Older dirty data is written back, whatever its amount, as there.";
        "cleaner": "0 or 1 (there without a value)", Left("0"),
            Words(&[("0", ""), ("1", "mode=passthrough writeback=cleaner")]),
            "1 is mode `passthrough` and write-back policy `cleaner`: all that is dirty is written back and nothing new comes in. 0 changes nothing.";
        "autocommit_blocks": "blocks", "a record is written when it is full, whatever waits for the next flush";
        "pause_writeback": "milliseconds", "write-back yields to every read and write of the origin, always";
        "metadata_only": "no value", "requests over NBD and ublk do not say that they are of a file system's metadata";
        "start_sector": "sectors of 512 bytes", "a cache device is used from its beginning: give it a partition";
        "block_size": "bytes", "it is chosen when the cache is made: `forebay create --block-size`";
        "fua": "no value", PMEM_ONLY;
        "nofua": "no value", PMEM_ONLY;
    },
};
