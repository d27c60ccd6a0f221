//! Dirty data on two devices, and the loss of one of them (I28).
//!
//! Writes of the write stream go to two devices. A device that fails a write or a flush, or is gone,
//! is lost, unless it is the last one. The cache goes on without it. An example:
//!
//! 1. A write goes to devices 0 and 1. Device 1 fails it.
//! 2. Every host opens nothing on device 1 any more, and reports the number of each of its shards.
//!    From then on no end of a write or flush of the cache reaches a shard: the ends are held.
//! 3. The driver puts on record, on device 0 and in the state directory, that device 1 is out.
//! 4. Every host is told. Shards forget what was on device 1 alone. The ends that were held are told,
//!    those of device 1 as if it had done everything: nothing on it counts any more.
//!
//! Between 2 and 3 a crash finds device 1 in the cache, perhaps back and without the failed write. No
//! acknowledgement and no write to an origin relies on anything that it lacks.

use std::collections::VecDeque;

use forebay_engine::format::Sequence;
use forebay_engine::format::extents::place_of;
use forebay_engine::planted::{self, Bug};
use forebay_engine::{
    Action, Buf, Bufs, Device, DeviceError, Memory, Nanos, OpId, Operation, Slots, TwoPlaces,
};

use crate::host::{Host, Order};
use crate::loads::{Begun, Loads};
use crate::message::Message;
use crate::shard::Shard;

#[cfg(test)]
mod tests;

/// In the names of operations that a host knows by its own table.
const OF_TABLE: u32 = 1 << 30;
/// In the names of reads that a host knows by the name alone: the shard's, and the device's number.
const UNTIMED_READ: u32 = 1 << 29;
const DEVICE_SHIFT: u32 = 25;
const DEVICE_MASK: u32 = 0xF << DEVICE_SHIFT;
/// Why a cache fails that cannot go on without a device.
const CANNOT_GO_ON: &str = "a device of the cache failed, and dirty data may be on it alone";
/// Reads of a device that fail before it counts as lost.
const MOST_READ_ERRORS: u32 = 128;

/// An operation of a shard, or one of the two writes that it is to the driver.
#[derive(Clone, Copy, Debug)]
struct Part {
    shard: u16,
    op: OpId,
    kind: Kind,
    begun: Begun,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read(u8),
    Write(u8),
    /// A write to this device that is one of two, and the place of both in the table of pairs.
    OneOfTwo(u8, u32),
}

impl Kind {
    fn device(self) -> u8 {
        let (Kind::Read(device) | Kind::Write(device) | Kind::OneOfTwo(device, _)) = self;
        device
    }
}

/// Two writes that are one to a shard.
#[derive(Clone, Copy, Debug)]
struct Two {
    left: u8,
    /// The devices that did it: a bit for each number.
    done_on: u16,
}

/// The end of an operation that a shard is told of later.
#[derive(Clone, Copy, Debug)]
struct Held {
    shard: u16,
    op: OpId,
    result: Result<(), DeviceError>,
}

/// A host's report of a device that is being lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossReport {
    /// The device.
    pub device: u8,
    /// The number of each shard of the host, below which its clean data counts no more.
    pub clean_from: Vec<(u16, Sequence)>,
    /// Dirty data of these shards is on that device alone, or was until lately.
    pub is_alone: bool,
}

/// The reports of all hosts of one lost device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The device.
    pub device: u8,
    /// As in [`LossReport`], of all shards.
    pub clean_from: Vec<(u16, Sequence)>,
    /// As in [`LossReport`], of any shard.
    pub is_alone: bool,
}

/// Gathers the reports of all hosts.
#[derive(Clone, Debug, Default)]
pub struct LossReports {
    hosts: u16,
    reports: Vec<LossReport>,
    /// A loss was not put on record, so that the cache fails.
    has_failed: bool,
}

impl LossReports {
    /// For a cache with so many hosts.
    #[must_use]
    pub fn new(hosts: u16) -> LossReports {
        LossReports {
            hosts,
            ..LossReports::default()
        }
    }

    /// Takes the report of a host. If every host has reported that device now, the loss is to be put
    /// on record if [`LossReports::may_record`] says so, and then every host is told
    /// ([`Host::loss_recorded`]).
    pub fn take(&mut self, report: LossReport) -> Option<Loss> {
        let device = report.device;
        self.reports.push(report);
        let of_it = |report: &&LossReport| report.device == device;
        if self.reports.iter().filter(of_it).count() < usize::from(self.hosts) {
            return None;
        }
        let reports = self.reports.iter().filter(of_it);
        let clean_from = reports.clone().flat_map(|report| report.clean_from.clone());
        let loss = Loss {
            device,
            clean_from: clean_from.collect(),
            is_alone: reports.clone().any(|report| report.is_alone),
        };
        self.reports.retain(|report| report.device != device);
        Some(loss)
    }

    /// Whether a loss is to be put on record now. Else the cache fails, and every host is told so:
    /// dirty data is on the device alone, and a start would not know what it lacks; or another loss
    /// is perhaps on some devices, and not on all: two that go on without each other are no cache.
    #[must_use]
    pub fn may_record(&self, loss: &Loss) -> bool {
        !loss.is_alone && !self.has_failed
    }

    /// A loss was put on record, or was not (`well` is false).
    pub fn recorded(&mut self, well: bool) {
        self.has_failed |= !well;
    }
}

/// A host's part of it.
#[derive(Debug, Default)]
pub(crate) struct TwoCopies {
    /// The cache keeps two copies, or did.
    is_on: bool,
    parts: Slots<Part>,
    twos: Slots<Two>,
    loads: Loads,
    /// Devices that are lost: a bit for each number.
    lost: u16,
    /// Of these, those whose loss is not on record yet.
    unrecorded: u16,
    /// A loss was not put on record: no failure of a device is forgiven from then on.
    has_failed: bool,
    /// By number of the device: the last loss of it that this host has heard of.
    heard: [u64; 16],
    read_errors: [u32; 16],
    held: VecDeque<Held>,
    /// Operations that a lost device was not asked for, by their names here. They fail.
    unasked: VecDeque<OpId>,
    reports: VecDeque<LossReport>,
}

/// The name under which a read goes out whose time is not wanted.
fn name_of_read(op: OpId, device: u8) -> OpId {
    let own = OF_TABLE | UNTIMED_READ | DEVICE_MASK;
    assert!(op.0 & own == 0, "fewer than 2^25 operations are in flight");
    OpId(op.0 | UNTIMED_READ | u32::from(device) << DEVICE_SHIFT)
}

impl TwoCopies {
    fn is_lost(&self, device: u8) -> bool {
        self.lost & 1 << device != 0
    }

    /// Whether ends of writes and flushes are held.
    fn holds(&self) -> bool {
        self.unrecorded != 0 && !planted::is(Bug::LossUnrecorded)
    }
}

impl<T> Host<T> {
    /// The cache keeps two copies of dirty data, or did, and goes on without the devices in this
    /// mask, of a bit for each number.
    pub fn keep_two(&mut self, lost: u16) {
        self.two.is_on = true;
        self.two.lost |= lost;
    }

    /// Whether the cache goes on without a device.
    #[must_use]
    pub fn has_lost(&self, device: u8) -> bool {
        self.two.is_lost(device)
    }

    /// Whether the loss of a device is not over for this host: it has not heard of it, or the record
    /// is not made.
    pub(crate) fn hears_of_loss(&self, device: u8) -> bool {
        let is_known = self.two.is_lost(device);
        (self.shared.has_lost(device) && !is_known) || self.two.unrecorded & 1 << device != 0
    }

    /// A device is in the cache no more: its number may be another's.
    pub(crate) fn forget_lost(&mut self, device: u8) {
        self.two.lost &= !(1 << device);
        self.two.read_errors[usize::from(device)] = 0;
    }

    /// Returns what is to be put on record of a device that is lost. The driver answers with
    /// [`Host::loss_recorded`] once it is there for all hosts.
    pub fn next_loss(&mut self) -> Option<LossReport> {
        self.two.reports.pop_front()
    }

    /// It is on record, everywhere where the next start looks, that the cache goes on without a
    /// device; or it could not be put there (`false`), and the cache fails.
    pub fn loss_recorded(&mut self, now: Nanos, device: u8, well: bool, memory: &mut dyn Memory) {
        self.two.unrecorded &= !(1 << device);
        self.two.has_failed |= !well;
        if well {
            self.engines().for_each(|engine| engine.device_lost());
        } else {
            // Nothing need be in flight that would tell the shards by its end.
            self.engines()
                .for_each(|engine| engine.fail_cache(CANNOT_GO_ON));
        }
        if self.two.holds() {
            return;
        }
        for Held { shard, op, result } in std::mem::take(&mut self.two.held) {
            let result = match self.two.has_failed {
                false => result,
                true => Err(DeviceError::Io),
            };
            self.tell_end(now, shard, op, result, memory);
        }
    }

    /// Tells a shard of the end of an operation.
    pub(crate) fn tell_end(
        &mut self,
        now: Nanos,
        shard: u16,
        op: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if let Some(shard) = self.shard(shard) {
            shard.complete(now, op, result, memory);
        }
    }

    /// The end of a write or flush of the cache: a shard is told now, or when the loss of a device is
    /// on record.
    pub(crate) fn end_of_cache_write(
        &mut self,
        now: Nanos,
        shard: u16,
        op: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        if self.two.holds() {
            self.two.held.push_back(Held { shard, op, result });
        } else {
            self.tell_end(now, shard, op, result, memory);
        }
    }

    /// Hands an action out: a read or write of the cache under a name of the host's own, so that the
    /// host knows which device ends it.
    pub(crate) fn order_transfer(&mut self, now: Nanos, shard: u16, action: Action) {
        let is_of_cache = matches!(action.device, Device::Cache(_));
        if !self.two.is_on || !is_of_cache {
            return self.orders.push_back(Order::Transfer(shard, action));
        }
        let Action {
            op,
            device,
            operation,
        } = action;
        let name = (op, device);
        let number_of = |address: u64| place_of(address).0;
        match operation {
            Operation::WriteBoth(both) => self.order_both(now, shard, name, *both),
            Operation::ReadEither { offsets_bytes, buf } => {
                self.order_either(now, shard, name, offsets_bytes, buf);
            }
            Operation::Read { offset_bytes, .. } => {
                self.order_read(now, shard, name, number_of(offset_bytes), operation);
            }
            Operation::Write { offset_bytes, .. } => {
                let kind = Kind::Write(number_of(offset_bytes));
                self.order_part(now, shard, name, kind, operation);
            }
            Operation::Discard { .. } | Operation::WriteZeroes { .. } | Operation::Flush => {
                self.hand_out(shard, name, operation);
            }
        }
    }

    fn hand_out(&mut self, shard: u16, (op, device): (OpId, Device), operation: Operation) {
        let action = Action {
            op,
            device,
            operation,
        };
        self.orders.push_back(Order::Transfer(shard, action));
    }

    /// Asks the device that answers sooner, of those that are not lost.
    fn order_either(
        &mut self,
        now: Nanos,
        shard: u16,
        name: (OpId, Device),
        offsets_bytes: [u64; 2],
        buf: Buf,
    ) {
        let devices = offsets_bytes.map(|address| place_of(address).0);
        let at = match devices.map(|device| self.two.is_lost(device)) {
            [true, false] => 1,
            [false, true] => 0,
            _ => self.two.loads.sooner(devices),
        };
        let read = Operation::Read {
            offset_bytes: offsets_bytes[at],
            bufs: Bufs::from_slice(&[buf]),
        };
        self.order_read(now, shard, name, devices[at], read);
    }

    fn order_read(
        &mut self,
        now: Nanos,
        shard: u16,
        (op, of): (OpId, Device),
        device: u8,
        operation: Operation,
    ) {
        if self.two.is_lost(device) || self.two.loads.times_next_read(device) {
            let kind = Kind::Read(device);
            return self.order_part(now, shard, (op, of), kind, operation);
        }
        self.two.loads.begins_untimed(device);
        self.hand_out(shard, (name_of_read(op, device), of), operation);
    }

    fn order_both(&mut self, now: Nanos, shard: u16, name: (OpId, Device), both: TwoPlaces) {
        let two = self.two.twos.insert(Two {
            left: 2,
            done_on: 0,
        });
        let mut order = |offset_bytes, bufs| {
            let kind = Kind::OneOfTwo(place_of(offset_bytes).0, two);
            let write = Operation::Write { offset_bytes, bufs };
            self.order_part(now, shard, name, kind, write);
        };
        let [first, second] = both.offsets_bytes;
        order(first, Bufs::from_slice(&both.bufs));
        order(second, both.bufs);
    }

    /// Hands an operation out for one device. `op` is the shard's name of it.
    fn order_part(
        &mut self,
        now: Nanos,
        shard: u16,
        (op, of): (OpId, Device),
        kind: Kind,
        operation: Operation,
    ) {
        let device = kind.device();
        let part = Part {
            shard,
            op,
            kind,
            begun: self.two.loads.begins(now, device),
        };
        let name = OpId(self.two.parts.insert(part) | OF_TABLE);
        if self.two.is_lost(device) {
            return self.two.unasked.push_back(name);
        }
        self.hand_out(shard, (name, of), operation);
    }

    /// Tells shards of operations that lost devices were not asked for. Returns whether there were
    /// any: shards may want something else now.
    pub(crate) fn end_unasked(&mut self, now: Nanos, memory: &mut dyn Memory) -> bool {
        let mut some = false;
        while let Some(name) = self.two.unasked.pop_front() {
            some = true;
            self.part_ended(now, name, Err(DeviceError::Gone), memory);
        }
        some
    }

    /// Takes the end of an operation if it has a name of the host's own.
    #[inline]
    pub(crate) fn took_part(
        &mut self,
        now: Nanos,
        shard: u16,
        op: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) -> bool {
        if !self.two.is_on || op.0 & (OF_TABLE | UNTIMED_READ) == 0 {
            return false;
        }
        if op.0 & OF_TABLE != 0 {
            self.part_ended(now, op, result, memory);
        } else {
            self.untimed_read_ended(now, shard, op, result, memory);
        }
        true
    }

    fn untimed_read_ended(
        &mut self,
        now: Nanos,
        shard: u16,
        name: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let device = ((name.0 & DEVICE_MASK) >> DEVICE_SHIFT) as u8;
        self.two.loads.ends_untimed(device);
        self.read_ended(now, device, result, memory);
        let op = OpId(name.0 & !(UNTIMED_READ | DEVICE_MASK));
        self.tell_end(now, shard, op, result, memory);
    }

    /// Whether an operation that is in flight is one of two writes of the same data, for simulators.
    #[must_use]
    pub fn is_one_of_two(&self, op: OpId) -> bool {
        let is_own = self.two.is_on && op.0 & OF_TABLE != 0;
        let part = is_own.then(|| self.two.parts.get(op.0 & !OF_TABLE));
        part.flatten()
            .is_some_and(|part| matches!(part.kind, Kind::OneOfTwo(..)))
    }

    fn part_ended(
        &mut self,
        now: Nanos,
        name: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let part = self.two.parts.remove(name.0 & !OF_TABLE);
        let Part {
            shard,
            op,
            kind,
            begun,
        } = part.expect("a part ends once");
        let went_well = matches!(kind, Kind::Read(_)) && result.is_ok();
        self.two.loads.ends(now, kind.device(), begun, went_well);
        match kind {
            Kind::Read(device) => {
                self.read_ended(now, device, result, memory);
                self.tell_end(now, shard, op, result, memory);
            }
            Kind::Write(device) => {
                let result = self.unless_lost(now, device, result, memory);
                self.end_of_cache_write(now, shard, op, result, memory);
            }
            Kind::OneOfTwo(device, two) => {
                // Data that the other device has: this one is lost, if it lacks it.
                let _ = self.unless_lost(now, device, result, memory);
                let both = self.two.twos.get_mut(two).expect("until both have ended");
                both.left -= 1;
                both.done_on |= u16::from(result.is_ok()) << device;
                let (left, done_on) = (both.left, both.done_on);
                if left > 0 {
                    return;
                }
                self.two.twos.remove(two);
                // What a device did that was lost meanwhile is as good as not done.
                let result = match done_on & !self.two.lost {
                    0 => Err(DeviceError::Io),
                    _ => Ok(()),
                };
                self.end_of_cache_write(now, shard, op, result, memory);
            }
        }
    }

    fn read_ended(
        &mut self,
        now: Nanos,
        device: u8,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let Err(error) = result else { return };
        if error == DeviceError::NotStraight {
            // The read is made again with copies, and its errors count.
            return;
        }
        let errors = &mut self.two.read_errors[usize::from(device)];
        *errors += 1;
        if error == DeviceError::Gone || *errors >= MOST_READ_ERRORS {
            self.device_fails(now, device, memory);
        }
    }

    /// The result of a write or flush of a device: a failure is none if the cache goes on without
    /// that device.
    pub(crate) fn unless_lost(
        &mut self,
        now: Nanos,
        device: u8,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) -> Result<(), DeviceError> {
        if result.is_err() && self.two.is_on && self.device_fails(now, device, memory) {
            return Ok(());
        }
        result
    }

    /// A device failed. Returns whether the cache goes on without it: not if it is the last, or the
    /// cache has failed.
    fn device_fails(&mut self, now: Nanos, device: u8, memory: &mut dyn Memory) -> bool {
        if self.two.has_failed {
            return false;
        }
        if self.two.is_lost(device) {
            return true;
        }
        if self.shared.has_failed() {
            return false;
        }
        let Some(loss) = self.shared.lose(device) else {
            return false;
        };
        self.device_leaves(now, device, loss, memory);
        for host in self.other_hosts() {
            self.send(host, Message::DeviceLeaves(device, loss));
        }
        true
    }

    /// This host or another has found that a device is lost.
    pub(crate) fn device_leaves(
        &mut self,
        now: Nanos,
        device: u8,
        loss: u64,
        memory: &mut dyn Memory,
    ) {
        let heard = &mut self.two.heard[usize::from(device)];
        if *heard >= loss {
            return;
        }
        *heard = loss;
        self.two.lost |= 1 << device;
        self.two.unrecorded |= 1 << device;
        let mut clean_from = Vec::new();
        let mut is_alone = false;
        for at in 0..self.own.len() {
            let number = self.own[at];
            if let Some(engine) = self.shard(number).and_then(Shard::engine) {
                is_alone |= engine.is_alone_on(device);
                clean_from.push((number, engine.device_leaves(now, device, memory)));
            }
        }
        self.two.reports.push_back(LossReport {
            device,
            clean_from,
            is_alone,
        });
    }

    /// Whether the loss of a device is not on record yet.
    #[must_use]
    pub fn is_losing(&self) -> bool {
        self.two.unrecorded != 0
    }
}
