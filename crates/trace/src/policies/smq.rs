//! A policy after dm-cache's stochastic multi-queue (Thornber, Linux 4.2,
//! `drivers/md/dm-cache-policy-smq.c`).

use super::Policy;
use crate::list::{Links, List, NONE};

/// Levels of both queues.
const LEVELS: usize = 64;
/// The hotspot queue has an entry for every so many cached blocks, at least [`HOTSPOTS`].
const BLOCKS_PER_HOTSPOT: usize = 4;
const HOTSPOTS: usize = 1024;
/// Below this level nothing is rebalanced into: the sixteen levels by which a badly performing
/// queue moves its hits, as dm-cache has it.
const JUMPS: [usize; 3] = [LEVELS / 4, LEVELS / 8, LEVELS / 16];

/// Levels of LRU lists of equal target size. A hit moves an entry up and, so that levels keep
/// their size, rebalancing moves others down.
#[derive(Debug)]
struct Levels {
    links: Links,
    levels: Vec<List>,
    /// The level of each block in the queue.
    level: Vec<u8>,
    /// Whether a block was already promoted in this period.
    promoted_in: Vec<u32>,
    period: u32,
    len: usize,
}

const ABSENT: u8 = u8::MAX;

impl Levels {
    fn new(footprint: usize) -> Levels {
        Levels {
            links: Links::new(footprint),
            levels: vec![List::default(); LEVELS],
            level: vec![ABSENT; footprint],
            promoted_in: vec![0; footprint],
            period: 1,
            len: 0,
        }
    }

    fn contains(&self, block: u32) -> bool {
        self.level[block as usize] != ABSENT
    }

    fn insert(&mut self, block: u32, level: usize) {
        self.levels[level].push_front(&mut self.links, block);
        self.level[block as usize] = level as u8;
        self.len += 1;
    }

    fn remove(&mut self, block: u32) {
        let level = std::mem::replace(&mut self.level[block as usize], ABSENT);
        self.levels[level as usize].remove(&mut self.links, block);
        self.len -= 1;
    }

    /// The oldest of the lowest level.
    fn pop(&mut self) -> Option<u32> {
        let victim = self
            .levels
            .iter()
            .map(List::back)
            .find(|&block| block != NONE)?;
        self.remove(victim);
        Some(victim)
    }

    /// Up by `jump` levels, but only once a period.
    fn hit(&mut self, block: u32, jump: usize) {
        let again = std::mem::replace(&mut self.promoted_in[block as usize], self.period);
        let jump = if again == self.period { 0 } else { jump };
        let level = self.level[block as usize] as usize;
        self.remove(block);
        self.insert(block, (level + jump).min(LEVELS - 1));
    }

    /// Gives every level its share again, from the lowest up: the oldest of the levels above come
    /// down, or the newest go up.
    fn rebalance(&mut self) {
        self.period += 1;
        let target = self.len / LEVELS;
        for level in 0..LEVELS - 1 {
            while self.levels[level].len() < target {
                let above = self.levels[level + 1..].iter().map(List::back);
                let Some(down) = above.into_iter().find(|&block| block != NONE) else {
                    break;
                };
                self.remove(down);
                self.insert(down, level);
            }
            while self.levels[level].len() > target {
                let Some(up) = self.levels[level].pop_front(&mut self.links) else {
                    break;
                };
                self.level[up as usize] = (level + 1) as u8;
                self.levels[level + 1].push_back(&mut self.links, up);
            }
        }
    }
}

/// Two such queues: one of hotspots, which sees every access and decides what is promoted, and
/// one of the cached blocks, which decides what is evicted.
///
/// Like dm-cache's, and different from every other policy here, it does not cache a block at its
/// first touch unless the hotspot queue is doing well. Unlike dm-cache's: a hotspot is one block and not a
/// larger area, periods are counted in accesses and not in seconds, reads and writes count alike,
/// and while there is free space everything is promoted.
#[derive(Debug)]
pub(crate) struct Smq {
    hotspots: Levels,
    hotspot_limit: usize,
    cache: Levels,
    capacity: usize,
    accesses: u64,
    hotspot_hits: u64,
    hotspot_misses: u64,
    jump: usize,
    promote_level: usize,
}

impl Smq {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Smq {
        Smq {
            hotspots: Levels::new(footprint),
            hotspot_limit: (capacity / BLOCKS_PER_HOTSPOT).max(HOTSPOTS),
            cache: Levels::new(footprint),
            capacity,
            accesses: 0,
            hotspot_hits: 0,
            hotspot_misses: 0,
            jump: JUMPS[2],
            promote_level: 0,
        }
    }

    fn see(&mut self, block: u32) {
        self.accesses += 1;
        if self.hotspots.contains(block) {
            self.hotspot_hits += 1;
            self.hotspots.hit(block, self.jump);
        } else {
            self.hotspot_misses += 1;
            if self.hotspots.len == self.hotspot_limit {
                self.hotspots.pop();
            }
            self.hotspots.insert(block, 0);
        }
        if self.accesses.is_multiple_of(self.hotspot_limit as u64) {
            self.end_hotspot_period();
        }
        if self.accesses.is_multiple_of(self.capacity as u64) {
            self.cache.rebalance();
        }
    }

    /// The worse the hotspot queue knows what is hot, the faster its hits rise and the less is
    /// promoted.
    fn end_hotspot_period(&mut self) {
        self.hotspots.rebalance();
        let seen = self.hotspot_hits + self.hotspot_misses;
        let sixteenths = self.hotspot_hits * 16 / seen.max(1);
        (self.jump, self.promote_level) = match sixteenths {
            0 => (JUMPS[0], LEVELS - LEVELS / 4),
            1 => (JUMPS[1], LEVELS - LEVELS / 2),
            _ => (JUMPS[2], 0),
        };
        (self.hotspot_hits, self.hotspot_misses) = (0, 0);
    }
}

impl Policy for Smq {
    fn access(&mut self, block: u32) -> bool {
        self.see(block);
        if self.cache.contains(block) {
            self.cache.hit(block, 1);
            return true;
        }
        if self.cache.len == self.capacity {
            if (self.hotspots.level[block as usize] as usize) < self.promote_level {
                return false;
            }
            self.cache.pop();
        }
        // Half way up, so that a newcomer is not the next victim.
        self.cache.insert(block, LEVELS / 2);
        false
    }
}
