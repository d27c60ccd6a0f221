//! 2Q (Johnson and Shasha, VLDB 1994), the full version.

use super::Policy;
use crate::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Nothing,
    /// A1in: seen once, first in first out.
    Recent,
    /// A1out: evicted from A1in, without data.
    Ghost,
    /// Am: seen again after that, least recently used.
    Main,
}

/// A block enters a FIFO of a quarter of the cache; only if it is wanted again soon after it left
/// that does it enter the LRU that is the rest. The ghost remembers half a cache of blocks.
#[derive(Debug)]
pub(crate) struct TwoQ {
    links: Links,
    recent: List,
    ghost: List,
    main: List,
    state: Vec<In>,
    capacity: usize,
    recent_limit: usize,
    ghost_limit: usize,
}

impl TwoQ {
    pub(crate) fn new(capacity: usize, footprint: usize) -> TwoQ {
        TwoQ {
            links: Links::new(footprint),
            recent: List::default(),
            ghost: List::default(),
            main: List::default(),
            state: vec![In::Nothing; footprint],
            capacity,
            recent_limit: capacity / 4,
            ghost_limit: (capacity / 2).max(1),
        }
    }

    fn evict(&mut self) {
        if self.recent.len() > self.recent_limit || self.main.is_empty() {
            let Some(block) = self.recent.pop_back(&mut self.links) else {
                return;
            };
            if self.ghost.len() == self.ghost_limit
                && let Some(forgotten) = self.ghost.pop_back(&mut self.links)
            {
                self.state[forgotten as usize] = In::Nothing;
            }
            self.ghost.push_front(&mut self.links, block);
            self.state[block as usize] = In::Ghost;
        } else if let Some(block) = self.main.pop_back(&mut self.links) {
            self.state[block as usize] = In::Nothing;
        }
    }
}

impl Policy for TwoQ {
    fn access(&mut self, block: u32) -> bool {
        let state = self.state[block as usize];
        match state {
            In::Recent => return true,
            In::Main => {
                self.main.move_to_front(&mut self.links, block);
                return true;
            }
            In::Ghost => self.ghost.remove(&mut self.links, block),
            In::Nothing => {}
        }
        if self.recent.len() + self.main.len() == self.capacity {
            self.evict();
        }
        if state == In::Ghost {
            self.main.push_front(&mut self.links, block);
            self.state[block as usize] = In::Main;
        } else {
            self.recent.push_front(&mut self.links, block);
            self.state[block as usize] = In::Recent;
        }
        false
    }
}
