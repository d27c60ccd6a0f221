//! Plan of a run: its configuration and its steps. A plan is made from a seed or written by hand;
//! it prints as the Rust that makes it, so that a failing one becomes a test.

use forebay_engine::{Admission, Commit, Mode, Settings};
use forebay_engine::{Geometry, Nanos};

use crate::disk::Survival;

/// Rates of a device's failures, each in ten thousand operations of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// A read fails.
    pub read: u32,
    /// A write fails; it may have landed, in part or whole.
    pub write: u32,
    /// A flush fails.
    pub flush: u32,
    /// A failed flush loses what was volatile, in percent.
    pub flush_loss_percent: u32,
    /// A discard or write-zeroes fails.
    pub discard: u32,
    /// A read or write error stays with its pages, in percent of the errors.
    pub sticky_percent: u32,
    /// A read returns what was there before (cache device only).
    pub stale_read: u32,
    /// A read returns what is elsewhere (cache device only).
    pub misdirected_read: u32,
    /// A write goes elsewhere (cache device only).
    pub misdirected_write: u32,
    /// A write is acknowledged and not done (cache device only).
    pub lost_write: u32,
}

impl FaultRates {
    /// No faults.
    pub const NONE: FaultRates = FaultRates {
        read: 0,
        write: 0,
        flush: 0,
        flush_loss_percent: 0,
        discard: 0,
        sticky_percent: 0,
        stale_read: 0,
        misdirected_read: 0,
        misdirected_write: 0,
        lost_write: 0,
    };
}

impl FaultRates {
    /// Rates of faults of which a device says nothing.
    pub fn lies_mut(&mut self) -> [&mut u32; 4] {
        [
            &mut self.stale_read,
            &mut self.misdirected_read,
            &mut self.misdirected_write,
            &mut self.lost_write,
        ]
    }
}

/// Latency of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// At least, in nanoseconds.
    pub least_ns: u64,
    /// The most that is added at random, in nanoseconds.
    pub spread_ns: u64,
    /// An operation takes a hundred times as long, in ten thousand.
    pub spikes: u32,
}

impl Latency {
    /// None at all.
    pub const NONE: Latency = Latency {
        least_ns: 0,
        spread_ns: 0,
        spikes: 0,
    };
}

/// Constants of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Shape of the cache at its creation.
    pub geometry: Geometry,
    /// Its shards' segments alternate, as in a cache made today; else it is one of version 1.
    pub alternates: bool,
    /// Space of each cache device beyond that shape.
    pub spare_bytes: u64,
    /// The number of cache devices; the first is in the cache at the start.
    pub cache_devices: u8,
    /// Of them, those that are not in a cache of two copies at its creation.
    pub spare_devices: u8,
    /// Of several cache devices, the only one that fails.
    pub failing_device: Option<u8>,
    /// The number of devices that hold each dirty block: 2 only with several devices, of which one
    /// at a time fails and origins that do not.
    pub copies: u8,
    /// The number at the creation of the cache.
    pub first_copies: u8,
    /// The number changes: no device fails before [`Step::CopiesWhole`].
    pub changes_copies: bool,
    /// Share of starts at which the failing device is missing, in percent, if there are two copies.
    pub missing_percent: u64,
    /// After crashes one of several cache devices is put back as it was before an attach.
    pub returns_old: bool,
    /// Sizes of the volumes, in sectors.
    pub volume_sectors: Vec<u64>,
    /// The modes they start in.
    pub modes: Vec<Mode>,
    /// The engine's settings at the start.
    pub settings: Settings,
    /// Unit that the cache device writes atomically, 512 or 4096 bytes.
    pub cache_unit_bytes: usize,
    /// Unit that the origins write atomically.
    pub origin_unit_bytes: usize,
    /// Requests in flight at most.
    pub depth: usize,
    /// After a step up to this many events happen before the next.
    pub pace: u64,
    /// Latency of the cache device.
    pub cache_latency: Latency,
    /// Latency of the origins.
    pub origin_latency: Latency,
    /// Faults of the cache device, while they are on.
    pub cache_faults: FaultRates,
    /// Faults of the origins, while they are on.
    pub origin_faults: FaultRates,
    /// Bytes of memory the engine may have.
    pub memory_bytes: usize,
    /// Bytes of each shard's memory buffer.
    pub buffer_bytes: usize,
    /// Discards of an origin: 0 not supported, 1 ignored, 2 zeroes.
    pub origin_discards: u8,
    /// The device held another cache before.
    pub leftover: bool,
    /// Share of starts at which the origin of a volume is not there, in percent.
    pub away_percent: u64,
    /// Operations of an origin before which its server is started again, in ten thousand.
    pub reconnects: u32,
    /// Origins may answer long reads of clean cached blocks.
    pub origins_answer_hits: bool,
    /// Readers bring memory of their own.
    pub straight: bool,
    /// Orderly stops write a checkpoint, and starts go by it.
    pub checkpoints: bool,
    /// Share of volumes with settings of their own, in percent.
    pub own_percent: u64,
    /// Creation is cut short after this many device operations, and tried again.
    pub creation_cuts: Vec<u32>,
    /// Rotten data can be lost without a word (MODEL.md says when); else the loss must be reported.
    pub forgive_rot: bool,
    /// After each recovery every block is read (100), some are, or none (0), in percent.
    pub verify_percent: u64,
    /// Time until an abandonment is on record.
    pub record_delay: Nanos,
    /// Threads that the shards are divided among.
    pub threads: u16,
    /// Latency of a message between threads.
    pub message_latency: Latency,
}

impl Default for Config {
    fn default() -> Config {
        let latency = Latency {
            least_ns: 20_000,
            spread_ns: 100_000,
            spikes: 0,
        };
        Config {
            geometry: Geometry {
                block_bytes: 4096,
                segment_bytes: 8 * 4096,
                shards: 1,
                segments_per_shard: 16,
                region_bytes: 4 * 4096,
            },
            alternates: false,
            spare_bytes: 0,
            cache_devices: 1,
            spare_devices: 0,
            failing_device: None,
            copies: 1,
            first_copies: 1,
            changes_copies: false,
            missing_percent: 0,
            returns_old: false,
            volume_sectors: vec![64],
            modes: vec![Mode::Writeback],
            settings: Settings::default(),
            cache_unit_bytes: 4096,
            origin_unit_bytes: 4096,
            depth: 8,
            pace: 4,
            cache_latency: latency,
            origin_latency: latency,
            cache_faults: FaultRates::NONE,
            origin_faults: FaultRates::NONE,
            memory_bytes: 64 << 20,
            buffer_bytes: 0,
            origin_discards: 2,
            leftover: false,
            away_percent: 0,
            reconnects: 0,
            origins_answer_hits: false,
            straight: false,
            checkpoints: false,
            own_percent: 0,
            creation_cuts: Vec::new(),
            forgive_rot: true,
            verify_percent: 100,
            record_delay: Nanos(100_000),
            threads: 1,
            message_latency: Latency::NONE,
        }
    }
}

/// The end of a crash, and the recoveries after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Power is cut; else only the daemon is killed.
    pub power: bool,
    /// Share of volatile data that a power cut leaves.
    pub survival: Survival,
    /// Recoveries that are cut short: after how many device operations, and whether by power.
    pub recoveries: Vec<(u32, bool)>,
}

/// A kind of operation on a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A read of the cache device.
    CacheRead,
    /// A write to it.
    CacheWrite,
    /// A flush of it.
    CacheFlush,
    /// A read of an origin.
    OriginRead,
    /// A write to one.
    OriginWrite,
    /// A flush of one.
    OriginFlush,
}

/// The fate of the next operations of a kind. Of several traps for one kind each waits for the trap
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// The kind of operation.
    pub target: Target,
    /// The number of those operations; at least one.
    pub times: u32,
    /// They fail, and nothing of them lands.
    pub fails: bool,
    /// They take so much longer, in milliseconds.
    pub slow_ms: u64,
}

/// Harm to a block's newest copy on the cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// A bit flips.
    Rot,
    /// It cannot be read until something is written there or the device is healed.
    Unreadable,
    /// A bit flips in the header of its record, whose first block it is.
    HeaderRot,
    /// Nothing of its segment can, headers included.
    SegmentUnreadable,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client writes.
    Write {
        /// The volume.
        volume: u16,
        /// First sector.
        sector: u64,
        /// The number of sectors.
        count: u64,
        /// Force unit access.
        fua: bool,
    },
    /// A client writes zeroes.
    Zeroes {
        /// The volume.
        volume: u16,
        /// First sector.
        sector: u64,
        /// The number of sectors.
        count: u64,
        /// Force unit access.
        fua: bool,
    },
    /// A client discards.
    Discard {
        /// The volume.
        volume: u16,
        /// First sector.
        sector: u64,
        /// The number of sectors.
        count: u64,
    },
    /// A client reads.
    Read {
        /// The volume.
        volume: u16,
        /// First sector.
        sector: u64,
        /// The number of sectors.
        count: u64,
    },
    /// Somebody prefetches.
    Prefetch {
        /// The volume.
        volume: u16,
        /// First sector.
        sector: u64,
        /// The number of sectors.
        count: u64,
    },
    /// A client flushes.
    Flush {
        /// The volume.
        volume: u16,
    },
    /// Everything in flight ends.
    Settle,
    /// Time passes.
    Pass {
        /// Time, in milliseconds.
        ms: u64,
    },
    /// The daemon is killed or power is cut, and everything starts again.
    Crash(Crash),
    /// A volume's mode changes.
    SetMode {
        /// The volume.
        volume: u16,
        /// Its new mode.
        mode: Mode,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// A volume gets another name.
    Rename {
        /// The volume.
        volume: u16,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// The origin of a volume grows, and the volume with it. It has half of its size until then.
    GrowVolume {
        /// The volume.
        volume: u16,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// Commands in progress end.
    Await,
    /// The daemon stops in order, and starts again.
    Stop {
        /// Power is off in between.
        power: bool,
    },
    /// Writing everything back starts or stops.
    Drain {
        /// The volume.
        volume: u16,
        /// Whether it starts.
        on: bool,
    },
    /// The settings change.
    Set(Settings),
    /// Faults begin or end.
    Faults {
        /// Whether they begin.
        on: bool,
    },
    /// A bit of the cache device flips, in the data of blocks or in metadata.
    Rot {
        /// Chooses where.
        place: u64,
        /// In metadata.
        metadata: bool,
    },
    /// A fault waits for the operation it is meant for.
    Trap(Trap),
    /// Something happens to the newest copy of a block in the cache.
    Harm {
        /// The volume.
        volume: u16,
        /// Which block of it.
        block: u64,
        /// The harm.
        harm: Harm,
    },
    /// Unreadable places of the cache device can be read again.
    Heal,
    /// The volume must have nothing dirty now.
    ExpectClean {
        /// The volume.
        volume: u16,
    },
    /// The cache device stops answering for good.
    CacheGone,
    /// A cache device of several answers nothing any more.
    DeviceGone {
        /// The device.
        device: u8,
    },
    /// Another device than the one that fails answers nothing any more, of a cache that keeps two
    /// copies.
    SecondGone {
        /// The device.
        device: u8,
    },
    /// The device that fails and another one answer nothing any more, at a time.
    BothGone {
        /// The other device.
        device: u8,
    },
    /// The cache grows, live.
    Grow {
        /// On which device; it is added if it is not in the cache.
        device: u8,
        /// By how many segments of each shard, at most.
        segments: u32,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// The cache begins to shrink, live; it ends when it can.
    Shrink {
        /// The device.
        device: u8,
        /// The share of it that stays, in per mille.
        keep: u64,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// Another device is put in the place of one of the cache's, live.
    Replace {
        /// The device that leaves.
        device: u8,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// Segments on their way out stay after all.
    Keep,
    /// The number of devices that hold each dirty block changes, live.
    Copies {
        /// The number, 1 or 2.
        copies: u8,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// Dirty data is on two devices before anything else happens; devices may fail from then on.
    CopiesWhole,
    /// A volume is frozen, and thawed a while later.
    Freeze {
        /// The volume.
        volume: u16,
    },
    /// As [`Step::Detach`], frozen before that.
    HandOver {
        /// The volume.
        volume: u16,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
    /// The volume is drained, detached and, after its origin was used by itself, attached anew.
    Detach {
        /// The volume.
        volume: u16,
        /// The superblock's write is cut short after this many device operations.
        cut: Option<u32>,
    },
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The constants.
    pub config: Config,
    /// The steps, each with a name its own randomness comes from.
    pub steps: Vec<(u32, Step)>,
    /// Where the randomness of devices and schedule comes from.
    pub schedule: u64,
}

impl Plan {
    /// A plan written by hand.
    #[must_use]
    pub fn script(config: Config, steps: impl IntoIterator<Item = Step>, schedule: u64) -> Plan {
        Plan {
            config,
            steps: (0..).zip(steps).collect(),
            schedule,
        }
    }
}

/// Settings that make the engine do everything early.
#[must_use]
pub fn eager_settings() -> Settings {
    Settings {
        commit: Commit::Flush,
        read_admission: Admission::ALWAYS,
        dirty_low_percent: 5,
        dirty_high_percent: 20,
        dirty_limit_percent: 30,
        age_limit: Nanos(5_000_000),
        record_delay: Nanos(2_000_000),
        probation_percent: 20,
        promotion_hits: 1,
        renew_percent: 50,
        ..Settings::default()
    }
}
