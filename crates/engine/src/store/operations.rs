//! Device operations on their way: the purpose of each, and those the driver has not taken yet.

use std::collections::VecDeque;

use crate::interface::{Action, Device, OpId, Operation};
use crate::slab::Slab;
use crate::store::device_times::Times;
use crate::store::op::Op;

/// Operations in flight or waiting to be taken.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    ops: Slab<OpId, Op>,
    /// Times of the devices.
    pub(crate) times: Times,
    actions: VecDeque<Action>,
}

impl Operations {
    /// Hands an operation to the driver.
    #[inline(always)]
    pub(crate) fn issue(&mut self, op: Op, device: Device, operation: Operation, is_timed: bool) {
        let op = self.ops.insert(op);
        self.actions.push_back(Action {
            op,
            device,
            operation,
        });
        if is_timed {
            self.time_last();
        }
    }

    /// Times the operation that was issued last. It is looked at where it is: to show it to the
    /// model on its way there costs each operation a copy.
    #[cold]
    fn time_last(&mut self) {
        let action = self.actions.back_mut().expect("just issued");
        action.op = (self.times).begins(action.op, action.device, &action.operation);
    }

    /// The next that the driver is to carry out.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Ends an operation, if it is in flight.
    #[inline(always)]
    pub(crate) fn end(&mut self, op: OpId, went_well: bool) -> Option<Op> {
        self.times.ends(op, went_well);
        self.ops.remove(op)
    }

    /// Makes another of each operation that `concerns` chooses; its end comes under its old name.
    pub(crate) fn change(&mut self, concerns: impl Fn(&Op) -> bool, change: impl Fn(Op) -> Op) {
        for id in self.ops.ids() {
            if self.ops.get(id).is_some_and(&concerns) {
                self.ops.change(id, &change);
            }
        }
    }

    /// Operations that have not ended.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter()
    }

    /// Likewise, to change.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        self.ops.iter_mut()
    }

    /// Whether all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::VolumeSlot;

    #[test]
    fn an_operation_that_was_changed_ends_under_its_name() {
        let mut operations = Operations::default();
        operations.issue(Op::CacheFlush, Device::Cache(0), Operation::Flush, false);
        let volume = VolumeSlot(3);
        let flush = Op::OriginFlush(volume);
        operations.issue(flush, Device::Origin(volume), Operation::Flush, false);
        let names = [(); 2].map(|()| operations.next().expect("issued").op);
        assert!(operations.next().is_none());
        operations.change(
            |op| matches!(op, Op::OriginFlush(_)),
            |op| Op::DoubtfulRead(Box::new(op)),
        );
        assert!(matches!(
            operations.end(names[1], true),
            Some(Op::DoubtfulRead(_))
        ));
        assert!(matches!(
            operations.end(names[0], true),
            Some(Op::CacheFlush)
        ));
        assert!(operations.is_empty());
    }
}
