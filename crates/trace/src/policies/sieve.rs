//! SIEVE (Zhang et al., NSDI 2024).

use super::Policy;
use crate::list::{Links, List, NONE};

/// FIFO with a hand that moves from the oldest block to the newest, spares what was used since
/// it last passed, in place, and evicts the first that was not. Unlike CLOCK's, new blocks come
/// in at the head and not where the hand is.
#[derive(Debug)]
pub(crate) struct Sieve {
    links: Links,
    list: List,
    hand: u32,
    capacity: usize,
    cached: Vec<bool>,
    used: Vec<bool>,
}

impl Sieve {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Sieve {
        Sieve {
            links: Links::new(footprint),
            list: List::default(),
            hand: NONE,
            capacity,
            cached: vec![false; footprint],
            used: vec![false; footprint],
        }
    }

    fn evict(&mut self) {
        let mut candidate = self.hand;
        loop {
            if candidate == NONE {
                candidate = self.list.back();
            }
            let newer = self.links.previous(candidate);
            if !self.used[candidate as usize] {
                self.hand = newer;
                self.list.remove(&mut self.links, candidate);
                self.cached[candidate as usize] = false;
                return;
            }
            self.used[candidate as usize] = false;
            candidate = newer;
        }
    }
}

impl Policy for Sieve {
    fn access(&mut self, block: u32) -> bool {
        if self.cached[block as usize] {
            self.used[block as usize] = true;
            return true;
        }
        if self.list.len() == self.capacity {
            self.evict();
        }
        self.list.push_front(&mut self.links, block);
        self.cached[block as usize] = true;
        self.used[block as usize] = false;
        false
    }
}
