//! Random replacement.

use super::Policy;
use crate::list::NONE;
use forebay_random::SplitMix64;

/// Evicts any block, each as likely as the other.
#[derive(Debug)]
pub(crate) struct RandomReplacement {
    held: Vec<u32>,
    /// Where each block is in `held`.
    at: Vec<u32>,
    capacity: usize,
    random: SplitMix64,
}

impl RandomReplacement {
    pub(crate) fn new(capacity: usize, footprint: usize, seed: u64) -> RandomReplacement {
        RandomReplacement {
            held: Vec::with_capacity(capacity.min(footprint)),
            at: vec![NONE; footprint],
            capacity,
            random: SplitMix64::new(seed),
        }
    }
}

impl Policy for RandomReplacement {
    fn access(&mut self, block: u32) -> bool {
        if self.at[block as usize] != NONE {
            return true;
        }
        let place = if self.held.len() < self.capacity {
            self.held.push(block);
            self.held.len() - 1
        } else {
            let place = self.random.below(self.capacity as u64) as usize;
            let victim = std::mem::replace(&mut self.held[place], block);
            self.at[victim as usize] = NONE;
            place
        };
        self.at[block as usize] = place as u32;
        false
    }
}
