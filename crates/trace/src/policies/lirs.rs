//! LIRS (Jiang and Zhang, SIGMETRICS 2002).

use super::Policy;
use crate::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Nothing,
    /// Low inter-reference recency: cached, in the stack.
    Lir,
    /// High: cached, in the queue, perhaps in the stack.
    Hir,
    /// Remembered in the stack without data.
    Ghost,
}

/// Keeps the blocks with the shortest time between two uses. A stack orders blocks by recency;
/// its LIR blocks have 99 % of the cache, the HIR blocks pass through a queue with the rest.
#[derive(Debug)]
pub(crate) struct Lirs {
    state: Vec<State>,
    in_stack: Vec<bool>,
    stack_links: Links,
    stack: List,
    /// The queue of resident HIR blocks, and (a block is never in both) the ghosts by age.
    queue_links: Links,
    queue: List,
    ghosts: List,
    lir: usize,
    lir_limit: usize,
    capacity: usize,
}

impl Lirs {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Lirs {
        // 1 percent, as in the paper; at least one block, so that a miss has where to go.
        let hir_limit = (capacity / 100).max(1);
        Lirs {
            state: vec![State::Nothing; footprint],
            in_stack: vec![false; footprint],
            stack_links: Links::new(footprint),
            stack: List::default(),
            queue_links: Links::new(footprint),
            queue: List::default(),
            ghosts: List::default(),
            lir: 0,
            lir_limit: capacity - hir_limit,
            capacity,
        }
    }

    fn raise(&mut self, block: u32) {
        if self.in_stack[block as usize] {
            self.stack.move_to_front(&mut self.stack_links, block);
        } else {
            self.stack.push_front(&mut self.stack_links, block);
            self.in_stack[block as usize] = true;
        }
    }

    /// Stack pruning: the block at the bottom is always LIR.
    fn prune(&mut self) {
        while !self.stack.is_empty() {
            let bottom = self.stack.back();
            if self.state[bottom as usize] == State::Lir {
                return;
            }
            self.leave_stack(bottom);
        }
    }

    fn leave_stack(&mut self, block: u32) {
        self.stack.remove(&mut self.stack_links, block);
        self.in_stack[block as usize] = false;
        if self.state[block as usize] == State::Ghost {
            self.ghosts.remove(&mut self.queue_links, block);
            self.state[block as usize] = State::Nothing;
        }
    }

    /// A HIR block became LIR: if there are too many, the one at the bottom changes places.
    fn demote_lir(&mut self) {
        if self.lir <= self.lir_limit {
            return;
        }
        self.prune();
        let bottom = self.stack.back();
        self.stack.remove(&mut self.stack_links, bottom);
        self.in_stack[bottom as usize] = false;
        self.state[bottom as usize] = State::Hir;
        self.queue.push_front(&mut self.queue_links, bottom);
        self.lir -= 1;
        self.prune();
    }

    fn evict(&mut self) {
        let Some(victim) = self.queue.pop_back(&mut self.queue_links) else {
            return;
        };
        if self.in_stack[victim as usize] {
            self.state[victim as usize] = State::Ghost;
            self.ghosts.push_front(&mut self.queue_links, victim);
        } else {
            self.state[victim as usize] = State::Nothing;
        }
    }

    /// The paper bounds the stack; twice the cache is usual. The oldest ghosts go first.
    fn limit_stack(&mut self) {
        while self.stack.len() > 2 * self.capacity && !self.ghosts.is_empty() {
            self.leave_stack(self.ghosts.back());
        }
    }

    fn make_lir(&mut self, block: u32) {
        self.state[block as usize] = State::Lir;
        self.lir += 1;
        self.raise(block);
        self.demote_lir();
    }

    fn miss(&mut self, block: u32) {
        if self.lir + self.queue.len() == self.capacity {
            self.evict();
        }
        // The eviction may have pushed this very ghost out of the stack: look again.
        if self.state[block as usize] == State::Ghost {
            self.ghosts.remove(&mut self.queue_links, block);
            self.make_lir(block);
        } else if self.lir < self.lir_limit {
            self.make_lir(block);
        } else {
            self.raise(block);
            self.state[block as usize] = State::Hir;
            self.queue.push_front(&mut self.queue_links, block);
        }
    }
}

impl Policy for Lirs {
    fn access(&mut self, block: u32) -> bool {
        let hit = match self.state[block as usize] {
            State::Lir => {
                self.raise(block);
                self.prune();
                true
            }
            State::Hir if self.in_stack[block as usize] => {
                self.queue.remove(&mut self.queue_links, block);
                self.make_lir(block);
                true
            }
            State::Hir => {
                self.queue.move_to_front(&mut self.queue_links, block);
                self.raise(block);
                true
            }
            State::Ghost | State::Nothing => {
                self.miss(block);
                false
            }
        };
        self.limit_stack();
        hit
    }
}
