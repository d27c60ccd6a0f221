//! A solid-state drive: flash channels that work in parallel behind one bus, and a write buffer
//! that drains to them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::completions::Completions;
use crate::{Command, DeviceModel, Kind, transfer_ns};

/// Whether the drive's flash has erased blocks to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Trimmed: random writes go to erased blocks until as much as the drive holds was written.
    Clean,
    /// Written all over: each random write makes the drive move other data first.
    Full,
}

/// Parameters of a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdParameters {
    /// Capacity, in bytes.
    pub size_bytes: u64,
    /// Flash channels that work at once.
    pub channels: usize,
    /// Time for flash to deliver a page at random, in nanoseconds.
    pub read_latency_ns: u64,
    /// Time to deliver what a sequential stream lets the drive fetch ahead, in nanoseconds.
    pub sequential_read_latency_ns: u64,
    /// Time from data in the drive's buffer to the acknowledgement, in nanoseconds.
    pub write_latency_ns: u64,
    /// Rate of the bus from the drive, in bytes per second.
    pub read_bytes_per_second: f64,
    /// Rate of the bus to the drive, in bytes per second.
    pub write_bytes_per_second: f64,
    /// Time on the bus that each read costs beside its data, in nanoseconds.
    pub read_overhead_ns: u64,
    /// Time on the bus that each write costs beside its data, in nanoseconds.
    pub write_overhead_ns: u64,
    /// Rate at which the flash can be programmed, in bytes per second.
    pub program_bytes_per_second: f64,
    /// Size of the write buffer, in bytes.
    pub write_buffer_bytes: u64,
    /// Time of a flush beyond the writes it waits for, and of forced unit access, in nanoseconds.
    pub flush_latency_ns: u64,
    /// Time of a flush with nothing to do, in nanoseconds.
    pub idle_flush_latency_ns: u64,
    /// Time of a discard, in nanoseconds.
    pub discard_latency_ns: u64,
    /// Whether the drive starts trimmed or written all over.
    pub fill: Fill,
    /// Bytes programmed per byte of random write when no erased block is to spare.
    pub full_write_amplification: f64,
}

impl SsdParameters {
    /// A drive like the Samsung 850 PRO 256 GB, on SATA.
    #[must_use]
    pub fn sata_850pro() -> SsdParameters {
        SsdParameters {
            size_bytes: 256_000_000_000,
            channels: 16,
            read_latency_ns: 101_000,
            sequential_read_latency_ns: 44_500,
            write_latency_ns: 25_500,
            read_bytes_per_second: 550e6,
            write_bytes_per_second: 472e6,
            read_overhead_ns: 2_600,
            write_overhead_ns: 2_300,
            program_bytes_per_second: 520e6,
            write_buffer_bytes: 32 << 20,
            flush_latency_ns: 400_000,
            idle_flush_latency_ns: 50_000,
            discard_latency_ns: 60_000,
            fill: Fill::Clean,
            full_write_amplification: 8.8,
        }
    }
}

/// A command between the flash and the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    at_ns: u64,
    arrival: u64,
    id: u64,
    write: bool,
    fua: bool,
    sequential: bool,
    len_bytes: u64,
}

/// Sequential streams that the drive can tell apart.
const STREAMS: usize = 16;

/// The state of a drive.
#[derive(Debug)]
pub struct Ssd {
    parameters: SsdParameters,
    now_ns: u64,
    channel_free_ns: Vec<u64>,
    // Commands take the bus in the order in which they are ready for it, not in that of arrival:
    // a write need not wait for the flash a read is waiting for.
    ready: BinaryHeap<Reverse<Ready>>,
    arrivals: u64,
    bus_free_ns: u64,
    // SATA's flush is not queued: nothing else runs beside it.
    blocked_until_ns: u64,
    programmed_at_ns: u64,
    buffer_ns: u64,
    spare_bytes: u64,
    unflushed: bool,
    flushing: Option<u64>,
    held: VecDeque<(u64, Command)>,
    last_done_ns: u64,
    streams: [u64; STREAMS],
    next_stream: usize,
    done: Completions,
}

impl Ssd {
    /// A drive at rest.
    ///
    /// # Panics
    /// If it has no channel or a rate is not positive.
    #[must_use]
    pub fn new(parameters: SsdParameters) -> Ssd {
        assert!(parameters.channels > 0, "a drive has a channel");
        for rate in [
            parameters.read_bytes_per_second,
            parameters.write_bytes_per_second,
            parameters.program_bytes_per_second,
        ] {
            assert!(rate > 0.0, "a rate is positive");
        }
        let spare_bytes = match parameters.fill {
            Fill::Clean => parameters.size_bytes,
            Fill::Full => 0,
        };
        let buffer_ns = transfer_ns(
            parameters.write_buffer_bytes,
            parameters.program_bytes_per_second,
        );
        Ssd {
            now_ns: 0,
            channel_free_ns: vec![0; parameters.channels],
            ready: BinaryHeap::new(),
            arrivals: 0,
            bus_free_ns: 0,
            blocked_until_ns: 0,
            programmed_at_ns: 0,
            buffer_ns,
            spare_bytes,
            unflushed: false,
            flushing: None,
            held: VecDeque::new(),
            last_done_ns: 0,
            streams: [u64::MAX; STREAMS],
            next_stream: 0,
            done: Completions::default(),
            parameters,
        }
    }

    /// Whether the command goes on where a recent one of the same direction ended.
    fn continues_stream(&mut self, command: &Command) -> bool {
        // Reads and writes at one place are different streams; offsets leave the low bit free.
        let direction = u64::from(command.kind == Kind::Write);
        let from = command.offset_bytes << 1 | direction;
        let to = (command.offset_bytes + command.len_bytes) << 1 | direction;
        match self.streams.iter().position(|end| *end == from) {
            Some(found) => {
                self.streams[found] = to;
                true
            }
            None => {
                self.streams[self.next_stream] = to;
                self.next_stream = (self.next_stream + 1) % STREAMS;
                false
            }
        }
    }

    fn submit_transfer(&mut self, now_ns: u64, id: u64, command: Command) {
        let write = command.kind == Kind::Write;
        let sequential = self.continues_stream(&command);
        let start_ns = now_ns.max(self.blocked_until_ns);
        let at_ns = if write {
            start_ns
        } else {
            self.fetch(start_ns, sequential)
        };
        self.ready.push(Reverse(Ready {
            at_ns,
            arrival: self.arrivals,
            id,
            write,
            fua: command.fua,
            sequential,
            len_bytes: command.len_bytes,
        }));
        self.arrivals += 1;
    }

    /// When the flash has the data of a read.
    fn fetch(&mut self, start_ns: u64, sequential: bool) -> u64 {
        if sequential {
            return start_ns + self.parameters.sequential_read_latency_ns;
        }
        let channel = self
            .channel_free_ns
            .iter_mut()
            .min()
            .expect("a drive has a channel, as its constructor checks");
        *channel = start_ns.max(*channel) + self.parameters.read_latency_ns;
        // While it reads, that channel does not program.
        if self.programmed_at_ns > start_ns {
            self.programmed_at_ns +=
                self.parameters.read_latency_ns / self.parameters.channels as u64;
        }
        *channel
    }

    fn start_transfer(&mut self, ready: Ready) {
        let parameters = &self.parameters;
        let start_ns = ready.at_ns.max(self.bus_free_ns);
        if !ready.write {
            self.bus_free_ns = start_ns
                + parameters.read_overhead_ns
                + transfer_ns(ready.len_bytes, parameters.read_bytes_per_second);
            self.finish(self.bus_free_ns, ready.id);
            return;
        }
        self.bus_free_ns = start_ns
            + parameters.write_overhead_ns
            + transfer_ns(ready.len_bytes, parameters.write_bytes_per_second);
        let program_ns = transfer_ns(ready.len_bytes, parameters.program_bytes_per_second);
        let program_ns = if ready.sequential || self.spare_bytes >= ready.len_bytes {
            program_ns
        } else {
            (program_ns as f64 * parameters.full_write_amplification) as u64
        };
        if !ready.sequential {
            self.spare_bytes = self.spare_bytes.saturating_sub(ready.len_bytes);
        }
        self.programmed_at_ns = self.programmed_at_ns.max(self.bus_free_ns) + program_ns;
        self.unflushed = true;
        let room_at_ns = self.programmed_at_ns.saturating_sub(self.buffer_ns);
        let mut done_ns = (self.bus_free_ns + parameters.write_latency_ns).max(room_at_ns);
        if ready.fua {
            done_ns += parameters.flush_latency_ns;
        }
        self.finish(done_ns, ready.id);
    }

    fn finish(&mut self, done_ns: u64, id: u64) {
        self.last_done_ns = self.last_done_ns.max(done_ns);
        self.done.push(done_ns, id);
    }

    fn begin(&mut self, now_ns: u64, id: u64, command: Command) {
        match command.kind {
            Kind::Read | Kind::Write => self.submit_transfer(now_ns, id, command),
            Kind::Flush => self.flushing = Some(id),
            Kind::Discard => {
                self.spare_bytes = self
                    .spare_bytes
                    .saturating_add(command.len_bytes)
                    .min(self.parameters.size_bytes);
                let start_ns = now_ns.max(self.blocked_until_ns);
                self.finish(start_ns + self.parameters.discard_latency_ns, id);
            }
        }
    }

    /// A flush waits for every transfer that came before it, keeps the drive to itself, and lets
    /// what came after it begin.
    fn start_flush(&mut self, now_ns: u64) {
        while self.ready.is_empty() {
            let Some(id) = self.flushing.take() else {
                return;
            };
            let start_ns = now_ns.max(self.last_done_ns).max(self.blocked_until_ns);
            let done_ns = if self.unflushed {
                start_ns.max(self.programmed_at_ns) + self.parameters.flush_latency_ns
            } else {
                start_ns + self.parameters.idle_flush_latency_ns
            };
            self.unflushed = false;
            self.blocked_until_ns = done_ns;
            self.finish(done_ns, id);
            while self.flushing.is_none() {
                let Some((id, command)) = self.held.pop_front() else {
                    break;
                };
                self.begin(now_ns, id, command);
            }
        }
    }
}

impl DeviceModel for Ssd {
    fn submit(&mut self, now_ns: u64, id: u64, command: Command) {
        self.advance(now_ns);
        if self.flushing.is_some() {
            self.held.push_back((id, command));
            return;
        }
        self.begin(self.now_ns, id, command);
        self.start_flush(self.now_ns);
        self.advance(now_ns);
    }

    fn next_event_ns(&self) -> Option<u64> {
        let bus = self
            .ready
            .peek()
            .map(|Reverse(ready)| ready.at_ns.max(self.bus_free_ns));
        match (bus, self.done.next_ns()) {
            (Some(bus), Some(done)) => Some(bus.min(done)),
            (bus, done) => bus.or(done),
        }
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(Reverse(ready)) = self.ready.peek().copied() {
            let start_ns = ready.at_ns.max(self.bus_free_ns);
            if start_ns > self.now_ns {
                break;
            }
            self.ready.pop();
            self.start_transfer(ready);
            self.start_flush(start_ns);
        }
    }

    fn pop_done(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        self.advance(now_ns);
        self.done.pop(self.now_ns)
    }
}
