//! Open CAS.

use forebay_engine::Mode;

use super::profile::{Left, Profile, Taken, Words, number, rows};

const NO_CYCLES: &str =
    "write-back has no cycles: it looks for something to do whenever the origin is quiet";
const NO_CLASSES: &str = "requests over NBD and ublk do not say which file or process they are of";

/// Open Cache Acceleration Software for Linux.
pub(super) const PROFILE: Profile = Profile {
    name: "open-cas",
    title: "Open CAS Linux, once Intel's Cache Acceleration Software",
    source: "casadm/casadm.8 of github.com/Open-CAS/open-cas-linux, inc/ of github.com/Open-CAS/ocf, open-cas.github.io",
    mode: Mode::Writethrough,
    base: "commit=write",
    remarks: &[
        "Open CAS flushes its metadata before it acknowledges a write that makes a line dirty: commit `write`.",
        "Open CAS's sequential cut-off is `full` at first: streams bypass a cache that is full. Forebay lets long sequential writes bypass the cache when as much is dirty as may be, and its replacement is not harmed by streams; so the profile has no cut-off.",
        "Settings are of a namespace: `seq-cutoff.threshold` is casadm's `-X -n seq-cutoff -t`. In a configuration file `seq-cutoff = { policy = \"always\", threshold = 4096 }` is the same.",
    ],
    foreign: rows! {
        "cache-mode": "wt, wb, wa, pt or wo", Left("wt"),
            Words(&[("wt", "mode=writethrough"), ("wb", "mode=writeback"), ("wa", "mode=writearound"), ("pt", "mode=passthrough"), ("wo", "mode=writeback admission=touch-15")]),
            "The mode of every volume that has none of its own; `wo` is writeback with admission touch-15, which comes nearest to never promoting reads.";
        "seq-cutoff.threshold": "KiB, 1 to 4194181", Left("1024"),
            number(1, 4_194_181).sets("sequential-cutoff={}K"),
            "Longer sequential streams bypass the cache, unless seq-cutoff.policy says otherwise.";
        "seq-cutoff.policy": "always, full or never", Taken("full"),
            Words(&[("always", "?sequential-cutoff=1M"), ("full", "sequential-cutoff=off"), ("never", "sequential-cutoff=off")]),
            "`always` is the threshold, 1024 KiB without one; `full` and `never` are no cut-off.";
        "cleaning-alru.staleness-time": "seconds, 1 to 3600", Taken("120"),
            number(1, 3_600).sets("age={}s"),
            "Data that is dirty for so long is written back.";
        "cleaning-alru.flush-max-buffers": "lines of 4 KiB, 1 to 10000", Left("100"),
            number(1, 10_000).times(4096).sets("writeback-bytes={}"),
            "Write-back in flight, 64 KiB at least; the profile leaves that to Forebay.";
        "cleaning-acp.flush-max-buffers": "lines of 4 KiB, 1 to 10000", Left("128"),
            number(1, 10_000).times(4096).sets("writeback-bytes={}"),
            "Write-back in flight, 64 KiB at least; the profile leaves that to Forebay.";
        "cleaning.policy": "alru, acp or nop", Taken("alru"),
            Words(&[("alru", "writeback=timed"), ("acp", "writeback=cleaner"), ("nop", "writeback=timed age=never")]),
            "`alru` is write-back policy `timed`; `acp` is `cleaner`; `nop` is `timed` with age never: only when room is needed.";
        "promotion-nhit.threshold": "accesses, 2 to 1000", Left("3"),
            number(2, 1_000).within(2, 15, "{} accesses are taken as {}").sets("admission=touch-{} write-admission=touch-{}"),
            "A block is let in when it is wanted for the n-th time, 15 at most, unless promotion.policy says otherwise.";
        "promotion.policy": "always or nhit", Taken("always"),
            Words(&[("always", "admission=always write-admission=always"), ("nhit", "?admission=touch-3 write-admission=touch-3")]),
            "`nhit` is promotion-nhit.threshold, 3 without one; for reads and writes alike.";
        "promotion-nhit.trigger": "percent", "the filter is there from the first request, also while the cache has room";
        "seq-cutoff.promotion-count": "requests", "a stream is known to the shard that owns its part of the origin, whichever thread serves it";
        "cleaning-alru.wake-up": "seconds", NO_CYCLES;
        "cleaning-alru.activity-threshold": "milliseconds", "write-back yields to every read and write of the origin, always, and goes on a moment after the last";
        "cleaning-acp.wake-up": "milliseconds", NO_CYCLES;
        "cache-line-size": "KiB: 4, 8, 16, 32 or 64", "it is chosen when the cache is made: `forebay create --block-size`, 4K to 64K";
        "io-class": "a file of classes", NO_CLASSES;
        "ioclass_file": "a file of classes (opencas.conf)", NO_CLASSES;
        "lazy_startup": "true or false (opencas.conf)", "a daemon needs its devices to start; with systemd a cache that is missing is tried again";
        "target_failover_state": "active or standby (opencas.conf)", "there is no standby of a cache on another machine";
    },
};
