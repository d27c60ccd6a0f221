//! Least recently used.

use super::Policy;
use crate::list::{Links, List};

/// Evicts the block whose last use is longest ago.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Links,
    list: List,
    capacity: usize,
    cached: Vec<bool>,
}

impl Lru {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Lru {
        Lru {
            links: Links::new(footprint),
            list: List::default(),
            capacity,
            cached: vec![false; footprint],
        }
    }
}

impl Policy for Lru {
    fn access(&mut self, block: u32) -> bool {
        if self.cached[block as usize] {
            self.list.move_to_front(&mut self.links, block);
            return true;
        }
        if self.list.len() == self.capacity
            && let Some(victim) = self.list.pop_back(&mut self.links)
        {
            self.cached[victim as usize] = false;
        }
        self.list.push_front(&mut self.links, block);
        self.cached[block as usize] = true;
        false
    }
}
