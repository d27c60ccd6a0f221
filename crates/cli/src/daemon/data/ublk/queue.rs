//! The requests of block devices, on the thread that serves their queue.
//!
//! ```text
//! driver ─ command completes ─> arrived ─> begin: descriptor to request, buffers, data copied in
//!     ─> flight.rs: cut to shards ─> ... ─> flight.rs: all parts answered
//!     ─> answer: data copied out, next command ─> driver
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_cache::ClientRequest;
use forebay_engine::{Buf, Failure, RequestKind, Slots, VolumeSlot};
use forebay_frontend::nbd::Parts;
use forebay_frontend::ublk::commands;
use forebay_frontend::ublk::request::{DESCRIPTOR_BYTES, MAX_DEPTH, Request, data_position};
use forebay_io::ublk::{Descriptors, TagCommand, UblkDevice};
use forebay_io::{PoolView, Token};
use smallvec::SmallVec;

use crate::daemon::data::held_back::HeldBack;
use crate::daemon::data::in_flight::Requester;
use crate::daemon::data::worker::Worker;
use crate::failure::in_words;

/// Tags are the low bits of a token.
const TAG_BITS: u32 = 16;

/// A queue of a volume's block device.
#[derive(Debug)]
pub(in crate::daemon) struct Queue {
    volume: VolumeSlot,
    size_bytes: u64,
    device: Arc<UblkDevice>,
    number: u16,
    depth: u16,
    descriptors: Descriptors,
    /// Tags that the driver still sends requests of.
    live_tags: u32,
}

impl Queue {
    pub(in crate::daemon) fn new(
        volume: VolumeSlot,
        size_bytes: u64,
        device: Arc<UblkDevice>,
        number: u16,
        depth: u16,
    ) -> std::io::Result<Queue> {
        Ok(Queue {
            volume,
            size_bytes,
            number,
            depth,
            descriptors: device.descriptors(number, depth, MAX_DEPTH, DESCRIPTOR_BYTES)?,
            device,
            live_tags: 0,
        })
    }
}

/// The queues that a worker serves, and what has come in.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Queues {
    queues: Slots<Queue>,
    /// Requests that are not begun: they wait for memory, or for [`Queues::held`].
    arrived: VecDeque<(u32, u16)>,
    /// No request is begun any more; the driver gives what has arrived to the next daemon.
    held: bool,
}

impl Queues {
    /// Whether a request has arrived that is not begun.
    pub(in crate::daemon) fn any_waits(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Has a request that was held back begin with the others.
    pub(in crate::daemon) fn begin_again(&mut self, place: u32, tag: u16) {
        self.arrived.push_back((place, tag));
    }
}

impl Worker {
    /// Serves a queue from now on.
    pub(super) fn add_queue(&mut self, queue: Queue) {
        let depth = queue.depth;
        let place = self.ublk.queues.insert(queue);
        for tag in 0..depth {
            self.command(place, tag, commands::FETCH, 0);
        }
    }

    fn command(&mut self, place: u32, tag: u16, operation: u32, result: i32) {
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return;
        };
        if operation == commands::FETCH {
            queue.live_tags += 1;
        }
        let command = TagCommand {
            operation,
            queue: queue.number,
            tag,
            result,
        };
        let token = Token::standing(u64::from(place) << TAG_BITS | u64::from(tag));
        self.ring.ublk_command(queue.device.as_fd(), command, token);
    }

    /// A tag's command has completed.
    pub(in crate::daemon) fn arrived(&mut self, value: u64, result: i32) {
        let (place, tag) = ((value >> TAG_BITS) as u32, value as u16);
        if result == 0 {
            return self.ublk.arrived.push_back((place, tag));
        }
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return;
        };
        queue.live_tags -= 1;
        let refused = std::io::Error::from_raw_os_error(-result);
        if refused.raw_os_error() != Some(NO_DEVICE) {
            let path = queue.device.path().display();
            let refused = in_words(&refused);
            tracing::error!(
                "{path}: the ublk driver refused a command: {refused}; the kernel's log (dmesg) may say why"
            );
        }
    }

    /// Begins what has arrived, in order, as far as there is memory.
    pub(in crate::daemon) fn serve_queues(&mut self) {
        while let Some(&(place, tag)) = self.ublk.arrived.front() {
            if self.ublk.held || self.paused || !self.begin(place, tag) {
                return;
            }
            self.ublk.arrived.pop_front();
        }
    }

    /// Begins a request; says no if it waits for memory.
    fn begin(&mut self, place: u32, tag: u16) -> bool {
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return true;
        };
        let volume = queue.volume;
        if self.hold_back(volume, HeldBack::Tag(place, tag)) {
            return true;
        }
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return true;
        };
        let size_bytes = queue.size_bytes;
        let request = match Request::decode(&queue.descriptors.of_tag(tag), size_bytes) {
            Ok(request) => request,
            Err(error) => {
                tracing::error!("{}: {error}", queue.device.path().display());
                self.answer(place, tag, Err(Failure::Invalid));
                return true;
            }
        };
        let range = (request.offset_bytes, request.len_bytes);
        let mut parts = Parts::new();
        if request.carries_data() {
            match self.alloc_parts(volume, range.0, range.1) {
                Some(allocated) => parts = allocated,
                None if self.memory_will_return() => return false,
                None => {
                    tracing::error!(
                        "no memory for a request of {} bytes, which fails; allow more with --memory",
                        range.1
                    );
                    self.answer(place, tag, Err(Failure::Io));
                    return true;
                }
            }
        }
        if matches!(request.kind, RequestKind::Write { .. }) && !self.copy_in(place, tag, &parts) {
            self.free_parts(&parts);
            self.answer(place, tag, Err(Failure::Io));
            return true;
        }
        let requester = Requester::Queue {
            place,
            tag,
            kind: request.kind,
            len_bytes: request.len_bytes,
        };
        let request = ClientRequest {
            volume,
            kind: request.kind,
            offset_bytes: range.0,
            len_bytes: range.1,
            flush_after: false,
        };
        self.submit(requester, request, parts);
        true
    }

    fn copy_in(&mut self, place: u32, tag: u16, parts: &Parts) -> bool {
        self.copy(place, tag, parts, UblkDevice::copy_in)
    }

    /// Copies what was read to its reader.
    pub(in crate::daemon) fn copy_out(&mut self, place: u32, tag: u16, parts: &Parts) -> bool {
        self.copy(place, tag, parts, UblkDevice::copy_out)
    }

    /// Says whether it was copied: it is not when its request is over already, because the device
    /// is being taken away.
    fn copy(&mut self, place: u32, tag: u16, parts: &Parts, way: Copy) -> bool {
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return false;
        };
        let position = data_position(queue.number, tag);
        let bufs: SmallVec<[Buf; 4]> = parts.iter().map(|part| part.buf).collect();
        let copied = way(&queue.device, self.ring.memory(), position, &bufs);
        if let Err(error) = &copied {
            let path = queue.device.path().display();
            let error = in_words(error);
            tracing::warn!("{path}: the data of a request could not be copied: {error}");
        }
        copied.is_ok()
    }

    /// Answers a request with how many bytes of data were transferred.
    pub(in crate::daemon) fn answer(&mut self, place: u32, tag: u16, result: Result<u32, Failure>) {
        let result = match result {
            Ok(bytes) => bytes as i32,
            Err(Failure::NoSpace) => -NO_SPACE,
            Err(_) => -IO_ERROR,
        };
        self.command(place, tag, commands::COMMIT_AND_FETCH, result);
    }

    /// Forgets the queues of a volume whose device is stopped; says how many of their tags the
    /// driver has not let go yet.
    pub(super) fn remove_queues(&mut self, volume: VolumeSlot) -> u32 {
        let mut live_tags = 0;
        for place in self.ublk.queues.ids() {
            let Some(queue) = self.ublk.queues.get_mut(place) else {
                continue;
            };
            if queue.volume == volume {
                live_tags += queue.live_tags;
                if queue.live_tags == 0 {
                    self.ublk.queues.remove(place);
                }
            }
        }
        live_tags
    }

    /// Takes requests of a volume's block device up to this size from now on.
    pub(super) fn grow_queues(&mut self, volume: VolumeSlot, size_bytes: u64) {
        let places: Vec<u32> = self.ublk.queues.ids().collect();
        for place in places {
            let queue = self.ublk.queues.get_mut(place);
            if let Some(queue) = queue.filter(|queue| queue.volume == volume) {
                queue.size_bytes = size_bytes;
            }
        }
    }

    /// Begins no more requests of block devices; says how many requests are on their way.
    pub(in crate::daemon) fn hold_queues(&mut self) -> usize {
        self.ublk.held = true;
        self.host.requests()
    }
}

type Copy = fn(&UblkDevice, &PoolView, u64, &[Buf]) -> std::io::Result<()>;

// From errno.h; the driver turns them into the block layer's words.
const IO_ERROR: i32 = 5;
const NO_DEVICE: i32 = 19;
const NO_SPACE: i32 = 28;
