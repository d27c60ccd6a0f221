//! Origins behind a server that is started again: it forgets what was not flushed, and the driver
//! sends it again before anything else (I26). Clients hear of none of it.

use forebay_cache::{Change, Resend};
use forebay_engine::{Device, DeviceError, Operation, VolumeSlot};

use super::{InFlight, World};
use crate::disk::Survival;
use crate::rng::Rng;

const RECONNECT_PURPOSE: u64 = 71;

/// The driver's side of an origin.
#[derive(Debug, Default)]
pub(super) struct Connection {
    resend: Resend,
    /// The origin's order of writes before the first change that may be sent again.
    base: u64,
}

impl World<'_> {
    /// The daemon is gone, and what it would have sent again with it.
    pub(super) fn forget_connections(&mut self) {
        self.connections.clear();
        self.connections
            .resize_with(self.origins.len(), Connection::default);
    }

    fn reconnects(&self) -> bool {
        self.plan.config.reconnects > 0
    }

    /// Before an operation of an origin ends its server may have been started again.
    pub(super) fn may_reconnect(&mut self, device: Device) {
        let Device::Origin(slot) = device else { return };
        if !self.reconnects() {
            return;
        }
        let mut rng = Rng::of(
            self.plan.schedule,
            RECONNECT_PURPOSE + (self.outcome.operations << 8),
        );
        let at = usize::from(slot.0);
        let disk = &mut self.origins[at].disk;
        let connection = &mut self.connections[at];
        if rng.in_10_000(self.plan.config.reconnects) {
            // Older changes, of which nobody was told by this connection, had time to land.
            if connection.resend.to_send().count() > 0 {
                disk.flush(connection.base);
            }
            disk.cut(Survival::Any, &mut rng);
            connection.resend.lost();
            for change in connection.resend.to_send() {
                match change {
                    Change::Write { offset_bytes, data } => disk.write(*offset_bytes, data),
                    Change::Zeroes {
                        offset_bytes,
                        len_bytes,
                    }
                    | Change::Discard {
                        offset_bytes,
                        len_bytes,
                    } => disk.zero(*offset_bytes, *len_bytes),
                }
            }
            let order = disk.order();
            self.counts().add("origins that reconnected", 1);
            self.begin_flush_again(slot, order);
        }
    }

    /// A flush that was on its way begins again.
    fn begin_flush_again(&mut self, slot: VolumeSlot, order: u64) {
        let flying = self.in_flight.iter_mut().flatten();
        let mut flushes = flying.filter(|flying| {
            let is_flush = matches!(flying.action.operation, Operation::Flush);
            is_flush && flying.action.device == Device::Origin(slot)
        });
        if let Some(flush) = flushes.next() {
            flush.order = order;
            self.connections[usize::from(slot.0)].resend.flush_begins();
        }
    }

    /// Notes the begin of a flush.
    pub(super) fn connection_flushes(&mut self, device: Device, operation: &Operation) {
        if let (true, Device::Origin(slot), Operation::Flush) =
            (self.reconnects(), device, operation)
        {
            self.connections[usize::from(slot.0)].resend.flush_begins();
        }
    }

    /// The place of an origin in the order of its writes, before an operation of it.
    pub(super) fn order_before(&self, device: Device) -> u64 {
        match device {
            Device::Origin(slot) => self.origins[usize::from(slot.0)].disk.order(),
            Device::Cache(_) => 0,
        }
    }

    /// Notes an answer of an origin.
    pub(super) fn connection_answered(
        &mut self,
        operation: &InFlight,
        before: u64,
        result: &Result<(), DeviceError>,
    ) {
        let (true, Device::Origin(slot)) = (self.reconnects(), operation.action.device) else {
            return;
        };
        let at = usize::from(slot.0);
        let change = match &operation.action.operation {
            Operation::Flush => {
                self.connections[at].resend.flush_ended();
                return;
            }
            Operation::Read { .. } | Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                return;
            }
            Operation::Write { offset_bytes, bufs } => Change::Write {
                offset_bytes: *offset_bytes,
                data: match &operation.taken {
                    Some(data) => data.clone(),
                    None => self.gather(bufs),
                },
            },
            Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => Change::Zeroes {
                offset_bytes: *offset_bytes,
                len_bytes: *len_bytes,
            },
            Operation::Discard {
                offset_bytes,
                len_bytes,
            } if self.plan.config.origin_discards > 1 => Change::Discard {
                offset_bytes: *offset_bytes,
                len_bytes: *len_bytes,
            },
            Operation::Discard { .. } => return,
        };
        let connection = &mut self.connections[at];
        if result.is_ok() {
            if connection.resend.to_send().count() == 0 {
                connection.base = before;
            }
            connection.resend.acknowledged(change);
        }
    }
}
