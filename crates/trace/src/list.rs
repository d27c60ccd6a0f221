//! Doubly linked lists over block ids, without an allocation per entry.

/// No block.
pub(crate) const NONE: u32 = u32::MAX;

/// The links of every block; a block is in at most one of the lists that share them.
#[derive(Debug)]
pub(crate) struct Links {
    /// `[next, previous]`, beside each other because a move touches both.
    of: Vec<[u32; 2]>,
}

impl Links {
    /// Links for blocks below `footprint`.
    pub(crate) fn new(footprint: usize) -> Links {
        Links {
            of: vec![[NONE; 2]; footprint],
        }
    }

    /// The block before this one.
    pub(crate) fn previous(&self, block: u32) -> u32 {
        self.of[block as usize][1]
    }
}

/// A list: blocks enter at the front and leave, oldest first, at the back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    front: u32,
    back: u32,
    len: usize,
}

impl Default for List {
    fn default() -> List {
        List {
            front: NONE,
            back: NONE,
            len: 0,
        }
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The block at the back, or [`NONE`].
    pub(crate) fn back(&self) -> u32 {
        self.back
    }

    pub(crate) fn push_front(&mut self, links: &mut Links, block: u32) {
        links.of[block as usize] = [self.front, NONE];
        match self.front {
            NONE => self.back = block,
            front => links.of[front as usize][1] = block,
        }
        self.front = block;
        self.len += 1;
    }

    pub(crate) fn push_back(&mut self, links: &mut Links, block: u32) {
        links.of[block as usize] = [NONE, self.back];
        match self.back {
            NONE => self.front = block,
            back => links.of[back as usize][0] = block,
        }
        self.back = block;
        self.len += 1;
    }

    /// Takes out a block that is in this list.
    pub(crate) fn remove(&mut self, links: &mut Links, block: u32) {
        let [next, previous] = links.of[block as usize];
        match next {
            NONE => self.back = previous,
            next => links.of[next as usize][1] = previous,
        }
        match previous {
            NONE => self.front = next,
            previous => links.of[previous as usize][0] = next,
        }
        self.len -= 1;
    }

    pub(crate) fn pop_back(&mut self, links: &mut Links) -> Option<u32> {
        let block = self.back;
        if block == NONE {
            return None;
        }
        self.remove(links, block);
        Some(block)
    }

    /// Takes the block at the front, the newest.
    pub(crate) fn pop_front(&mut self, links: &mut Links) -> Option<u32> {
        let block = self.front;
        if block == NONE {
            return None;
        }
        self.remove(links, block);
        Some(block)
    }

    pub(crate) fn move_to_front(&mut self, links: &mut Links, block: u32) {
        if self.front != block {
            self.remove(links, block);
            self.push_front(links, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_in_the_order_they_came() {
        let (mut links, mut list) = (Links::new(5), List::default());
        for block in 0..4 {
            list.push_front(&mut links, block);
        }
        list.push_back(&mut links, 4);
        list.move_to_front(&mut links, 0);
        list.remove(&mut links, 2);
        assert_eq!((list.len(), list.back()), (4, 4));
        let out: Vec<u32> = std::iter::from_fn(|| list.pop_back(&mut links)).collect();
        assert_eq!(out, [4, 1, 3, 0]);
        assert!(list.is_empty() && list.pop_front(&mut links).is_none());
    }
}
