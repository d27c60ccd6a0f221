//! A device in memory with a volatile write cache and the faults a test asks for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use forebay_random::SplitMix64;

use crate::fault::{Error, Fault, Operation};
use crate::medium::Medium;

/// A fault that a test asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// Durable contents of a device at some moment.
pub struct Snapshot(Vec<u8>);

struct State {
    medium: Medium,
    faults: Vec<(FaultId, Fault)>,
    next_fault: u64,
    lost: bool,
    delays: HashMap<Operation, Duration>,
    counts: HashMap<Operation, u64>,
}

/// A device whose faults a test decides. All offsets and lengths are in bytes.
pub struct FaultyDevice {
    size_bytes: u64,
    state: Mutex<State>,
}

impl FaultyDevice {
    /// A device of zeroes, which are durable.
    #[must_use]
    pub fn new(size_bytes: u64) -> FaultyDevice {
        FaultyDevice {
            size_bytes,
            state: Mutex::new(State {
                medium: Medium::new(size_bytes),
                faults: Vec::new(),
                next_fault: 0,
                lost: false,
                delays: HashMap::new(),
                counts: HashMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no thread panics while it holds a device")
    }

    /// Its size in bytes, which never changes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// From now on operations fail as this says, until it is cleared or has ended by itself.
    pub fn fail(&self, fault: Fault) -> FaultId {
        let mut state = self.state();
        let id = FaultId(state.next_fault);
        state.next_fault += 1;
        state.faults.push((id, fault));
        id
    }

    /// Ends a fault. Dropped data stays dropped.
    pub fn clear(&self, id: FaultId) {
        self.state().faults.retain(|(other, _)| *other != id);
    }

    /// The number of operations that a fault which ends by itself will still fail.
    #[must_use]
    pub fn left(&self, id: FaultId) -> u64 {
        let state = self.state();
        let fault = state.faults.iter().find(|(other, _)| *other == id);
        fault.map_or(0, |(_, fault)| fault.left())
    }

    /// From now on an operation takes that much longer. A write has taken effect by then, and is
    /// not complete; a flush that fails drops what is volatile at its end.
    pub fn delay(&self, operation: Operation, by: Duration) {
        self.state().delays.insert(operation, by);
    }

    /// Ends all faults and delays. A device that is lost stays so.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.delays.clear();
    }

    /// Everything fails until the device is brought back; its volatile cache is gone.
    pub fn lose(&self) {
        let mut state = self.state();
        state.medium.drop_volatile(None);
        state.lost = true;
    }

    /// Everything fails until the device is brought back; it has power all the while, and keeps
    /// its volatile cache.
    pub fn disconnect(&self) {
        self.state().lost = true;
    }

    /// A device that was lost is there again, as it was.
    pub fn bring_back(&self) {
        self.state().lost = false;
    }

    /// The durable contents.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state().medium.snapshot())
    }

    /// The device is there again and holds what it held at an earlier moment.
    ///
    /// # Panics
    /// If the snapshot is of a device of another size.
    pub fn bring_back_as(&self, old: &Snapshot) {
        let mut state = self.state();
        state.medium.put_back(&old.0);
        state.lost = false;
    }

    /// The number of operations of a kind that were begun.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.state().counts.get(&operation).copied().unwrap_or(0)
    }

    /// Cuts the power: of what was not flushed each unit of so many bytes (512: a sector) survives
    /// with this probability, in percent, and the rest is as it was before. Nobody may use the
    /// device meanwhile.
    pub fn cut_power(&self, unit_bytes: usize, survives: u64, random: &mut SplitMix64) {
        let mut state = self.state();
        state.medium.cut_power(unit_bytes, survives, random);
    }

    /// The contents that a read without faults would return now.
    ///
    /// # Panics
    /// If the range is not within the device.
    #[must_use]
    pub fn contents(&self, range: Range<u64>) -> Vec<u8> {
        self.state().medium.current(range).to_vec()
    }

    /// The contents that are there for sure after a power cut.
    ///
    /// # Panics
    /// If the range is not within the device.
    #[must_use]
    pub fn durable_contents(&self, range: Range<u64>) -> Vec<u8> {
        self.state().medium.durable(range).to_vec()
    }

    /// The part of a transfer that is within the device.
    fn inside(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.size_bytes);
        offset.min(end)..end
    }

    fn wait(&self, operation: Operation) {
        let delay = self.state().delays.get(&operation).copied();
        if let Some(delay) = delay {
            std::thread::sleep(delay);
        }
    }

    /// Reads what is within the device.
    ///
    /// # Errors
    /// As a fault says, or if the device is lost.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        self.wait(Operation::Read);
        let range = self.inside(offset, len);
        let mut state = self.state();
        state
            .strike(Operation::Read, &range)
            .map_err(|(error, _)| error)?;
        Ok(state.medium.current(range).to_vec())
    }

    /// Writes what is within the device; returns how much that is.
    ///
    /// # Errors
    /// As a fault says, or if the device is lost.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Error> {
        let range = self.inside(offset, data.len() as u64);
        let data = &data[..(range.end - range.start) as usize];
        let begun = {
            let mut state = self.state();
            match state.strike(Operation::Write, &range) {
                Ok(()) => {
                    state.faults.retain(|(_, fault)| !fault.ends_with(&range));
                    Ok(state.medium.begin_write(range.start, data))
                }
                Err((error, torn)) => {
                    if let Some(seed) = torn {
                        state.medium.torn_write(range.start, data, seed);
                    }
                    Err(error)
                }
            }
        };
        self.wait(Operation::Write);
        let mut state = self.state();
        if state.lost {
            return Err(Error::Failed);
        }
        state.medium.complete(begun?);
        Ok(data.len())
    }

    /// Makes durable what was complete when this began.
    ///
    /// # Errors
    /// As a fault says, or if the device is lost; everything volatile is dropped then.
    pub fn flush(&self) -> Result<(), Error> {
        let (covered, struck) = {
            let mut state = self.state();
            let covered = state.medium.begin_flush();
            (
                covered,
                state.strike(Operation::Flush, &(0..self.size_bytes)),
            )
        };
        self.wait(Operation::Flush);
        let mut state = self.state();
        if state.lost {
            return Err(Error::Failed);
        }
        match struck {
            Ok(()) => state.medium.end_flush(&covered),
            Err((error, torn)) => {
                state.medium.drop_volatile(torn);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl State {
    /// Counts an operation; fails if a fault says so, and says how it tears.
    fn strike(
        &mut self,
        operation: Operation,
        range: &Range<u64>,
    ) -> Result<(), (Error, Option<u64>)> {
        *self.counts.entry(operation).or_default() += 1;
        if self.lost {
            return Err((Error::Failed, None));
        }
        let struck =
            (self.faults.iter_mut()).find_map(|(_, fault)| fault.strikes(operation, range));
        struck.map_or(Ok(()), Err)
    }
}
