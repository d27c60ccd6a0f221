//! A load in the variant of fio: so many requests in flight, each followed by the next as soon as
//! it is answered.

use std::collections::{HashMap, VecDeque};

use forebay_engine::RequestKind;
use forebay_random::SplitMix64;

use crate::random::{Shuffle, Zipf};
use forebay_virtual::{Access, Answer, System};

/// In what order a load goes through its span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In ascending order.
    Sequential,
    /// Each place once, in no order.
    Shuffled {
        /// Seed of the order.
        seed: u64,
    },
    /// Any place at any time, all alike.
    Uniform {
        /// Seed of the draws.
        seed: u64,
    },
    /// Places by Zipf's law.
    Zipf {
        /// Its exponent.
        theta: f64,
        /// Seed of the draws.
        seed: u64,
    },
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// After so many bytes.
    Bytes(u64),
    /// After so much virtual time, in nanoseconds.
    Time(u64),
}

/// A load on a system.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Where its span starts, in bytes.
    pub offset_bytes: u64,
    /// Length of its span, in bytes.
    pub span_bytes: u64,
    /// Length of each request, in bytes.
    pub request_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Reads among a hundred requests.
    pub read_percent: u8,
    /// Order of its places.
    pub order: Order,
    /// Its end.
    pub limit: Limit,
}

/// A direction of a load's results.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Side {
    /// Requests answered.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Mean time of one, in milliseconds.
    pub mean_ms: f64,
    /// KiB a second over the whole load.
    pub kibps: f64,
    /// Requests a second over the whole load.
    pub iops: f64,
    /// KiB a second in the worst of the load's seconds, first and last left out; equal to `kibps`
    /// if it has no other.
    pub worst_kibps: f64,
}

/// Results of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its reads.
    pub read: Side,
    /// Its writes.
    pub write: Side,
    /// When it ended, in nanoseconds of virtual time.
    pub end_ns: u64,
    /// Its duration, in nanoseconds.
    pub took_ns: u64,
}

struct Places {
    order: Order,
    next: u64,
    count: u64,
    shuffle: Shuffle,
    zipf: Option<Zipf>,
    random: SplitMix64,
}

impl Places {
    fn new(load: &Load) -> Places {
        let count = (load.span_bytes / u64::from(load.request_bytes)).max(1);
        let (seed, zipf) = match load.order {
            Order::Sequential => (0, None),
            Order::Shuffled { seed } | Order::Uniform { seed } => (seed, None),
            Order::Zipf { theta, seed } => (seed, Some(Zipf::new(count, theta))),
        };
        Places {
            order: load.order,
            next: 0,
            count,
            shuffle: Shuffle::new(count, seed),
            zipf,
            random: SplitMix64::new(seed),
        }
    }

    fn next(&mut self) -> u64 {
        match self.order {
            Order::Sequential => {
                let place = self.next;
                self.next = (self.next + 1) % self.count;
                place
            }
            Order::Shuffled { .. } => self.shuffle.next(),
            Order::Uniform { .. } => self.random.bits() % self.count,
            Order::Zipf { .. } => match &self.zipf {
                Some(zipf) => zipf.draw(&mut self.random),
                None => 0,
            },
        }
    }
}

/// Bytes and times while the load runs.
#[derive(Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    waited_ns: u64,
    /// Bytes of each second.
    seconds: Vec<u64>,
}

impl Tally {
    fn add(&mut self, bytes: u64, waited_ns: u64, at_ns: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.waited_ns += waited_ns;
        let second = (at_ns / 1_000_000_000) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += bytes;
    }

    fn side(&self, took_ns: u64) -> Side {
        let seconds = took_ns.max(1) as f64 / 1e9;
        let kibps = self.bytes as f64 / 1024.0 / seconds;
        let whole = self.seconds.get(1..self.seconds.len().saturating_sub(1));
        let worst = whole.and_then(|whole| whole.iter().min());
        Side {
            requests: self.requests,
            bytes: self.bytes,
            mean_ms: self.waited_ns as f64 / 1e6 / self.requests.max(1) as f64,
            kibps,
            iops: self.requests as f64 / seconds,
            worst_kibps: worst.map_or(kibps, |bytes| *bytes as f64 / 1024.0),
        }
    }
}

impl Load {
    /// Runs against a system from `start_ns` on, to the last answer.
    ///
    /// # Panics
    /// If the system comes to rest without having answered.
    pub fn run(&self, system: &mut dyn System, start_ns: u64) -> Outcome {
        self.run_each(system, start_ns, 0, |_, _| ())
    }

    /// Reads of a span at the beginning of a device, once and in sequence: they fill a cache with clean
    /// blocks.
    #[must_use]
    pub fn filling(span_bytes: u64, request_bytes: u32) -> Load {
        Load {
            offset_bytes: 0,
            span_bytes,
            request_bytes,
            depth: 4,
            read_percent: 100,
            order: Order::Sequential,
            limit: Limit::Bytes(span_bytes),
        }
    }

    /// Runs with clients that think for so long after each answer; `each` hears of the access and
    /// of its time, in nanoseconds.
    ///
    /// # Panics
    /// If the system comes to rest without having answered.
    pub fn run_each(
        &self,
        system: &mut dyn System,
        start_ns: u64,
        think_ns: u64,
        mut each: impl FnMut(Access, u64),
    ) -> Outcome {
        let mut places = Places::new(self);
        let mut directions = SplitMix64::new(0x5eed);
        let mut in_flight: HashMap<u64, (Access, u64)> = HashMap::new();
        let mut tallies = [Tally::default(), Tally::default()];
        let mut answers: Vec<Answer> = Vec::new();
        let mut sent = 0;
        let mut end_ns = start_ns;
        let mut send =
            |system: &mut dyn System, in_flight: &mut HashMap<u64, (Access, u64)>, at_ns: u64| {
                let over = match self.limit {
                    Limit::Bytes(bytes) => (sent + 1) * u64::from(self.request_bytes) > bytes,
                    Limit::Time(time_ns) => at_ns - start_ns >= time_ns,
                };
                if over {
                    return;
                }
                let write = directions.bits() % 100 >= u64::from(self.read_percent);
                let access = Access {
                    kind: if write {
                        RequestKind::Write { fua: false }
                    } else {
                        RequestKind::Read
                    },
                    offset_bytes: self.offset_bytes + places.next() * u64::from(self.request_bytes),
                    len_bytes: self.request_bytes,
                };
                in_flight.insert(sent, (access, at_ns));
                system.send(at_ns, sent, access);
                sent += 1;
            };
        for _ in 0..self.depth {
            send(system, &mut in_flight, start_ns);
        }
        // Ends of thinking, in order: answers are.
        let mut thinking: VecDeque<u64> = VecDeque::new();
        while !in_flight.is_empty() || !thinking.is_empty() {
            let next_ns = system.next_ns();
            let due_ns = thinking.front().copied();
            if let Some(at_ns) = due_ns.filter(|at_ns| next_ns.is_none_or(|next| *at_ns <= next)) {
                thinking.pop_front();
                send(system, &mut in_flight, at_ns);
                continue;
            }
            let now_ns = next_ns.expect("requests are in flight");
            system.run(now_ns, &mut answers);
            for Answer { id, at_ns } in answers.drain(..) {
                let (access, sent_ns) = in_flight.remove(&id).expect("answered once");
                let tally = &mut tallies[usize::from(access.writes())];
                tally.add(
                    u64::from(access.len_bytes),
                    at_ns - sent_ns,
                    at_ns - start_ns,
                );
                each(access, at_ns - sent_ns);
                end_ns = end_ns.max(at_ns);
                if think_ns == 0 {
                    send(system, &mut in_flight, at_ns);
                } else {
                    thinking.push_back(at_ns + think_ns);
                }
            }
        }
        let took_ns = end_ns - start_ns;
        Outcome {
            read: tallies[0].side(took_ns),
            write: tallies[1].side(took_ns),
            end_ns,
            took_ns,
        }
    }
}
