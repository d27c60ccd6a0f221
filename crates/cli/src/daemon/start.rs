//! From a plan to running threads.

use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_cache::control::Control;
use forebay_cache::{Plain, Shard, Shared};
use forebay_engine::{
    BlockKey, Engine, Geometry, Mode, Recovered, Settings, VolumeConfig, VolumeSlot,
};
use forebay_frontend::nbd::{Export, ExportId, ExportName, Limits};
use forebay_io::{Arena, BlockingStorage, Emulation, Pool, Recording};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::advice::{self, Advisers};
use super::client::INLET_BYTES;
use super::events::Events;
use super::given_up::GivingUp;
use super::history::{self, History};
use super::link::Link;
use super::record::Recordings;
use super::socket::{Listener, Listening, bind_unix};
use super::worker::{Clock, ServedVolume, TimedDevice, Worker, WorkerParts};
use super::{
    Admin, CacheSide, Daemon, Devices, Notice, VolumeSide, control, http, shutdown, watchdog,
};
use crate::attach::{self, AttachedCache, Origin, Surroundings};
use crate::cache_storage;
use crate::config::{LEAST_MEMORY_BYTES, Plan};
use crate::failure::{self, Usage, wrong_usage};
use crate::shared_memory::ShardMemory;
use crate::state_dir::{StateDir, run_dir};
use crate::status::Recovery;
use crate::thread;
use crate::units;
use crate::{profiles, service_manager};

/// How many clients a thread can have.
const CLIENTS: usize = 256;

/// Runs a daemon until it is told to stop.
pub(crate) fn serve(plan: Plan) -> Result<()> {
    let http = http::bind(&plan.http)?;
    let Launched {
        daemon,
        notices,
        threads,
    } = launch(plan, false)?;
    history::start(&daemon)?;
    if let Some(listener) = http {
        http::start(&daemon, listener)?;
    }
    daemon.events.note(
        "start",
        format!("forebay {} serves", env!("CARGO_PKG_VERSION")),
    );
    let uris = daemon.uris_of(&daemon.admin());
    for uri in &uris {
        crate::output::line(format_args!("{uri}"));
    }
    watchdog::start(&daemon)?;
    service_manager::ready(&format!("serving {}", uris.join(", ")));
    run(&daemon, &notices, threads)
}

/// Runs a daemon for one drain of its only volume, and stops it.
pub(crate) fn drain_offline(plan: Plan, show: &mut dyn FnMut(&Value)) -> Result<Value> {
    let Launched {
        daemon,
        notices,
        threads,
    } = launch(plan, true)?;
    let drained = daemon.find_volume(None).and_then(|volume| {
        let progress = daemon.drain(&volume, &mut |progress| {
            show(&control::progress_parameters(progress));
            !is_interrupted(&daemon, &notices)
        })?;
        Ok(control::drained(&volume.name, progress))
    });
    shutdown::stop(&daemon, &notices, threads, Devices::KeepUsed)?;
    if drained.is_ok() {
        daemon.note_all_saved()?;
    }
    drained
}

/// Whether a signal came; does what else the daemon was told.
fn is_interrupted(daemon: &Daemon, notices: &Receiver<Notice>) -> bool {
    daemon.put_on_record();
    let mut interrupted = false;
    while let Ok(notice) = notices.try_recv() {
        match notice {
            Notice::Signal(_) => interrupted = true,
            Notice::GivenUp { worker, report } => daemon.given_up_by(worker, report),
            Notice::Failed { worker, reason } => {
                tracing::error!("thread {worker} of the daemon: {reason}");
                interrupted = true;
            }
            // Nobody but this command knows of the daemon.
            Notice::Stop { .. } => interrupted = true,
        }
    }
    interrupted
}

struct Launched {
    daemon: Arc<Daemon>,
    notices: Receiver<Notice>,
    threads: Vec<JoinHandle<()>>,
}

/// A thread that found an invariant broken must not leave the others to go on: the process ends
/// there and then, and recovery starts from what is durable.
fn end_with_any_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// `saves` what is unsaved of a cache that was given up, where a daemon that serves it refuses.
fn launch(plan: Plan, saves: bool) -> Result<Launched> {
    end_with_any_panic();
    for note in &plan.notes {
        tracing::warn!("{note}");
    }
    let (notices, to_main) = channel();
    watch_signals(notices.clone())?;
    let surroundings = Surroundings {
        direct: plan.direct,
        state: state_dir(&plan)?,
        recording: plan.record.as_deref().map(begin_recording).transpose()?,
    };
    let own_socket = || run_dir().join(format!("{}.sock", std::process::id()));
    let control_path = plan.control.clone().unwrap_or_else(own_socket);
    if plan.ublk {
        super::ublk::check_driver()?;
    }
    // Sockets come first: a daemon that nobody can reach must not begin to write.
    let control = bind_control(&control_path)?;
    let mut guard = ControlSocket(Some(control_path.clone()));
    let listeners = plan
        .nbd
        .iter()
        .map(|address| Listener::bind(address, &plan.tls))
        .collect::<Result<Vec<_>>>()?;
    let mut origins = open_origins(&plan, &surroundings)?;
    let cache = open_cache(&plan, saves, &mut origins, &surroundings)?;
    let clock = Clock(Instant::now());
    let Started {
        links,
        threads,
        cache,
        volumes,
        limits,
    } = start_workers(&plan, cache, &origins, clock, &notices)?;
    let listening: Vec<Listening> = listeners
        .iter()
        .map(|listener| listener.listening(&plan.tls))
        .collect();
    for listener in listeners {
        let tls = plan.tls.clone();
        links[0].call(move |worker| worker.listen(listener, tls))?;
    }
    for volume in &volumes {
        tracing::info!(
            "volume {} ({}) is served",
            volume.name,
            units::size(volume.size_bytes)
        );
    }
    let workers = links.len();
    let daemon = Arc::new(Daemon {
        links,
        admin: Mutex::new(Admin {
            cache,
            volumes,
            settings: plan.settings.clone(),
            profile: plan.profile,
        }),
        listening,
        started: Instant::now(),
        clock,
        recordings: Recordings::default(),
        advisers: Advisers::default(),
        history: History::new(),
        events: Events::default(),
        dashboard: OnceLock::new(),
        control_path,
        surroundings,
        block_devices: plan.ublk.then_some(limits.max_request_bytes),
        notices: Mutex::new(notices),
        given_up: Mutex::new(GivingUp::new(workers)),
        plan: Mutex::new(plan),
    });
    advice::start(&daemon)?;
    control::start(Arc::clone(&daemon), control)?;
    guard.0 = None;
    if let Err(error) = daemon.export_block_devices() {
        // Those that were made or taken over are let go in order.
        let _ = shutdown::stop(&daemon, &to_main, threads, Devices::KeepUsed);
        return Err(error);
    }
    Ok(Launched {
        daemon,
        notices: to_main,
        threads,
    })
}

fn state_dir(plan: &Plan) -> Result<StateDir> {
    match (&plan.state_dir, plan.root_storage()) {
        (Some(path), Some(memory)) => Ok(StateDir::of_root_storage(path.into(), memory.into())),
        (given, _) => StateDir::open(given.as_deref()),
    }
}

fn begin_recording(path: &std::path::Path) -> Result<Arc<Recording>> {
    tracing::warn!(
        "everything that is written is recorded in {} as well: for tests, slow, and as large as all of it",
        path.display()
    );
    Recording::create(path)
        .with_context(|| format!("cannot begin a recording in {}", path.display()))
}

/// Removes the control socket of a daemon that does not come to be.
struct ControlSocket(Option<std::path::PathBuf>);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // One that is gone already is as well.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Waits for something that concerns the whole daemon.
fn run(
    daemon: &Arc<Daemon>,
    notices: &Receiver<Notice>,
    threads: Vec<JoinHandle<()>>,
) -> Result<()> {
    loop {
        let patience = daemon.next_record().unwrap_or(Duration::MAX);
        let notice = match notices.recv_timeout(patience) {
            Ok(notice) => notice,
            Err(RecvTimeoutError::Timeout) => {
                daemon.put_on_record();
                continue;
            }
            // The daemon holds a sender itself, so that this never comes.
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the daemon cannot be told anything any more; start it again")
            }
        };
        match notice {
            Notice::Signal(devices) => {
                tracing::info!("a signal came: stopping in order");
                return shutdown::stop(daemon, notices, threads, devices);
            }
            Notice::Stop {
                done,
                told,
                devices,
            } => {
                let result = shutdown::stop(daemon, notices, threads, devices);
                let message = match &result {
                    Ok(()) => Ok(()),
                    Err(error) => Err(crate::failure::describe(error)),
                };
                // The client may have gone away meanwhile.
                let _ = done.send(message);
                let _ = told.recv_timeout(std::time::Duration::from_secs(2));
                return result;
            }
            Notice::GivenUp { worker, report } => daemon.given_up_by(worker, report),
            Notice::Failed { worker, reason } => {
                anyhow::bail!(
                    "thread {worker} of the daemon cannot go on: {reason}; nothing acknowledged is lost, start it again"
                );
            }
        }
    }
}

fn watch_signals(notices: Sender<Notice>) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGUSR1]).context("cannot watch for signals")?;
    thread::start("forebay-signals", move || {
        for signal in signals.forever() {
            let devices = if signal == SIGUSR1 {
                Devices::Keep
            } else {
                Devices::KeepUsed
            };
            if notices.send(Notice::Signal(devices)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn bind_control(path: &std::path::Path) -> Result<std::os::unix::net::UnixListener> {
    if let Some(directory) = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
    {
        std::fs::create_dir_all(directory).with_context(|| {
            format!(
                "cannot make {}; choose a place with --control",
                directory.display()
            )
        })?;
    }
    let listener = bind_unix(path)?;
    // Whoever can open the control socket can stop the cache.
    let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, only_owner).with_context(|| {
        format!(
            "cannot keep other users out of the control socket {}",
            path.display()
        )
    })?;
    Ok(listener)
}

fn open_origins(plan: &Plan, surroundings: &Surroundings) -> Result<Vec<Origin>> {
    let mut origins: Vec<Origin> = Vec::new();
    for volume in &plan.volumes {
        let origin = Origin::open(
            &volume.origin,
            volume.name.clone(),
            volume.mode,
            surroundings,
        )
        .with_context(|| format!("cannot serve the origin device {}", volume.origin.display()))?;
        if origins.iter().any(|other| other.name == origin.name) {
            return Err(Usage(format!(
                "two volumes are called `{}`; give one another name (name = \"NAME\" in a configuration file)",
                origin.name
            ))
            .into());
        }
        origins.push(origin);
    }
    Ok(origins)
}

fn open_cache(
    plan: &Plan,
    saves: bool,
    origins: &mut [Origin],
    surroundings: &Surroundings,
) -> Result<Option<OpenCache>> {
    let Some(wanted) = &plan.cache else {
        return Ok(None);
    };
    let (storage, superblock, note) = if saves {
        attach::open_to_save(&wanted.devices, surroundings)?
    } else {
        let (storage, superblock) =
            attach::open_cache(&wanted.devices, wanted.create, surroundings)?;
        (storage, superblock, None)
    };
    let unsaved = note
        .as_ref()
        .map(|note| attach::unsaved_blocks(&superblock, note));
    let file = plan.source.as_ref().and_then(|args| args.config.as_deref());
    attach::check_origins(&superblock, origins, file)?;
    let mut attached = attach::attach(storage, &superblock, false, &plan.settings, note.as_ref())?;
    let report = &attached.report;
    tracing::info!(
        "cache {} attached: {} blocks cached, {} dirty, {} read to recover",
        attached.superblock.id,
        report.cached_blocks(),
        report.dirty_blocks(),
        units::size(report.bytes_read()),
    );
    let mut configs = Vec::new();
    let first_mode = profiles::first_mode(plan.profile);
    for origin in &*origins {
        configs.push(attach::enter_volume(
            &mut attached.superblock,
            origin,
            first_mode,
        )?);
    }
    let names = cache_storage::names(&attached.storage);
    attached
        .superblock
        .write(&mut attached.storage)
        .with_context(|| format!("cannot write the superblock of the cache on {names}"))?;
    let timed = |(number, storage): (u8, &BlockingStorage)| {
        let device = Arc::clone(storage.device());
        let emulate = wanted.emulate.as_ref();
        let emulation = emulate.map(|options| Emulation::new(options, device.size_bytes()));
        (number, TimedDevice { device, emulation })
    };
    let devices = attached.storage.devices().map(timed).collect();
    Ok(Some(OpenCache {
        attached,
        unsaved,
        configs,
        devices,
    }))
}

struct OpenCache {
    attached: AttachedCache,
    /// Of a cache that was given up: the only blocks of it that count.
    unsaved: Option<Vec<Range<BlockKey>>>,
    /// Of each volume its id and how it is served.
    configs: Vec<(u32, VolumeConfig)>,
    devices: Vec<(u8, TimedDevice)>,
}

struct Started {
    links: Vec<Link>,
    threads: Vec<JoinHandle<()>>,
    cache: Option<CacheSide>,
    volumes: Vec<VolumeSide>,
    limits: Limits,
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
    sender: Sender<super::link::Message>,
    /// The thread will serve block devices.
    storage: bool,
}

fn start_workers(
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
            ..served_volume(origin, emulation)?
        };
        add_volume(&links, slot, &volume)?;
        volumes.push(volume_side(origin, slot));
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

pub(super) fn volume_side(origin: &Origin, slot: VolumeSlot) -> VolumeSide {
    VolumeSide {
        name: origin.name.clone(),
        formerly: Vec::new(),
        slot,
        device: Arc::clone(&origin.opened.device),
        size_bytes: origin.size_bytes(),
        block_device: None,
    }
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

/// A volume as workers serve it, without a cache.
pub(super) fn served_volume(origin: &Origin, emulation: Option<Emulation>) -> Result<ServedVolume> {
    let device = &origin.opened.device;
    let export = Export {
        id: ExportId(0),
        name: ExportName::new(origin.name.clone())?,
        description: ExportName::new(format!("volume on {}", device.path().display()))?,
        size_bytes: origin.size_bytes(),
        min_block_bytes: device.logical_block_bytes().clamp(512, 4096),
        read_only: false,
        rotational: false,
        fast_zero: false,
    };
    Ok(ServedVolume {
        config: plain_config(origin.size_bytes()),
        origin: TimedDevice {
            device: Arc::clone(device),
            emulation,
        },
        export,
    })
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

fn plain_config(size_bytes: u64) -> VolumeConfig {
    VolumeConfig {
        base: BlockKey(0),
        reserved_blocks: size_bytes.div_ceil(4096),
        size_bytes,
        mode: Mode::Passthrough,
    }
}
