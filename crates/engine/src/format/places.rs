//! The places of a shard's segments, in a cache that keeps two copies of dirty data
//! (docs/decisions/0040-dirty-data-on-two-devices.md). A segment has a place of its own. One of the
//! write stream has a second place on another device, which is that of a segment that holds nothing
//! meanwhile. An example:
//!
//! 1. Segment 5 is on device 0, segment 90 on device 1. Both are free.
//! 2. The write stream opens segment 5 with segment 90's place as its second. Each write goes to
//!    both places, byte by byte the same: headers and summaries in 90's place say segment 5.
//! 3. Device 0 is lost. Segment 5 is in 90's place alone, and keeps its name.
//! 4. Segment 5 is reclaimed. Segment 90's place is free.

use super::SegmentId;

/// No place.
const NONE: u32 = u32::MAX;
/// Reads of neighbours go to one of the two devices for so many blocks.
const BLOCKS_OF_A_TURN: u16 = 16;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// By segment: whose place holds it.
    home: Vec<u32>,
    /// By segment: whose place holds its second copy.
    second: Vec<u32>,
}

impl Places {
    /// Each of so many segments is in its own place alone.
    pub(crate) fn own(segments: u32) -> Places {
        Places {
            home: (0..segments).collect(),
            second: vec![NONE; segments as usize],
        }
    }

    /// Where to read a segment from: from its block at `in_segment`, at the `attempt` before which
    /// others failed. With each the other device is asked.
    pub(crate) fn to_read(&self, segment: SegmentId, in_segment: u16, attempt: u8) -> SegmentId {
        match self.both_to_read(segment, in_segment) {
            (_, Some(other)) if !attempt.is_multiple_of(2) => other,
            (place, _) => place,
        }
    }

    /// Where to read a segment from first, and whose place holds it too.
    #[inline]
    pub(crate) fn both_to_read(
        &self,
        segment: SegmentId,
        in_segment: u16,
    ) -> (SegmentId, Option<SegmentId>) {
        let home = self.home(segment);
        match self.second(segment) {
            Some(second) if (in_segment / BLOCKS_OF_A_TURN).is_multiple_of(2) => {
                (home, Some(second))
            }
            Some(second) => (second, Some(home)),
            None => (home, None),
        }
    }

    /// Whose place holds a segment.
    pub(crate) fn home(&self, segment: SegmentId) -> SegmentId {
        SegmentId(self.home[segment.0 as usize])
    }

    /// Whose place holds the second copy of a segment.
    pub(crate) fn second(&self, segment: SegmentId) -> Option<SegmentId> {
        match self.second[segment.0 as usize] {
            NONE => None,
            second => Some(SegmentId(second)),
        }
    }

    /// A segment is in these places from now on.
    pub(crate) fn set(&mut self, segment: SegmentId, home: SegmentId, second: Option<SegmentId>) {
        assert_ne!(Some(home), second, "I28: two copies have two places");
        self.home[segment.0 as usize] = home.0;
        self.second[segment.0 as usize] = second.map_or(NONE, |second| second.0);
    }

    /// There are so many segments from now on, or more.
    pub(crate) fn grow(&mut self, segments: u32) {
        for id in self.home.len() as u32..segments {
            self.home.push(id);
            self.second.push(NONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_take_turns_and_a_second_attempt_asks_the_other() {
        let mut places = Places::own(4);
        let to_read = |places: &Places, in_segment, attempt| {
            places.to_read(SegmentId(1), in_segment, attempt).0
        };
        assert_eq!(to_read(&places, 40, 3), 1, "there is one copy");
        places.set(SegmentId(1), SegmentId(1), Some(SegmentId(3)));
        let devices = [0, 15, 16, 31, 32].map(|in_segment| to_read(&places, in_segment, 0));
        assert_eq!(devices, [1, 1, 3, 3, 1]);
        assert_ne!(to_read(&places, 7, 0), to_read(&places, 7, 1));
        places.set(SegmentId(1), SegmentId(3), None);
        assert_eq!(to_read(&places, 7, 1), 3, "its own place is lost");
        places.grow(6);
        assert_eq!(places.home(SegmentId(5)), SegmentId(5));
    }
}
