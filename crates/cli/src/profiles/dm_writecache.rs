//! dm-writecache.

use forebay_engine::{Mode, WritebackPolicy};

use super::profile::{Foreign, Initial, Profile};
use super::target::most_touches;
use super::value::{millis, number, switch};
use crate::units::Age;

const PMEM_ONLY: &str =
    "there, too, it concerns persistent memory only, which is no cache device here";

/// The Linux kernel's device-mapper cache of writes.
pub(super) const PROFILE: Profile = Profile {
    name: "dm-writecache",
    title: "dm-writecache, the Linux kernel's device-mapper cache of writes",
    source: "Documentation/admin-guide/device-mapper/writecache.rst and drivers/md/dm-writecache.c of Linux",
    mode: Mode::Writeback,
    base: |settings| {
        settings.read_admission = most_touches();
        settings.dirty_high_percent = 90;
        settings.dirty_limit_percent = 90;
        settings.age_limit = Age::NEVER;
    },
    remarks: &[
        "dm-writecache never caches what is read; admission touch-15 comes nearest to that.",
        "Written blocks stay cached here after they were written back, until their room is needed.",
        "dm-writecache lets writes wait when it is full; the profile lets 90 % be dirty, and long sequential writes then go past the cache.",
    ],
    foreign: &[
        Foreign::ours(
            "high_watermark",
            "percent, 0 to 100",
            Initial::Taken("50"),
            &["dirty-low"],
            "Write-back begins above it.",
            |target, text| {
                target.set_dirty_low(number(text, 0..=100)?);
                Ok(())
            },
        ),
        Foreign::nothing(
            "low_watermark",
            "percent, 0 to 100",
            "write-back ends at the share of dirty data at which it begins; there is no second mark",
        ),
        Foreign::ours(
            "writeback_jobs",
            "blocks of 4 KiB; 0 for any number",
            Initial::Taken("0"),
            &["writeback-depth", "writeback-run"],
            "How much write-back is under way at once, 64 KiB to 256 MiB.",
            |target, text| {
                let blocks = number(text, 0..=u64::from(u32::MAX))?;
                if blocks == 0 {
                    target.set_writeback_bytes(256 << 20);
                } else {
                    target.set_writeback_bytes(blocks * 4096);
                }
                Ok(())
            },
        ),
        Foreign::ours(
            "autocommit_time",
            "milliseconds, 1 to 3600000",
            Initial::Taken("1000"),
            &["record-delay"],
            "The same: an entry waits no longer in memory unless a flush comes first.",
            |target, text| {
                target.settings.record_delay = millis(number(text, 1..=3_600_000)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "max_age",
            "milliseconds, 1 to 86400000; without it never",
            Initial::None,
            &["age"],
            "The same: what is older is written back whatever is dirty.",
            |target, text| {
                target.settings.age_limit = millis(number(text, 1..=86_400_000)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "cleaner",
            "0 or 1 (there without a value)",
            Initial::Left("0"),
            &["mode", "writeback"],
            "1 is mode `passthrough` and write-back policy `cleaner`: all that is dirty is written back and nothing new comes in. 0 changes nothing.",
            |target, text| {
                if switch(text)? {
                    target.mode = Some(Mode::Passthrough);
                    target.settings.writeback_policy = WritebackPolicy::Cleaner;
                }
                Ok(())
            },
        ),
        Foreign::nothing(
            "autocommit_blocks",
            "blocks",
            "a record is written when it is full, whatever waits for the next flush",
        ),
        Foreign::nothing(
            "pause_writeback",
            "milliseconds",
            "write-back yields to every read and write of the origin, always",
        ),
        Foreign::nothing(
            "metadata_only",
            "no value",
            "requests over NBD and ublk do not say that they are of a file system's metadata",
        ),
        Foreign::nothing(
            "start_sector",
            "sectors of 512 bytes",
            "a cache device is used from its beginning: give it a partition",
        ),
        Foreign::nothing(
            "block_size",
            "bytes",
            "it is chosen when the cache is made: `forebay create --block-size`",
        ),
        Foreign::nothing("fua", "no value", PMEM_ONLY),
        Foreign::nothing("nofua", "no value", PMEM_ONLY),
    ],
};
