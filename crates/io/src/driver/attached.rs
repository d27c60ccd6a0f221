//! Devices as a driver knows them, and the device that an engine means.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_engine::Device;

use crate::device::{DeviceKind, RealDevice};
use crate::emulated::Client;
use crate::uring::{FileTarget, TIMER_TAG, Token, Uring};

/// A device's way to make a range read as zeroes; the next is tried where this way is not
/// supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroWay {
    ZeroRange,
    PunchHole,
    Write,
}

impl ZeroWay {
    pub(super) fn next(self) -> Option<ZeroWay> {
        match self {
            ZeroWay::ZeroRange => Some(ZeroWay::PunchHole),
            ZeroWay::PunchHole => Some(ZeroWay::Write),
            ZeroWay::Write => None,
        }
    }
}

/// A device's way to mark a range as unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscardWay {
    PunchHole,
    Ring,
    Thread,
    None,
}

impl DiscardWay {
    /// The next way to try where this way is not supported.
    pub(super) fn next(self) -> DiscardWay {
        match self {
            DiscardWay::Ring => DiscardWay::Thread,
            _ => DiscardWay::None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Attached {
    pub(super) device: Arc<RealDevice>,
    /// Its file, as the ring knows it; none of a remote device.
    pub(super) target: Option<FileTarget>,
    pub(super) client: Option<Client>,
    /// When the earliest of the ring's timers for the model fires.
    armed_ns: Option<u64>,
    /// Transfers the kernel or the model has; flushes are not counted.
    pub(super) in_flight: usize,
    pub(super) waiting: VecDeque<u32>,
    pub(super) flushing: bool,
    pub(super) zero_way: ZeroWay,
    pub(super) discard_way: DiscardWay,
}

impl Attached {
    pub(super) fn new(
        device: Arc<RealDevice>,
        target: Option<FileTarget>,
        client: Option<Client>,
    ) -> Attached {
        let discard_way = match device.kind() {
            DeviceKind::File => DiscardWay::PunchHole,
            DeviceKind::Block | DeviceKind::Remote if device.can_discard() => DiscardWay::Ring,
            DeviceKind::Block | DeviceKind::Remote => DiscardWay::None,
        };
        Attached {
            device,
            target,
            client,
            armed_ns: None,
            in_flight: 0,
            waiting: VecDeque::new(),
            flushing: false,
            zero_way: ZeroWay::ZeroRange,
            discard_way,
        }
    }

    /// Whether the ring carries its transfers out, and nobody wants to see their data.
    pub(super) fn takes_clients(&self) -> bool {
        let is_seen = self.device.is_in_memory() || self.device.recorder().is_some();
        self.target.is_some() && !is_seen
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.flushing
    }

    /// Sets a timer for the model's next event unless an earlier one is set.
    pub(super) fn arm(&mut self, ring: &mut Uring, device: u32, next_ns: Option<u64>) {
        let Some(next_ns) = next_ns else { return };
        if self.armed_ns.is_none_or(|armed_ns| next_ns < armed_ns) {
            ring.timer(next_ns, Token::reserved(TIMER_TAG, u64::from(device)));
            self.armed_ns = Some(next_ns);
        }
    }

    /// Forgets the timer if it was the one that fired: later ones may still be on their way.
    pub(super) fn disarm(&mut self, now_ns: u64) {
        self.armed_ns = self.armed_ns.filter(|armed_ns| *armed_ns > now_ns);
    }
}

/// Which device each shard's engine means by each name.
#[derive(Debug, Default)]
pub(super) struct Routes {
    shards: Vec<ShardRoutes>,
}

#[derive(Clone, Debug, Default)]
struct ShardRoutes {
    caches: Vec<Option<u32>>,
    origins: Vec<Option<u32>>,
}

impl ShardRoutes {
    fn place(&mut self, name: Device) -> (&mut Vec<Option<u32>>, usize) {
        match name {
            Device::Cache(index) => (&mut self.caches, usize::from(index)),
            Device::Origin(volume) => (&mut self.origins, usize::from(volume.0)),
        }
    }
}

impl Routes {
    pub(super) fn set(&mut self, shard: u16, name: Device, device: u32) {
        let shard = usize::from(shard);
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, ShardRoutes::default);
        }
        let (table, index) = self.shards[shard].place(name);
        if table.len() <= index {
            table.resize(index + 1, None);
        }
        table[index] = Some(device);
    }

    pub(super) fn get(&self, shard: u16, name: Device) -> Option<u32> {
        let routes = self.shards.get(usize::from(shard))?;
        match name {
            Device::Cache(index) => *routes.caches.get(usize::from(index))?,
            Device::Origin(volume) => *routes.origins.get(usize::from(volume.0))?,
        }
    }

    pub(super) fn forget(&mut self, device: u32) {
        for routes in &mut self.shards {
            for route in routes.caches.iter_mut().chain(&mut routes.origins) {
                *route = route.filter(|known| *known != device);
            }
        }
    }
}
