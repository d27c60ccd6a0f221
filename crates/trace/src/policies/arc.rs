//! ARC, the adaptive replacement cache (Megiddo and Modha, FAST 2003).

use super::Policy;
use crate::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Nothing,
    /// Cached, seen once lately.
    T1,
    /// Cached, seen at least twice lately.
    T2,
    /// Evicted from T1.
    B1,
    /// Evicted from T2.
    B2,
}

/// Two LRU lists, one for recency and one for frequency; hits on their ghosts move the border
/// between them. Names are the paper's.
#[derive(Debug)]
pub(crate) struct Arc {
    links: Links,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
    state: Vec<In>,
    /// The size T1 is to have: `p` of the paper, a real number there too.
    target: f64,
    capacity: usize,
}

impl Arc {
    pub(crate) fn new(capacity: usize, footprint: usize) -> Arc {
        Arc {
            links: Links::new(footprint),
            t1: List::default(),
            t2: List::default(),
            b1: List::default(),
            b2: List::default(),
            state: vec![In::Nothing; footprint],
            target: 0.0,
            capacity,
        }
    }

    /// REPLACE of the paper.
    fn replace(&mut self, wanted_from_b2: bool) {
        let t1 = self.t1.len() as f64;
        let from_t1 = !self.t1.is_empty()
            && (t1 > self.target || (t1 == self.target && wanted_from_b2) || self.t2.is_empty());
        let (from, to, state) = if from_t1 {
            (&mut self.t1, &mut self.b1, In::B1)
        } else {
            (&mut self.t2, &mut self.b2, In::B2)
        };
        if let Some(victim) = from.pop_back(&mut self.links) {
            to.push_front(&mut self.links, victim);
            self.state[victim as usize] = state;
        }
    }

    /// Case IV of the paper: neither cached nor remembered.
    fn make_room(&mut self) {
        let l1 = self.t1.len() + self.b1.len();
        let all = l1 + self.t2.len() + self.b2.len();
        if l1 == self.capacity {
            if self.t1.len() < self.capacity {
                self.forget(In::B1);
                self.replace(false);
            } else {
                self.forget(In::T1);
            }
        } else if all >= self.capacity {
            if all == 2 * self.capacity {
                self.forget(In::B2);
            }
            if self.t1.len() + self.t2.len() == self.capacity {
                self.replace(false);
            }
        }
    }

    fn forget(&mut self, which: In) {
        let list = match which {
            In::T1 => &mut self.t1,
            In::B1 => &mut self.b1,
            _ => &mut self.b2,
        };
        if let Some(block) = list.pop_back(&mut self.links) {
            self.state[block as usize] = In::Nothing;
        }
    }
}

impl Policy for Arc {
    fn access(&mut self, block: u32) -> bool {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let hit = match self.state[block as usize] {
            In::T1 => {
                self.t1.remove(&mut self.links, block);
                true
            }
            In::T2 => {
                self.t2.move_to_front(&mut self.links, block);
                return true;
            }
            In::B1 => {
                self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
                self.replace(false);
                self.b1.remove(&mut self.links, block);
                false
            }
            In::B2 => {
                self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
                self.replace(true);
                self.b2.remove(&mut self.links, block);
                false
            }
            In::Nothing => {
                self.make_room();
                self.t1.push_front(&mut self.links, block);
                self.state[block as usize] = In::T1;
                return false;
            }
        };
        self.t2.push_front(&mut self.links, block);
        self.state[block as usize] = In::T2;
        hit
    }
}
