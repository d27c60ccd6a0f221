//! Report of a daemon about itself, as JSON between it and its clients.

mod page;
mod traffic;

use std::collections::BTreeMap;

use forebay_engine::{BypassReason, Histogram, RecoveryReport, Settings, Stats};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::profiles::Profile;
use crate::report::copies::LostDeviceStatus;
use crate::report::device_speed::DeviceSpeed;
use crate::report::health::DeviceHealth;
use crate::report::members::MemberLoad;
use crate::report::trouble::Trouble;
use crate::settings;
use crate::units::{duration, share, size};
pub(crate) use traffic::{FAMILIES, Traffic};

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Its name among the caches of this machine.
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_seconds: f64,
    pub(crate) threads: usize,
    pub(crate) clients: usize,
    pub(crate) exports: Vec<String>,
    pub(crate) cache: Option<CacheStatus>,
    pub(crate) volumes: Vec<VolumeStatus>,
    pub(crate) settings: SettingsStatus,
    pub(crate) traffic: Traffic,
    /// The last minute, or less if the daemon is younger.
    #[serde(default)]
    pub(crate) lately: Lately,
    /// Devices whose operations failed in the last minute.
    #[serde(default)]
    pub(crate) failing: Vec<FailingDevice>,
    /// Files in place of devices that are not what they were.
    #[serde(default)]
    pub(crate) altered_files: Vec<AlteredFile>,
    /// Troubles, in plain words.
    #[serde(default)]
    pub(crate) trouble: Vec<Trouble>,
    /// Where the dashboard is.
    #[serde(default)]
    pub(crate) dashboard: Option<String>,
    #[serde(default)]
    pub(crate) hook: HookStatus,
}

/// The hook, and what became of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HookStatus {
    pub(crate) program: Option<String>,
    pub(crate) succeeded: u64,
    /// It could not be run, ended with another code than 0, or was killed.
    pub(crate) failed: u64,
    /// Events that found too many others waiting.
    pub(crate) left_out: u64,
}

/// A device that failed lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailingDevice {
    pub(crate) device: String,
    /// The operation, as a verb.
    pub(crate) doing: String,
    /// The kernel's reason.
    pub(crate) error: String,
    pub(crate) seconds_ago: f64,
}

/// A file that is served as a device, and was cut short or deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AlteredFile {
    pub(crate) path: String,
    /// It is a block device.
    #[serde(default)]
    pub(crate) is_device: bool,
    pub(crate) deleted: bool,
    pub(crate) size_bytes: u64,
    /// Its size when it was opened, or last grew.
    pub(crate) served_bytes: u64,
}

/// Counts of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lately {
    pub(crate) seconds: f64,
    pub(crate) read_blocks_hit: u64,
    pub(crate) read_blocks_missed: u64,
    pub(crate) write_blocks_hit: u64,
    pub(crate) write_blocks_missed: u64,
    pub(crate) failed_requests: u64,
    pub(crate) throttled_requests: u64,
    pub(crate) written_back_blocks: u64,
    pub(crate) congested_blocks: u64,
    pub(crate) over_budget_blocks: u64,
    pub(crate) cache_errors: u64,
    pub(crate) checksum_errors: u64,
    pub(crate) origin_errors: u64,
}

impl Lately {
    /// All of a daemon's time.
    pub(crate) fn whole(status: &Status) -> Lately {
        let traffic = &status.traffic;
        let bypassed = |reason: BypassReason| {
            let of_reason = traffic
                .bypassed
                .iter()
                .find(|past| past.reason == reason.name());
            of_reason.map_or(0, |past| past.blocks)
        };
        Lately {
            seconds: status.uptime_seconds,
            read_blocks_hit: traffic.read_blocks_hit,
            read_blocks_missed: traffic.read_blocks_missed,
            write_blocks_hit: traffic.write_blocks_hit,
            write_blocks_missed: traffic.write_blocks_missed,
            failed_requests: traffic.failed_requests,
            throttled_requests: traffic.throttled_requests,
            written_back_blocks: traffic.written_back_blocks,
            congested_blocks: bypassed(BypassReason::Congested),
            over_budget_blocks: bypassed(BypassReason::WriteBudget),
            cache_errors: traffic.cache_read_errors + traffic.cache_write_errors,
            checksum_errors: traffic.checksum_errors,
            origin_errors: traffic.origin_read_errors + traffic.origin_write_errors,
        }
    }

    /// `hit ratio in the last 1 min 00 s: reads 99.0 %, writes -`.
    pub(crate) fn hit_ratios(&self) -> String {
        let ratio = |hit: u64, missed: u64| share(hit, hit + missed);
        format!(
            "hit ratio in the last {}: reads {}, writes {}",
            duration(self.seconds),
            ratio(self.read_blocks_hit, self.read_blocks_missed),
            ratio(self.write_blocks_hit, self.write_blocks_missed),
        )
    }

    /// Counts since an earlier moment.
    pub(crate) fn since(&self, earlier: &Lately) -> Lately {
        let more = |get: fn(&Lately) -> u64| get(self).saturating_sub(get(earlier));
        Lately {
            seconds: self.seconds - earlier.seconds,
            read_blocks_hit: more(|counts| counts.read_blocks_hit),
            read_blocks_missed: more(|counts| counts.read_blocks_missed),
            write_blocks_hit: more(|counts| counts.write_blocks_hit),
            write_blocks_missed: more(|counts| counts.write_blocks_missed),
            failed_requests: more(|counts| counts.failed_requests),
            throttled_requests: more(|counts| counts.throttled_requests),
            written_back_blocks: more(|counts| counts.written_back_blocks),
            congested_blocks: more(|counts| counts.congested_blocks),
            over_budget_blocks: more(|counts| counts.over_budget_blocks),
            cache_errors: more(|counts| counts.cache_errors),
            checksum_errors: more(|counts| counts.checksum_errors),
            origin_errors: more(|counts| counts.origin_errors),
        }
    }
}

/// A device of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheDeviceStatus {
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    /// Bytes of the device that the cache uses.
    pub(crate) used_bytes: u64,
    /// Null if it is not known.
    #[serde(default)]
    pub(crate) health: Option<DeviceHealth>,
    /// Its members, if it is an array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<MemberLoad>,
}

/// The cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CacheStatus {
    /// All devices, for people.
    pub(crate) device: String,
    #[serde(default)]
    pub(crate) devices: Vec<CacheDeviceStatus>,
    pub(crate) id: String,
    pub(crate) epoch: u32,
    pub(crate) block_bytes: u32,
    pub(crate) shards: u16,
    pub(crate) capacity_bytes: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) dirty_bytes: u64,
    /// Dirty data above which writes slow down just now.
    #[serde(default)]
    pub(crate) dirty_high_bytes: u64,
    /// Dirty data above which less is let in than is written back, just now.
    #[serde(default)]
    pub(crate) dirty_limit_bytes: u64,
    /// Acknowledged, and in memory alone because storing it failed.
    #[serde(default)]
    pub(crate) unstored_bytes: u64,
    /// On how many devices each dirty block is to be.
    #[serde(default)]
    pub(crate) copies: u8,
    /// Dirty data that is on one device, where it is to be on two.
    #[serde(default)]
    pub(crate) exposed_bytes: u64,
    /// Dirty data is being copied, so that all of it is on two devices.
    #[serde(default)]
    pub(crate) is_copying: bool,
    /// Devices that the cache goes on without.
    #[serde(default)]
    pub(crate) lost: Vec<LostDeviceStatus>,
    /// The variants that `adaptive` replacement is in just now, and how many shards are in each.
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, u16>,
    /// The speed of its devices, learnt from their operations.
    #[serde(default)]
    pub(crate) speed: DeviceSpeed,
    /// Why the cache was abandoned, if it was.
    pub(crate) failure: Option<String>,
    pub(crate) recovery: Recovery,
}

impl CacheStatus {
    /// `cached 1 GiB of 2 GiB (50.0 %), dirty 0 B (0.0 %)`.
    pub(crate) fn occupancy(&self) -> String {
        format!(
            "cached {} of {} ({}), dirty {} ({})",
            size(self.cached_bytes),
            size(self.capacity_bytes),
            share(self.cached_bytes, self.capacity_bytes),
            size(self.dirty_bytes),
            share(self.dirty_bytes, self.capacity_bytes),
        )
    }

    /// `replacement adaptive: steady in 2 shard(s)`, or nothing where it does not adapt.
    pub(crate) fn replacement(&self) -> Option<String> {
        if self.variants.is_empty() {
            return None;
        }
        let each = self.variants.iter();
        let each: Vec<String> = each
            .map(|(variant, shards)| format!("{variant} in {shards} shard(s)"))
            .collect();
        Some(format!("replacement adaptive: {}", each.join(", ")))
    }
}

/// Findings of the last attach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recovery {
    pub(crate) segments: u64,
    pub(crate) used_segments: u64,
    pub(crate) scanned_segments: u64,
    pub(crate) bytes_read: u64,
    pub(crate) cached_blocks: u64,
    pub(crate) dirty_blocks: u64,
    pub(crate) rejected_blocks: u64,
    pub(crate) replayed_entries: u64,
    /// In memory buffers and not in the log yet.
    #[serde(default)]
    pub(crate) buffered_blocks: u64,
    /// Shards that were as the checkpoint of an orderly stop says.
    #[serde(default)]
    pub(crate) shards_from_checkpoint: u64,
    pub(crate) damage: Vec<String>,
    /// Damage for which all clean blocks were forgotten, with two copies of dirty data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clean_left: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VolumeStatus {
    pub(crate) name: String,
    pub(crate) origin: String,
    pub(crate) mode: String,
    /// The path of its block device, if it has one.
    #[serde(default)]
    pub(crate) block_device: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) dirty_bytes: u64,
    /// The stripe of its origin, if that is a RAID with parity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stripe_bytes: Option<u64>,
    /// The speed of its origin, learnt from its operations.
    #[serde(default)]
    pub(crate) origin_speed: DeviceSpeed,
    /// The members of its origin, if that is an array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) origin_members: Vec<MemberLoad>,
    /// Durations of its requests since it is served.
    #[serde(default)]
    pub(crate) read_latency: Latency,
    /// Of these, of reads that the cache answered alone.
    #[serde(default)]
    pub(crate) read_hit_latency: Latency,
    /// And of those in which the origin had a part.
    #[serde(default)]
    pub(crate) read_miss_latency: Latency,
    #[serde(default)]
    pub(crate) write_latency: Latency,
    #[serde(default)]
    pub(crate) flush_latency: Latency,
    /// Why it is not served, if it is not: its origin is not there, or not what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) away: Option<String>,
    /// Why it has not the size of its origin, if that grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_grown: Option<String>,
    /// For how many seconds its changes wait already, if it is frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frozen_seconds: Option<f64>,
    /// The size of its block device, if that is not the volume's yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block_device_bytes: Option<u64>,
}

/// The settings in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SettingsStatus {
    /// Whose manner they are of.
    #[serde(default)]
    pub(crate) profile: Option<String>,
    /// Their values by names with units, such as `dirty_low_percent`.
    #[serde(flatten)]
    values: Map<String, Value>,
}

impl SettingsStatus {
    /// These settings.
    pub(crate) fn of(settings: &Settings, profile: Option<&Profile>) -> SettingsStatus {
        SettingsStatus {
            profile: profile.map(|profile| profile.name.to_owned()),
            values: settings::as_json(settings),
        }
    }

    /// A percentage; 0 of a daemon that does not have it.
    pub(crate) fn percent(&self, name: &str) -> u8 {
        let value = self.values.get(name).and_then(Value::as_u64);
        value.map_or(0, |percent| percent.min(100) as u8)
    }
}

/// The median and the slow end of some times, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) mean_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// Limits that double, in nanoseconds, each with how many are below it.
    pub(crate) cumulative: Vec<(u64, u64)>,
}

impl Latency {
    pub(crate) fn of(times: &Histogram) -> Latency {
        Latency {
            count: times.count(),
            sum_ns: times.sum_ns(),
            mean_ns: times.mean_ns(),
            p50_ns: times.quantile_ns(0.5),
            p99_ns: times.quantile_ns(0.99),
            cumulative: times.cumulative().collect(),
        }
    }
}

/// Durations of requests, all shards together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) read: Histogram,
    pub(crate) write: Histogram,
    pub(crate) flush: Histogram,
}

impl Times {
    /// The sum over shards.
    pub(crate) fn of(shards: &[Stats]) -> Times {
        let mut all = Times::default();
        for shard in shards {
            all.read.add(&shard.read_latency);
            all.write.add(&shard.write_latency);
            all.flush.add(&shard.flush_latency);
        }
        all
    }
}

/// Durations of requests of a volume, all threads together.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeDurations {
    /// Of reads that the cache answered alone.
    pub(crate) read_hit: Histogram,
    /// Of reads in which the origin had a part.
    pub(crate) read_miss: Histogram,
    pub(crate) write: Histogram,
    pub(crate) flush: Histogram,
}

impl VolumeDurations {
    /// Adds those of another thread.
    pub(crate) fn add(&mut self, other: &VolumeDurations) {
        self.read_hit.add(&other.read_hit);
        self.read_miss.add(&other.read_miss);
        self.write.add(&other.write);
        self.flush.add(&other.flush);
    }

    /// Of all reads.
    pub(crate) fn read(&self) -> Histogram {
        let mut all = self.read_hit.clone();
        all.add(&self.read_miss);
        all
    }
}

/// Why so many blocks bypassed the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bypass {
    pub(crate) reason: String,
    pub(crate) blocks: u64,
    /// Of these, how many were read; the others were written.
    pub(crate) read_blocks: u64,
    /// The last time.
    pub(crate) last: Option<BypassedRequest>,
}

/// A request, or a part of it, that bypassed the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BypassedRequest {
    pub(crate) volume: String,
    pub(crate) write: bool,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) seconds_ago: f64,
}

impl Recovery {
    /// The sum over shards.
    pub(crate) fn of(report: &RecoveryReport) -> Recovery {
        let sum = |get: fn(&forebay_engine::ShardReport) -> u64| {
            report.shards.iter().map(get).sum::<u64>()
        };
        Recovery {
            segments: sum(|shard| u64::from(shard.segments)),
            used_segments: sum(|shard| u64::from(shard.used_segments)),
            scanned_segments: sum(|shard| u64::from(shard.scanned_segments)),
            bytes_read: report.bytes_read(),
            cached_blocks: report.cached_blocks(),
            dirty_blocks: report.dirty_blocks(),
            rejected_blocks: sum(|shard| shard.rejected_blocks),
            buffered_blocks: report.buffered_blocks(),
            replayed_entries: sum(|shard| shard.replayed_entries),
            shards_from_checkpoint: sum(|shard| u64::from(shard.from_checkpoint)),
            damage: report.damage().into_iter().map(str::to_owned).collect(),
            clean_left: report.clean_left.clone(),
        }
    }
}

/// The block of the counters of a daemon without a cache, in bytes.
pub(crate) const PLAIN_BLOCK_BYTES: u64 = 4096;

impl Status {
    /// The block that its counters count, in bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        let cache = self.cache.as_ref();
        cache.map_or(PLAIN_BLOCK_BYTES, |cache| u64::from(cache.block_bytes))
    }
}

/// A sound cache of 100 MiB.
#[cfg(test)]
pub(crate) fn example() -> Status {
    let settings = SettingsStatus::of(&Settings::default(), None);
    Status {
        name: "ssd".to_owned(),
        version: "1.2.3".to_owned(),
        pid: 42,
        uptime_seconds: 4000.0,
        threads: 2,
        clients: 1,
        exports: vec!["nbd+unix:///sdb?socket=/run/forebay/nbd".to_owned()],
        cache: Some(CacheStatus {
            devices: Vec::new(),
            device: "/dev/nvme0n1p3".to_owned(),
            id: "8f14e45f".to_owned(),
            epoch: 3,
            block_bytes: 4096,
            shards: 1,
            capacity_bytes: 100 << 20,
            cached_bytes: 80 << 20,
            dirty_bytes: 8 << 20,
            dirty_high_bytes: 60 << 20,
            dirty_limit_bytes: 70 << 20,
            copies: 1,
            exposed_bytes: 0,
            is_copying: false,
            lost: Vec::new(),
            unstored_bytes: 0,
            variants: BTreeMap::from([("steady".to_owned(), 1)]),
            speed: DeviceSpeed::new(),
            failure: None,
            recovery: Recovery::default(),
        }),
        volumes: vec![VolumeStatus {
            name: "sdb".to_owned(),
            origin: "/dev/sdb".to_owned(),
            mode: "writeback".to_owned(),
            block_device: None,
            size_bytes: 1 << 30,
            cached_bytes: 80 << 20,
            dirty_bytes: 8 << 20,
            stripe_bytes: None,
            origin_speed: DeviceSpeed::new(),
            origin_members: Vec::new(),
            read_latency: Latency::default(),
            read_hit_latency: Latency::default(),
            read_miss_latency: Latency::default(),
            write_latency: Latency::default(),
            flush_latency: Latency::default(),
            away: None,
            not_grown: None,
            frozen_seconds: None,
            block_device_bytes: None,
        }],
        settings,
        traffic: Traffic {
            read_requests: 1000,
            read_blocks_hit: 900,
            read_blocks_missed: 100,
            ..Traffic::default()
        },
        lately: Lately {
            seconds: 60.0,
            read_blocks_hit: 99,
            read_blocks_missed: 1,
            ..Lately::default()
        },
        failing: Vec::new(),
        altered_files: Vec::new(),
        trouble: Vec::new(),
        dashboard: Some("http://127.0.0.1:9837/cache/ssd/".to_owned()),
        hook: HookStatus::default(),
    }
}
