//! Operations of devices: begun with a fate and a duration, ended when these say.

use std::cmp::Reverse;

use forebay_cache::Order;
use forebay_engine::format::extents::place_of;
use forebay_engine::{Action, Buf, Device as DeviceName, Nanos, OpId, Operation};

use super::{Check, World};
use crate::device::{Fate, How};

/// A device operation in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) host: usize,
    /// Whose operation it is; a flush is its host's.
    pub(super) shard: Option<u16>,
    pub(super) action: Action,
    pub(super) fate: Fate,
    /// Of a flush: the writes it covers. Of others: unused.
    pub(super) order: u64,
    /// A write's data, if the device took it at once and not at the end.
    pub(super) taken: Option<Vec<u8>>,
}

impl World<'_> {
    pub(super) fn fly(&mut self, host: usize, order: Order) -> Check {
        let (shard, action) = match order {
            Order::Transfer(shard, action) => (Some(shard), action),
            Order::Flush(device) => {
                let action = Action {
                    op: OpId(0),
                    device,
                    operation: Operation::Flush,
                };
                (None, action)
            }
        };
        self.submissions += 1;
        self.transfers += u64::from(shard.is_some());
        self.outcome.operations += 1;
        self.check_is_there(&action)?;
        let (is_cache, latency) = match action.device {
            DeviceName::Cache(_) => (true, self.plan.config.cache_latency),
            DeviceName::Origin(_) => (false, self.plan.config.origin_latency),
        };
        let mut duration = latency.least_ns + self.rng.below(latency.spread_ns + 1);
        if self.rng.in_10_000(latency.spikes) {
            duration *= 100;
        }
        let mut rng = self.rng.clone();
        let number = match action.device {
            DeviceName::Cache(number) => number,
            DeviceName::Origin(_) => 0,
        };
        let device = self.device(action.device);
        let fate = match &action.operation {
            Operation::Read { offset_bytes, .. } => device.read_fate(*offset_bytes, &mut rng),
            Operation::Write { offset_bytes, .. } => device.write_fate(*offset_bytes, &mut rng),
            Operation::Flush | Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                device.plain_fate(number, device.rates.flush, &mut rng)
            }
            Operation::Discard { offset_bytes, .. }
            | Operation::WriteZeroes { offset_bytes, .. } => {
                let (number, _) = place_of(*offset_bytes);
                device.plain_fate(number, device.rates.discard, &mut rng)
            }
        };
        let order = device.disk.order();
        self.rng = rng;
        self.connection_flushes(action.device, &action.operation);
        let fate = if self.options.fail_at == Some(self.submissions) {
            self.outcome.counts.add("failure point reached", 1);
            Fate::Fails {
                landing: self.rng.below(3) as u8,
                sticky: false,
            }
        } else {
            fate
        };
        let (fate, slower) = self.spring(action.device, &action.operation, fate);
        let fate = self.confined(host, &action, fate);
        duration += slower.0;
        if is_cache
            && matches!(fate, Fate::Lost | Fate::Elsewhere { .. })
            && matches!(action.operation, Operation::Write { .. })
        {
            self.lied = true;
        }
        let taken = match &action.operation {
            Operation::Write { bufs, .. } if self.rng.percent(30) => Some(self.gather(bufs)),
            _ => None,
        };
        let (kind, offset, len) = shape(&action.operation);
        self.hash(
            kind,
            offset ^ len.rotate_left(40) ^ u64::from(is_cache) << 63,
        );
        self.tell(|_| {
            format!(
                "  -> {:?} {} fate {fate:?}",
                action.device,
                describe(&action.operation)
            )
        });
        let at = self.free_in_flight.pop().unwrap_or(self.in_flight.len());
        if at == self.in_flight.len() {
            self.in_flight.push(None);
        }
        self.in_flight[at] = Some(InFlight {
            host,
            shard,
            action,
            fate,
            order,
            taken,
        });
        self.due.push(Reverse((
            self.now.after(Nanos(duration)),
            self.submissions,
            at,
        )));
        Ok(())
    }

    pub(super) fn gather(&self, bufs: &[Buf]) -> Vec<u8> {
        let mut data = Vec::with_capacity(bufs.iter().map(|buf| buf.len_bytes as usize).sum());
        for buf in bufs {
            data.extend_from_slice(self.memory.landed(*buf));
        }
        data
    }

    /// An operation completes.
    pub(super) fn end_operation(&mut self, at: usize) -> Check {
        if let Some(operation) = &self.in_flight[at] {
            self.may_reconnect(operation.action.device);
        }
        let operation = self.in_flight[at].take().expect("an operation ends once");
        self.free_in_flight.push(at);
        let before = self.order_before(operation.action.device);
        let result = self.carry_out(&operation);
        self.connection_answered(&operation, before, &result);
        self.look_at_harm();
        if let (Operation::Flush, DeviceName::Origin(volume), Err(_)) = (
            &operation.action.operation,
            operation.action.device,
            &result,
        ) {
            self.note_failure(Some(How::Flush), Some(volume.0));
        }
        self.hash(
            7,
            u64::from(operation.action.op.0) << 1 | u64::from(result.is_ok()),
        );
        self.tell(|_| {
            format!(
                "  <- {:?} {} {result:?}",
                operation.action.device,
                describe(&operation.action.operation)
            )
        });
        let InFlight {
            host,
            shard,
            action,
            ..
        } = operation;
        let (thread, memory) = (&mut self.hosts[host], &mut self.memory);
        match shard {
            Some(shard) => thread.complete(self.now, shard, action.op, result, memory),
            None => thread.flushed(self.now, action.device, result, memory),
        }
        self.look_at_answered();
        self.pump(host)?;
        self.pump_starving(host)?;
        self.look_for_clean()
    }
}

fn shape(operation: &Operation) -> (u64, u64, u64) {
    match operation {
        Operation::Read { offset_bytes, bufs } => (1, *offset_bytes, bufs.len() as u64),
        Operation::Write { offset_bytes, bufs } => (2, *offset_bytes, bufs.len() as u64),
        Operation::Flush => (3, 0, 0),
        Operation::ReadEither { .. } | Operation::WriteBoth(_) => (6, 0, 0),
        Operation::Discard {
            offset_bytes,
            len_bytes,
        } => (4, *offset_bytes, *len_bytes),
        Operation::WriteZeroes {
            offset_bytes,
            len_bytes,
        } => (5, *offset_bytes, *len_bytes),
    }
}

fn describe(operation: &Operation) -> String {
    let total = |bufs: &[Buf]| bufs.iter().map(|buf| buf.len_bytes).sum::<u32>();
    match operation {
        Operation::Read { offset_bytes, bufs } => {
            format!("read {offset_bytes:#x} +{:#x}", total(bufs))
        }
        Operation::Write { offset_bytes, bufs } => {
            format!("write {offset_bytes:#x} +{:#x}", total(bufs))
        }
        Operation::Flush => "flush".to_owned(),
        Operation::ReadEither { .. } | Operation::WriteBoth(_) => "on two".to_owned(),
        Operation::Discard {
            offset_bytes,
            len_bytes,
        } => format!("discard {offset_bytes:#x} +{len_bytes:#x}"),
        Operation::WriteZeroes {
            offset_bytes,
            len_bytes,
        } => format!("zeroes {offset_bytes:#x} +{len_bytes:#x}"),
    }
}
