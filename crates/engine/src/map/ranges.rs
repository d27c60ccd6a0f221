//! Ranges of blocks that something owns as one (I11): a write without a job its blocks, a writer what
//! is on its way to the origin. An entry of each block in a table costs a sixth of the instructions
//! of a long write.

use crate::format::BlockKey;

/// Blocks in a row, from `first` to before `end`, and whose they are.
#[derive(Clone, Copy, Debug)]
struct Range<T> {
    first: BlockKey,
    end: BlockKey,
    of: T,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ranges<T> {
    /// In the order of their blocks; no two overlap. There are as many as requests are in flight, which
    /// are few.
    ranges: Vec<Range<T>>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges { ranges: Vec::new() }
    }
}

impl<T> Ranges<T> {
    /// Whether a block is in a range.
    #[inline(always)]
    pub(crate) fn hold(&self, key: BlockKey) -> bool {
        !self.ranges.is_empty() && self.hold_any(key, key.plus(1))
    }

    /// Whether a block from `first` to before `end` is in a range.
    // By itself: few ask while there is a range, and all pay for what is compiled into them.
    #[inline(never)]
    pub(crate) fn hold_any(&self, first: BlockKey, end: BlockKey) -> bool {
        let at = self.first_behind(first);
        self.ranges.get(at).is_some_and(|range| range.first < end)
    }

    /// The first of those that end behind this block.
    fn first_behind(&self, key: BlockKey) -> usize {
        self.ranges.partition_point(|range| range.end <= key)
    }

    /// Adds a range.
    ///
    /// # Panics
    /// If one of its blocks is in another.
    pub(crate) fn add(&mut self, first: BlockKey, end: BlockKey, of: T) {
        let at = self.first_behind(first);
        let next = self.ranges.get(at);
        assert!(
            next.is_none_or(|range| range.first >= end),
            "I11: a block has one owner, and one write to the origin at a time"
        );
        self.ranges.insert(at, Range { first, end, of });
    }

    /// Removes a range.
    ///
    /// # Panics
    /// If there is none with these blocks.
    pub(crate) fn remove(&mut self, first: BlockKey, end: BlockKey) {
        let at = self.first_behind(first);
        let range = self.ranges.get(at);
        let blocks = range.map(|range| (range.first, range.end));
        assert_eq!(blocks, Some((first, end)), "I11");
        self.ranges.remove(at);
    }

    /// Removes those between `first` and `end` of which this is true. Returns whether there was one.
    pub(crate) fn remove_where(
        &mut self,
        first: BlockKey,
        end: BlockKey,
        is_it: impl Fn(&T) -> bool,
    ) -> bool {
        let mut at = self.first_behind(first);
        let behind = self.ranges[at..].partition_point(|range| range.first < end);
        let before = self.ranges.len();
        for _ in 0..behind {
            if is_it(&self.ranges[at].of) {
                self.ranges.remove(at);
            } else {
                at += 1;
            }
        }
        self.ranges.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_blocks_and_no_others() {
        let mut ranges = Ranges::default();
        let [a, b, c, d] = [10, 20, 30, 40].map(BlockKey);
        assert!(!ranges.hold(a));
        ranges.add(c, d, ());
        ranges.add(a, b, ());
        for (key, held) in [
            (9, false),
            (10, true),
            (19, true),
            (20, false),
            (39, true),
            (40, false),
        ] {
            assert_eq!(ranges.hold(BlockKey(key)), held, "{key}");
        }
        assert!(!ranges.hold_any(b, c));
        assert!(ranges.hold_any(BlockKey(19), c) && ranges.hold_any(b, BlockKey(31)));
        ranges.remove(a, b);
        assert!(!ranges.hold(a) && ranges.hold(c));
    }

    #[test]
    #[should_panic(expected = "I11")]
    fn no_block_is_in_two_ranges() {
        let mut ranges = Ranges::default();
        ranges.add(BlockKey(3), BlockKey(9), ());
        ranges.add(BlockKey(8), BlockKey(10), ());
    }
}
