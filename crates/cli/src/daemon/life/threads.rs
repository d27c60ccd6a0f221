//! The threads of the data path.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::Result;
use forebay_cache::control::Control;
use forebay_cache::{Plain, Shard, Shared};
use forebay_engine::{BlockKey, Engine, Geometry, Recovered, Settings, VolumeSlot};
use forebay_frontend::nbd::Limits;
use forebay_io::{Arena, Emulation, Pool};

use super::opening::OpenCache;
use crate::config::{LEAST_MEMORY_BYTES, Plan};
use crate::daemon::data::client::INLET_BYTES;
use crate::daemon::data::link::{Link, Message};
use crate::daemon::data::served::{Clock, ServedVolume, TimedDevice, plain_config};
use crate::daemon::data::worker::{Worker, WorkerParts};
use crate::daemon::notice::Notice;
use crate::daemon::state::{CacheSide, VolumeSide};
use crate::device::attach::{self, AttachedCache, Origin};
use crate::device::shared_memory::ShardMemory;
use crate::failure::{self, wrong_usage};
use crate::report::status::Recovery;
use crate::thread;

/// How many clients a thread can have.
const CLIENTS: usize = 256;

/// All that runs, as the main thread knows it.
pub(super) struct Started {
    pub(super) links: Vec<Link>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) cache: Option<CacheSide>,
    pub(super) volumes: Vec<VolumeSide>,
    pub(super) limits: Limits,
}

/// What one worker begins with.
struct Share {
    parts: WorkerParts,
    shards: Vec<(u16, Option<(Recovered, ShardMemory)>)>,
    cache: Vec<(u8, TimedDevice)>,
    unsaved: Option<Vec<Range<BlockKey>>>,
    settings: Settings,
    boot_id: [u8; 16],
    started: Sender<Result<(usize, Link)>>,
    sender: Sender<Message>,
    /// The thread will serve block devices.
    storage: bool,
}

/// Starts the threads of the data path and has them serve what was opened.
pub(super) fn start_workers(
    plan: &Plan,
    cache: Option<OpenCache>,
    origins: &[Origin],
    clock: Clock,
    notices: &Sender<Notice>,
) -> Result<Started> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let geometry = match &cache {
        Some(cache) => cache.attached.superblock.geometry,
        None => plain_geometry()?,
    };
    let shards = usize::from(geometry.shards);
    let threads = match &cache {
        Some(_) => plan.threads.unwrap_or(cores).min(shards),
        None => plan.threads.unwrap_or(1),
    };
    let arenas = divide_memory(plan.memory_bytes, threads)?;
    let limits = limits(plan.memory_bytes / threads as u64)?;
    // Without a cache each worker has a stand-in of its own, all called shard 0.
    let owners = |worker: usize| match &cache {
        Some(_) => (0..shards).map(|shard| (shard % threads) as u16).collect(),
        None => vec![worker as u16],
    };
    let shared = Arc::new(Shared::default());
    let (mut shares, started) = (Vec::new(), channel());
    for (index, (arena, inlet)) in arenas.into_iter().enumerate() {
        let (sender, inbox) = channel();
        let own_shards = if cache.is_none() {
            vec![(0, None)]
        } else {
            Vec::new()
        };
        let owners = owners(index);
        shares.push(Share {
            parts: WorkerParts {
                index,
                clock,
                arena,
                inlet,
                inbox,
                notices: notices.clone(),
                owners,
                workers: threads as u16,
                shared: Arc::clone(&shared),
                geometry,
                limits,
            },
            shards: own_shards,
            cache: cache
                .as_ref()
                .map_or_else(Vec::new, |cache| cache.devices.clone()),
            unsaved: cache.as_ref().and_then(|cache| cache.unsaved.clone()),
            settings: plan.settings.clone(),
            boot_id: attach::boot_id()?,
            started: started.0.clone(),
            sender,
            storage: plan.ublk,
        });
    }
    let (cache, configs) = match cache {
        Some(OpenCache {
            attached,
            configs,
            devices,
            ..
        }) => {
            let AttachedCache {
                storage,
                superblock,
                shards,
                report,
                memory,
            } = attached;
            for (number, (recovered, memory)) in shards.into_iter().zip(memory).enumerate() {
                shares[number % threads]
                    .shards
                    .push((number as u16, Some((recovered, memory))));
            }
            let emulated = devices.iter().any(|(_, device)| device.emulation.is_some());
            let side = move |control: Control, link: Link| CacheSide {
                control,
                storage,
                link,
                emulated,
                recovery: Recovery::of(&report),
            };
            (Some((superblock, side)), configs)
        }
        None => (
            None,
            origins
                .iter()
                .map(|origin| (0, plain_config(origin.size_bytes())))
                .collect(),
        ),
    };
    let mut handles = Vec::new();
    for share in shares {
        let name = format!("forebay-{}", share.parts.index);
        handles.push(thread::start(&name, move || run_worker(share))?);
    }
    drop(started.0);
    let mut links: Vec<Option<Link>> = vec![None; threads];
    for (index, link) in started
        .1
        .iter()
        .take(threads)
        .collect::<Result<Vec<_>>>()?
        .into_iter()
    {
        links[index] = Some(link);
    }
    let links: Vec<Link> = links.into_iter().flatten().collect();
    for link in &links {
        let peers = links.clone();
        link.call(move |worker| worker.peers = peers)?;
    }
    let mut control = cache
        .as_ref()
        .map(|(superblock, _)| Control::new(superblock.clone()));
    let mut volumes = Vec::new();
    for ((origin, (id, config)), planned) in origins.iter().zip(configs).zip(&plan.volumes) {
        let emulation = planned
            .emulate
            .as_ref()
            .map(|options| Emulation::new(options, origin.size_bytes()));
        let slot = match &mut control {
            Some(control) => control.add_volume(id),
            None => VolumeSlot(volumes.len() as u16),
        };
        let volume = ServedVolume {
            config,
            ..ServedVolume::new(origin, emulation)?
        };
        add_volume(&links, slot, &volume)?;
        volumes.push(VolumeSide::new(origin, slot));
    }
    let cache = cache
        .zip(control)
        .map(|((_, side), control)| side(control, links[0].clone()));
    Ok(Started {
        links,
        threads: handles,
        cache,
        volumes,
        limits,
    })
}

/// Has every worker serve a volume from the start.
fn add_volume(links: &[Link], slot: VolumeSlot, volume: &ServedVolume) -> Result<()> {
    for link in links {
        let volume = volume.clone();
        link.call(move |worker| {
            worker.add_volume(slot, volume);
            worker.offer_volume(slot);
        })?;
    }
    Ok(())
}

/// A worker's thread: everything that belongs to it is made here.
fn run_worker(share: Share) {
    let Share {
        parts,
        shards,
        cache,
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
    for (number, _) in &cache {
        worker.host.add_cache_device(*number);
    }
    for (number, cached) in shards {
        let shard = match cached {
            Some((recovered, memory)) => {
                worker.arena.attach_ring(number, memory.ring);
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
    let link = Link {
        sender,
        waker: worker.ring.waker(),
    };
    if started.send(Ok((index, link))).is_ok() {
        worker.run();
    }
}

/// What serves block devices of this host must not need those devices to go on: its buffers stay
/// in memory, and the kernel does not write to them when it looks for memory on its behalf.
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

fn divide_memory(bytes: u64, threads: usize) -> Result<Vec<(Arena, Arena)>> {
    let inlet_bytes = CLIENTS / threads.min(8) * INLET_BYTES;
    let total = bytes as usize + threads * inlet_bytes;
    let arenas = Pool::new(total)?.split(threads)?;
    Ok(arenas
        .into_iter()
        .map(|arena| arena.divide(inlet_bytes))
        .collect::<Result<Vec<_>, _>>()?)
}

/// What one client may hold, so that several fit beside each other.
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
