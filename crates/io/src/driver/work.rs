//! An operation in flight.

use forebay_engine::{Bufs, DeviceError, OpId};

use super::attached::{DiscardWay, ZeroWay};
use crate::recording::Begun;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Read,
    Write,
    Flush,
    Discard,
    Zero(ZeroWay),
}

impl Task {
    /// The operation in a sentence, unless its failure is no trouble.
    pub(super) fn verb(self) -> Option<&'static str> {
        match self {
            Task::Read => Some("read"),
            Task::Write => Some("write"),
            Task::Flush => Some("flush"),
            Task::Zero(_) => Some("zero"),
            Task::Discard => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Work {
    pub(super) task: Task,
    pub(super) device: u32,
    pub(super) shard: u16,
    pub(super) op: OpId,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) bufs: Bufs,
    /// Memory from which the kernel reads a transfer of several buffers, until it completes.
    pub(super) vector: Vec<libc::iovec>,
    pub(super) retries: u32,
    /// The way in which a discard was tried last.
    pub(super) discard_way: DiscardWay,
    /// Its place in the device's recording, if there is one.
    pub(super) begun: Option<Begun>,
    /// The real device's answer.
    pub(super) result: Option<Result<(), DeviceError>>,
    /// The kernel's number for its failure.
    pub(super) errno: Option<i32>,
    /// Whether the model is done with it, or there is none.
    pub(super) modelled: bool,
}

impl Work {
    /// Notes how a discard is tried.
    pub(super) fn tried_as(&mut self, way: DiscardWay) -> DiscardWay {
        self.discard_way = way;
        way
    }

    pub(super) fn new(task: Task, device: u32, offset_bytes: u64, len_bytes: u64) -> Work {
        Work {
            task,
            device,
            shard: 0,
            op: OpId(0),
            offset_bytes,
            len_bytes,
            done_bytes: 0,
            bufs: Bufs::new(),
            vector: Vec::new(),
            retries: 0,
            discard_way: DiscardWay::None,
            begun: None,
            result: None,
            errno: None,
            modelled: false,
        }
    }
}
