//! Counting marks behind a position in logarithmic time (Fenwick 1994).

/// Marks on positions `0..len`.
#[derive(Debug)]
pub(crate) struct Fenwick {
    tree: Vec<u32>,
}

impl Fenwick {
    pub(crate) fn new(len: usize) -> Fenwick {
        Fenwick {
            tree: vec![0; len + 1],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tree.len() - 1
    }

    pub(crate) fn clear(&mut self) {
        self.tree.fill(0);
    }

    pub(crate) fn set(&mut self, position: usize) {
        let mut at = position + 1;
        while at < self.tree.len() {
            self.tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    pub(crate) fn unset(&mut self, position: usize) {
        let mut at = position + 1;
        while at < self.tree.len() {
            self.tree[at] -= 1;
            at += at & at.wrapping_neg();
        }
    }

    /// The number of marks on positions up to and with this one.
    pub(crate) fn up_to(&self, position: usize) -> u32 {
        let (mut at, mut marks) = (position + 1, 0);
        while at > 0 {
            marks += self.tree[at];
            at &= at - 1;
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_up_to_a_position() {
        let mut marks = Fenwick::new(10);
        for position in [0, 3, 4, 9] {
            marks.set(position);
        }
        marks.unset(3);
        let counts: Vec<u32> = (0..10).map(|position| marks.up_to(position)).collect();
        assert_eq!(counts, [1, 1, 1, 1, 2, 2, 2, 2, 2, 3]);
        marks.clear();
        assert_eq!((marks.up_to(9), marks.len()), (0, 10));
    }
}
