//! The contenders. `lab/guest/systems.sh` sets each up.

use crate::name::Named;

/// A way to use the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    name: &'static str,
    summary: &'static str,
    /// Dirty data is kept on the cache device alone, and survives a power cut.
    pub keeps_dirty_data: bool,
}

const fn system(name: &'static str, keeps_dirty_data: bool, summary: &'static str) -> System {
    System {
        name,
        summary,
        keeps_dirty_data,
    }
}

/// All of them.
pub const SYSTEMS: &[System] = &[
    system("hdd", false, "the bare disk"),
    system("ssd", false, "the bare SSD"),
    system("bcache", true, "bcache, write-back, its defaults"),
    system(
        "bcache-all",
        true,
        "bcache, write-back, sequential and congestion bypass off",
    ),
    system(
        "bcache-wt",
        false,
        "bcache, write-through, sequential and congestion bypass off",
    ),
    system(
        "dm-cache",
        true,
        "dm-cache, smq, write-back, blocks of 256 KiB",
    ),
    system(
        "dm-cache-md",
        true,
        "dm-cache, smq, write-back, on md RAID1 of two SSDs",
    ),
    system("dm-cache-wt", false, "dm-cache, smq, write-through"),
    system("dm-writecache", true, "dm-writecache (caches writes only)"),
    system(
        "nbdkit-cache",
        false,
        "nbdkit's cache filter, in a file on the SSD, over the kernel's NBD client",
    ),
    system(
        "forebay-nbd",
        true,
        "Forebay, write-back, over the kernel's NBD client",
    ),
    system(
        "forebay-nbd-wt",
        false,
        "Forebay, write-through, over the kernel's NBD client",
    ),
    system("forebay-ublk", true, "Forebay, write-back, as /dev/ublkb0"),
    system(
        "forebay-ublk-wt",
        false,
        "Forebay, write-through, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-memory",
        true,
        "Forebay, write-back, commit = memory, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-two",
        true,
        "Forebay, write-back, on two SSDs, dirty data on one of them, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-copies",
        true,
        "Forebay, write-back, on two SSDs, copies = 2, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-shards-2",
        true,
        "Forebay, write-back, with 2 shards, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-shards-4",
        true,
        "Forebay, write-back, with 4 shards, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-shards-8",
        true,
        "Forebay, write-back, with 8 shards, as /dev/ublkb0",
    ),
    system(
        "forebay-ublk-shards-16",
        true,
        "Forebay, write-back, with 16 shards, as /dev/ublkb0",
    ),
];

impl Named for System {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}
