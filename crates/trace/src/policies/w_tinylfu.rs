//! W-TinyLFU (Einziger, Friedman, Manes, ACM TOS 2017).

use super::Policy;
use crate::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Nothing,
    Window,
    Probation,
    Protected,
}

/// Counters stop at 15 as in the paper, and are halved every so many cache sizes of accesses.
const MOST_USES: u8 = 15;
const SAMPLE: u64 = 10;

/// Recent uses of each block. The counters are exact, where a real cache has a sketch of four-bit
/// ones: the figures are those of the policy, without a sketch's collisions.
#[derive(Debug)]
struct Frequencies {
    /// The count, and the period in which it was last brought up to date.
    counts: Vec<(u8, u32)>,
    seen: u64,
    period_length: u64,
    period: u32,
}

impl Frequencies {
    fn new(capacity: usize, footprint: usize) -> Frequencies {
        Frequencies {
            counts: vec![(0, 0); footprint],
            seen: 0,
            period_length: SAMPLE.saturating_mul(capacity as u64),
            period: 0,
        }
    }

    /// Halved once for every period since.
    fn of(&self, block: u32) -> u8 {
        let (count, period) = self.counts[block as usize];
        count.checked_shr(self.period - period).unwrap_or(0)
    }

    fn count(&mut self, block: u32) {
        let count = (self.of(block) + 1).min(MOST_USES);
        self.counts[block as usize] = (count, self.period);
        self.seen += 1;
        if self.seen == self.period_length {
            self.seen = 0;
            self.period += 1;
        }
    }
}

/// A small LRU window takes every block. A block that falls out of it enters the main cache, a
/// segmented LRU, only if it was used more often lately than the block it would push out.
#[derive(Debug)]
pub(crate) struct WTinyLfu {
    links: Links,
    window: List,
    probation: List,
    protected: List,
    state: Vec<In>,
    frequencies: Frequencies,
    window_limit: usize,
    main_limit: usize,
    protected_limit: usize,
}

impl WTinyLfu {
    pub(crate) fn new(capacity: usize, footprint: usize) -> WTinyLfu {
        let window = (capacity / 100).max(1);
        let main = capacity - window;
        WTinyLfu {
            links: Links::new(footprint),
            window: List::default(),
            probation: List::default(),
            protected: List::default(),
            state: vec![In::Nothing; footprint],
            frequencies: Frequencies::new(capacity, footprint),
            window_limit: window,
            main_limit: main,
            protected_limit: main / 10 * 8 + main % 10 * 8 / 10,
        }
    }

    fn hit(&mut self, block: u32, place: In) {
        match place {
            In::Window => self.window.move_to_front(&mut self.links, block),
            In::Protected => self.protected.move_to_front(&mut self.links, block),
            _ => {
                self.probation.remove(&mut self.links, block);
                self.protected.push_front(&mut self.links, block);
                self.state[block as usize] = In::Protected;
                if self.protected.len() > self.protected_limit
                    && let Some(oldest) = self.protected.pop_back(&mut self.links)
                {
                    self.probation.push_front(&mut self.links, oldest);
                    self.state[oldest as usize] = In::Probation;
                }
            }
        }
    }

    /// Has a block that fell out of the window compete with the main cache's victim.
    fn compete(&mut self, candidate: u32) {
        self.state[candidate as usize] = In::Nothing;
        if self.probation.len() + self.protected.len() >= self.main_limit {
            let segment = if self.probation.is_empty() {
                &mut self.protected
            } else {
                &mut self.probation
            };
            let victim = segment.back();
            if segment.is_empty() || self.frequencies.of(candidate) <= self.frequencies.of(victim) {
                return;
            }
            segment.remove(&mut self.links, victim);
            self.state[victim as usize] = In::Nothing;
        }
        self.probation.push_front(&mut self.links, candidate);
        self.state[candidate as usize] = In::Probation;
    }
}

impl Policy for WTinyLfu {
    fn access(&mut self, block: u32) -> bool {
        self.frequencies.count(block);
        let place = self.state[block as usize];
        if place != In::Nothing {
            self.hit(block, place);
            return true;
        }
        if self.window.len() == self.window_limit
            && let Some(candidate) = self.window.pop_back(&mut self.links)
        {
            self.compete(candidate);
        }
        self.window.push_front(&mut self.links, block);
        self.state[block as usize] = In::Window;
        false
    }
}
