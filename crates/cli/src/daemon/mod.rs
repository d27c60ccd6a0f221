//! The running cache.
//!
//! | module | subject |
//! |---|---|
//! | [`worker`] | one thread of the data path |
//! | [`client`] | an NBD client on that thread |
//! | [`given_up`] | putting on record that the cache is given up |
//! | [`flight`] | a request on its way through the cache |
//! | [`anticipation`] | staying awake for a client's next request |
//! | [`link`] | messages between threads |
//! | [`socket`] | listening |
//! | [`ublk`] | volumes as block devices |
//! | [`control`] | the control socket |
//! | [`commands`] | commands carried out, step by step |
//! | [`volumes`] | attach, detach, mode, drain |
//! | [`rename`] | another name for a volume |
//! | [`served_storage`] | superblocks written while the cache is served |
//! | [`settings`] | settings changed live |
//! | [`resize`] | the cache's space, changed live |
//! | [`report`] | status |
//! | [`tap`] | watching a volume's requests: for [`record`] and [`advice`] |
//! | [`history`], [`events`], [`heat`] | the last hour, in memory |
//! | [`http`] | dashboard and metrics for browsers and Prometheus |
//! | [`reload`] | a changed configuration, applied as far as that is possible live |
//! | [`shutdown`] | the orderly stop |
//! | [`start`] | from a plan to running threads |
//! | [`watchdog`] | telling the service manager that the daemon lives |

mod advice;
mod anticipation;
mod client;
mod commands;
mod control;
mod events;
mod flight;
mod given_up;
mod heat;
mod history;
mod http;
mod link;
mod record;
mod reload;
mod rename;
mod report;
mod resize;
mod served_storage;
mod settings;
mod shutdown;
mod socket;
mod start;
mod tap;
pub(crate) mod ublk;
mod volumes;
mod watchdog;
mod worker;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use forebay_cache::Report;
use forebay_cache::control::Control;
use forebay_engine::{Settings, Superblock, VolumeSlot};
use forebay_io::RealDevice;

pub(crate) use events::Event;
pub(crate) use start::{drain_offline, serve};

use crate::attach::Surroundings;
use crate::cache_storage::CacheStorage;
use crate::config::Plan;
use crate::failure::refuse;
use crate::profiles::Profile;
use crate::status::{PLAIN_BLOCK_BYTES, Recovery};
use advice::Advisers;
use events::Events;
use given_up::GivingUp;
use history::History;
use link::Link;
use record::Recordings;
use socket::Listening;
use worker::Clock;

/// What becomes of block devices when the daemon stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    /// Those that nobody uses are taken away, the others wait for the next daemon.
    KeepUsed,
    /// All wait for the next daemon.
    Keep,
}

/// What the main thread waits for.
enum Notice {
    /// SIGINT or SIGTERM, or SIGUSR1, which keeps the block devices.
    Signal(Devices),
    /// `forebay stop`: the result goes to the first channel once all is done; the second is closed
    /// when the client was told.
    Stop {
        done: Sender<Result<(), String>>,
        told: Receiver<()>,
        devices: Devices,
    },
    /// The cache is given up, which is to be on record as far as this worker knows (I15).
    GivenUp { worker: usize, report: Report },
    /// A worker cannot go on.
    Failed { worker: usize, reason: String },
}

/// The cache as the control plane knows it.
struct CacheSide {
    /// What commands do to it, and what is on record.
    control: Control,
    storage: CacheStorage,
    /// A worker, which flushes the devices for whoever writes superblocks.
    link: Link,
    /// It has the timing of another device.
    emulated: bool,
    recovery: Recovery,
}

impl CacheSide {
    /// What is on record.
    fn superblock(&self) -> &Superblock {
        self.control.superblock()
    }
}

/// A volume as the control plane knows it.
#[derive(Clone)]
struct VolumeSide {
    name: String,
    /// Names it had in this life of the daemon, and no other volume has.
    formerly: Vec<String>,
    slot: VolumeSlot,
    device: Arc<RealDevice>,
    size_bytes: u64,
    /// The `N` of its `/dev/ublkbN`, if it has one.
    block_device: Option<u32>,
}

/// What commands change, one at a time.
struct Admin {
    cache: Option<CacheSide>,
    volumes: Vec<VolumeSide>,
    settings: Settings,
    profile: Option<&'static Profile>,
}

impl Admin {
    /// The block that counters count, in bytes.
    fn block_bytes(&self) -> u64 {
        let cache = self.cache.as_ref();
        cache.map_or(PLAIN_BLOCK_BYTES, |cache| {
            u64::from(cache.superblock().geometry.block_bytes)
        })
    }
}

/// The daemon as its control plane sees it.
struct Daemon {
    links: Vec<Link>,
    admin: Mutex<Admin>,
    listening: Vec<Listening>,
    started: Instant,
    /// The clock of the data path.
    clock: Clock,
    recordings: Recordings,
    advisers: Advisers,
    history: History,
    events: Events,
    /// Where it is, once it is.
    dashboard: OnceLock<String>,
    control_path: PathBuf,
    surroundings: Surroundings,
    /// What it was started with, or last reloaded.
    plan: Mutex<Plan>,
    /// If volumes are block devices: the longest transfer of those, in bytes.
    block_devices: Option<u32>,
    notices: Mutex<Sender<Notice>>,
    /// What is to be on record of a cache that is given up.
    given_up: Mutex<GivingUp>,
}

impl Daemon {
    fn admin(&self) -> MutexGuard<'_, Admin> {
        // A panic in one command must not make all others impossible.
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what a configuration file does not say, where nobody could mend that before the next
    /// daemon starts.
    fn check_may_leave_file(&self) -> Result<()> {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.root_storage().is_some() {
            refuse!(
                "the root file system is on this cache, and a daemon that takes this one's place knows its \
                 configuration only: put a volume into that, `forebay reload`, and make the initramfs anew; names \
                 and cache devices stay as they are"
            );
        }
        Ok(())
    }

    fn notify(&self, notice: Notice) -> Result<()> {
        let sender = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        sender
            .send(notice)
            .ok()
            .context("the daemon is stopping already")
    }

    fn volume(&self, name: &str) -> Option<VolumeSide> {
        self.admin()
            .volumes
            .iter()
            .find(|volume| volume.name == name)
            .cloned()
    }
}
