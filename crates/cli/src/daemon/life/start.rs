//! From a plan to running threads.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_io::Recording;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::abandonment::FailureRecord;
use super::opening::{open_cache, open_origins};
use super::threads::{Started, Told, clients_of_each, start_workers};
use super::{lost_devices, shutdown, watchdog};
use crate::config::Plan;
use crate::daemon::control::{answer, away, socket};
use crate::daemon::data::entrance::{Entrance, EntranceParts};
use crate::daemon::data::listener::{Listener, Listening, bind_unix, nobody_listens};
use crate::daemon::data::served::Clock;
use crate::daemon::data::ublk::BlockDevices;
use crate::daemon::data::ublk::export::check_driver;
use crate::daemon::notice::{Devices, Notice};
use crate::daemon::observe::events::Events;
use crate::daemon::observe::failing::Failing;
use crate::daemon::observe::followed::Advisers;
use crate::daemon::observe::health::Health;
use crate::daemon::observe::history::History;
use crate::daemon::observe::http::address::Dashboard;
use crate::daemon::observe::members::Members;
use crate::daemon::observe::recordings::Recordings;
use crate::daemon::observe::{advice, health, hook, http, sampler};
use crate::daemon::state::{Admin, AwayVolume, Daemon};
use crate::device::attach::Surroundings;
use crate::device::run_dir::{self, run_dir};
use crate::device::state_dir::StateDir;
use crate::lock::lock;
use crate::network::access::{Group, SocketAccess};
use crate::service_manager;
use crate::thread;
use crate::units;

/// The longest time from a socket's name to its listening, which follow each other at once.
const LISTENING: Duration = Duration::from_millis(100);
/// Time for the main thread to end by itself after a second signal.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Runs a daemon until it is told to stop.
pub(crate) fn serve(plan: Plan) -> Result<()> {
    let control_path = control_path(&plan);
    http::address::check(&plan.http, &control_path)?;
    plan.http_token
        .as_deref()
        .map(http::token::Token::read)
        .transpose()?;
    let Serving {
        daemon,
        notices,
        threads,
    } = start_serving(plan, false)?;
    hook::start(&daemon)?;
    sampler::start(&daemon)?;
    health::start(&daemon)?;
    http::start(&daemon)?;
    daemon.events.note(
        "start",
        format!("forebay {} serves", env!("CARGO_PKG_VERSION")),
    );
    let uris = daemon.uris_of(&daemon.admin());
    for uri in &uris {
        crate::output::line(format_args!("{uri}"));
    }
    away::watch(&daemon)?;
    watchdog::start(&daemon)?;
    service_manager::ready(&serving(&daemon, &uris));
    run(&daemon, &notices, threads)
}

/// A line for the service manager.
fn serving(daemon: &Daemon, uris: &[String]) -> String {
    let away: Vec<String> = daemon
        .admin()
        .away
        .iter()
        .map(AwayVolume::in_words)
        .collect();
    match (uris, away.as_slice()) {
        (uris, []) => format!("serving {}", uris.join(", ")),
        ([], away) => format!("serving nothing: {}", away.join("; ")),
        (uris, away) => format!("serving {}; {}", uris.join(", "), away.join("; ")),
    }
}

/// Runs a daemon for one drain of the only volume that it serves, and stops it.
pub(crate) fn drain_offline(plan: Plan, show: &mut dyn FnMut(&Value)) -> Result<Value> {
    let Serving {
        daemon,
        notices,
        threads,
    } = start_serving(plan, true)?;
    let drained = daemon.find_volume(None).and_then(|volume| {
        let progress = daemon.drain(&volume, 0, &mut |progress| {
            show(&answer::progress_parameters(progress));
            !is_interrupted(&daemon, &notices)
        })?;
        let answer = answer::drained(&volume.name, progress);
        Ok((volume.name, answer))
    });
    shutdown::stop(&daemon, &notices, threads, Devices::KeepUsed)?;
    let (name, answer) = drained?;
    daemon.note_saved(&name)?;
    Ok(answer)
}

/// Whether a signal came; does what else the daemon was told.
fn is_interrupted(daemon: &Daemon, notices: &Receiver<Notice>) -> bool {
    daemon.put_on_record();
    let mut interrupted = false;
    while let Ok(notice) = notices.try_recv() {
        match notice {
            Notice::Signal(_) => interrupted = true,
            Notice::CacheFailed { worker, report } => daemon.take_failure_report(worker, report),
            Notice::Failed { worker, reason } => {
                tracing::error!("thread {worker} of the daemon: {reason}");
                interrupted = true;
            }
            Notice::Reload => {}
            // Nobody but this command knows of the daemon.
            Notice::Stop { .. } => interrupted = true,
        }
    }
    interrupted
}

struct Serving {
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

/// `saves` what is unsaved of a cache that failed, where a daemon that serves it refuses.
fn start_serving(plan: Plan, saves: bool) -> Result<Serving> {
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
    let control_path = control_path(&plan);
    if plan.ublk {
        check_driver()?;
    }
    if plan.control.is_none() {
        run_dir::make(&run_dir())?;
    }
    if run_dir::check(&run_dir()).is_ok() {
        remove_dead_sockets(&run_dir());
    }
    // Sockets come first: a daemon that nobody can reach must not begin to write.
    let control = bind_control(&control_path, plan.control_group)?;
    let mut guard = ControlSocket(Some(control_path.clone()));
    let listeners = plan
        .nbd
        .iter()
        .map(|address| Listener::bind(address, &plan.tls, &plan.socket))
        .collect::<Result<Vec<_>>>()?;
    let mut origins = open_origins(&plan, &surroundings)?;
    let cache = open_cache(&plan, saves, &mut origins, &surroundings)?;
    let clock = Clock(Instant::now());
    let failing = Arc::new(Failing::default());
    let (losses, of_losses) = channel();
    let told = Told {
        notices: &notices,
        losses: &losses,
        failing: &failing,
    };
    let Started {
        links,
        threads,
        cache,
        volumes,
        away,
        limits,
        exports,
    } = start_workers(&plan, cache, &origins, clock, told)?;
    let listening: Vec<Listening> = listeners
        .iter()
        .map(|listener| listener.listening(&plan.tls))
        .collect();
    let listeners = listeners.into_iter();
    let entrance = Entrance::open(EntranceParts {
        listeners: listeners
            .map(|listener| (listener, plan.tls.clone()))
            .collect(),
        exports: Arc::clone(&exports),
        links: links.clone(),
        limits,
        clients_each: clients_of_each(links.len()),
    })?;
    for volume in &volumes {
        tracing::info!(
            "volume {} ({}) is served",
            volume.name,
            units::size(volume.size_bytes)
        );
    }
    for volume in &away {
        tracing::warn!("{}", volume.in_words());
    }
    let workers = links.len();
    let events = Events::default();
    events.hook.set(plan.hook.clone());
    let daemon = Arc::new(Daemon {
        links,
        entrance,
        exports,
        admin: Mutex::new(Admin {
            cache,
            volumes,
            away,
            settings: plan.settings.clone(),
            profile: plan.profile,
        }),
        listening,
        started: Instant::now(),
        clock,
        recordings: Recordings::default(),
        advisers: Advisers::default(),
        history: History::new(),
        events,
        failing,
        health: Health::default(),
        members: Members::default(),
        name: plan.cache_name(),
        dashboard: Dashboard::default(),
        control_path,
        surroundings,
        block_devices: BlockDevices::new(plan.ublk.then_some(limits.max_request_bytes)),
        notices: Mutex::new(notices),
        failure_record: Mutex::new(FailureRecord::new(workers)),
        plan: Mutex::new(plan),
        origin_look: Mutex::new(()),
    });
    drop(losses);
    lost_devices::watch(&daemon, of_losses)?;
    daemon.note_lost_at_start();
    if let Err(error) = daemon.copies_as_planned() {
        let _ = shutdown::stop(&daemon, &to_main, threads, Devices::KeepUsed);
        return Err(error);
    }
    advice::start(&daemon)?;
    socket::start(Arc::clone(&daemon), control)?;
    guard.0 = None;
    if let Err(error) = daemon.export_block_devices() {
        // Devices that were made or taken over are let go in order.
        let _ = shutdown::stop(&daemon, &to_main, threads, Devices::KeepUsed);
        return Err(error);
    }
    Ok(Serving {
        daemon,
        notices: to_main,
        threads,
    })
}

/// The control socket: the one given, or one of this process.
fn control_path(plan: &Plan) -> std::path::PathBuf {
    let own_socket = || run_dir().join(format!("{}.sock", std::process::id()));
    plan.control.clone().unwrap_or_else(own_socket)
}

fn state_dir(plan: &Plan) -> Result<StateDir> {
    match (&plan.state_dir, plan.root_storage()) {
        (Some(path), Some(memory)) => Ok(StateDir::of_root_storage(path.into(), memory.into())),
        (given, _) => StateDir::open_for_notes(given.as_deref()),
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

/// Removes the sockets that killed daemons left, at which nobody listens.
fn remove_dead_sockets(directory: &std::path::Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "sock")) {
        if is_dead(&path) {
            // Another daemon may have been quicker.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Whether nobody listens at a socket, for as long as a daemon that starts takes from its socket's
/// name to its listening.
fn is_dead(path: &std::path::Path) -> bool {
    // A file that is no socket refuses too.
    let is_socket = std::fs::symlink_metadata(path)
        .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()));
    is_socket && nobody_listens(path) && {
        std::thread::sleep(LISTENING);
        nobody_listens(path)
    }
}

/// Removes the control socket of a daemon that does not come to be.
struct ControlSocket(Option<std::path::PathBuf>);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A socket that is gone already does no harm.
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
        let timeout = daemon.next_record().unwrap_or(Duration::MAX);
        let notice = match notices.recv_timeout(timeout) {
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
            Notice::Reload => reload_for_signal(daemon),
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
            Notice::CacheFailed { worker, report } => daemon.take_failure_report(worker, report),
            Notice::Failed { worker, reason } => {
                anyhow::bail!(
                    "thread {worker} of the daemon cannot go on: {reason}; nothing acknowledged is lost, start it again"
                );
            }
        }
    }
}

/// Reads the configuration again. A terminal that is closed sends this signal as well, so a daemon
/// without a configuration file goes on.
///
/// A new volume's disk may not answer, and another reload may wait for one. So this has a thread of its
/// own: notices go on, such as that a cache failed, which is put on record here.
fn reload_for_signal(daemon: &Arc<Daemon>) {
    let daemon = Arc::clone(daemon);
    let begun = thread::start("forebay-reload", move || {
        if lock(&daemon.plan).source.is_some() {
            not_read_again(daemon.reload_by_signal());
        } else {
            tracing::info!(
                "SIGHUP came: there is no configuration file to read again, the daemon goes on"
            );
        }
    });
    not_read_again(begun.map(drop));
}

fn not_read_again(result: Result<()>) {
    if let Err(error) = result {
        tracing::error!(
            "SIGHUP came: the configuration was not read again: {}",
            crate::failure::describe(&error)
        );
    }
}

fn watch_signals(notices: Sender<Notice>) -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1]).context("cannot watch for signals")?;
    thread::start("forebay-signals", move || {
        let mut stops = 0;
        for signal in signals.forever() {
            let notice = match signal {
                SIGHUP => Notice::Reload,
                SIGUSR1 => Notice::Signal(Devices::Keep),
                _ => Notice::Signal(Devices::KeepUsed),
            };
            stops += u32::from(matches!(notice, Notice::Signal(_)));
            if notices.send(notice).is_err() {
                return;
            }
            if stops > 1 {
                end_soon();
            }
        }
    })?;
    Ok(())
}

/// Ends the process if the main thread does not: it may wait in the kernel for a device, which no
/// notice reaches. What is lost by it is what a kill loses, nothing.
fn end_soon() {
    std::thread::sleep(AT_ONCE);
    tracing::error!(
        "a second signal came: the daemon ends here and now; what was acknowledged is recovered at the next start"
    );
    std::process::exit(1);
}

fn bind_control(
    path: &std::path::Path,
    group: Option<Group>,
) -> Result<std::os::unix::net::UnixListener> {
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
    // A process that can open the control socket can stop the cache.
    bind_unix(path, &SocketAccess::of_group(group))
}
