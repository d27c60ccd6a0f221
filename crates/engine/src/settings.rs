//! Settings and their meaning. Everything here can change while I/O runs.

/// Gives each value of a type its name: `NAMES`, `name` and `FromStr`.
macro_rules! names {
    ($type:ident, $count:literal of $what:literal: $($value:ident = $name:literal,)+) => {
        impl $type {
            /// All of them with their names.
            pub const NAMES: [($type, &'static str); $count] = [$(($type::$value, $name)),+];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                $crate::settings::name_of(&$type::NAMES, self)
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<$type, String> {
                $crate::settings::named(&$type::NAMES, name, $what)
            }
        }
    };
}
pub(crate) use names;

pub(crate) mod laboratory;
pub(crate) mod mode;
pub(crate) mod replacement;
pub(crate) mod volume;

use crate::interface::Nanos;
use crate::settings::laboratory::Laboratory;
pub use crate::settings::mode::Mode;
use crate::settings::replacement::Replacement;

/// When a write is acknowledged. docs/MODEL.md has the promise of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Commit {
    /// Data and entry are on the cache device.
    Write,
    /// Data is on the cache device; the entry follows with the next flush, full record or after
    /// [`Settings::record_delay`]. The contract of any disk with a volatile cache.
    Flush,
    /// Data is in the memory buffer, which outlives the daemon and drains to the log at once; the
    /// rest is as with `Flush`. Only whole blocks in write-back mode and as far as there is room
    /// ([`crate::Memory::buffer_mut`]); the others are as with `Flush`.
    Memory,
}

names! { Commit, 3 of "commit":
    Write = "write",
    Flush = "flush",
    Memory = "memory",
}

/// When dirty data is written back, as long as there is no more of it than the high mark allows
/// and nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WritebackPolicy {
    /// Dirty data above the low mark, as fast as the devices' other users leave room for, and dirty
    /// data older than the age limit.
    Threshold,
    /// Dirty data older than the age limit; the low mark does not matter.
    Timed,
    /// Steadily, at a rate that keeps dirty data at the low mark, and faster while there are no
    /// requests.
    Rate,
    /// Everything, at once.
    Cleaner,
}

names! { WritebackPolicy, 4 of "write-back policy":
    Threshold = "threshold",
    Timed = "timed",
    Rate = "rate",
    Cleaner = "cleaner",
}

/// When the checksums of cached blocks are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verify {
    /// With each read, before a client has the data.
    Always,
    /// Not with hits. What is read to be moved or written back is compared as ever.
    Background,
}

names! { Verify, 2 of "verify":
    Always = "always",
    Background = "background",
}

/// The most touches that are told apart: a filter keeps four bits for each.
pub(crate) const MAX_TOUCHES: u8 = 15;

/// Which blocks that are not cached are let in: blocks wanted this often, lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admission(u8);

impl Admission {
    /// All.
    pub const ALWAYS: Admission = Admission(1);
    /// Blocks wanted before.
    pub const SECOND_TOUCH: Admission = Admission(2);

    /// Lets in blocks wanted for the n-th time, 1 to 15.
    ///
    /// # Errors
    /// Says what is possible.
    pub fn nth_touch(touches: u8) -> Result<Admission, String> {
        if (1..=MAX_TOUCHES).contains(&touches) {
            Ok(Admission(touches))
        } else {
            Err(format!(
                "admission at touch {touches} is not from 1 to {MAX_TOUCHES}"
            ))
        }
    }

    /// The number of times a block must have been wanted, the last included.
    #[must_use]
    pub fn touches(self) -> u8 {
        self.0
    }
}

impl std::fmt::Display for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Admission::ALWAYS => f.write_str("always"),
            Admission::SECOND_TOUCH => f.write_str("second-touch"),
            Admission(touches) => write!(f, "touch-{touches}"),
        }
    }
}

impl std::str::FromStr for Admission {
    type Err = String;

    fn from_str(name: &str) -> Result<Admission, String> {
        let number = name
            .strip_prefix("touch-")
            .and_then(|number| number.parse().ok());
        match (name, number) {
            ("always", _) => Ok(Admission::ALWAYS),
            ("second-touch", _) => Ok(Admission::SECOND_TOUCH),
            (_, Some(touches)) => Admission::nth_touch(touches),
            _ => Err(format!(
                "unknown admission `{name}`: it is always, second-touch, or touch-3 to touch-{MAX_TOUCHES}"
            )),
        }
    }
}

/// The name of one of those that have one.
pub(crate) fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: T) -> &'static str {
    names
        .iter()
        .find(|(known, _)| *known == value)
        .map_or("", |(_, name)| name)
}

pub(crate) fn named<T: Copy>(
    names: &[(T, &'static str)],
    name: &str,
    what: &str,
) -> Result<T, String> {
    names
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(value, _)| *value)
        .ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(|(_, known)| *known).collect();
            format!("unknown {what} `{name}`: it is one of {}", known.join(", "))
        })
}

/// The settings of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When writes are acknowledged.
    pub commit: Commit,
    /// Which missed blocks are promoted.
    pub read_admission: Admission,
    /// Which written blocks are cached, of those that are not yet; others go to the origin.
    pub write_admission: Admission,
    /// While hits take longer than this on average, nothing is promoted; `None` for whatever they
    /// take.
    pub congestion_read: Option<Nanos>,
    /// While logged writes take longer than this on average, others go to the origin.
    pub congestion_write: Option<Nanos>,
    /// The bytes that all shards together may write to the cache device in a day. When they are
    /// spent, nothing is let in that can go without. Bytes not used are saved for an hour.
    pub write_budget_bytes_per_day: Option<u64>,
    /// Requests of a sequential stream longer than this bypass the cache; `None` for never.
    pub sequential_cutoff_bytes: Option<u64>,
    /// The size of all memory buffers of a cache together, in bytes, where the driver makes them: 1
    /// MiB to 64 GiB. Buffers that are there already stay as they are.
    pub memory_buffer_bytes: u64,
    /// The share of a core that a thread of the driver may spend awake for the next request, in
    /// percent. The engine does not use it.
    pub polling_percent: u8,
    /// When checksums are compared.
    pub verify: Verify,
    /// The time in which the scrub reads all that is stored, with [`Verify::Background`];
    /// [`Nanos::NEVER`] for no scrub.
    pub scrub_period: Nanos,
    /// When dirty data is written back.
    pub writeback_policy: WritebackPolicy,
    /// Write-back begins above this share of the shard, in percent; its target, where the policy
    /// has one.
    pub dirty_low_percent: u8,
    /// Writes slow down, and long sequential ones bypass, above this share, in percent. The limit
    /// where that is less; 60 where data was written at random.
    pub dirty_high_percent: u8,
    /// No more dirty data than this share, in percent. At most 90. Fewer blocks are let in than are
    /// written back above 70 where data was written at random.
    pub dirty_limit_percent: u8,
    /// Dirty data older than this is written back whatever its amount (policies `Threshold` and
    /// `Timed`).
    pub age_limit: Nanos,
    /// The longest time that an entry may stay in memory.
    pub record_delay: Nanos,
    /// The number of write-back operations that may be in flight when the origin has nothing else
    /// to do. Together they have the bytes of a quarter as many of the longest runs.
    pub writeback_depth: u16,
    /// The longest run written back in one operation, in bytes.
    pub writeback_run_bytes: u32,
    /// Which blocks stay when room is made.
    pub replacement: Replacement,
    /// The number of clean blocks that may be copied to keep them, for each hundred that are let
    /// in; the bar for staying rises before that is reached.
    pub retain_percent: u8,
    /// The probation stream's share of the shard, in percent.
    pub probation_percent: u8,
    /// Hits in probation after which a block moves on to main.
    pub promotion_hits: u8,
    /// A segment of main is renewed and not copied when at least this share of its blocks would
    /// be retained, in percent; more than 100 for never.
    pub renew_percent: u8,
    /// Tell the cache device to discard segments as they become free.
    pub discard_freed_segments: bool,
    /// Settings that only the laboratory changes.
    pub laboratory: Laboratory,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            commit: Commit::Flush,
            read_admission: Admission::ALWAYS,
            write_admission: Admission::ALWAYS,
            congestion_read: None,
            congestion_write: None,
            write_budget_bytes_per_day: None,
            sequential_cutoff_bytes: None,
            memory_buffer_bytes: 64 << 20,
            polling_percent: 25,
            verify: Verify::Always,
            scrub_period: Nanos(7 * 24 * 3600 * Nanos::SECOND.0),
            writeback_policy: WritebackPolicy::Threshold,
            dirty_low_percent: 10,
            dirty_high_percent: 85,
            dirty_limit_percent: 90,
            age_limit: Nanos(30 * Nanos::SECOND.0),
            record_delay: Nanos(100 * Nanos::MILLISECOND.0),
            writeback_depth: 32,
            writeback_run_bytes: 1 << 20,
            replacement: Replacement::Adaptive,
            retain_percent: 20,
            probation_percent: 10,
            promotion_hits: 3,
            renew_percent: 90,
            discard_freed_segments: false,
            laboratory: Laboratory::default(),
        }
    }
}

/// Of the longest runs so many fewer are in flight. More bytes make no disk faster, and a client that
/// comes back finds them in the disk's own cache: 32 MiB for a fifth of a second.
pub const FEWER_LONG_RUNS: u16 = 4;

impl Settings {
    /// The bytes of write-back that may be in flight: one run at least.
    #[must_use]
    pub fn writeback_most_bytes(&self) -> usize {
        let runs = usize::from((self.writeback_depth / FEWER_LONG_RUNS).max(1));
        runs * self.writeback_run_bytes as usize
    }

    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// Says which value does not.
    pub fn validate(&self) -> Result<(), String> {
        let (low, high, limit) = (
            self.dirty_low_percent,
            self.dirty_high_percent,
            self.dirty_limit_percent,
        );
        if low > high || low > limit || high > 90 || !(1..=90).contains(&limit) {
            return Err(format!(
                "dirty-low {low} % must be at most dirty-high {high} % and dirty-limit {limit} %, which are at most 90 %"
            ));
        }
        if self.writeback_depth == 0 || self.writeback_depth > 256 {
            return Err(format!(
                "write-back depth {} is not from 1 to 256",
                self.writeback_depth
            ));
        }
        if self.polling_percent > 100 {
            return Err(format!(
                "polling {} % is not from 0 to 100 %",
                self.polling_percent
            ));
        }
        if self.scrub_period < Nanos::SECOND {
            return Err(format!(
                "a scrub in {} ms is less than 1 s",
                self.scrub_period.0 / Nanos::MILLISECOND.0
            ));
        }
        if self.retain_percent > 100 {
            return Err(format!(
                "retain {} % is not from 0 to 100 %",
                self.retain_percent
            ));
        }
        if !(1..=50).contains(&self.probation_percent) {
            return Err(format!(
                "probation share {} % is not from 1 to 50 %",
                self.probation_percent
            ));
        }
        if !(1..=3).contains(&self.promotion_hits) {
            return Err(format!(
                "promotion at {} hits is not from 1 to 3",
                self.promotion_hits
            ));
        }
        if !(1 << 20..=64 << 30).contains(&self.memory_buffer_bytes) {
            return Err(format!(
                "a memory buffer of {} bytes is not from 1 MiB to 64 GiB",
                self.memory_buffer_bytes
            ));
        }
        if !(65536..=crate::interface::MAX_REQUEST_BYTES).contains(&self.writeback_run_bytes) {
            return Err(format!(
                "write-back run of {} bytes is not from 64 KiB to 1 MiB",
                self.writeback_run_bytes
            ));
        }
        Ok(())
    }
}
