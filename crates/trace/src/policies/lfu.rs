//! Least frequently used, counted while a block is cached.

use std::collections::BTreeMap;

use super::Policy;
use crate::list::{Links, List};

/// Evicts the block with the fewest uses since it came in; among equals the one that has had
/// that count longest. The count is lost with the block ("in-cache LFU").
#[derive(Debug)]
pub(crate) struct Lfu {
    links: Links,
    by_uses: BTreeMap<u32, List>,
    /// 0: not cached.
    uses: Vec<u32>,
    cached: usize,
    capacity: usize,
}

impl Lfu {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Lfu {
        Lfu {
            links: Links::new(footprint),
            by_uses: BTreeMap::new(),
            uses: vec![0; footprint],
            cached: 0,
            capacity,
        }
    }

    fn count(&mut self, block: u32, uses: u32) {
        self.uses[block as usize] = uses;
        let list = self.by_uses.entry(uses).or_default();
        list.push_front(&mut self.links, block);
    }

    fn evict(&mut self) {
        let Some(mut fewest) = self.by_uses.first_entry() else {
            return;
        };
        if let Some(victim) = fewest.get_mut().pop_back(&mut self.links) {
            self.uses[victim as usize] = 0;
            self.cached -= 1;
        }
        if fewest.get().is_empty() {
            fewest.remove();
        }
    }
}

impl Policy for Lfu {
    fn access(&mut self, block: u32) -> bool {
        let uses = self.uses[block as usize];
        if uses > 0 {
            if let Some(list) = self.by_uses.get_mut(&uses) {
                list.remove(&mut self.links, block);
                if list.is_empty() {
                    self.by_uses.remove(&uses);
                }
            }
            self.count(block, uses.saturating_add(1));
            return true;
        }
        if self.cached == self.capacity {
            self.evict();
        }
        self.cached += 1;
        self.count(block, 1);
        false
    }
}
