//! A hard disk: an arm over turning platters, behind a command queue, a write cache and a
//! read-ahead buffer.

mod geometry;
mod parameters;
mod read_buffer;
mod write_cache;

use std::collections::VecDeque;

pub use parameters::DiskParameters;

use crate::completions::Completions;
use crate::{Command, DeviceModel, Kind, transfer_ns};
use geometry::{Geometry, Spot};
use read_buffer::ReadBuffer;
use write_cache::WriteCache;

/// The rest of a command that needs the platters, and its place.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u64,
    write: bool,
    /// Bytes that the interface still has to carry.
    len_bytes: u64,
    media_start: u64,
    media_len_bytes: u64,
    arrived_ns: u64,
    spot: Spot,
}

/// A write that waits for room in the write cache.
#[derive(Clone, Copy, Debug)]
struct WaitingWrite {
    id: u64,
    start: u64,
    len_bytes: u64,
    arrived_ns: u64,
}

/// A flush and the generation of cached writes it waits for.
#[derive(Clone, Copy, Debug)]
struct WaitingFlush {
    id: u64,
    generation: u64,
    arrived_ns: u64,
}

/// The arm's work until `end_ns`.
#[derive(Clone, Copy, Debug)]
enum Work {
    Command(Pending),
    Destage { generation: u64 },
}

/// Work that goes first for the age of what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    OldestCommand,
    Destage,
}

/// The most the arm takes from the write cache at once, so that reads get their turn.
const DESTAGE_BYTES: u64 = 512 << 10;

/// A gap in a read stream up to which the drive reads on instead of seeking.
const READ_THROUGH_BYTES: u64 = 1 << 20;

/// Commands that are chosen by nearness after a command that was chosen by age.
const FREE_CHOICES: u32 = 4;

/// The state of a disk.
#[derive(Debug)]
pub struct Disk {
    parameters: DiskParameters,
    geometry: Geometry,
    now_ns: u64,
    queue: VecDeque<Pending>,
    waiting_writes: VecDeque<WaitingWrite>,
    waiting_flushes: Vec<WaitingFlush>,
    cache: WriteCache,
    buffer: ReadBuffer,
    work: Option<(u64, Work)>,
    /// When an idle drive stops waiting for the next read and empties its write cache.
    wake_ns: Option<u64>,
    head: u64,
    head_spot: Spot,
    /// Whether the last thing the arm did was a read: it then reads ahead until sent elsewhere.
    reading: bool,
    /// When the platters passed `head` for that read; reading ahead counts from here, so a stream
    /// keeps the platters' rate however late each command comes.
    stream_ns: u64,
    last_read_ns: u64,
    interface_free_ns: u64,
    generation: u64,
    destage_turn: bool,
    /// Choices left until an old command may go first again.
    free_choices: u32,
    done: Completions,
}

impl Disk {
    /// A disk at rest with its arm at the outer edge.
    ///
    /// # Panics
    /// If a rate, the rotation or the size is zero.
    #[must_use]
    pub fn new(parameters: DiskParameters) -> Disk {
        assert!(
            parameters.queue_depth > 0,
            "a drive takes one command at least"
        );
        let geometry = Geometry::new(&parameters);
        Disk {
            now_ns: 0,
            queue: VecDeque::new(),
            waiting_writes: VecDeque::new(),
            waiting_flushes: Vec::new(),
            cache: WriteCache::new(parameters.write_cache_bytes, parameters.write_cache_extents),
            buffer: ReadBuffer::new(parameters.read_ahead_segments, parameters.read_ahead_bytes),
            work: None,
            wake_ns: None,
            head: 0,
            head_spot: geometry.spot(0),
            reading: false,
            stream_ns: 0,
            last_read_ns: 0,
            interface_free_ns: 0,
            generation: 1,
            destage_turn: false,
            free_choices: 0,
            done: Completions::default(),
            geometry,
            parameters,
        }
    }

    /// A transfer between the drive's memory and the host.
    fn finish_from_memory(&mut self, now_ns: u64, id: u64, len_bytes: u64) {
        let start_ns = now_ns.max(self.interface_free_ns);
        let carried_ns =
            start_ns + transfer_ns(len_bytes, self.parameters.interface_bytes_per_second);
        self.interface_free_ns = carried_ns;
        self.done
            .push(carried_ns.max(now_ns + self.parameters.command_ns), id);
    }

    fn submit_read(&mut self, now_ns: u64, id: u64, command: Command) {
        let end = command.offset_bytes + command.len_bytes;
        let held = self.buffer.held_from(command.offset_bytes).min(end);
        if held == end || self.cache.covers(command.offset_bytes, end) {
            self.last_read_ns = now_ns;
            self.finish_from_memory(now_ns, id, command.len_bytes);
            return;
        }
        self.enqueue(now_ns, id, command, held);
    }

    fn submit_write(&mut self, now_ns: u64, id: u64, command: Command) {
        let end = command.offset_bytes + command.len_bytes;
        self.buffer.forget(command.offset_bytes, end);
        if command.fua || self.parameters.write_cache_bytes == 0 {
            self.enqueue(now_ns, id, command, command.offset_bytes);
            return;
        }
        self.waiting_writes.push_back(WaitingWrite {
            id,
            start: command.offset_bytes,
            len_bytes: command.len_bytes,
            arrived_ns: now_ns,
        });
        self.admit_writes(now_ns);
    }

    fn enqueue(&mut self, now_ns: u64, id: u64, command: Command, media_start: u64) {
        self.queue.push_back(Pending {
            id,
            write: command.kind == Kind::Write,
            len_bytes: command.len_bytes,
            media_start,
            media_len_bytes: command.offset_bytes + command.len_bytes - media_start,
            arrived_ns: now_ns,
            spot: self.geometry.spot(media_start),
        });
    }

    fn submit_flush(&mut self, now_ns: u64, id: u64) {
        if self.oldest_generation().is_none() {
            self.done.push(now_ns + self.parameters.command_ns, id);
            return;
        }
        self.waiting_flushes.push(WaitingFlush {
            id,
            generation: self.generation,
            arrived_ns: now_ns,
        });
        self.generation += 1;
    }

    /// The oldest generation of writes not yet on the platters.
    fn oldest_generation(&self) -> Option<u64> {
        let in_hand = match self.work {
            Some((_, Work::Destage { generation })) => Some(generation),
            _ => None,
        };
        match (in_hand, self.cache.oldest_generation()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn admit_writes(&mut self, now_ns: u64) {
        while let Some(write) = self.waiting_writes.front().copied() {
            if !self.cache.has_room(write.len_bytes) {
                return;
            }
            self.waiting_writes.pop_front();
            self.cache
                .insert(write.start, write.start + write.len_bytes, self.generation);
            self.finish_from_memory(now_ns, write.id, write.len_bytes);
        }
    }

    /// Gives the arm its next work, if it has none.
    fn start_work(&mut self, now_ns: u64) {
        if self.work.is_some() {
            return;
        }
        self.admit_writes(now_ns);
        self.wake_ns = None;
        let must_destage = !self.waiting_flushes.is_empty()
            || !self.waiting_writes.is_empty()
            || self.cache.is_nearly_full();
        if self.queue.is_empty() && (self.cache.is_empty() || !self.idle(now_ns, must_destage)) {
            return;
        }
        let first = self.first_for_its_age(now_ns);
        let command = match first {
            Some(First::Destage) => None,
            Some(First::OldestCommand) => self.nearest_command(now_ns, 1),
            None => self.nearest_command(now_ns, self.parameters.queue_depth),
        };
        let may_destage = match first {
            Some(first) => first == First::Destage,
            None => !self.cache.is_empty() && (must_destage || self.queue.is_empty()),
        };
        let destage = if may_destage {
            let flushes = self.waiting_flushes.iter();
            let generation = flushes.map(|flush| flush.generation).min();
            let window = self.parameters.queue_depth;
            self.cache.nearest(window, self.head, generation, |start| {
                self.destage_delay_ns(now_ns, start)
            })
        } else {
            None
        };
        match (command, destage) {
            (Some((index, delay_ns)), Some((_, destage_ns))) if delay_ns <= destage_ns => {
                self.start_command(now_ns, index, delay_ns);
            }
            (_, Some((extent, delay_ns))) => self.start_destage(now_ns, extent, delay_ns),
            (Some((index, delay_ns)), None) => self.start_command(now_ns, index, delay_ns),
            (None, None) => {}
        }
    }

    /// Whether the drive may leave a read stream to empty its cache. It waits a little for the
    /// next read first, as a seek away and back costs more than the wait.
    fn idle(&mut self, now_ns: u64, must_destage: bool) -> bool {
        let quiet_at_ns = self.last_read_ns.saturating_add(self.parameters.idle_ns);
        if must_destage || self.last_read_ns == 0 || now_ns >= quiet_at_ns {
            return true;
        }
        self.wake_ns = Some(quiet_at_ns);
        false
    }

    /// Work that goes first for its age, if any does. Only now and then: a queue that is slow
    /// because it is served in order of age would never become fast again.
    fn first_for_its_age(&mut self, now_ns: u64) -> Option<First> {
        self.free_choices = self.free_choices.saturating_sub(1);
        let limit_ns = self.parameters.age_limit_ns;
        let is_old = |arrived_ns: u64| now_ns.saturating_sub(arrived_ns) > limit_ns;
        let command = self.queue.front();
        let command = command.is_some_and(|oldest| is_old(oldest.arrived_ns));
        let write = self.waiting_writes.front();
        let flush = self.waiting_flushes.first();
        let destage = write.is_some_and(|oldest| is_old(oldest.arrived_ns))
            || flush.is_some_and(|oldest| is_old(oldest.arrived_ns));
        let destage = destage && !self.cache.is_empty();
        if self.free_choices > 0 || !(command || destage) {
            return None;
        }
        self.free_choices = FREE_CHOICES;
        // Where both are old they take turns, so that neither starves the other.
        self.destage_turn = destage && !(command && self.destage_turn);
        Some(if self.destage_turn {
            First::Destage
        } else {
            First::OldestCommand
        })
    }

    fn nearest_command(&self, now_ns: u64, window: usize) -> Option<(usize, u64)> {
        let mut best = None;
        for (index, pending) in self.queue.iter().take(window).enumerate() {
            let delay_ns = self.command_delay_ns(now_ns, pending);
            if best.is_none_or(|(_, least_ns)| delay_ns < least_ns) {
                best = Some((index, delay_ns));
            }
        }
        best
    }

    fn follows_stream(&self, pending: &Pending) -> bool {
        self.reading
            && !pending.write
            && pending.media_start >= self.head
            && pending.media_start - self.head < READ_THROUGH_BYTES
    }

    fn command_delay_ns(&self, now_ns: u64, pending: &Pending) -> u64 {
        if self.follows_stream(pending) {
            return self
                .geometry
                .transfer_ns(self.head, pending.media_start - self.head);
        }
        if pending.write && !self.reading && pending.media_start == self.head {
            return 0;
        }
        let settle_ns = if pending.write {
            self.parameters.write_settle_ns
        } else {
            0
        };
        self.geometry
            .access_ns(now_ns + settle_ns, self.head_spot, pending.spot)
            + settle_ns
    }

    fn destage_delay_ns(&self, now_ns: u64, start: u64) -> u64 {
        if start == self.head && !self.reading {
            return 0;
        }
        let settle_ns = self.parameters.write_settle_ns;
        let spot = self.geometry.spot(start);
        self.geometry
            .access_ns(now_ns + settle_ns, self.head_spot, spot)
            + settle_ns
    }

    /// Keeps in the buffer the data that the drive read ahead before it is sent elsewhere.
    fn leave_stream(&mut self, now_ns: u64) {
        if self.reading && now_ns > self.stream_ns {
            let ahead = self
                .geometry
                .bytes_in(self.head, now_ns - self.stream_ns)
                .min(self.parameters.read_ahead_bytes);
            self.buffer.keep(self.head, self.head + ahead, now_ns);
        }
    }

    fn move_head(&mut self, to: u64, reading: bool) {
        self.head = to;
        self.head_spot = self.geometry.spot(to);
        self.reading = reading;
    }

    fn start_destage(&mut self, now_ns: u64, extent: usize, delay_ns: u64) {
        self.leave_stream(now_ns);
        let taken = self.cache.take(extent, DESTAGE_BYTES);
        let end_ns = now_ns
            + delay_ns
            + self
                .geometry
                .transfer_ns(taken.start, taken.end - taken.start);
        self.move_head(taken.end, false);
        self.stream_ns = end_ns;
        self.work = Some((
            end_ns,
            Work::Destage {
                generation: taken.generation,
            },
        ));
    }

    fn start_command(&mut self, now_ns: u64, index: usize, delay_ns: u64) {
        let Some(pending) = self.queue.remove(index) else {
            return;
        };
        let follows = self.follows_stream(&pending);
        let mut start_ns = now_ns + delay_ns;
        let mut gap_bytes = 0;
        if follows {
            // The platters read on while the host was silent, as far as the buffer has room.
            let credit_ns = self
                .geometry
                .transfer_ns(self.head, self.parameters.read_ahead_bytes);
            gap_bytes = pending.media_start - self.head;
            start_ns = self.stream_ns.max(now_ns.saturating_sub(credit_ns));
            if gap_bytes > 0 {
                self.buffer.keep(self.head, pending.media_start, now_ns);
            }
        } else {
            self.leave_stream(now_ns);
        }
        let media_start = pending.media_start - gap_bytes;
        let media_ns = start_ns
            + self
                .geometry
                .transfer_ns(media_start, gap_bytes + pending.media_len_bytes);
        let interface_ns = now_ns
            + transfer_ns(
                pending.len_bytes,
                self.parameters.interface_bytes_per_second,
            )
            + if follows {
                self.parameters.command_ns
            } else {
                0
            };
        self.move_head(
            pending.media_start + pending.media_len_bytes,
            !pending.write,
        );
        self.stream_ns = media_ns;
        self.work = Some((media_ns.max(interface_ns), Work::Command(pending)));
    }

    fn finish_work(&mut self, at_ns: u64, work: Work) {
        if let Work::Command(pending) = work {
            if !pending.write {
                self.last_read_ns = at_ns;
                let end = pending.media_start + pending.media_len_bytes;
                self.buffer.keep(pending.media_start, end, at_ns);
            }
            self.done.push(at_ns, pending.id);
        }
        let oldest = self.oldest_generation();
        let done = &mut self.done;
        self.waiting_flushes.retain(|flush| {
            let waits = oldest.is_some_and(|oldest| oldest <= flush.generation);
            if !waits {
                done.push(at_ns, flush.id);
            }
            waits
        });
    }

    fn next_internal_ns(&self) -> Option<u64> {
        match self.work {
            Some((end_ns, _)) => Some(end_ns),
            None => self.wake_ns,
        }
    }
}

impl DeviceModel for Disk {
    fn submit(&mut self, now_ns: u64, id: u64, command: Command) {
        self.advance(now_ns);
        let now_ns = self.now_ns;
        match command.kind {
            Kind::Read => self.submit_read(now_ns, id, command),
            Kind::Write => self.submit_write(now_ns, id, command),
            Kind::Flush => self.submit_flush(now_ns, id),
            Kind::Discard => self.done.push(now_ns + self.parameters.command_ns, id),
        }
        self.start_work(now_ns);
    }

    fn next_event_ns(&self) -> Option<u64> {
        match (self.next_internal_ns(), self.done.next_ns()) {
            (Some(internal), Some(done)) => Some(internal.min(done)),
            (internal, done) => internal.or(done),
        }
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(at_ns) = self.next_internal_ns() {
            if at_ns > self.now_ns {
                break;
            }
            if let Some((end_ns, work)) = self.work.take() {
                self.finish_work(end_ns, work);
            }
            self.start_work(at_ns);
        }
    }

    fn pop_done(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        self.advance(now_ns);
        self.done.pop(self.now_ns)
    }
}
