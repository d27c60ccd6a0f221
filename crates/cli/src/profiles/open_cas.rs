//! Open CAS.

use forebay_engine::{Admission, Commit, Mode, WritebackPolicy};

use super::profile::{Foreign, Initial, Profile};
use super::target::Target;
use super::value::{millis, number, word};
use crate::units::Age;

const NO_CYCLES: &str =
    "write-back has no cycles: it looks for something to do whenever the origin is quiet";
const NO_CLASSES: &str = "requests over NBD and ublk do not say which file or process they are of";

/// Open Cache Acceleration Software for Linux.
pub(super) const PROFILE: Profile = Profile {
    name: "open-cas",
    title: "Open CAS Linux, once Intel's Cache Acceleration Software",
    source: "casadm/casadm.8 of github.com/Open-CAS/open-cas-linux, inc/ of github.com/Open-CAS/ocf, open-cas.github.io",
    mode: Mode::Writethrough,
    base: |settings| settings.commit = Commit::Write,
    remarks: &[
        "Open CAS flushes its metadata before it acknowledges a write that makes a line dirty: commit `write`.",
        "Open CAS's sequential cut-off is `full` at first: streams bypass a cache that is full. Forebay lets long sequential writes past when as much is dirty as may be, and its replacement is not harmed by streams; so the profile has no cut-off.",
        "Settings are of a namespace: `seq-cutoff.threshold` is casadm's `-X -n seq-cutoff -t`. In a configuration file `seq-cutoff = { policy = \"always\", threshold = 4096 }` is the same.",
    ],
    foreign: &[
        Foreign::ours(
            "cache-mode",
            "wt, wb, wa, pt or wo",
            Initial::Left("wt"),
            &["mode", "admission"],
            "The mode of every volume that has none of its own; `wo` is writeback with admission touch-15, which comes nearest to never promoting reads.",
            |target, text| {
                let modes = [
                    ("wt", Mode::Writethrough),
                    ("wb", Mode::Writeback),
                    ("wa", Mode::Writearound),
                    ("pt", Mode::Passthrough),
                    ("wo", Mode::Writeback),
                ];
                target.mode = Some(word(text, &modes)?);
                if text.trim() == "wo" {
                    target.keep_reads_out();
                }
                Ok(())
            },
        ),
        Foreign::ours(
            "seq-cutoff.threshold",
            "KiB, 1 to 4194181",
            Initial::Left("1024"),
            &["sequential-cutoff"],
            "Longer sequential streams bypass the cache, unless seq-cutoff.policy says otherwise.",
            |target, text| {
                let kib = number(text, 1..=4_194_181)?;
                target.settings.sequential_cutoff_bytes = Some(kib << 10);
                Ok(())
            },
        ),
        Foreign::ours(
            "seq-cutoff.policy",
            "always, full or never",
            Initial::Taken("full"),
            &["sequential-cutoff"],
            "`always` is the threshold, 1024 KiB without one; `full` and `never` are no cut-off.",
            set_cutoff_policy,
        ),
        Foreign::ours(
            "cleaning-alru.staleness-time",
            "seconds, 1 to 3600",
            Initial::Taken("120"),
            &["age"],
            "What is dirty for so long is written back.",
            |target, text| {
                target.settings.age_limit = millis(number(text, 1..=3_600)? * 1_000);
                Ok(())
            },
        ),
        Foreign::ours(
            "cleaning-alru.flush-max-buffers",
            "lines of 4 KiB, 1 to 10000",
            Initial::Left("100"),
            &["writeback-depth", "writeback-run"],
            "How much write-back is under way at once, 64 KiB at least; the profile leaves that to Forebay.",
            set_flush_buffers,
        ),
        Foreign::ours(
            "cleaning-acp.flush-max-buffers",
            "lines of 4 KiB, 1 to 10000",
            Initial::Left("128"),
            &["writeback-depth", "writeback-run"],
            "How much write-back is under way at once, 64 KiB at least; the profile leaves that to Forebay.",
            set_flush_buffers,
        ),
        Foreign::ours(
            "cleaning.policy",
            "alru, acp or nop",
            Initial::Taken("alru"),
            &["writeback", "age"],
            "`alru` is write-back policy `timed`; `acp` is `cleaner`; `nop` is `timed` with age never: only when room is needed.",
            set_cleaning_policy,
        ),
        Foreign::ours(
            "promotion-nhit.threshold",
            "accesses, 2 to 1000",
            Initial::Left("3"),
            &["admission", "write-admission"],
            "A block is let in when it is wanted for the n-th time, 15 at most, unless promotion.policy says otherwise.",
            |target, text| {
                admit_at(target, number(text, 2..=1_000)?);
                Ok(())
            },
        ),
        Foreign::ours(
            "promotion.policy",
            "always or nhit",
            Initial::Taken("always"),
            &["admission", "write-admission"],
            "`nhit` is promotion-nhit.threshold, 3 without one; for reads and writes alike.",
            set_promotion_policy,
        ),
        Foreign::nothing(
            "promotion-nhit.trigger",
            "percent",
            "the filter is there from the first request, also while the cache has room",
        ),
        Foreign::nothing(
            "seq-cutoff.promotion-count",
            "requests",
            "a stream is known to the shard that owns its part of the origin, whichever thread serves it",
        ),
        Foreign::nothing("cleaning-alru.wake-up", "seconds", NO_CYCLES),
        Foreign::nothing(
            "cleaning-alru.activity-threshold",
            "milliseconds",
            "write-back yields to every read and write of the origin, always, and goes on a moment after the last",
        ),
        Foreign::nothing("cleaning-acp.wake-up", "milliseconds", NO_CYCLES),
        Foreign::nothing(
            "cache-line-size",
            "KiB: 4, 8, 16, 32 or 64",
            "it is chosen when the cache is made: `forebay create --block-size`, 4K to 64K",
        ),
        Foreign::nothing("io-class", "a file of classes", NO_CLASSES),
        Foreign::nothing(
            "ioclass_file",
            "a file of classes (opencas.conf)",
            NO_CLASSES,
        ),
        Foreign::nothing(
            "lazy_startup",
            "true or false (opencas.conf)",
            "a daemon needs its devices to start; with systemd a cache that is missing is tried again",
        ),
        Foreign::nothing(
            "target_failover_state",
            "active or standby (opencas.conf)",
            "there is no standby of a cache on another machine",
        ),
    ],
};

fn set_cutoff_policy(target: &mut Target, text: &str) -> Result<(), String> {
    let always = word(text, &[("always", true), ("full", false), ("never", false)])?;
    let cutoff = &mut target.settings.sequential_cutoff_bytes;
    *cutoff = if always {
        cutoff.or(Some(1 << 20))
    } else {
        None
    };
    Ok(())
}

fn set_flush_buffers(target: &mut Target, text: &str) -> Result<(), String> {
    target.set_writeback_bytes(number(text, 1..=10_000)? * 4096);
    Ok(())
}

fn set_cleaning_policy(target: &mut Target, text: &str) -> Result<(), String> {
    let (policy, never) = word(
        text,
        &[
            ("alru", (WritebackPolicy::Timed, false)),
            ("acp", (WritebackPolicy::Cleaner, false)),
            ("nop", (WritebackPolicy::Timed, true)),
        ],
    )?;
    target.settings.writeback_policy = policy;
    if never {
        target.settings.age_limit = Age::NEVER;
    }
    Ok(())
}

fn set_promotion_policy(target: &mut Target, text: &str) -> Result<(), String> {
    if !word(text, &[("always", false), ("nhit", true)])? {
        target.settings.read_admission = Admission::ALWAYS;
        target.settings.write_admission = Admission::ALWAYS;
    } else if target.settings.read_admission == Admission::ALWAYS {
        admit_at(target, 3);
    }
    Ok(())
}

fn admit_at(target: &mut Target, touches: u64) {
    let wanted = u8::try_from(touches).unwrap_or(u8::MAX);
    let admission = Admission::nth_touch(wanted).unwrap_or_else(|_| {
        let most = super::target::most_touches();
        target.notes.push(format!(
            "{touches} accesses are taken as {}",
            most.touches()
        ));
        most
    });
    target.settings.read_admission = admission;
    target.settings.write_admission = admission;
}
