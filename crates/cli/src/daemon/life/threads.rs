//! The threads of the data path.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::Result;
use forebay_cache::control::Control;
use forebay_cache::{Instruction, LossReport, Plain, Shard, Shared};
use forebay_engine::{
    BlockKey, Engine, Geometry, Recovered, Settings, Superblock, VolumeConfig, VolumeSlot,
};
use forebay_frontend::nbd::Limits;
use forebay_io::{Arena, Emulation, Pool};

use super::lost_devices::LostDevice;
use super::opening::{OpenCache, Origins};
use crate::config::{LEAST_MEMORY_BYTES, Plan, VolumePlan};
use crate::daemon::data::client::INLET_BYTES;
use crate::daemon::data::exports::{self, Exports};
use crate::daemon::data::link::{Link, Message};
use crate::daemon::data::served::{Clock, ServedVolume, TimedDevice, plain_config};
use crate::daemon::data::worker::{Worker, WorkerParts};
use crate::daemon::notice::Notice;
use crate::daemon::observe::failing::Failing;
use crate::daemon::state::{AwayVolume, CacheSide, VolumeSide};
use crate::device::attach::{self, Origin};
use crate::device::cache_storage::CacheStorage;
use crate::device::network;
use crate::device::shared_memory::ShardMemory;
use crate::failure::{self, wrong_usage};
use crate::report::status::Recovery;
use crate::settings::OnDegraded;
use crate::thread;

/// The most clients of all threads, if those are few.
const CLIENTS: usize = 256;

/// All that runs, as the main thread knows it.
pub(super) struct Started {
    pub(super) links: Vec<Link>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) cache: Option<CacheSide>,
    pub(super) volumes: Vec<VolumeSide>,
    pub(super) away: Vec<AwayVolume>,
    pub(super) limits: Limits,
    pub(super) exports: Arc<Exports>,
}

/// A worker's share of the start.
struct Share {
    parts: WorkerParts,
    shards: Vec<(u16, Option<(Recovered, ShardMemory)>)>,
    cache: Vec<(u8, TimedDevice)>,
    /// Of a cache that keeps two copies of dirty data, or did: a bit for each device that is out.
    lost: Option<u16>,
    unsaved: Option<Vec<Range<BlockKey>>>,
    settings: Settings,
    boot_id: [u8; 16],
    started: Sender<Result<(usize, Link)>>,
    sender: Sender<Message>,
    /// The thread will serve block devices.
    storage: bool,
}

/// Receivers of what the threads have to tell.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) notices: &'a Sender<Notice>,
    /// Of devices that are being lost.
    pub(super) losses: &'a Sender<LossReport>,
    pub(super) failing: &'a Arc<Failing>,
}

/// Division of the data path.
#[derive(Clone, Copy)]
struct Shape {
    geometry: Geometry,
    threads: usize,
    limits: Limits,
}

impl Shape {
    fn of(plan: &Plan, cache: Option<&OpenCache>) -> Result<Shape> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (geometry, threads) = match cache {
            Some(cache) => {
                let geometry = cache.attached.superblock.geometry;
                let most = usize::from(geometry.shards);
                (geometry, plan.threads.unwrap_or(cores).min(most))
            }
            None => (plain_geometry()?, plan.threads.unwrap_or(1)),
        };
        Ok(Shape {
            geometry,
            threads,
            limits: limits(plan.memory_bytes / threads as u64)?,
        })
    }
}

/// The rest of the cache when its shards are dealt to threads.
struct CachePart {
    superblock: Superblock,
    storage: CacheStorage,
    emulated: bool,
    recovery: Recovery,
    lost: Vec<LostDevice>,
}

impl CachePart {
    /// `link` is of a worker, which flushes the devices for whoever writes superblocks.
    fn side(self, link: Link, on_degraded: OnDegraded) -> CacheSide {
        CacheSide {
            control: Control::new(self.superblock),
            storage: self.storage,
            link,
            emulated: self.emulated,
            recovery: self.recovery,
            lost: self.lost,
            on_degraded,
        }
    }
}

/// Starts the threads of the data path and has them serve what was opened.
pub(super) fn start_workers(
    plan: &Plan,
    cache: Option<OpenCache>,
    origins: &Origins,
    clock: Clock,
    told: Told<'_>,
) -> Result<Started> {
    let shape = Shape::of(plan, cache.as_ref())?;
    let (started, all_started) = channel();
    let mut shares = shares(plan, cache.as_ref(), shape, (clock, told), started)?;
    let plain = |(origin, _): &(Origin, VolumePlan)| (0, plain_config(origin.size_bytes()));
    let (cache, configs, kept) = match cache {
        Some(cache) => deal(cache, &mut shares),
        None => (None, origins.there.iter().map(plain).collect(), Vec::new()),
    };
    let mut threads = Vec::new();
    for share in shares {
        let name = format!("forebay-{}", share.parts.index);
        threads.push(thread::start(&name, move || run_worker(share))?);
    }
    let mut links: Vec<(usize, Link)> = all_started
        .iter()
        .take(shape.threads)
        .collect::<Result<_>>()?;
    links.sort_by_key(|(index, _)| *index);
    let links: Vec<Link> = links.into_iter().map(|(_, link)| link).collect();
    for link in &links {
        let peers = links.clone();
        link.call(move |worker| worker.peers = peers)?;
    }
    let planned = plan.cache.as_ref();
    let on_degraded = planned.map_or_else(OnDegraded::default, |cache| cache.on_degraded);
    let mut cache = cache.map(|cache| cache.side(links[0].clone(), on_degraded));
    let exports = Arc::new(Exports::default());
    let mut volumes = Vec::new();
    for ((origin, planned), (id, config)) in origins.there.iter().zip(configs) {
        let emulate = planned.emulate.as_ref();
        let emulation = emulate.map(|options| Emulation::new(options, origin.size_bytes()));
        let slot = match &mut cache {
            Some(cache) => cache.control.add_volume(id),
            None => VolumeSlot(volumes.len() as u16),
        };
        let volume = ServedVolume {
            config,
            ..ServedVolume::new(origin, emulation)
        };
        add_volume(&links, slot, &volume)?;
        exports.offer(slot, exports::of_volume(origin)?);
        let own = planned.own;
        for link in &links {
            link.call(move |worker| worker.set_volume_settings(slot, own))?;
        }
        let device = &origin.opened.device;
        device.set_server_timeout(own.origin_timeout);
        volumes.push(VolumeSide {
            own,
            ..VolumeSide::new(origin, slot)
        });
    }
    let kept = kept.into_iter().chain(std::iter::repeat(None));
    let mut away = Vec::new();
    for (missing, kept) in origins.away.iter().zip(kept) {
        let kept = match (&mut cache, kept) {
            (Some(cache), Some((id, config))) => {
                let slot = cache.control.add_away(id);
                keep_volume(&links, slot, config)?;
                Some((slot, config.size_bytes))
            }
            _ => None,
        };
        away.push(AwayVolume {
            name: missing.name.clone(),
            origin: missing.origin.clone(),
            why: failure::describe(&missing.why),
            is_refused: missing
                .origin
                .as_ref()
                .is_none_or(|origin| network::was_refused(origin, &missing.why)),
            kept,
        });
    }
    Ok(Started {
        links,
        threads,
        cache,
        volumes,
        away,
        limits: shape.limits,
        exports,
    })
}

/// The threads' shares, but for the shards of a cache.
fn shares(
    plan: &Plan,
    cache: Option<&OpenCache>,
    shape: Shape,
    (clock, told): (Clock, Told<'_>),
    started: Sender<Result<(usize, Link)>>,
) -> Result<Vec<Share>> {
    let Shape {
        geometry, threads, ..
    } = shape;
    // Without a cache each worker has a stand-in of its own, all called shard 0.
    let owners = |worker: usize| match cache {
        Some(_) => (0..usize::from(geometry.shards))
            .map(|shard| (shard % threads) as u16)
            .collect(),
        None => vec![worker as u16],
    };
    let shared = Arc::new(Shared::default());
    let Told {
        notices,
        losses,
        failing,
    } = told;
    let failing = Arc::clone(failing);
    let arenas = divide_memory(plan.memory_bytes, threads)?;
    let share = |(index, (arena, inlet))| {
        let (sender, inbox) = channel();
        Ok(Share {
            parts: WorkerParts {
                index,
                clock,
                arena,
                inlet,
                inbox,
                notices: notices.clone(),
                losses: losses.clone(),
                owners: owners(index),
                workers: threads as u16,
                shared: Arc::clone(&shared),
                geometry,
                failing: Arc::clone(&failing),
            },
            shards: cache.is_none().then_some((0, None)).into_iter().collect(),
            cache: cache.map_or_else(Vec::new, |cache| cache.devices.clone()),
            lost: cache.and_then(lost_mask),
            unsaved: cache.and_then(|cache| cache.unsaved.clone()),
            settings: plan.settings.clone(),
            boot_id: attach::boot_id()?,
            started: started.clone(),
            sender,
            storage: plan.ublk,
        })
    };
    arenas.into_iter().enumerate().map(share).collect()
}

fn lost_mask(cache: &OpenCache) -> Option<u16> {
    let superblock = &cache.attached.superblock;
    let mask = superblock.devices_out().map(|on| 1 << on.number).sum();
    (superblock.membership > 0).then_some(mask)
}

/// Gives each thread its shards of the cache. Also says how each volume is served, and how those
/// would be that are away.
fn deal(cache: OpenCache, shares: &mut [Share]) -> Dealt {
    let OpenCache {
        attached,
        configs,
        kept,
        devices,
        lost,
        ..
    } = cache;
    let shards = attached.shards.into_iter().zip(attached.memory);
    for (number, shard) in shards.enumerate() {
        let share = &mut shares[number % shares.len()];
        share.shards.push((number as u16, Some(shard)));
    }
    let part = CachePart {
        superblock: attached.superblock,
        storage: attached.storage,
        emulated: devices.iter().any(|(_, device)| device.emulation.is_some()),
        recovery: Recovery::of(&attached.report),
        lost,
    };
    (Some(part), configs, kept)
}

/// The rest of the cache, and its volumes: their ids, and how they are served.
type Dealt = (
    Option<CachePart>,
    Vec<(u32, VolumeConfig)>,
    Vec<Option<(u32, VolumeConfig)>>,
);

/// Has every worker keep the blocks of a volume whose origin is not there.
fn keep_volume(links: &[Link], slot: VolumeSlot, config: VolumeConfig) -> Result<()> {
    for link in links {
        link.call(move |worker| {
            worker.host.add_volume(slot, config);
            worker.host.instruct(&Instruction::SetAway(slot));
        })?;
    }
    Ok(())
}

/// Has every worker serve a volume from the start.
fn add_volume(links: &[Link], slot: VolumeSlot, volume: &ServedVolume) -> Result<()> {
    for link in links {
        let volume = volume.clone();
        link.call(move |worker| worker.add_volume(slot, volume))?;
    }
    Ok(())
}

/// A worker's thread: everything that belongs to it is made here.
fn run_worker(share: Share) {
    let Share {
        parts,
        shards,
        cache,
        lost,
        unsaved,
        settings,
        boot_id,
        started,
        sender,
        storage,
    } = share;
    let index = parts.index;
    let mut worker = match Worker::new(parts) {
        Ok(worker) => worker,
        Err(error) => {
            // Without a main thread there is nothing to start.
            let _ = started.send(Err(error.into()));
            return;
        }
    };
    if storage {
        prepare_for_own_devices(&mut worker);
    }
    worker.set_polling(settings.polling_percent);
    for (number, _) in &cache {
        worker.host.add_cache_device(*number);
    }
    if let Some(lost) = lost {
        worker.host.keep_two(lost);
    }
    for (number, cached) in shards {
        let shard = match cached {
            Some((recovered, memory)) => {
                worker.arena.attach_journal(number, memory.journal);
                if let Some(buffer) = memory.buffer {
                    worker.arena.attach_buffer(number, buffer);
                }
                let mut engine =
                    Engine::new(settings.clone(), recovered, boot_id, &mut worker.arena);
                if let Some(unsaved) = &unsaved {
                    engine.keep_only(unsaved);
                }
                Shard::Cached(Box::new(engine))
            }
            None => Shard::Plain(Box::<Plain>::default()),
        };
        worker.add_shard(number, shard, &cache);
    }
    // The driver has its own; a device that leaves the cache is closed with that.
    drop(cache);
    let link = Link {
        sender,
        waker: worker.ring.waker(),
    };
    if started.send(Ok((index, link))).is_ok() {
        worker.run();
    }
}

/// Prepares a thread that serves block devices of this host, and so must not need them to go on.
/// Its buffers stay in memory, and the kernel does not write to those devices when it looks for
/// memory on its behalf.
fn prepare_for_own_devices(worker: &mut Worker) {
    let pinned = worker.ring.register_memory();
    if let Err(error) = pinned {
        let error = crate::failure::describe(&error.into());
        tracing::warn!(
            "the daemon's buffers could not be pinned in memory: {error}; allow more locked memory (LimitMEMLOCK= of the service) if you swap to its block devices"
        );
    }
    if let Err(error) = forebay_io::ublk::serve_storage_from_this_thread() {
        tracing::warn!(
            "when memory is short this daemon may wait for its own devices: {}; run it as root",
            failure::in_words(&error)
        );
    }
}

/// The most clients of a thread.
pub(super) fn clients_of_each(threads: usize) -> usize {
    CLIENTS / threads.min(8)
}

fn divide_memory(bytes: u64, threads: usize) -> Result<Vec<(Arena, Arena)>> {
    let inlet_bytes = clients_of_each(threads) * INLET_BYTES;
    let total = bytes as usize + threads * inlet_bytes;
    let arenas = Pool::new(total)?.split(threads)?;
    Ok(arenas
        .into_iter()
        .map(|arena| arena.divide(inlet_bytes))
        .collect::<Result<Vec<_>, _>>()?)
}

/// Limits of a client's memory, so that several clients fit beside each other.
fn limits(memory_bytes: u64) -> Result<Limits> {
    let default = Limits::default();
    if memory_bytes < LEAST_MEMORY_BYTES / 4 {
        wrong_usage!(
            "--memory leaves a thread less than 8 MiB; allow more memory or fewer threads"
        );
    }
    // Buffers of unaligned data take up to twice their length.
    let share = 1u64 << (memory_bytes / 8).ilog2();
    let max_request_bytes = default
        .max_request_bytes
        .min(share.min(1 << 30) as u32)
        .max(64 << 10);
    let max_bytes_in_flight = default
        .max_bytes_in_flight
        .min(share * 2)
        .max(u64::from(max_request_bytes));
    Ok(Limits {
        max_request_bytes,
        max_bytes_in_flight,
        ..default
    }
    .validated()?)
}

/// Without a cache requests are only cut to length.
fn plain_geometry() -> Result<Geometry> {
    Ok(Geometry::for_device(1 << 30, 4096, Some(1), 1)?)
}
