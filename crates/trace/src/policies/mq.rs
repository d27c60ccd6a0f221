//! MQ, multi-queue (Zhou, Philbin, Li, USENIX ATC 2001).

use super::Policy;
use crate::list::{Links, List};

/// Queues Q0 to Q7; a block of `f` uses belongs into queue `log2(f)`.
const QUEUES: usize = 8;
/// The history Qout remembers the uses of four caches of evicted blocks.
const HISTORY: usize = 4;
/// Buckets of the histogram of temporal distances, by powers of two.
const BUCKETS: usize = 33;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Nothing,
    Queue(u8),
    History,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    place: In,
    uses: u32,
    last: u32,
    /// Unless it is used before, it sinks one queue at this time.
    expires: u64,
}

/// LRU queues by frequency, made for second-level caches. A block that is not used for
/// `life_time` accesses sinks by a queue; the time is the most common distance between two uses of
/// a block, learned while it runs, as the paper has it.
#[derive(Debug)]
pub(crate) struct Mq {
    links: Links,
    queues: [List; QUEUES],
    history: List,
    blocks: Vec<Block>,
    cached: usize,
    capacity: usize,
    now: u64,
    life_time: u64,
    distances: [u64; BUCKETS],
}

impl Mq {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Mq {
        Mq {
            links: Links::new(footprint),
            queues: [List::default(); QUEUES],
            history: List::default(),
            blocks: vec![
                Block {
                    place: In::Nothing,
                    uses: 0,
                    last: 0,
                    expires: 0,
                };
                footprint
            ],
            cached: 0,
            capacity,
            now: 0,
            life_time: capacity as u64,
            distances: [0; BUCKETS],
        }
    }

    fn enqueue(&mut self, block: u32, queue: usize) {
        self.queues[queue].push_front(&mut self.links, block);
        let entry = &mut self.blocks[block as usize];
        entry.place = In::Queue(queue as u8);
        entry.expires = self.now + self.life_time;
    }

    /// Counts a use and puts the block where it belongs by now.
    fn use_block(&mut self, block: u32) {
        let now = self.now;
        let entry = &mut self.blocks[block as usize];
        entry.uses = entry.uses.saturating_add(1);
        entry.last = now as u32;
        let queue = (entry.uses.ilog2() as usize).min(QUEUES - 1);
        self.enqueue(block, queue);
    }

    fn evict(&mut self) {
        let Some(queue) = self.queues.iter_mut().find(|queue| !queue.is_empty()) else {
            return;
        };
        let Some(victim) = queue.pop_back(&mut self.links) else {
            return;
        };
        self.cached -= 1;
        if self.history.len() >= HISTORY.saturating_mul(self.capacity)
            && let Some(forgotten) = self.history.pop_back(&mut self.links)
        {
            self.blocks[forgotten as usize].place = In::Nothing;
            self.blocks[forgotten as usize].uses = 0;
        }
        self.history.push_front(&mut self.links, victim);
        self.blocks[victim as usize].place = In::History;
    }

    /// Adjust() of the paper: a look at the oldest block of each queue.
    fn sink(&mut self) {
        for queue in 1..QUEUES {
            if self.queues[queue].is_empty() {
                continue;
            }
            let oldest = self.queues[queue].back();
            if self.blocks[oldest as usize].expires < self.now {
                self.queues[queue].remove(&mut self.links, oldest);
                self.enqueue(oldest, queue - 1);
            }
        }
    }

    fn learn(&mut self, block: u32) {
        // Wraps after 4 billion accesses, when one distance is counted wrongly.
        let distance = (self.now as u32).wrapping_sub(self.blocks[block as usize].last);
        self.distances[(u32::BITS - distance.leading_zeros()) as usize] += 1;
        if self.now.is_multiple_of(self.capacity as u64) {
            let peak = (0..BUCKETS).max_by_key(|&bucket| self.distances[bucket]);
            self.life_time = 1 << peak.unwrap_or(0);
        }
    }
}

impl Policy for Mq {
    fn access(&mut self, block: u32) -> bool {
        self.now += 1;
        let place = self.blocks[block as usize].place;
        if place != In::Nothing {
            self.learn(block);
        }
        let hit = match place {
            In::Queue(queue) => {
                self.queues[queue as usize].remove(&mut self.links, block);
                true
            }
            In::History => {
                self.history.remove(&mut self.links, block);
                false
            }
            In::Nothing => false,
        };
        if !hit {
            if self.cached == self.capacity {
                self.evict();
            }
            self.cached += 1;
        }
        self.use_block(block);
        self.sink();
        hit
    }
}
