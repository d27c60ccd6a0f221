//! State that all threads of a cache see at once: the flush gates of its devices, and whether it
//! has failed. Messages tell everything else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_engine::{Device, VolumeSlot};

use crate::gate::{Gate, Left};
use crate::unheard::UnheardFailures;

/// See the module. Each call is one step: threads come one after the other.
#[derive(Debug)]
pub struct Shared {
    gates: Mutex<HashMap<Device, Gate>>,
    /// Failures of origins' flushes, by volume modulo their number: read without a lock by whoever
    /// only asks whether there was one.
    failed: [AtomicU64; 64],
    unheard: UnheardFailures,
    /// Some shard failed: read before every answer that relies on the cache (I22).
    has_failed: AtomicBool,
    cache_devices: Mutex<CacheDevices>,
}

/// Devices of the cache: a bit for each number.
#[derive(Debug, Default)]
struct CacheDevices {
    in_use: u16,
    lost: u16,
    /// Losses so far.
    losses: u64,
    /// By number: which of them was that of the device.
    loss_of: [u64; 16],
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            gates: Mutex::default(),
            failed: [const { AtomicU64::new(0) }; 64],
            unheard: UnheardFailures::default(),
            has_failed: AtomicBool::new(false),
            cache_devices: Mutex::default(),
        }
    }
}

impl Shared {
    fn gates(&self) -> MutexGuard<'_, HashMap<Device, Gate>> {
        // Every change of a gate is whole before anything could panic.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See `Gate::enter`.
    pub(crate) fn enter(&self, device: Device, host: u16) -> bool {
        self.gates().entry(device).or_default().enter(host)
    }

    /// See `Gate::leave`.
    pub(crate) fn leave(&self, device: Device, host: u16, failed: bool) -> Left {
        let mut gates = self.gates();
        if failed {
            self.count(device);
        }
        gates.entry(device).or_default().leave(host, failed)
    }

    /// The number of the device's flushes that failed.
    pub(crate) fn failures(&self, device: Device) -> u64 {
        self.gates().get(&device).map_or(0, Gate::failures)
    }

    /// See `Gate::forgive`.
    pub(crate) fn forgive(&self, device: Device) {
        self.gates().entry(device).or_default().forgive();
    }

    /// The number of failures that only commands hear of.
    pub(crate) fn forgiven(&self, device: Device) -> u64 {
        self.gates().get(&device).map_or(0, Gate::forgiven)
    }

    fn count(&self, device: Device) {
        if let Device::Origin(volume) = device {
            self.failed[usize::from(volume.0) % self.failed.len()].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A number that is another after a flush of the volume's origin has failed.
    pub(crate) fn origin_mark(&self, volume: VolumeSlot) -> u64 {
        self.failed[usize::from(volume.0) % self.failed.len()].load(Ordering::SeqCst)
    }

    /// Failures of clients' flushes that no client has heard of yet.
    pub(crate) fn unheard(&self) -> &UnheardFailures {
        &self.unheard
    }

    fn cache_devices(&self) -> MutexGuard<'_, CacheDevices> {
        let devices = self.cache_devices.lock();
        devices.unwrap_or_else(PoisonError::into_inner)
    }

    /// A device of the cache is used, unless another host has lost it already.
    pub(crate) fn use_device(&self, device: u8) {
        let mut devices = self.cache_devices();
        devices.in_use |= 1 << device & !devices.lost;
    }

    /// Whether a host has lost a device that is still in the cache.
    pub(crate) fn has_lost(&self, device: u8) -> bool {
        self.cache_devices().lost & 1 << device != 0
    }

    /// A device is in the cache no more.
    pub(crate) fn forget_device(&self, device: u8) {
        let mut devices = self.cache_devices();
        devices.in_use &= !(1 << device);
        devices.lost &= !(1 << device);
    }

    /// The cache goes on without a device, unless it is the last (I28): hosts that find two devices
    /// failing at the same time must not lose both. Returns which loss it is, the same to all hosts.
    pub(crate) fn lose(&self, device: u8) -> Option<u64> {
        let mut devices = self.cache_devices();
        if devices.lost & 1 << device == 0 {
            let left = devices.in_use & !(1 << device);
            if left == 0 {
                return None;
            }
            devices.in_use = left;
            devices.lost |= 1 << device;
            devices.losses += 1;
            devices.loss_of[usize::from(device)] = devices.losses;
        }
        Some(devices.loss_of[usize::from(device)])
    }

    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
    }

    /// Whether some shard failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }
}
