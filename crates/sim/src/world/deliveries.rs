//! Messages between the threads of the daemon: each takes its time, those from one thread to
//! another keep their order, and no others do.

use std::collections::{BTreeMap, HashMap};

use forebay_cache::control::{Happened, Step};
use forebay_cache::{Answer, Instruction, Message};
use forebay_engine::Nanos;

use super::{Check, World};

/// A delivery to a thread, or to the control plane.
#[derive(Debug)]
pub(super) enum Delivery {
    FromHost(Message),
    /// The control plane: the host's report is on record.
    Recorded(u64),
    /// The control plane: the loss of a device is on record, or cannot be put there.
    LossRecorded(u8, bool),
    /// The control plane: a command wants this of the host.
    Instruction(u32, Instruction),
    /// To the control plane, as the ones below: a host's answer.
    Answer(u32, Answer),
    /// Something happened that a command waited for.
    Happened(u32, Happened),
    /// Something is to be done for a command, which could not be done before.
    Next(u32, Step),
    /// To the control plane: a frozen volume, whose origin looked like this, is to be thawed.
    Thaw(u16, [u8; 32]),
}

/// Where the control plane's deliveries come from and go to.
pub(super) const CONTROL: usize = usize::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// By when they arrive, and the order they were sent in.
    deliveries: BTreeMap<(Nanos, u64), (usize, Delivery)>,
    sent: u64,
    /// When the last from one host to another arrives.
    last: HashMap<(usize, usize), Nanos>,
}

impl Deliveries {
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.deliveries.keys().next().map(|(due, _)| *due)
    }

    /// The number of deliveries sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The number of deliveries in flight.
    pub(super) fn len(&self) -> usize {
        self.deliveries.len()
    }
}

impl World<'_> {
    /// Sends a delivery.
    pub(super) fn post(&mut self, from: usize, to: usize, delivery: Delivery) {
        self.post_after(Nanos(0), from, to, delivery);
    }

    /// Sends a delivery after a while.
    pub(super) fn post_after(&mut self, wait: Nanos, from: usize, to: usize, delivery: Delivery) {
        let latency = self.plan.config.message_latency;
        let mut delay = latency.least_ns + self.rng.below(latency.spread_ns + 1);
        if self.rng.in_10_000(latency.spikes) {
            delay *= 1000;
        }
        let last = self.deliveries.last.entry((from, to)).or_default();
        let due = self.now.after(wait).after(Nanos(delay)).max(*last);
        *last = due;
        self.deliveries.sent += 1;
        self.outcome.counts.add("messages between threads", 1);
        self.deliveries
            .deliveries
            .insert((due, self.deliveries.sent), (to, delivery));
    }

    /// Hands over the delivery that is due.
    pub(super) fn deliver(&mut self) -> Check {
        let Some((_, (to, delivery))) = self.deliveries.deliveries.pop_first() else {
            return Ok(());
        };
        if to == CONTROL {
            self.tell(|_| format!("the control plane hears {delivery:?}"));
            self.control_hears(delivery)?;
            return self.look_for_clean();
        }
        self.tell(|_| format!("thread {to} hears {delivery:?}"));
        let host = &mut self.hosts[to];
        match delivery {
            Delivery::FromHost(message) => host.receive(self.now, message, &mut self.memory),
            Delivery::Recorded(serial) => host.recorded(serial),
            Delivery::LossRecorded(device, well) => {
                host.loss_recorded(self.now, device, well, &mut self.memory);
            }
            Delivery::Instruction(id, instruction) => self.instructed(to, id, &instruction)?,
            other => return Err(format!("a thread is sent {other:?}")),
        }
        self.pump(to)?;
        self.pump_starving(to)?;
        self.look_for_clean()
    }
}
