//! Commands whose completion time is known, in order of that time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Default)]
pub(crate) struct Completions {
    // The count in the middle keeps commands of equal time in order of arrival.
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    pushed: u64,
}

impl Completions {
    pub(crate) fn push(&mut self, at_ns: u64, id: u64) {
        self.heap.push(Reverse((at_ns, self.pushed, id)));
        self.pushed += 1;
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ns, _, id))| (id, at_ns))
    }
}
