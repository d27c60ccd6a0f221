//! OPT, also MIN: no policy can beat it (Belady 1966).

use std::collections::BinaryHeap;

use super::Policy;

/// For each access, the position of the next one to the same block; [`NEVER`] if there is none.
pub(crate) fn next_uses(blocks: &[u32], footprint: usize) -> Vec<u32> {
    let mut next_of = vec![NEVER; footprint];
    let mut next = vec![NEVER; blocks.len()];
    for (at, &block) in blocks.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut next_of[block as usize], at as u32);
    }
    next
}

/// No next use.
pub(crate) const NEVER: u32 = u32::MAX;
/// Not cached.
const ABSENT: u32 = u32::MAX - 1;

/// Evicts the block whose next use is farthest away, which only a simulator can know.
#[derive(Debug)]
pub(crate) struct Opt<'a> {
    next: &'a [u32],
    now: usize,
    /// The next use of each cached block.
    next_of: Vec<u32>,
    /// `(next use, block)`, farthest first; entries that `next_of` contradicts are out of date.
    farthest: BinaryHeap<(u32, u32)>,
    cached: usize,
    capacity: usize,
}

impl<'a> Opt<'a> {
    /// Needs the positions that [`next_uses`] found, for exactly the accesses that follow.
    pub(crate) fn new(capacity: usize, footprint: usize, next: &'a [u32]) -> Opt<'a> {
        Opt {
            next,
            now: 0,
            next_of: vec![ABSENT; footprint],
            farthest: BinaryHeap::new(),
            cached: 0,
            capacity,
        }
    }

    fn evict(&mut self) {
        while let Some((next, block)) = self.farthest.pop() {
            if self.next_of[block as usize] == next {
                self.next_of[block as usize] = ABSENT;
                self.cached -= 1;
                return;
            }
        }
    }

    /// Hits leave entries behind that are out of date: without this the heap grows with the
    /// trace.
    fn tidy(&mut self) {
        if self.farthest.len() > 2 * self.cached + 1024 {
            let next_of = &self.next_of;
            self.farthest
                .retain(|&(next, block)| next_of[block as usize] == next);
        }
    }
}

impl Policy for Opt<'_> {
    fn access(&mut self, block: u32) -> bool {
        let next = self.next[self.now];
        self.now += 1;
        let hit = self.next_of[block as usize] != ABSENT;
        if !hit {
            if self.cached == self.capacity {
                self.evict();
            }
            self.cached += 1;
        }
        self.next_of[block as usize] = next;
        self.farthest.push((next, block));
        self.tidy();
        hit
    }
}
