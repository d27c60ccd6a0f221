//! First in, first out.

use super::Policy;

/// Evicts the block that came first, however often it was used since.
#[derive(Debug)]
pub(crate) struct Fifo {
    /// In the order of arrival; `oldest` is the next to be overwritten.
    ring: Vec<u32>,
    oldest: usize,
    capacity: usize,
    cached: Vec<bool>,
}

impl Fifo {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Fifo {
        Fifo {
            ring: Vec::with_capacity(capacity.min(footprint)),
            oldest: 0,
            capacity,
            cached: vec![false; footprint],
        }
    }
}

impl Policy for Fifo {
    fn access(&mut self, block: u32) -> bool {
        if self.cached[block as usize] {
            return true;
        }
        self.cached[block as usize] = true;
        if self.ring.len() < self.capacity {
            self.ring.push(block);
            return false;
        }
        let victim = std::mem::replace(&mut self.ring[self.oldest], block);
        self.cached[victim as usize] = false;
        self.oldest += 1;
        if self.oldest == self.capacity {
            self.oldest = 0;
        }
        false
    }
}
