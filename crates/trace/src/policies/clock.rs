//! CLOCK (Corbató 1968), also known as second chance or FIFO-reinsertion.

use super::Policy;

/// FIFO in which a block that was used since the hand last passed stays for another round.
#[derive(Debug)]
pub(crate) struct Clock {
    ring: Vec<u32>,
    hand: usize,
    capacity: usize,
    cached: Vec<bool>,
    used: Vec<bool>,
}

impl Clock {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Clock {
        Clock {
            ring: Vec::with_capacity(capacity.min(footprint)),
            hand: 0,
            capacity,
            cached: vec![false; footprint],
            used: vec![false; footprint],
        }
    }

    fn advance(&mut self) {
        self.hand += 1;
        if self.hand == self.capacity {
            self.hand = 0;
        }
    }
}

impl Policy for Clock {
    fn access(&mut self, block: u32) -> bool {
        if self.cached[block as usize] {
            self.used[block as usize] = true;
            return true;
        }
        self.cached[block as usize] = true;
        self.used[block as usize] = false;
        if self.ring.len() < self.capacity {
            self.ring.push(block);
            return false;
        }
        loop {
            let candidate = self.ring[self.hand] as usize;
            if !self.used[candidate] {
                self.cached[candidate] = false;
                self.ring[self.hand] = block;
                self.advance();
                return false;
            }
            self.used[candidate] = false;
            self.advance();
        }
    }
}
