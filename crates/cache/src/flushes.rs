//! Flushes of a host's devices. Flushes that its shards want at once become one, which goes through
//! the gate of its device (I21).

use std::collections::{HashMap, VecDeque};

use forebay_engine::planted::{self, Bug};
use forebay_engine::{Device, DeviceError, Memory, Nanos, OpId, VolumeSlot};

use crate::gate::Left;
use crate::host::{Host, Order};
use crate::message::Message;
use crate::shared::Shared;
use forebay_engine::Slots;
use smallvec::SmallVec;

/// The party that wants a flush.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushFor {
    Shard {
        shard: u16,
        op: OpId,
        /// It is one of several that make up a flush of the whole cache.
        group: Option<u32>,
    },
    /// The control plane.
    Control,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// At the gate: another host's flush may serve what is `taken`.
    AtGate,
    /// Through the gate, on the device.
    InFlight,
}

/// A device as a host flushes it.
#[derive(Debug, Default)]
struct DeviceFlush {
    stage: Stage,
    /// Requests that the flush in flight, or the next after the gate, covers.
    taken: Vec<FlushFor>,
    /// Requests that came too late for that flush.
    queued: Vec<FlushFor>,
    /// Failures that the shards here have been told of.
    told: u64,
}

/// The flushes of one cache that are wanted of its several devices.
#[derive(Debug)]
struct Group {
    left: usize,
    result: Result<(), DeviceError>,
}

/// The end of a flush for the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFlush {
    /// The device that was flushed.
    pub device: Device,
    /// Result of the flush.
    pub result: Result<(), DeviceError>,
    /// Failures of the device's flushes up to this one.
    pub failures: u64,
}

impl ControlFlush {
    /// The flush's result for data written when `before` flushes of the device had failed: a flush
    /// that failed since may have lost it (I10).
    ///
    /// # Errors
    /// If this flush failed, or one since then.
    pub fn covers(&self, before: u64) -> Result<(), DeviceError> {
        if self.failures > before {
            return Err(DeviceError::Io);
        }
        self.result
    }
}

#[derive(Debug, Default)]
pub(crate) struct Flushes {
    devices: HashMap<Device, DeviceFlush>,
    cache_devices: Vec<u8>,
    groups: Slots<Group>,
    /// Results of flushes for the control plane.
    pub(crate) for_control: VecDeque<ControlFlush>,
}

impl Flushes {
    pub(crate) fn add_cache_device(&mut self, number: u8, shared: &Shared) {
        self.cache_devices.push(number);
        self.forget(Device::Cache(number), shared);
    }

    pub(crate) fn remove_cache_device(&mut self, number: u8) -> bool {
        if self.wanted(Device::Cache(number)) > 0 {
            return false;
        }
        self.cache_devices.retain(|known| *known != number);
        true
    }

    pub(crate) fn add_volume(&mut self, slot: VolumeSlot, shared: &Shared) {
        self.forget(Device::Origin(slot), shared);
    }

    /// Forgets the failures before the device was here: they concern nobody here.
    fn forget(&mut self, device: Device, shared: &Shared) {
        let told = shared.failures(device);
        let fresh = DeviceFlush {
            told,
            ..DeviceFlush::default()
        };
        self.devices.insert(device, fresh);
    }

    /// The number of flushes of a device that are wanted or in flight.
    pub(crate) fn wanted(&self, device: Device) -> usize {
        self.devices
            .get(&device)
            .map_or(0, |flush| flush.taken.len() + flush.queued.len())
    }

    fn device(&mut self, device: Device) -> &mut DeviceFlush {
        self.devices
            .get_mut(&device)
            .expect("a device is added before it is flushed")
    }
}

impl<T> Host<T> {
    /// A shard wants a device flushed, or all devices of the cache: writes that an engine's flush
    /// covers may be on any of them.
    pub(crate) fn want_flush(&mut self, shard: u16, op: OpId, device: Device) {
        let Device::Cache(_) = device else {
            let group = None;
            return self.queue_flush(device, FlushFor::Shard { shard, op, group });
        };
        // A lost device is asked nothing: nothing on it counts any more (I28).
        let devices: SmallVec<[u8; 4]> = (self.flushes.cache_devices.iter().copied())
            .filter(|number| !self.has_lost(*number))
            .take(if planted::is(Bug::FlushOfOne) {
                1
            } else {
                usize::MAX
            })
            .collect();
        let count = devices.len();
        let group = (count > 1).then(|| {
            self.flushes.groups.insert(Group {
                left: count,
                result: Ok(()),
            })
        });
        for number in devices {
            let wanted = FlushFor::Shard { shard, op, group };
            self.queue_flush(Device::Cache(number), wanted);
        }
    }

    /// Has a device flushed for the control plane, which hears of it by
    /// [`Host::next_control_flush`]. False if it is none that is served.
    pub fn flush_for_control(&mut self, device: Device) -> bool {
        let served = match device {
            Device::Cache(number) => self.flushes.cache_devices.contains(&number),
            Device::Origin(volume) => self.base_of(volume).is_some(),
        };
        if served {
            self.queue_flush(device, FlushFor::Control);
        }
        served
    }

    /// The number of a device's flushes that failed. Read it before writing what a flush is to
    /// cover.
    #[must_use]
    pub fn failures_of(&self, device: Device) -> u64 {
        self.shared.failures(device) + self.shared.forgiven(device)
    }

    /// The end of a flush for the control plane.
    pub fn next_control_flush(&mut self) -> Option<ControlFlush> {
        self.flushes.for_control.pop_front()
    }

    fn queue_flush(&mut self, device: Device, wanted: FlushFor) {
        self.flushes.device(device).queued.push(wanted);
        self.start_flush(device);
    }

    /// Goes to the gate with what is wanted, unless a flush is on its way: that one may have begun
    /// before writes that these are to cover.
    fn start_flush(&mut self, device: Device) {
        let flush = self.flushes.device(device);
        if flush.stage != Stage::Idle || flush.queued.is_empty() {
            return;
        }
        flush.taken = std::mem::take(&mut flush.queued);
        if self.shared.enter(device, self.index) {
            flush.stage = Stage::InFlight;
            self.orders.push_back(Order::Flush(device));
        } else {
            flush.stage = Stage::AtGate;
        }
    }

    /// The gate is held by this host now.
    pub(crate) fn flush_now(&mut self, device: Device) {
        let flush = self.flushes.device(device);
        assert_eq!(flush.stage, Stage::AtGate, "it waited at the gate (I21)");
        flush.stage = Stage::InFlight;
        // Requests that came since are on the device too: this flush has not begun.
        flush.taken.append(&mut flush.queued);
        self.orders.push_back(Order::Flush(device));
    }

    /// Takes the end of a flush that [`Order::Flush`] asked for.
    pub fn flushed(
        &mut self,
        now: Nanos,
        device: Device,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let device_failed = result.is_err();
        let result = match device {
            Device::Cache(number) => self.unless_lost(now, number, result, memory),
            Device::Origin(_) => result,
        };
        let failed = result.is_err();
        if device_failed && !failed {
            // A command may have written to the device that is lost (I24).
            self.shared.forgive(device);
        }
        let Left {
            failures,
            served,
            next,
        } = self.shared.leave(device, self.index, failed);
        for host in self.other_hosts() {
            if served.contains(&host) {
                let told = Message::Flushed {
                    device,
                    failed,
                    failures,
                };
                self.send(host, told);
            } else if failed {
                self.send(host, Message::FlushFailed { device, failures });
            }
        }
        if let Some(next) = next {
            self.send(next, Message::Flush(device));
        }
        assert_eq!(
            self.flushes.device(device).stage,
            Stage::InFlight,
            "a flush ends once"
        );
        self.end_flush(now, device, result, failures, memory);
    }

    pub(crate) fn flushed_by_another(
        &mut self,
        now: Nanos,
        device: Device,
        failed: bool,
        failures: u64,
        memory: &mut dyn Memory,
    ) {
        assert_eq!(
            self.flushes.device(device).stage,
            Stage::AtGate,
            "it waited at the gate (I21)"
        );
        let result = if failed { Err(DeviceError::Io) } else { Ok(()) };
        self.end_flush(now, device, result, failures, memory);
    }

    fn end_flush(
        &mut self,
        now: Nanos,
        device: Device,
        result: Result<(), DeviceError>,
        failures: u64,
        memory: &mut dyn Memory,
    ) {
        let flush = self.flushes.device(device);
        flush.stage = Stage::Idle;
        let taken = std::mem::take(&mut flush.taken);
        let hear_anyway = if result.is_err() { &taken[..] } else { &[] };
        if result.is_err() || !planted::is(Bug::LaterFlushBelieved) {
            self.note_failures(now, device, failures, hear_anyway, memory);
        }
        for wanted in taken {
            self.flush_ended(now, device, wanted, result, memory);
        }
        self.look_for_failure();
        self.start_flush(device);
    }

    /// Tells the shards here of failures of a device's flushes, but for those whose own flush is
    /// among `hear_anyway`.
    pub(crate) fn note_failures(
        &mut self,
        now: Nanos,
        device: Device,
        failures: u64,
        hear_anyway: &[FlushFor],
        memory: &mut dyn Memory,
    ) {
        let Some(flush) = self.flushes.devices.get_mut(&device) else {
            return;
        };
        if flush.told >= failures {
            return;
        }
        flush.told = failures;
        for at in 0..self.own.len() {
            let number = self.own[at];
            let is_its = |wanted: &FlushFor| matches!(wanted, FlushFor::Shard { shard, group: None, .. } if *shard == number);
            if hear_anyway.iter().any(is_its) {
                continue;
            }
            if let Some(shard) = self.shard(number) {
                shard.flush_failed(now, device, memory);
            }
        }
        // Nothing that relies on what was lost is promised from here on (I22).
        self.look_for_failure();
    }

    /// Whether a flush of the device failed that the shards here have not been told of.
    #[must_use]
    pub fn has_untold_failure(&self, device: Device) -> bool {
        let told = self
            .flushes
            .devices
            .get(&device)
            .map_or(0, |flush| flush.told);
        self.shared.failures(device) > told
    }

    fn flush_ended(
        &mut self,
        now: Nanos,
        device: Device,
        wanted: FlushFor,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let FlushFor::Shard { shard, op, group } = wanted else {
            let told = self.flushes.device(device).told;
            let failures = told + self.shared.forgiven(device);
            return self.flushes.for_control.push_back(ControlFlush {
                device,
                result,
                failures,
            });
        };
        let result = match group {
            None => result,
            Some(id) => {
                let group = self.flushes.groups.get_mut(id);
                let group = group.expect("a group ends with its last flush");
                group.left -= 1;
                group.result = group.result.and(result);
                if group.left > 0 {
                    return;
                }
                let ended = self.flushes.groups.remove(id);
                ended.expect("just seen").result
            }
        };
        match device {
            Device::Cache(_) => self.end_of_cache_write(now, shard, op, result, memory),
            Device::Origin(_) => self.tell_end(now, shard, op, result, memory),
        }
    }
}
