//! A row for each setting.

use forebay_engine::Nanos;

use super::kind::{Kind, Number};

/// A setting.
pub(crate) struct Setting {
    /// The key of `[settings]` and of `forebay set`, and the name of the option.
    pub(crate) name: &'static str,
    /// Its key in a status, with its unit.
    pub(super) status: &'static str,
    /// Reader and writer of its values, and the range of a number.
    pub(super) kind: Kind,
    /// Its values and their unit, in words.
    pub(super) values: &'static str,
    /// Effect.
    pub(super) effect: &'static str,
}

/// A kind for a field of the engine's settings. The engine reads and shows words itself.
macro_rules! kind {
    (Word $field:ident.$show:ident) => {
        Kind::Word {
            get: |it| it.$field.$show().to_owned(),
            set: |it, text| text.parse().map(|value| it.$field = value),
        }
    };
    (Delay $field:ident, $most:expr) => {
        Kind::Delay($most, |it| &mut it.$field)
    };
    ($kind:ident $field:ident, $range:expr) => {
        Kind::$kind(
            $range,
            Number {
                get: |it| it.$field.into(),
                set: |it, value| it.$field = value as _,
            },
        )
    };
    ($kind:ident $field:ident) => {
        Kind::$kind(|it| &mut it.$field)
    };
}

macro_rules! settings {
    ($($name:literal as $status:ident: $kind:ident($($of:tt)*), $values:literal, $effect:literal;)*) => {
        /// All settings, in the order of the manual.
        pub(super) static SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            status: stringify!($status),
            kind: kind!($kind $($of)*),
            values: $values,
            effect: $effect,
        }),*];

        /// Their names.
        pub(crate) const NAMES: &[&str] = &[$($name),*];
    };
}

// name as status: kind(field, range), values, effect;
settings! {
    "commit" as commit: Word(commit.name),
        "`flush`, `write`, `memory`",
        "When a write is acknowledged. `flush`: as any disk does, durable with the next flush. `write`: when it is durable. `memory`: as `flush`, from a memory buffer that outlives the daemon";
    "admission" as admission: Word(read_admission.to_string),
        "`always`, `second-touch`, `touch-3` to `touch-15`",
        "Which missed blocks are promoted: all, or those wanted for the n-th time lately";
    "write-admission" as write_admission: Word(write_admission.to_string),
        "as `admission`",
        "Which written blocks enter the cache that are not in it; others go to the origin";
    "congestion-read" as congestion_read_us: Limit(congestion_read),
        "a time such as `500us`, `2ms`, `1s`; `off`",
        "No block is promoted while hits take longer than this on average";
    "congestion-write" as congestion_write_us: Limit(congestion_write),
        "a time, or `off`",
        "Writes go to the origin while writes into the cache take longer than this on average";
    "write-budget" as write_budget_bytes_per_day: Budget(write_budget_bytes_per_day),
        "a size of at least 1M for each day, such as `200G`; `off`",
        "The most that may be written to the cache device in a day. When it is spent, only changes of dirty blocks still are. Unused budget is saved for an hour";
    "sequential-cutoff" as sequential_cutoff_bytes: Cutoff(sequential_cutoff_bytes),
        "a size such as `4M`; `off`",
        "Sequential streams longer than this bypass the cache";
    "memory-buffer" as memory_buffer_bytes: Size(memory_buffer_bytes, 1 << 20..=64 << 30),
        "a size, 1M to 64G",
        "Size of the memory buffer of `commit = memory`. A buffer that is there already keeps its size";
    "polling" as polling_percent: Percent(polling_percent),
        "percent, 0 to 100",
        "The share of a core that each thread may spend awake for a client's next request. It does so only while short operations of the cache device take less than 1.25 ms";
    "verify" as verify: Word(verify.name),
        "`always`, `background`",
        "When the checksums of cached blocks are compared. `always`: before a client has the data. `background`: not for hits, which then need no copy where the kernel can (Linux 6.16)";
    "scrub" as scrub_seconds: Age(scrub_period),
        "seconds, at least 1, or a time such as `12h`, `7d`; `never`",
        "The time in which all that is cached is read once and compared with its checksums, with `verify` = `background`";
    "replacement" as replacement: Word(replacement.name),
        "`adaptive`, `s3-fifo`, `clock`, `2q`, `fifo`",
        "Which blocks stay when room is made";
    "retain" as retain_percent: Percent(retain_percent),
        "percent, 0 to 100",
        "Clean blocks that may be retained for each hundred that are let in: more for fewer misses, less for a longer life of the cache device";
    "writeback" as writeback: Word(writeback_policy.name),
        "`threshold`, `timed`, `rate`, `cleaner`",
        "When dirty data is written back. `threshold`: when there is more than `dirty-low`, or when it is older than `age`. `timed`: when it is older than `age`. `rate`: steadily, to keep it at `dirty-low`. `cleaner`: at once";
    "dirty-low" as dirty_low_percent: Percent(dirty_low_percent),
        "percent of the cache, 0 to `dirty-high`",
        "Write-back begins above this share of dirty data. `writeback = rate` aims at it";
    "dirty-high" as dirty_high_percent: Percent(dirty_high_percent),
        "percent of the cache, up to 90",
        "Writes slow down above this share of dirty data, and above 60 % where data was written at random. Writes of 1 MiB or more, in one request or in sequence, bypass the cache. Above `dirty-limit` it is that";
    "dirty-limit" as dirty_limit_percent: Percent(dirty_limit_percent),
        "percent of the cache, 1 to 90",
        "There is never more dirty data than this share. Above 70 % less is let in than is written back where data was written at random";
    "age" as age_limit_seconds: Age(age_limit),
        "seconds, or a time such as `5min`, `1h`; `never`",
        "Dirty data older than this is written back, whatever its amount (`writeback` = `threshold` and `timed`)";
    "record-delay" as record_delay_ms: Delay(record_delay, Nanos(3600 * Nanos::SECOND.0)),
        "a time such as `100ms`, up to `3600s`",
        "The longest time an entry may wait in memory for its record, where no flush comes first";
    "writeback-depth" as writeback_depth: Count(writeback_depth, 1..=256),
        "a number, 1 to 256",
        "Write-back operations in flight while the origin has nothing else to do; a quarter as many where each is as \
         long as `writeback-run`";
    "writeback-run" as writeback_run_bytes: Size(writeback_run_bytes, 64 << 10..=1 << 20),
        "a size, 64K to 1M",
        "The most that a write-back operation writes, but for a longer stripe of the origin";
    "probation" as probation_percent: Percent(probation_percent),
        "percent of the cache, 1 to 50",
        "The share of the stream `probation`, where promoted blocks begin";
    "promotion-hits" as promotion_hits: Count(promotion_hits, 1..=3),
        "a number, 1 to 3",
        "After how many hits a block moves on from `probation` to `main`";
    "discard-freed" as discard_freed_segments: Switch(discard_freed_segments),
        "`yes`, `no`; in the file `true`, `false`",
        "Whether segments are discarded on the cache device as they become free";
}
