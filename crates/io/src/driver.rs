//! Carries out the engines' actions on real devices, through the thread's ring.

mod attached;
mod entry;
mod remote;
mod work;

use forebay_engine::format::extents::place_of;
use forebay_engine::{Action, Bufs, Device, DeviceError, OpId, Operation};
use forebay_model::{Command, Kind};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::device::{RealDevice, device_error};
use crate::discarder::Discarder;
use crate::emulated::{Emulation, now_ns};
use crate::map::Map;
use crate::recording::{self, Begun, Recorder};
use crate::remote::Results;
use crate::uring::{Completion, DISCARDER_TAG, DRIVER_TAG, REMOTE_TAG, TIMER_TAG, Token, Uring};
use attached::{Attached, DiscardWay, Routes, ZeroWay};
use forebay_engine::Slots;
use work::{Task, Work};

/// A device as its driver numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverDevice(u32);

/// Kind of a finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// An operation of a shard's engine, by the engine's name for it.
    Transfer(u16, OpId),
    /// A flush of a device.
    Flush(DriverDevice),
}

/// Something carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The operation.
    pub what: Carried,
    /// Its result.
    pub result: Result<(), DeviceError>,
}

/// A transfer or flush that a device failed, for people. Discards are advice, and not among these.
#[derive(Clone, Debug)]
pub struct FailedOperation {
    /// The device.
    pub device: Arc<RealDevice>,
    /// The operation, as a verb.
    pub doing: &'static str,
    /// Where it began, in bytes.
    pub offset_bytes: u64,
    /// Its length, in bytes.
    pub len_bytes: u64,
    /// The kernel's number for the reason; none if the device ended before the operation did.
    pub errno: Option<i32>,
}

/// Counters of a driver since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCounters {
    /// Read operations finished.
    pub reads: u64,
    /// Write operations finished.
    pub writes: u64,
    /// Flushes the devices were given.
    pub flushes: u64,
    /// Transfers the kernel cut short, so that the rest had to be submitted again.
    pub short_transfers: u64,
    /// Operations that failed.
    pub failures: u64,
}

/// Why a device cannot be let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// It has work to do.
    #[error("the device has operations in flight; wait for them")]
    Busy,
    /// It was removed before.
    #[error("the driver has no such device")]
    Unknown,
}

/// The most zeroes that are written at once where a device has no better way, in bytes.
const ZEROES_BYTES: usize = 1 << 20;
/// The most retries of an operation that the kernel would not take at the moment.
const MAX_RETRIES: u32 = 64;

/// A thread's driver. Actions go in with the number of the shard they came from; finished
/// operations come out in [`Driver::submit`] and [`Driver::complete`].
#[derive(Debug)]
pub struct Driver {
    devices: Slots<Attached>,
    routes: Routes,
    works: Slots<Work>,
    max_in_flight: usize,
    discarder: Option<Discarder>,
    /// Answers of remote devices, once there is one.
    remotes: Option<Results>,
    zeroes: Option<Map>,
    vectors: Vec<Vec<libc::iovec>>,
    modelled: Vec<u32>,
    // Operations whose turn has come. Begun one after the other and not from within each other:
    // a long queue of what fails at once must not be a deep stack.
    to_begin: VecDeque<u32>,
    counters: DriverCounters,
    /// Failures that nobody was told of so far.
    failed: Vec<FailedOperation>,
}

impl Driver {
    /// A driver that keeps up to `max_in_flight` transfers (at least one) on the way on each
    /// device, and the rest in a queue of its own.
    #[must_use]
    pub fn new(max_in_flight: usize) -> Driver {
        Driver {
            devices: Slots::default(),
            routes: Routes::default(),
            works: Slots::default(),
            max_in_flight: max_in_flight.max(1),
            discarder: None,
            remotes: None,
            zeroes: None,
            vectors: Vec::new(),
            modelled: Vec::new(),
            to_begin: VecDeque::new(),
            counters: DriverCounters::default(),
            failed: Vec::new(),
        }
    }

    /// Takes a device in; an emulation gives it the timing of another.
    pub fn add_device(
        &mut self,
        ring: &mut Uring,
        device: Arc<RealDevice>,
        emulation: Option<&Emulation>,
    ) -> DriverDevice {
        let target = device.as_fd().map(|file| ring.register_file(file));
        let client = emulation.map(Emulation::join);
        DriverDevice(self.devices.insert(Attached::new(device, target, client)))
    }

    /// Lets a device go, and every name engines had for it.
    ///
    /// # Errors
    /// If it has operations in flight.
    pub fn remove_device(
        &mut self,
        ring: &mut Uring,
        device: DriverDevice,
    ) -> Result<(), DriverError> {
        let attached = self.devices.get_mut(device.0).ok_or(DriverError::Unknown)?;
        if !attached.is_idle() {
            return Err(DriverError::Busy);
        }
        if let Some(target) = attached.target {
            ring.release_file(target);
        }
        self.devices.remove(device.0);
        self.routes.forget(device.0);
        Ok(())
    }

    /// Says which device a shard's engine means by a name.
    pub fn route(&mut self, shard: u16, name: Device, device: DriverDevice) {
        self.routes.set(shard, name, device.0);
    }

    /// Whether a device can read into and write from a client's own memory, as far as is known before
    /// it is asked to.
    #[must_use]
    pub fn takes_clients(&mut self, device: DriverDevice) -> bool {
        let attached = self.devices.get_mut(device.0);
        attached.is_some_and(|attached| attached.takes_clients())
    }

    /// The number of operations taken and not yet answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.works.len()
    }

    /// The counters of the driver.
    #[must_use]
    pub fn counters(&self) -> DriverCounters {
        self.counters
    }

    /// The operations that failed since the last call.
    pub fn take_failed(&mut self) -> Vec<FailedOperation> {
        std::mem::take(&mut self.failed)
    }

    /// Starts an action that is no flush. Its answer comes with a completion, or at once in `done`
    /// where there is nothing to wait for. The buffers belong to the kernel until the answer.
    pub fn submit(&mut self, ring: &mut Uring, shard: u16, action: Action, done: &mut Vec<Done>) {
        let Action {
            op,
            device: name,
            operation,
        } = action;
        let (name, operation) = placed(name, operation);
        let what = Carried::Transfer(shard, op);
        let mut refuse = |result| done.push(Done { what, result });
        let Some(index) = self.routes.get(shard, name) else {
            return refuse(Err(DeviceError::Gone));
        };
        let Some(attached) = self.devices.get_mut(index) else {
            return refuse(Err(DeviceError::Gone));
        };
        let (task, offset_bytes, len_bytes, bufs) = match operation {
            // A part above this decides which flush of a device serves which shards (I21).
            Operation::Flush => return refuse(Err(DeviceError::Unsupported)),
            // It hands out two writes or one read in their place (I28).
            Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                return refuse(Err(DeviceError::Unsupported));
            }
            Operation::Read { offset_bytes, bufs } => {
                (Task::Read, offset_bytes, total_bytes(&bufs), bufs)
            }
            Operation::Write { offset_bytes, bufs } => {
                (Task::Write, offset_bytes, total_bytes(&bufs), bufs)
            }
            Operation::Discard {
                offset_bytes,
                len_bytes,
            } => (Task::Discard, offset_bytes, len_bytes, Bufs::new()),
            Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => (
                Task::Zero(attached.zero_way),
                offset_bytes,
                len_bytes,
                Bufs::new(),
            ),
        };
        let end = offset_bytes.checked_add(len_bytes);
        if end.is_none_or(|end| end > attached.device.size_bytes()) {
            // A file would grow; a block device would say something less clear.
            return refuse(Err(DeviceError::Io));
        }
        if len_bytes == 0 {
            return refuse(Ok(()));
        }
        let is_straight = bufs.iter().any(|buf| buf.is_of_client());
        if is_straight && !attached.takes_clients() {
            return refuse(Err(DeviceError::NotStraight));
        }
        if task == Task::Discard && attached.discard_way == DiscardWay::None {
            return refuse(Err(DeviceError::Unsupported));
        }
        let mut work = Work::new(task, index, offset_bytes, len_bytes);
        work.shard = shard;
        work.op = op;
        work.bufs = bufs;
        let slot = self.works.insert(work);
        if attached.in_flight >= self.max_in_flight {
            attached.waiting.push_back(slot);
            return;
        }
        attached.in_flight += 1;
        self.to_begin.push_back(slot);
        self.begin_all(ring, done);
    }

    /// Flushes a device: one flush of it at a time.
    pub fn flush(&mut self, ring: &mut Uring, device: DriverDevice, done: &mut Vec<Done>) {
        let Some(attached) = self.devices.get_mut(device.0) else {
            let (what, result) = (Carried::Flush(device), Err(DeviceError::Gone));
            return done.push(Done { what, result });
        };
        assert!(!attached.flushing, "one flush of a device at a time (I21)");
        attached.flushing = true;
        self.counters.flushes += 1;
        let slot = self.works.insert(Work::new(Task::Flush, device.0, 0, 0));
        self.begin(ring, slot, done);
        self.begin_all(ring, done);
    }

    /// Takes a completion if it is the driver's own, and says whether it was. Operations that it
    /// finishes are appended to `done`.
    pub fn complete(
        &mut self,
        ring: &mut Uring,
        completion: &Completion,
        done: &mut Vec<Done>,
    ) -> bool {
        let value = completion.token.value() as u32;
        match completion.token.tag() {
            DRIVER_TAG => self.transferred(ring, value, completion.result, done),
            TIMER_TAG => self.timer_fired(ring, value, done),
            DISCARDER_TAG => self.discarder_woke(ring, done),
            REMOTE_TAG => self.remotes_answered(ring, done),
            _ => return false,
        }
        self.begin_all(ring, done);
        true
    }

    fn begin_all(&mut self, ring: &mut Uring, done: &mut Vec<Done>) {
        while let Some(slot) = self.to_begin.pop_front() {
            self.begin(ring, slot, done);
        }
    }

    /// Gives an operation to the device, and to the model if it has one.
    fn begin(&mut self, ring: &mut Uring, slot: u32, done: &mut Vec<Done>) {
        let Some(work) = self.works.get_mut(slot) else {
            return;
        };
        let device = work.device;
        let Some(attached) = self.devices.get_mut(device) else {
            return;
        };
        if let Some(recorder) = attached.device.recorder() {
            work.begun = record(ring, recorder, work);
        }
        if let Some(client) = &attached.client {
            let next_ns = client.submit(now_ns(), slot, model_command(work));
            attached.arm(ring, device, next_ns);
        } else {
            work.modelled = true;
        }
        self.push(ring, slot, done);
    }

    /// Submits what is left of an operation.
    fn push(&mut self, ring: &mut Uring, slot: u32, done: &mut Vec<Done>) {
        let Some(work) = self.works.get_mut(slot) else {
            return;
        };
        let Some(attached) = self.devices.get_mut(work.device) else {
            return;
        };
        let Some(target) = attached.target else {
            return self.push_remote(ring, slot, done);
        };
        let entry = match work.task {
            Task::Read | Task::Write => {
                if work.vector.capacity() == 0 {
                    work.vector = self.vectors.pop().unwrap_or_default();
                }
                if let (true, Some(file)) =
                    (attached.device.is_in_memory(), attached.device.as_fd())
                {
                    let result = entry::transfer_now(ring, file, work);
                    return self.transferred(ring, slot, result, done);
                }
                entry::transfer(ring, target, work)
            }
            Task::Flush => entry::flush(target),
            Task::Zero(ZeroWay::ZeroRange) => entry::zero_range(target, work),
            Task::Zero(ZeroWay::PunchHole) => entry::punch_hole(target, work),
            Task::Zero(ZeroWay::Write) => {
                if self.zeroes.is_none() {
                    self.zeroes = Map::anonymous(ZEROES_BYTES).ok();
                }
                let Some(zeroes) = &self.zeroes else {
                    return self.finish(slot, Err(DeviceError::NoSpace), done);
                };
                entry::write_zeroes(target, work, zeroes)
            }
            Task::Discard => match work.tried_as(attached.discard_way) {
                DiscardWay::PunchHole => entry::punch_hole(target, work),
                DiscardWay::Ring => entry::discard(target, work),
                DiscardWay::Thread => return self.discard_in_thread(ring, slot, done),
                DiscardWay::None => {
                    return self.finish(slot, Err(DeviceError::Unsupported), done);
                }
            },
        };
        let token = Token::reserved(DRIVER_TAG, u64::from(slot));
        // SAFETY: buffers are of the ring's pool, and the kernel's until the answer by the pool's
        // rule. A vector stays with its work and the zeroes with the driver until the answer;
        // dropping the driver before leaves both to the kernel (see `Drop`).
        unsafe { ring.push(entry.user_data(token.raw())) };
    }

    fn transferred(&mut self, ring: &mut Uring, slot: u32, result: i32, done: &mut Vec<Done>) {
        let Some(work) = self.works.get_mut(slot) else {
            return;
        };
        if result < 0 {
            return self.failed(ring, slot, -result, done);
        }
        let by_count = matches!(
            work.task,
            Task::Read | Task::Write | Task::Zero(ZeroWay::Write)
        );
        if !by_count {
            return self.finish(slot, Ok(()), done);
        }
        work.done_bytes += u64::from(result.unsigned_abs());
        if work.done_bytes >= work.len_bytes {
            self.finish(slot, Ok(()), done);
        } else if result == 0 {
            // The device ends here, whatever its size was when it was opened.
            self.finish(slot, Err(DeviceError::Io), done);
        } else {
            self.counters.short_transfers += 1;
            self.push(ring, slot, done);
        }
    }

    fn failed(&mut self, ring: &mut Uring, slot: u32, errno: i32, done: &mut Vec<Done>) {
        let Some(work) = self.works.get_mut(slot) else {
            return;
        };
        let Some(attached) = self.devices.get_mut(work.device) else {
            return;
        };
        let passing = errno == libc::EINTR || errno == libc::EAGAIN;
        // A flush is never tried again: the second would not speak for what the first lost (I10).
        if passing && work.retries < MAX_RETRIES && work.task != Task::Flush {
            work.retries += 1;
            return self.push(ring, slot, done);
        }
        let unsupported = device_error(errno) == DeviceError::Unsupported;
        match work.task {
            Task::Zero(way) if unsupported || errno == libc::EINVAL => {
                if let Some(next) = way.next() {
                    work.task = Task::Zero(next);
                    if unsupported {
                        attached.zero_way = next;
                    }
                    return self.push(ring, slot, done);
                }
            }
            Task::Discard if unsupported || errno == libc::EINVAL => {
                // Several may have been tried in the same way before the first came back.
                let next = work.discard_way.next();
                if attached.discard_way == work.discard_way {
                    attached.discard_way = next;
                }
                return self.push(ring, slot, done);
            }
            _ => {}
        }
        let is_straight = work.bufs.iter().any(|buf| buf.is_of_client());
        if is_straight && matches!(errno, libc::EINVAL | libc::EFAULT | libc::EOPNOTSUPP) {
            return self.finish(slot, Err(DeviceError::NotStraight), done);
        }
        work.errno = Some(errno);
        self.finish(slot, Err(device_error(errno)), done);
    }

    /// The real device has answered; the model may yet have to.
    fn finish(&mut self, slot: u32, result: Result<(), DeviceError>, done: &mut Vec<Done>) {
        let Some(work) = self.works.get_mut(slot) else {
            return;
        };
        let recorder = self
            .devices
            .get_mut(work.device)
            .and_then(|attached| attached.device.recorder());
        work.result = Some(match (recorder, work.begun) {
            (Some(recorder), Some(begun)) => recorder.end(begun, result),
            _ => result,
        });
        if work.modelled {
            self.deliver(slot, done);
        }
    }

    fn deliver(&mut self, slot: u32, done: &mut Vec<Done>) {
        let Some(mut work) = self.works.remove(slot) else {
            return;
        };
        let result = work.result.unwrap_or(Err(DeviceError::Io));
        let has_failed = result.is_err_and(|error| error != DeviceError::NotStraight);
        self.counters.failures += u64::from(has_failed);
        if work.vector.capacity() > 0 {
            work.vector.clear();
            self.vectors.push(work.vector);
        }
        let Some(attached) = self.devices.get_mut(work.device) else {
            return;
        };
        if let (true, Some(doing)) = (has_failed, work.task.verb()) {
            self.failed.push(FailedOperation {
                device: Arc::clone(&attached.device),
                doing,
                offset_bytes: work.offset_bytes,
                len_bytes: work.len_bytes,
                errno: work.errno,
            });
        }
        match work.task {
            Task::Flush => {
                attached.flushing = false;
                let what = Carried::Flush(DriverDevice(work.device));
                return done.push(Done { what, result });
            }
            Task::Read => self.counters.reads += 1,
            Task::Write => self.counters.writes += 1,
            Task::Discard | Task::Zero(_) => {}
        }
        done.push(Done {
            what: Carried::Transfer(work.shard, work.op),
            result,
        });
        match attached.waiting.pop_front() {
            Some(next) => self.to_begin.push_back(next),
            None => attached.in_flight -= 1,
        }
    }

    fn timer_fired(&mut self, ring: &mut Uring, device: u32, done: &mut Vec<Done>) {
        let Some(attached) = self.devices.get_mut(device) else {
            return;
        };
        let now_ns = now_ns();
        attached.disarm(now_ns);
        let mut slots = std::mem::take(&mut self.modelled);
        if let Some(client) = &attached.client {
            let next_ns = client.look(now_ns, &mut slots);
            attached.arm(ring, device, next_ns);
        }
        for slot in slots.drain(..) {
            let Some(work) = self.works.get_mut(slot) else {
                continue;
            };
            work.modelled = true;
            if work.result.is_some() {
                self.deliver(slot, done);
            }
        }
        self.modelled = slots;
    }

    fn discard_in_thread(&mut self, ring: &mut Uring, slot: u32, done: &mut Vec<Done>) {
        if self.discarder.is_none()
            && let Ok(discarder) = Discarder::start()
        {
            let token = Token::reserved(DISCARDER_TAG, 0);
            ring.poll(discarder.event(), libc::POLLIN as u32, token);
            self.discarder = Some(discarder);
        }
        let Some(work) = self.works.get_mut(slot) else {
            return;
        };
        let Some(attached) = self.devices.get_mut(work.device) else {
            return;
        };
        let range = [work.offset_bytes, work.len_bytes];
        let taken = self
            .discarder
            .as_ref()
            .is_some_and(|thread| thread.submit(slot, Arc::clone(&attached.device), range));
        if !taken {
            self.finish(slot, Err(DeviceError::Unsupported), done);
        }
    }

    fn discarder_woke(&mut self, ring: &mut Uring, done: &mut Vec<Done>) {
        let Some(discarder) = self.discarder.take() else {
            return;
        };
        discarder.clear_event();
        while let Some((slot, result)) = discarder.next_result() {
            self.transferred(ring, slot, result, done);
        }
        ring.poll(
            discarder.event(),
            libc::POLLIN as u32,
            Token::reserved(DISCARDER_TAG, 0),
        );
        self.discarder = Some(discarder);
    }
}

impl Drop for Driver {
    /// The kernel may still read the vectors and zeroes of operations on their way, so what is
    /// left of them is given up to it and not freed.
    fn drop(&mut self) {
        if !self.works.is_empty() {
            std::mem::forget(std::mem::take(&mut self.works));
            std::mem::forget(self.zeroes.take());
        }
    }
}

/// On which of a cache's devices an operation is, and where: engines give addresses.
fn placed(name: Device, mut operation: Operation) -> (Device, Operation) {
    let Device::Cache(_) = name else {
        return (name, operation);
    };
    let offset_bytes = match &mut operation {
        Operation::Flush | Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
            return (name, operation);
        }
        Operation::Read { offset_bytes, .. }
        | Operation::Write { offset_bytes, .. }
        | Operation::Discard { offset_bytes, .. }
        | Operation::WriteZeroes { offset_bytes, .. } => offset_bytes,
    };
    let (number, on_device) = place_of(*offset_bytes);
    *offset_bytes = on_device;
    (Device::Cache(number), operation)
}

fn total_bytes(bufs: &Bufs) -> u64 {
    bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum()
}

/// Records the beginning of what changes the device.
fn record(ring: &Uring, recorder: &Recorder, work: &Work) -> Option<Begun> {
    let kind = match work.task {
        Task::Read => return None,
        Task::Write => recording::Kind::Write,
        Task::Zero(_) => recording::Kind::Zeroes,
        Task::Discard => recording::Kind::Discard,
        Task::Flush => recording::Kind::Flush,
    };
    let (offset_bytes, len_bytes) = (work.offset_bytes, work.len_bytes);
    Some(recorder.begin(kind, offset_bytes, len_bytes, |log| {
        for buf in &work.bufs {
            let data = ring.memory().pointer(*buf);
            // SAFETY: the buffer is of the ring's pool; until the answer nobody writes to it, by
            // the pool's rule, and the device, which may read it, has not been asked yet.
            log.extend_from_slice(unsafe {
                std::slice::from_raw_parts(data.as_ptr(), buf.len_bytes as usize)
            });
        }
    }))
}

fn model_command(work: &Work) -> Command {
    let kind = match work.task {
        Task::Read => Kind::Read,
        Task::Write | Task::Zero(_) => Kind::Write,
        Task::Flush => Kind::Flush,
        Task::Discard => Kind::Discard,
    };
    Command {
        kind,
        offset_bytes: work.offset_bytes,
        len_bytes: work.len_bytes,
        fua: false,
    }
}

#[cfg(test)]
mod tests;
