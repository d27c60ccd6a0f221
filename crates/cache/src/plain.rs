//! An origin without a cache: requests become device operations as they are. Takes the place of
//! an engine in a host's loop, with the same few calls.

use std::collections::VecDeque;

use forebay_engine::{
    Ack, Action, Bufs, Device, DeviceError, Failure, Nanos, OpId, Operation, Request, RequestKind,
    Stats, VolumeSlot,
};

use forebay_engine::Slots;

#[derive(Debug)]
struct Pending {
    request: Request,
    started: Nanos,
    /// A flush still follows (FUA).
    flush_after: bool,
    /// The operation in flight is a flush.
    has_flushed: bool,
}

/// Passes requests through and counts them.
#[derive(Debug, Default)]
pub struct Plain {
    pending: Slots<Pending>,
    actions: VecDeque<Action>,
    /// Volumes of which a flush failed that no client asked for here: data written here may be lost,
    /// and the next to ask must hear of it.
    doubted: Vec<VolumeSlot>,
    acks: VecDeque<Ack>,
    /// As [`forebay_engine::Engine::next_unheard`] has them.
    unheard: Vec<VolumeSlot>,
    pub(crate) stats: Stats,
}

impl Plain {
    pub(crate) fn submit(&mut self, now: Nanos, request: Request) {
        let range = (request.offset_bytes, u64::from(request.len_bytes));
        let bufs = Bufs::from_slice(&[request.buf]);
        let (operation, flush_after) = match request.kind {
            RequestKind::Read => {
                self.stats.read_requests += 1;
                self.stats.origin_read_bytes += range.1;
                (
                    Operation::Read {
                        offset_bytes: range.0,
                        bufs,
                    },
                    false,
                )
            }
            RequestKind::Write { fua } => {
                self.stats.write_requests += 1;
                self.stats.origin_written_bytes += range.1;
                (
                    Operation::Write {
                        offset_bytes: range.0,
                        bufs,
                    },
                    fua,
                )
            }
            RequestKind::WriteZeroes { fua } => {
                self.stats.write_requests += 1;
                (
                    Operation::WriteZeroes {
                        offset_bytes: range.0,
                        len_bytes: range.1,
                    },
                    fua,
                )
            }
            RequestKind::Flush => {
                self.stats.flush_requests += 1;
                (Operation::Flush, false)
            }
            RequestKind::Discard => {
                self.stats.discard_requests += 1;
                (
                    Operation::Discard {
                        offset_bytes: range.0,
                        len_bytes: range.1,
                    },
                    false,
                )
            }
            RequestKind::Prefetch => {
                self.acks.push_back(Ack {
                    id: request.id,
                    result: Ok(()),
                    bypassed: false,
                });
                return;
            }
        };
        let op = OpId(self.pending.insert(Pending {
            request,
            started: now,
            flush_after,
            has_flushed: false,
        }));
        self.actions.push_back(Action {
            op,
            device: Device::Origin(request.volume),
            operation,
        });
    }

    pub(crate) fn complete(&mut self, now: Nanos, op: OpId, result: Result<(), DeviceError>) {
        let Some(pending) = self.pending.get_mut(op.0) else {
            return;
        };
        if result.is_ok() && pending.flush_after {
            pending.flush_after = false;
            pending.has_flushed = true;
            let device = Device::Origin(pending.request.volume);
            self.stats.origin_flushes += 1;
            self.actions.push_back(Action {
                op,
                device,
                operation: Operation::Flush,
            });
            return;
        }
        let is_flush = pending.request.kind == RequestKind::Flush;
        let hears = is_flush && !pending.request.id.is_unheard();
        let (volume, flushes) = (pending.request.volume, is_flush || pending.has_flushed);
        let result = if flushes {
            self.believed(volume, result)
        } else {
            result
        };
        let Some(Pending {
            request, started, ..
        }) = self.pending.remove(op.0)
        else {
            return;
        };
        if flushes && result.is_err() {
            if hears {
                self.unheard.push(volume);
            } else {
                self.flush_failed(volume);
            }
        }
        let result = match result {
            // Nothing depends on a discard.
            Err(DeviceError::Unsupported) if request.kind == RequestKind::Discard => Ok(()),
            Err(DeviceError::NoSpace) => Err(Failure::NoSpace),
            Err(_) => Err(Failure::Io),
            Ok(()) => Ok(()),
        };
        let latency = now.since(started);
        match request.kind {
            RequestKind::Read => {
                self.stats.origin_read_errors += u64::from(result.is_err());
                self.stats.read_latency.record(latency);
            }
            RequestKind::Flush => self.stats.flush_latency.record(latency),
            _ => {
                self.stats.origin_write_errors += u64::from(result.is_err());
                self.stats.write_latency.record(latency);
            }
        }
        self.stats.failed_requests += u64::from(result.is_err());
        self.acks.push_back(Ack {
            id: request.id,
            result,
            bypassed: request.kind != RequestKind::Flush,
        });
    }

    /// A flush of the volume's origin failed, and no client that asked for one is told (I10).
    pub(crate) fn flush_failed(&mut self, volume: VolumeSlot) {
        if !self.doubted.contains(&volume) {
            self.doubted.push(volume);
        }
    }

    /// The result of a flush, as far as it says something about all that was written here.
    fn believed(
        &mut self,
        volume: VolumeSlot,
        result: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let before = self.doubted.len();
        self.doubted.retain(|doubted| *doubted != volume);
        if self.doubted.len() < before {
            return Err(DeviceError::Io);
        }
        result
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn next_ack(&mut self) -> Option<Ack> {
        self.acks.pop_front()
    }

    pub(crate) fn next_unheard(&mut self) -> Option<VolumeSlot> {
        self.unheard.pop()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.acks.is_empty()
    }
}
