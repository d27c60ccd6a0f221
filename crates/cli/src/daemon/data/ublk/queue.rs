//! The requests of block devices, on the thread that serves their queue.
//!
//! ```text
//! driver ─ command completes ─> arrived ─> begin: descriptor to request, buffers, data copied in
//!     ─> flight.rs: cut to shards ─> ... ─> flight.rs: all parts answered
//!     ─> answer: data copied out, next command ─> driver
//! ```
//!
//! Where the driver can (Linux 6.16), it enters the memory of each request in the ring's table of
//! buffers. Then what needs no look at its data goes straight, and nothing is copied. What does not
//! go straight after all begins once more, with copies.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_cache::ClientRequest;
use forebay_engine::{Buf, Device, Failure, MAX_REQUEST_BYTES, RequestKind, Slots, VolumeSlot};
use forebay_frontend::nbd::{Lent, Parts};
use forebay_frontend::ublk::commands;
use forebay_frontend::ublk::request::{DESCRIPTOR_BYTES, MAX_DEPTH, Request, data_position};
use forebay_io::ublk::{Descriptors, TagCommand, UblkDevice};
use forebay_io::{CLIENT_BUFFERS, PoolView, Token};
use smallvec::SmallVec;

use super::DEPTH;
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
    /// The driver enters requests' memory in the ring's table.
    enters: bool,
    /// Whether reads and writes of the volume may go straight, as its mode and the settings are.
    reads_straight: bool,
    writes_straight: bool,
    /// Requests in a row that did not go straight though they began so.
    failed_straight: u8,
    /// So many requests go with copies before one is tried straight again.
    copies_left: u16,
}

impl Queue {
    pub(in crate::daemon) fn new(
        volume: VolumeSlot,
        size_bytes: u64,
        device: Arc<UblkDevice>,
        number: u16,
        (depth, enters): (u16, bool),
    ) -> std::io::Result<Queue> {
        Ok(Queue {
            volume,
            size_bytes,
            number,
            depth,
            descriptors: device.descriptors(number, depth, MAX_DEPTH, DESCRIPTOR_BYTES)?,
            device,
            live_tags: 0,
            enters,
            reads_straight: false,
            writes_straight: false,
            failed_straight: 0,
            copies_left: 0,
        })
    }

    /// The memory of a request, if its data may go straight.
    fn memory_of(&mut self, place: u32, tag: u16, request: &Request) -> Option<Buf> {
        let may = match request.kind {
            RequestKind::Read => self.reads_straight,
            RequestKind::Write { fua: false } => self.writes_straight,
            _ => false,
        };
        let may = may && request.is_entered && request.len_bytes <= MAX_REQUEST_BYTES;
        if may && self.copies_left > 0 {
            self.copies_left -= 1;
            return None;
        }
        let number = place_in_table(place, tag).filter(|_| may)?;
        Some(Buf::of_client(number.into(), request.len_bytes))
    }
}

/// Where in the ring's table the memory of a tag's requests is, of the queue at this place among the
/// worker's.
fn place_in_table(place: u32, tag: u16) -> Option<u16> {
    let first = place.checked_mul(u32::from(DEPTH))?;
    let number = first.checked_add(u32::from(tag))?;
    (number < CLIENT_BUFFERS).then_some(number as u16)
}

/// A request of which the driver's command has completed.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    place: u32,
    tag: u16,
    /// It began, and did not go straight.
    again: bool,
}

/// The queues that a worker serves, and what has come in.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Queues {
    queues: Slots<Queue>,
    /// Requests that are not begun: they wait for memory, or for [`Queues::held`].
    arrived: VecDeque<Arrived>,
    /// No request is begun any more; the driver gives what has arrived to the next daemon.
    held: bool,
}

impl Queues {
    /// Whether a request has arrived that is not begun.
    pub(in crate::daemon) fn any_waits(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The number of queues of a volume.
    pub(in crate::daemon) fn queues_of(&self, volume: VolumeSlot) -> usize {
        let queues = self.queues.ids().filter_map(|place| self.queues.get(place));
        queues.filter(|queue| queue.volume == volume).count()
    }

    /// Has a request that was held back begin with the others.
    pub(in crate::daemon) fn begin_again(&mut self, place: u32, tag: u16) {
        self.push(place, tag, false);
    }

    fn push(&mut self, place: u32, tag: u16, again: bool) {
        self.arrived.push_back(Arrived { place, tag, again });
    }
}

impl Worker {
    /// Looks whether requests of each volume may go straight: seldom, since one that may not any more
    /// is refused and copied, and one that may is copied for a second more.
    pub(in crate::daemon) fn look_for_straight_ways(&mut self) {
        let places: Vec<u32> = self.ublk.queues.ids().collect();
        let mut caches = self.cache_devices.iter();
        let of_cache = caches.all(|(_, device)| self.driver.takes_clients(*device));
        for place in places {
            let Some(queue) = self.ublk.queues.get(place) else {
                continue;
            };
            let (volume, enters) = (queue.volume, queue.enters);
            let origin = self.device_of(Device::Origin(volume));
            let of_origin = origin.is_some_and(|origin| self.driver.takes_clients(origin));
            let of_either = match self.host.passes_by(volume) {
                true => of_origin,
                false => of_cache,
            };
            let Some(queue) = self.ublk.queues.get_mut(place) else {
                continue;
            };
            queue.reads_straight = enters && of_either && self.host.may_read_straight(volume);
            queue.writes_straight = enters && of_origin && self.host.may_write_straight(volume);
        }
    }

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
        // To enter what is copied anyway takes the kernel 500 instructions. A place past the end of the
        // table costs it nothing: it says with the request that the memory is not entered.
        let client_buffer = queue.enters.then(|| {
            let goes_straight = queue.reads_straight || queue.writes_straight;
            let number = place_in_table(place, tag);
            number.filter(|_| goes_straight).unwrap_or(u16::MAX)
        });
        let command = TagCommand {
            operation,
            queue: queue.number,
            tag,
            result,
            client_buffer,
        };
        let token = Token::standing(u64::from(place) << TAG_BITS | u64::from(tag));
        self.ring.ublk_command(queue.device.as_fd(), command, token);
    }

    /// A tag's command has completed.
    pub(in crate::daemon) fn arrived(&mut self, value: u64, result: i32) {
        let (place, tag) = ((value >> TAG_BITS) as u32, value as u16);
        if result == 0 {
            return self.ublk.push(place, tag, false);
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
        while let Some(&arrived) = self.ublk.arrived.front() {
            if self.ublk.held || !self.begin(arrived) {
                return;
            }
            self.ublk.arrived.pop_front();
        }
    }

    /// Begins a request; says no if it waits for memory.
    fn begin(&mut self, Arrived { place, tag, again }: Arrived) -> bool {
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return true;
        };
        let volume = queue.volume;
        if !again && self.hold_back(volume, HeldBack::Tag(place, tag)) {
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
        let (kind, range) = (request.kind, (request.offset_bytes, request.len_bytes));
        if !again && self.hold_change(HeldBack::Tag(place, tag), volume, (kind, range.1)) {
            return true;
        }
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return true;
        };
        let memory = queue.memory_of(place, tag, &request).filter(|_| !again);
        let is_one = || self.host.is_for_one_shard_here(volume, range.0, range.1);
        let straight = memory.filter(|_| is_one());
        let mut parts = Parts::new();
        if let Some(buf) = straight {
            parts.push(Lent { buf, token: 0 });
        } else if request.carries_data() {
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
        let is_copied = matches!(request.kind, RequestKind::Write { .. }) && straight.is_none();
        if is_copied && !self.copy_in(place, tag, &parts) {
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
            is_of_daemon: false,
        };
        if again {
            self.submit_again(requester, request, parts);
        } else {
            self.submit(requester, request, parts);
        }
        true
    }

    /// A request that was to go straight did not: it begins once more, with copies.
    pub(in crate::daemon) fn begin_with_copies(&mut self, place: u32, tag: u16) {
        self.ublk.push(place, tag, true);
        let Some(queue) = self.ublk.queues.get_mut(place) else {
            return;
        };
        queue.failed_straight += 1;
        if queue.failed_straight == MOST_FAILURES {
            queue.failed_straight = 0;
            queue.copies_left = COPIES;
        }
    }

    /// A request went straight.
    pub(in crate::daemon) fn went_straight(&mut self, place: u32) {
        if let Some(queue) = self.ublk.queues.get_mut(place) {
            queue.failed_straight = 0;
        }
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

/// After so many requests in a row that began straight and did not go on so, others go with copies from
/// the beginning: the cache may be cold, or a device may ask for memory that begins where its blocks do.
const MOST_FAILURES: u8 = 32;
/// So many others.
const COPIES: u16 = 2048;

type Copy = fn(&UblkDevice, &PoolView, u64, &[Buf]) -> std::io::Result<()>;

// From errno.h; the driver turns them into the block layer's words.
const IO_ERROR: i32 = 5;
const NO_DEVICE: i32 = 19;
const NO_SPACE: i32 = 28;
