//! dm-cache, and LVM's name for it, lvmcache.

use forebay_engine::{Admission, Mode, WritebackPolicy};

use super::profile::{Foreign, Initial, Profile};
use super::target::Target;
use super::value::{millis, number, word};

const IGNORED_THERE: &str =
    "dm-cache itself ignores it since Linux 4.6, where smq took the place of mq";

/// The Linux kernel's device-mapper cache.
pub(super) const PROFILE: Profile = Profile {
    name: "dm-cache",
    title: "dm-cache, the Linux kernel's device-mapper cache, and lvmcache",
    source: "Documentation/admin-guide/device-mapper/cache.rst and cache-policies.rst, drivers/md/dm-cache-policy-smq.c of Linux",
    mode: Mode::Writeback,
    base: |settings| {
        settings.read_admission = Admission::SECOND_TOUCH;
        settings.write_admission = Admission::SECOND_TOUCH;
        // smq keeps a quarter of a busy cache clean, and cleans all of it when nobody is there.
        settings.dirty_low_percent = 75;
        settings.dirty_high_percent = 90;
        settings.dirty_limit_percent = 90;
        settings.age_limit = millis(1_000);
        settings.record_delay = millis(1_000);
    },
    remarks: &[
        "smq promotes what its hotspot queue has seen repeatedly; the profile admits reads and writes at the second touch.",
        "smq keeps 25 % of a busy cache clean and cleans everything when the device is idle; the profile writes back above 75 %, and what is a second old while the origin is idle.",
        "dm-cache commits its metadata with each flush and every second; so does the profile (commit `flush`, record-delay 1 s).",
        "dm-cache moves blocks of 32 KiB to 1 GiB as a whole; Forebay's blocks are 4 to 64 KiB (`forebay create --block-size`).",
        "dm-cache has no upper limit of dirty data; 90 % is the most here.",
        "Volumes that LVM made are in write-through: lvmcache's default is not dm-cache's.",
    ],
    foreign: &[
        Foreign::ours(
            "cache_mode",
            "writeback, writethrough or passthrough (a feature argument; LVM's --cachemode)",
            Initial::Left("writeback"),
            &["mode"],
            "The mode of every volume that has none of its own.",
            |target, text| {
                let modes = [
                    ("writeback", Mode::Writeback),
                    ("writethrough", Mode::Writethrough),
                    ("passthrough", Mode::Passthrough),
                ];
                target.mode = Some(word(text, &modes)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "policy",
            "default, smq, mq or cleaner (LVM's --cachepolicy)",
            Initial::Left("smq"),
            &["mode", "writeback"],
            "`cleaner` is mode `passthrough` and write-back policy `cleaner`: all that is dirty is written back and nothing new comes in. The others change nothing: smq and mq rank blocks in many queues, for which a block would be written again at each step; `replacement` says what there is instead.",
            set_policy,
        ),
        Foreign::ours(
            "migration_threshold",
            "sectors of 512 bytes; 0 is not possible here",
            Initial::Taken("2048"),
            &["writeback-depth", "writeback-run"],
            "How much write-back is under way at once, 64 KiB to 256 MiB. Promotions are not limited: they cost no read of the origin that was not asked for.",
            |target, text| {
                let sectors = number(text, 1..=u64::from(u32::MAX))?;
                target.set_writeback_bytes(sectors * 512);
                Ok(())
            },
        ),
        Foreign::nothing(
            "sequential_threshold",
            "a number of requests",
            IGNORED_THERE,
        ),
        Foreign::nothing("random_threshold", "a number of requests", IGNORED_THERE),
        Foreign::nothing("read_promote_adjustment", "a number", IGNORED_THERE),
        Foreign::nothing("write_promote_adjustment", "a number", IGNORED_THERE),
        Foreign::nothing("discard_promote_adjustment", "a number", IGNORED_THERE),
        Foreign::nothing(
            "block_size",
            "sectors of 512 bytes (LVM's --chunksize)",
            "it is chosen when the cache is made: `forebay create --block-size`",
        ),
        Foreign::nothing(
            "metadata2",
            "no value",
            "there is no metadata device: the log on the cache device is all there is",
        ),
        Foreign::nothing(
            "no_discard_passdown",
            "no value",
            "a discard goes to the origin in time or becomes zeroes in the log, whichever its contract needs",
        ),
        Foreign::nothing(
            "invalidate_cblocks",
            "ranges of cache blocks",
            "blocks have no fixed place in the cache; a discard of the volume's range drops them",
        ),
    ],
};

fn set_policy(target: &mut Target, text: &str) -> Result<(), String> {
    let cleaner = word(
        text,
        &[
            ("default", false),
            ("smq", false),
            ("mq", false),
            ("cleaner", true),
        ],
    )?;
    if cleaner {
        target.mode = Some(Mode::Passthrough);
        target.settings.writeback_policy = WritebackPolicy::Cleaner;
    } else {
        target.notes.push(format!(
            "`{text}` changes nothing: what stays is decided by the setting replacement"
        ));
    }
    Ok(())
}
