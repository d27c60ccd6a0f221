//! The daemon as its control plane sees it.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Context, Result};
use forebay_cache::control::Control;
use forebay_engine::{Settings, Superblock, VolumeSlot};
use forebay_io::RealDevice;

use super::data::entrance::Entrance;
use super::data::exports::Exports;
use super::data::link::Link;
use super::data::listener::Listening;
use super::data::served::Clock;
use super::data::ublk::BlockDevices;
use super::life::abandonment::FailureRecord;
use super::life::lost_devices::LostDevice;
use super::notice::Notice;
use super::observe::events::Events;
use super::observe::failing::Failing;
use super::observe::followed::Advisers;
use super::observe::health::Health;
use super::observe::history::History;
use super::observe::http::address::Dashboard;
use super::observe::members::Members;
use super::observe::recordings::Recordings;
use crate::config::Plan;
use crate::device::attach::{Origin, Surroundings};
use crate::device::cache_storage::CacheStorage;
use crate::failure::refuse;
use crate::lock::lock;
use crate::profiles::Profile;
use crate::report::status::{PLAIN_BLOCK_BYTES, Recovery};
use crate::settings::{OnDegraded, OwnSettings};

/// The cache as the control plane knows it.
pub(in crate::daemon) struct CacheSide {
    /// Commands on the cache, and the superblock on record.
    pub(in crate::daemon) control: Control,
    pub(in crate::daemon) storage: CacheStorage,
    /// A worker, which flushes the devices for whoever writes superblocks.
    pub(in crate::daemon) link: Link,
    /// It has the timing of another device.
    pub(in crate::daemon) emulated: bool,
    pub(in crate::daemon) recovery: Recovery,
    pub(in crate::daemon) on_degraded: OnDegraded,
    /// Devices that the cache goes on without. None of them is in `storage`.
    pub(in crate::daemon) lost: Vec<LostDevice>,
}

impl CacheSide {
    /// The superblock on record.
    pub(in crate::daemon) fn superblock(&self) -> &Superblock {
        self.control.superblock()
    }
}

/// A volume as the control plane knows it.
#[derive(Clone)]
pub(in crate::daemon) struct VolumeSide {
    pub(in crate::daemon) name: String,
    /// Names it had in this life of the daemon, and no other volume has.
    pub(in crate::daemon) formerly: Vec<String>,
    pub(in crate::daemon) slot: VolumeSlot,
    pub(in crate::daemon) device: Arc<RealDevice>,
    pub(in crate::daemon) size_bytes: u64,
    /// Settings of its own.
    pub(in crate::daemon) own: OwnSettings,
    /// The `N` of its `/dev/ublkbN`, if it has one.
    pub(in crate::daemon) block_device: Option<u32>,
    /// The size of that, which may be one that the volume had before.
    pub(in crate::daemon) block_device_bytes: u64,
    /// Why the volume has not the size of its origin, if that grew.
    pub(in crate::daemon) not_grown: Option<String>,
    /// Its freeze, until somebody thaws it or hears that it is over.
    pub(in crate::daemon) freeze: Option<Freeze>,
}

/// A freeze of a volume, which is not over or ended by itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Freeze {
    pub(in crate::daemon) began: Instant,
    /// When it ended by itself, if it did.
    pub(in crate::daemon) over: Option<Instant>,
}

impl Freeze {
    /// For how many seconds changes wait already; `None` if it is over.
    pub(in crate::daemon) fn seconds(&self) -> Option<f64> {
        let lasts = self.over.is_none();
        lasts.then(|| self.began.elapsed().as_secs_f64())
    }
}

/// A volume that is not served: its origin is not there, or is not what it was.
#[derive(Clone)]
pub(in crate::daemon) struct AwayVolume {
    pub(in crate::daemon) name: String,
    /// The origin, if the configuration names one.
    pub(in crate::daemon) origin: Option<PathBuf>,
    pub(in crate::daemon) why: String,
    /// The device is there, and was refused.
    pub(in crate::daemon) is_refused: bool,
    /// The number that its blocks are counted under, if the cache holds any, and its size.
    pub(in crate::daemon) kept: Option<(VolumeSlot, u64)>,
}

/// State that commands change, one command at a time.
pub(in crate::daemon) struct Admin {
    pub(in crate::daemon) cache: Option<CacheSide>,
    pub(in crate::daemon) volumes: Vec<VolumeSide>,
    pub(in crate::daemon) away: Vec<AwayVolume>,
    pub(in crate::daemon) settings: Settings,
    pub(in crate::daemon) profile: Option<&'static Profile>,
}

impl VolumeSide {
    /// A volume that is served under this number.
    pub(in crate::daemon) fn new(origin: &Origin, slot: VolumeSlot) -> VolumeSide {
        VolumeSide {
            name: origin.name.clone(),
            formerly: Vec::new(),
            slot,
            device: Arc::clone(&origin.opened.device),
            size_bytes: origin.size_bytes(),
            own: OwnSettings::default(),
            block_device: None,
            block_device_bytes: 0,
            not_grown: None,
            freeze: None,
        }
    }
}

impl AwayVolume {
    /// Why it is not served, and what becomes of it.
    pub(in crate::daemon) fn in_words(&self) -> String {
        let kept = match self.kept {
            Some(_) => "; what the cache holds of it is kept",
            None => "",
        };
        format!("volume {} is not served: {}{kept}", self.name, self.why)
    }
}

impl Admin {
    /// All devices in use: the origins of served volumes, and the cache's.
    pub(in crate::daemon) fn devices(&self) -> impl Iterator<Item = &RealDevice> {
        let origins = self.volumes.iter().map(|volume| &*volume.device);
        let caches = self.cache.iter().flat_map(|cache| cache.storage.devices());
        origins.chain(caches.map(|(_, storage)| &**storage.device()))
    }

    /// The numbers of all volumes that the cache may hold blocks of.
    pub(in crate::daemon) fn counted_slots(&self) -> Vec<VolumeSlot> {
        let served = self.volumes.iter().map(|volume| volume.slot);
        let away = self.away.iter().filter_map(|volume| volume.kept);
        served.chain(away.map(|(slot, _)| slot)).collect()
    }

    /// The volume of this number, if it is served.
    pub(in crate::daemon) fn volume(&self, slot: VolumeSlot) -> Option<&VolumeSide> {
        self.volumes.iter().find(|volume| volume.slot == slot)
    }

    /// Likewise, to change.
    pub(in crate::daemon) fn volume_mut(&mut self, slot: VolumeSlot) -> Option<&mut VolumeSide> {
        self.volumes.iter_mut().find(|volume| volume.slot == slot)
    }

    /// The block that counters count, in bytes.
    pub(in crate::daemon) fn block_bytes(&self) -> u64 {
        let cache = self.cache.as_ref();
        cache.map_or(PLAIN_BLOCK_BYTES, |cache| {
            u64::from(cache.superblock().geometry.block_bytes)
        })
    }
}

/// The daemon as its control plane sees it.
pub(in crate::daemon) struct Daemon {
    pub(in crate::daemon) links: Vec<Link>,
    pub(in crate::daemon) entrance: Entrance,
    pub(in crate::daemon) exports: Arc<Exports>,
    pub(in crate::daemon) admin: Mutex<Admin>,
    pub(in crate::daemon) listening: Vec<Listening>,
    pub(in crate::daemon) started: Instant,
    /// The clock of the data path.
    pub(in crate::daemon) clock: Clock,
    pub(in crate::daemon) recordings: Recordings,
    pub(in crate::daemon) advisers: Advisers,
    pub(in crate::daemon) history: History,
    pub(in crate::daemon) events: Events,
    pub(in crate::daemon) failing: Arc<Failing>,
    /// Of the cache's devices.
    pub(in crate::daemon) health: Health,
    /// Of the arrays among all devices.
    pub(in crate::daemon) members: Members,
    /// The cache's name among those of this machine.
    pub(in crate::daemon) name: String,
    pub(in crate::daemon) dashboard: Dashboard,
    pub(in crate::daemon) control_path: PathBuf,
    pub(in crate::daemon) surroundings: Surroundings,
    /// The plan of the start, or of the last reload.
    pub(in crate::daemon) plan: Mutex<Plan>,
    /// Held by whoever looks for origins that came or grew.
    pub(in crate::daemon) origin_look: Mutex<()>,
    pub(in crate::daemon) block_devices: BlockDevices,
    pub(in crate::daemon) notices: Mutex<Sender<Notice>>,
    /// The record of a cache that failed.
    pub(in crate::daemon) failure_record: Mutex<FailureRecord>,
}

impl Daemon {
    pub(in crate::daemon) fn admin(&self) -> MutexGuard<'_, Admin> {
        // A panic in one command must not make all others impossible.
        lock(&self.admin)
    }

    /// Refuses what a configuration file does not say, where nobody could mend that before the next
    /// daemon starts.
    pub(in crate::daemon) fn check_may_leave_file(&self) -> Result<()> {
        let plan = lock(&self.plan);
        if plan.root_storage().is_some() {
            refuse!(
                "the root file system is on this cache, and a daemon that takes this one's place knows its \
                 configuration only: put a volume into that, `forebay reload`, and make the initramfs anew; names \
                 stay as they are, and so do cache devices (`forebay cache replace` alone changes one)"
            );
        }
        Ok(())
    }

    /// Whether the root file system is on a volume of this daemon.
    pub(in crate::daemon) fn is_under_root(&self) -> bool {
        let plan = lock(&self.plan);
        plan.root_storage().is_some()
    }

    pub(in crate::daemon) fn notify(&self, notice: Notice) -> Result<()> {
        let sender = lock(&self.notices);
        sender
            .send(notice)
            .ok()
            .context("the daemon is stopping already")
    }

    pub(in crate::daemon) fn volume(&self, name: &str) -> Option<VolumeSide> {
        self.admin()
            .volumes
            .iter()
            .find(|volume| volume.name == name)
            .cloned()
    }
}
