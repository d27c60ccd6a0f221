//! The daemon's report about itself.

use std::collections::BTreeMap;

use anyhow::Result;
use forebay_engine::{Bypassed, DeviceTimes, Mode, Nanos, Stats, VolumeSlot};

use super::shortened;
use crate::daemon::control::block_devices::whole_blocks_bytes;
use crate::daemon::control::copies::awaits_record;
use crate::daemon::data::ublk;
use crate::daemon::data::worker::Worker;
use crate::daemon::life::lost_devices::LostDevice;
use crate::daemon::state::{AwayVolume, CacheSide, Daemon};
use crate::device::cache_storage;
use crate::report::device_speed::{self, DeviceSpeed};
use crate::report::status::{
    BypassedRequest, CacheDeviceStatus, CacheStatus, Lately, Latency, SettingsStatus, Status,
    Times, Traffic, VolumeDurations, VolumeStatus,
};

/// A volume's blocks and mode, as one worker knows them.
struct VolumePart {
    slot: VolumeSlot,
    dirty_blocks: u64,
    cached_blocks: u64,
    mode: Option<Mode>,
}

/// A worker's part.
struct Part {
    stats: Vec<Stats>,
    volumes: Vec<VolumePart>,
    times: Vec<(VolumeSlot, VolumeDurations)>,
    /// Times in each shard, of the cache's devices, and of each origin.
    cache_times: Vec<DeviceTimes>,
    origin_times: Vec<(VolumeSlot, DeviceTimes)>,
    cached_blocks: u64,
    capacity_blocks: u64,
    unstored_blocks: u64,
    exposed_blocks: u64,
    is_copying: bool,
    clients: usize,
    variants: Vec<&'static str>,
    failure: Option<&'static str>,
    now: Nanos,
}

fn part_of(worker: &mut Worker, slots: &[VolumeSlot]) -> Part {
    let mut part = Part {
        stats: worker.stats(),
        volumes: Vec::new(),
        times: slots
            .iter()
            .map(|&slot| (slot, worker.times.of(slot)))
            .collect(),
        cache_times: Vec::new(),
        origin_times: Vec::new(),
        cached_blocks: 0,
        capacity_blocks: 0,
        unstored_blocks: 0,
        exposed_blocks: 0,
        is_copying: false,
        clients: worker.client_count(),
        variants: Vec::new(),
        failure: None,
        now: worker.now,
    };
    for engine in worker.engines() {
        let (cached, capacity) = engine.occupancy();
        part.cached_blocks += cached;
        part.capacity_blocks += capacity;
        part.cache_times.push(engine.cache_times());
        part.unstored_blocks += engine.buffer_stuck_blocks();
        part.exposed_blocks += engine.exposed_blocks();
        part.is_copying |= engine.is_mirroring();
        part.variants.extend(engine.variant());
        part.failure = part.failure.or(engine.failure());
        for &slot in slots {
            part.origin_times.push((slot, engine.origin_times(slot)));
            let (dirty_blocks, cached_blocks) = engine.volume_blocks(slot).unwrap_or_default();
            part.volumes.push(VolumePart {
                slot,
                dirty_blocks,
                cached_blocks,
                mode: engine.mode(slot),
            });
        }
    }
    part
}

fn count<'a>(names: impl Iterator<Item = &'a &'static str>) -> BTreeMap<String, u16> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry((*name).to_owned()).or_default() += 1;
    }
    counts
}

/// The devices of a cache, and how much of each it uses.
fn devices_of(daemon: &Daemon, cache: &CacheSide) -> Vec<CacheDeviceStatus> {
    let superblock = cache.superblock();
    let geometry = &superblock.geometry;
    let devices = cache.storage.devices().map(|(number, storage)| {
        let on_it = superblock
            .extents
            .iter()
            .filter(|extent| extent.device == number);
        let used = on_it.map(|extent| extent.end_bytes(geometry) - extent.start_bytes);
        CacheDeviceStatus {
            path: storage.device().path().display().to_string(),
            size_bytes: storage.device().size_bytes(),
            used_bytes: used.sum(),
            health: daemon.health.of(storage.device().path()),
            members: daemon.members.of(storage.device().path()),
        }
    });
    devices.collect()
}

/// The workers' counts of a volume, if they have anything of it.
fn parts_of(parts: &[Part], slot: Option<VolumeSlot>) -> impl Iterator<Item = &VolumePart> {
    let all = parts.iter().flat_map(|part| &part.volumes);
    all.filter(move |part| Some(part.slot) == slot)
}

/// Durations of a volume's requests on all threads.
fn times_of(parts: &[Part], slot: VolumeSlot) -> VolumeDurations {
    let mut all = VolumeDurations::default();
    let times = parts.iter().flat_map(|part| &part.times);
    for (_, times) in times.filter(|(of, _)| *of == slot) {
        all.add(times);
    }
    all
}

/// The speed of the origin of a volume.
fn origin_speed(parts: &[Part], slot: VolumeSlot) -> DeviceSpeed {
    let all = parts.iter().flat_map(|part| &part.origin_times);
    let own = all.filter(|(of, _)| *of == slot);
    device_speed::of_shards(own.map(|(_, times)| times))
}

/// A volume that is not served.
fn away(volume: &AwayVolume, parts: &[Part], block_bytes: u64) -> VolumeStatus {
    let slot = volume.kept.map(|(slot, _)| slot);
    let own = || parts_of(parts, slot);
    let origin = volume.origin.as_ref();
    VolumeStatus {
        name: volume.name.clone(),
        origin: origin.map_or(String::new(), |path| path.display().to_string()),
        mode: "away".to_owned(),
        block_device: None,
        size_bytes: volume.kept.map_or(0, |(_, size_bytes)| size_bytes),
        cached_bytes: own().map(|part| part.cached_blocks).sum::<u64>() * block_bytes,
        dirty_bytes: own().map(|part| part.dirty_blocks).sum::<u64>() * block_bytes,
        stripe_bytes: None,
        origin_speed: DeviceSpeed::new(),
        origin_members: Vec::new(),
        read_latency: Latency::default(),
        read_hit_latency: Latency::default(),
        read_miss_latency: Latency::default(),
        write_latency: Latency::default(),
        flush_latency: Latency::default(),
        away: Some(volume.why.clone()),
        not_grown: None,
        frozen_seconds: None,
        block_device_bytes: None,
    }
}

/// Everything but what the history adds, and how long requests took in full.
pub(super) fn measured(daemon: &Daemon) -> Result<(Status, Times)> {
    let slots = daemon.admin().counted_slots();
    let mut parts = Vec::new();
    for link in &daemon.links {
        let slots = slots.clone();
        parts.push(link.call(move |worker| part_of(worker, &slots))?);
    }
    let admin = daemon.admin();
    let block_bytes = admin.block_bytes();
    let volumes: Vec<VolumeStatus> = admin
        .volumes
        .iter()
        .map(|volume| {
            let own = || parts_of(&parts, Some(volume.slot));
            let mode = own()
                .find_map(|part| part.mode)
                .map_or("uncached", Mode::name);
            let times = times_of(&parts, volume.slot);
            VolumeStatus {
                stripe_bytes: volume.device.stripe().map(|stripe| stripe.len_bytes()),
                origin_speed: origin_speed(&parts, volume.slot),
                origin_members: daemon.members.of(volume.device.path()),
                read_latency: Latency::of(&times.read()),
                read_hit_latency: Latency::of(&times.read_hit),
                read_miss_latency: Latency::of(&times.read_miss),
                write_latency: Latency::of(&times.write),
                flush_latency: Latency::of(&times.flush),
                name: volume.name.clone(),
                origin: volume.device.path().display().to_string(),
                mode: mode.to_owned(),
                block_device: volume.block_device.map(ublk::path),
                size_bytes: volume.size_bytes,
                cached_bytes: own().map(|part| part.cached_blocks).sum::<u64>() * block_bytes,
                dirty_bytes: own().map(|part| part.dirty_blocks).sum::<u64>() * block_bytes,
                away: None,
                not_grown: volume.not_grown.clone(),
                frozen_seconds: volume.freeze.and_then(|freeze| freeze.seconds()),
                block_device_bytes: (volume.block_device.is_some()
                    && volume.block_device_bytes != whole_blocks_bytes(volume))
                .then_some(volume.block_device_bytes),
            }
        })
        .chain(
            admin
                .away
                .iter()
                .map(|volume| away(volume, &parts, block_bytes)),
        )
        .collect();
    let altered_files = admin.devices().filter_map(shortened::look).collect();
    let stats: Vec<Stats> = parts
        .iter()
        .flat_map(|part| part.stats.iter().cloned())
        .collect();
    let cache = admin.cache.as_ref().map(|cache| CacheStatus {
        device: cache_storage::names(&cache.storage),
        devices: devices_of(daemon, cache),
        id: cache.superblock().id.to_string(),
        epoch: cache.superblock().epoch,
        block_bytes: cache.superblock().geometry.block_bytes,
        shards: cache.superblock().geometry.shards,
        capacity_bytes: parts.iter().map(|part| part.capacity_blocks).sum::<u64>() * block_bytes,
        cached_bytes: parts.iter().map(|part| part.cached_blocks).sum::<u64>() * block_bytes,
        dirty_bytes: stats.iter().map(|stats| stats.dirty_blocks).sum::<u64>() * block_bytes,
        dirty_high_bytes: stats
            .iter()
            .map(|stats| stats.dirty_high_blocks)
            .sum::<u64>()
            * block_bytes,
        dirty_limit_bytes: stats
            .iter()
            .map(|stats| stats.dirty_limit_blocks)
            .sum::<u64>()
            * block_bytes,
        unstored_bytes: parts.iter().map(|part| part.unstored_blocks).sum::<u64>() * block_bytes,
        copies: cache.superblock().copies,
        exposed_bytes: parts.iter().map(|part| part.exposed_blocks).sum::<u64>() * block_bytes,
        is_copying: parts.iter().any(|part| part.is_copying) || awaits_record(cache.superblock()),
        lost: cache.lost.iter().map(LostDevice::status).collect(),
        variants: count(parts.iter().flat_map(|part| &part.variants)),
        speed: device_speed::of_shards(parts.iter().flat_map(|part| &part.cache_times)),
        failure: parts
            .iter()
            .find_map(|part| part.failure)
            .map(str::to_owned),
        recovery: cache.recovery.clone(),
    });
    let now = parts.iter().map(|part| part.now.0).max().unwrap_or(0);
    let describe = |past: Bypassed| BypassedRequest {
        volume: admin
            .volumes
            .iter()
            .find(|volume| volume.slot == past.volume)
            .map_or(String::new(), |volume| volume.name.clone()),
        write: past.write,
        offset_bytes: past.offset_bytes,
        len_bytes: past.len_bytes,
        seconds_ago: now.saturating_sub(past.at.0) as f64 / 1e9,
    };
    let times = Times::of(&stats);
    let status = Status {
        name: daemon.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_seconds: daemon.started.elapsed().as_secs_f64(),
        threads: daemon.links.len(),
        clients: parts.iter().map(|part| part.clients).sum(),
        exports: daemon.uris_of(&admin),
        cache,
        volumes,
        settings: SettingsStatus::of(&admin.settings, admin.profile),
        traffic: Traffic::of(&stats, &times, describe),
        lately: Lately::default(),
        failing: daemon.failing.lately(),
        altered_files,
        trouble: Vec::new(),
        dashboard: None,
        hook: daemon.events.hook.status(),
    };
    Ok((status, times))
}
