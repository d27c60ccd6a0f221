//! S3-FIFO (Yang et al., SOSP 2023).

use super::Policy;
use crate::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Nothing,
    Small,
    Main,
    Ghost,
}

/// Three FIFO queues. New blocks enter the small queue, a tenth of the cache. Blocks used at least
/// twice there go on to the main queue. Others leave and are remembered in the ghost, from which
/// they return into the main queue. The main queue is a CLOCK with two-bit counters.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    ghost: List,
    state: Vec<In>,
    uses: Vec<u8>,
    capacity: usize,
    main_limit: usize,
    ghost_limit: usize,
}

/// Uses in the small queue that lead into the main one.
const PROMOTE: u8 = 2;
/// The counters have two bits.
const MOST_USES: u8 = 3;

impl S3Fifo {
    pub(crate) fn new(capacity: usize, footprint: usize) -> S3Fifo {
        let small = (capacity / 10).max(1);
        S3Fifo {
            links: Links::new(footprint),
            small: List::default(),
            main: List::default(),
            ghost: List::default(),
            state: vec![In::Nothing; footprint],
            uses: vec![0; footprint],
            capacity,
            main_limit: capacity - small,
            ghost_limit: capacity / 10 * 9 + capacity % 10 * 9 / 10,
        }
    }

    fn evict(&mut self) {
        while self.small.len() + self.main.len() >= self.capacity {
            if self.main.len() > self.main_limit || self.small.is_empty() {
                self.evict_main();
            } else {
                self.evict_small();
            }
        }
    }

    fn evict_small(&mut self) {
        while let Some(block) = self.small.pop_back(&mut self.links) {
            let uses = std::mem::take(&mut self.uses[block as usize]);
            if uses < PROMOTE {
                self.remember(block);
                return;
            }
            self.main.push_front(&mut self.links, block);
            self.state[block as usize] = In::Main;
        }
    }

    fn evict_main(&mut self) {
        while let Some(block) = self.main.pop_back(&mut self.links) {
            let uses = &mut self.uses[block as usize];
            if *uses == 0 {
                self.state[block as usize] = In::Nothing;
                return;
            }
            *uses -= 1;
            self.main.push_front(&mut self.links, block);
        }
    }

    fn remember(&mut self, block: u32) {
        if self.ghost_limit == 0 {
            self.state[block as usize] = In::Nothing;
            return;
        }
        if self.ghost.len() == self.ghost_limit
            && let Some(forgotten) = self.ghost.pop_back(&mut self.links)
        {
            self.state[forgotten as usize] = In::Nothing;
        }
        self.ghost.push_front(&mut self.links, block);
        self.state[block as usize] = In::Ghost;
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, block: u32) -> bool {
        let state = self.state[block as usize];
        match state {
            In::Small | In::Main => {
                let uses = &mut self.uses[block as usize];
                *uses = (*uses + 1).min(MOST_USES);
                return true;
            }
            In::Ghost => self.ghost.remove(&mut self.links, block),
            In::Nothing => {}
        }
        if self.small.len() + self.main.len() == self.capacity {
            self.evict();
        }
        if state == In::Ghost {
            self.main.push_front(&mut self.links, block);
            self.state[block as usize] = In::Main;
        } else {
            self.small.push_front(&mut self.links, block);
            self.state[block as usize] = In::Small;
        }
        self.uses[block as usize] = 0;
        false
    }
}
