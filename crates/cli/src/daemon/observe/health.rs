//! The health of the cache's devices, asked for from time to time, from a thread of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;

use crate::daemon::state::Daemon;
use crate::device::health::look;
use crate::lock::lock;
use crate::report::health::DeviceHealth;
use crate::thread;

/// Interval between looks: it changes slowly, and asking wakes some devices.
const EVERY: Duration = Duration::from_secs(600);

/// Health by the path of each device.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Health(Mutex<BTreeMap<PathBuf, DeviceHealth>>);

impl Health {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, DeviceHealth>> {
        lock(&self.0)
    }

    /// The health of a device, if it is known.
    pub(super) fn of(&self, device: &Path) -> Option<DeviceHealth> {
        self.lock().get(device).cloned()
    }
}

/// Looks now and then. Not where the root file system is on a volume: a program would have to be
/// read from it, by a daemon that may wait for nothing.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>) -> Result<()> {
    if daemon.is_under_root() {
        return Ok(());
    }
    let daemon = Arc::clone(daemon);
    thread::start("forebay-health", move || {
        let mut faults = BTreeMap::new();
        loop {
            look_at_all(&daemon, &mut faults);
            std::thread::sleep(EVERY);
        }
    })?;
    Ok(())
}

/// The devices are looked at without a lock, as that can take a while. A fault is said when it is
/// new.
fn look_at_all(daemon: &Daemon, faults: &mut BTreeMap<PathBuf, String>) {
    let devices: Vec<PathBuf> = daemon
        .admin()
        .cache
        .iter()
        .flat_map(|cache| {
            let devices = cache.storage.devices();
            devices
                .map(|(_, storage)| storage.device().path().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let mut found = BTreeMap::new();
    let mut wrong = BTreeMap::new();
    for device in devices {
        let looked = look(&device);
        if let Some(fault) = looked.fault {
            if faults.get(&device) != Some(&fault) {
                tracing::warn!("the health of {} is not known: {fault}", device.display());
            }
            wrong.insert(device.clone(), fault);
        }
        found.extend(looked.health.map(|health| (device, health)));
    }
    *faults = wrong;
    *daemon.health.lock() = found;
}
