//! Clients that follow the schedule, on one system.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use forebay_engine::{Histogram, Nanos, RequestKind};
use forebay_random::{SplitMix64, mix};
use forebay_virtual::{Access, Answer, System};

use super::schedule::{Order, PIECE_BYTES, Rhythm, Stream, Timing, file_of};
use crate::random::Zipf;

/// Skew of the places that are wanted more often.
const ZIPF_THETA: f64 = 0.99;
/// In a burst clients think for a part of the time.
const BURST_PART: u64 = 4;

/// The times of requests of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    histogram: Histogram,
    longest_ns: u64,
}

impl Times {
    fn record(&mut self, took_ns: u64) {
        self.histogram.record(Nanos(took_ns));
        self.longest_ns = self.longest_ns.max(took_ns);
    }

    pub(super) fn waits(&self) -> super::Waits {
        let longest_ms = self.longest_ns as f64 / 1e6;
        // A bucket ends a little above what is in it.
        let quantile = |share| (self.histogram.quantile_ns(share) as f64 / 1e6).min(longest_ms);
        super::Waits {
            requests: self.histogram.count(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p9999_ms: quantile(0.9999),
            longest_ms,
        }
    }
}

/// Results of a stream on one system.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) transfers: Times,
    pub(super) flushes: Times,
}

/// Bytes and waits of a minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved {
    /// Bytes of each stream that runs.
    pub(super) streams: Vec<u64>,
    /// The longest wait that ended, in nanoseconds.
    pub(super) longest_ns: u64,
}

/// A request in flight.
struct Sent {
    stream: usize,
    worker: u32,
    at_ns: u64,
    /// Its length in bytes; 0 for a flush.
    len_bytes: u64,
}

/// A stream that runs, or has run.
struct Running {
    spec: Stream,
    random: SplitMix64,
    zipf: Option<Zipf>,
    /// The next place of a stream in order, in bytes from the start of its span.
    next_bytes: u64,
    busy: bool,
    in_flight: u32,
    /// Writes of each worker since its last flush.
    unflushed: Vec<u32>,
    tally: Tally,
    minute_bytes: u64,
}

impl Running {
    fn new(spec: Stream, seed: u64) -> Running {
        let pieces = (spec.span.1 / PIECE_BYTES).max(1);
        Running {
            zipf: (spec.order == Order::Zipf).then(|| Zipf::new(pieces, ZIPF_THETA)),
            random: SplitMix64::new(seed),
            next_bytes: 0,
            busy: false,
            in_flight: 0,
            unflushed: vec![0; spec.workers as usize],
            tally: Tally::default(),
            minute_bytes: 0,
            spec,
        }
    }

    /// The next request of a worker. The n-th of a stream is the same on every system.
    fn next(&mut self, worker: u32) -> Access {
        let unflushed = &mut self.unflushed[worker as usize];
        if self.spec.flush_after > 0 && *unflushed >= self.spec.flush_after {
            *unflushed = 0;
            return Access {
                kind: RequestKind::Flush,
                offset_bytes: 0,
                len_bytes: 0,
            };
        }
        *unflushed += u32::from(self.spec.writes);
        let (least_kib, most_kib) = self.spec.request_kib;
        let steps = u64::from((most_kib - least_kib) / 4) + 1;
        let len_bytes = u64::from(least_kib) * 1024 + self.random.below(steps) * 4096;
        let kind = if self.spec.writes {
            RequestKind::Write { fua: false }
        } else {
            RequestKind::Read
        };
        Access {
            kind,
            offset_bytes: self.spec.span.0 + self.place(len_bytes),
            len_bytes: u32::try_from(len_bytes).expect("at most a few MiB"),
        }
    }

    /// The place of a request of this length, in bytes from the start of the span.
    fn place(&mut self, len_bytes: u64) -> u64 {
        let span_bytes = self.spec.span.1;
        match self.spec.order {
            Order::Zipf => {
                let piece = self
                    .zipf
                    .as_ref()
                    .map_or(0, |zipf| zipf.draw(&mut self.random));
                let within = self.random.below((PIECE_BYTES - len_bytes) / 4096 + 1) * 4096;
                piece * PIECE_BYTES + within
            }
            Order::Uniform => self.random.below(span_bytes / len_bytes) * len_bytes,
            Order::Ring | Order::Files => {
                if self.next_bytes + len_bytes > span_bytes {
                    self.next_bytes = 0;
                }
                self.next_bytes += len_bytes;
                self.next_bytes - len_bytes
            }
        }
    }

    /// The time until a worker's next request, in nanoseconds.
    fn pause_ns(&mut self) -> u64 {
        let mean_ns = match self.spec.timing {
            Timing::Closed => return 0,
            Timing::Think(micros) => micros * 1_000,
            Timing::Paced(per_second) => 1_000_000_000 / per_second,
        };
        let is_short = self.busy && matches!(self.spec.rhythm, Rhythm::Bursts(_));
        let mean_ns = if is_short {
            mean_ns / BURST_PART
        } else {
            mean_ns
        };
        self.random.below(2 * mean_ns)
    }

    fn rests(&self) -> bool {
        matches!(self.spec.rhythm, Rhythm::Only(_)) && !self.busy
    }
}

/// All clients of a system.
pub(super) struct Clients<S> {
    pub(super) system: S,
    seed: u64,
    /// Streams of all phases so far.
    streams: Vec<Running>,
    /// The first stream that still runs.
    first: usize,
    /// Times at which workers send: time, stream, worker.
    due: BinaryHeap<Reverse<(u64, usize, u32)>>,
    in_flight: HashMap<u64, Sent>,
    next_id: u64,
    answers: Vec<Answer>,
    moved: Moved,
}

impl<S: System> Clients<S> {
    pub(super) fn new(system: S, seed: u64) -> Clients<S> {
        Clients {
            system,
            seed,
            streams: Vec::new(),
            first: 0,
            due: BinaryHeap::new(),
            in_flight: HashMap::new(),
            next_id: 0,
            answers: Vec::new(),
            moved: Moved::default(),
        }
    }

    /// Ends the streams that run, and begins these. Requests in flight are answered as they come.
    pub(super) fn begin(&mut self, specs: &[Stream], now_ns: u64) {
        self.first = self.streams.len();
        self.due.clear();
        for &spec in specs {
            let number = self.streams.len();
            let mut stream = Running::new(spec, mix(self.seed ^ number as u64));
            let sources = match spec.timing {
                Timing::Paced(_) => 1,
                _ => spec.workers,
            };
            for worker in 0..sources {
                let at_ns = now_ns + stream.pause_ns();
                self.due.push(Reverse((at_ns, number, worker)));
            }
            self.streams.push(stream);
        }
    }

    /// Runs a minute of the day, up to `end_ns`.
    pub(super) fn minute(&mut self, minute: u64, end_ns: u64) -> Moved {
        for stream in &mut self.streams[self.first..] {
            stream.busy = stream.spec.is_busy_in(self.seed, minute);
            stream.minute_bytes = 0;
            if stream.spec.order == Order::Files {
                stream.next_bytes = file_of(minute, stream.spec.span.1);
            }
        }
        self.moved = Moved::default();
        loop {
            let due_ns = self.due.peek().map(|due| due.0.0);
            let next_ns = self.system.next_ns();
            let sends =
                due_ns.is_some_and(|due_ns| next_ns.is_none_or(|next_ns| due_ns <= next_ns));
            let now_ns = if sends { due_ns } else { next_ns };
            match now_ns.filter(|now_ns| *now_ns < end_ns) {
                None => break,
                Some(_) if sends => self.send(end_ns),
                Some(now_ns) => self.run(now_ns),
            }
        }
        let mut moved = std::mem::take(&mut self.moved);
        let running = self.streams[self.first..].iter();
        moved.streams = running.map(|stream| stream.minute_bytes).collect();
        moved
    }

    /// Waits for all answers, so that the longest wait is among those that are told.
    pub(super) fn finish(mut self) -> Vec<Tally> {
        self.begin(&[], 0);
        while !self.in_flight.is_empty() {
            let now_ns = self.system.next_ns().expect("requests are in flight");
            self.run(now_ns);
        }
        self.streams
            .into_iter()
            .map(|stream| stream.tally)
            .collect()
    }

    /// Sends what is due first.
    fn send(&mut self, minute_end_ns: u64) {
        let Some(Reverse((at_ns, number, worker))) = self.due.pop() else {
            return;
        };
        let stream = &mut self.streams[number];
        if stream.rests() {
            // Beyond the end of the minute by a pause, so that workers do not begin as one.
            let at_ns = minute_end_ns + stream.pause_ns();
            self.due.push(Reverse((at_ns, number, worker)));
            return;
        }
        if matches!(stream.spec.timing, Timing::Paced(_)) {
            let next_ns = at_ns + stream.pause_ns();
            self.due.push(Reverse((next_ns, number, worker)));
        }
        let access = stream.next(worker);
        if stream.in_flight >= stream.spec.workers {
            return;
        }
        stream.in_flight += 1;
        let sent = Sent {
            stream: number,
            worker,
            at_ns,
            len_bytes: u64::from(access.len_bytes),
        };
        self.in_flight.insert(self.next_id, sent);
        self.system.send(at_ns, self.next_id, access);
        self.next_id += 1;
    }

    /// Lets the system work up to a time, and takes its answers.
    fn run(&mut self, now_ns: u64) {
        let mut answers = std::mem::take(&mut self.answers);
        self.system.run(now_ns, &mut answers);
        for Answer { id, at_ns } in answers.drain(..) {
            let sent = self.in_flight.remove(&id).expect("answered once");
            self.answered(&sent, at_ns);
        }
        self.answers = answers;
    }

    fn answered(&mut self, sent: &Sent, at_ns: u64) {
        let took_ns = at_ns - sent.at_ns;
        let stream = &mut self.streams[sent.stream];
        let times = if sent.len_bytes == 0 {
            &mut stream.tally.flushes
        } else {
            &mut stream.tally.transfers
        };
        times.record(took_ns);
        stream.minute_bytes += sent.len_bytes;
        stream.in_flight -= 1;
        self.moved.longest_ns = self.moved.longest_ns.max(took_ns);
        if sent.stream >= self.first && !matches!(stream.spec.timing, Timing::Paced(_)) {
            let next_ns = at_ns + stream.pause_ns();
            self.due.push(Reverse((next_ns, sent.stream, sent.worker)));
        }
    }
}
