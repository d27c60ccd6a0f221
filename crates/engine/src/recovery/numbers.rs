//! Numbers are given once (I1): to one entry of a shard in an epoch, or to one segment. Recovery
//! relies on it, so it is checked where records are put together.

use std::collections::{BTreeMap, BTreeSet};

use super::Found;
use crate::format::plausible::SPREAD;
use crate::format::{EntryList, SegmentId};

/// The numbers of the entries of one segment: first and one past the last.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    /// Adds those of a record, unless one of them was given already or is out of all proportion:
    /// that is damage.
    pub(super) fn take(&mut self, entries: &EntryList, id: SegmentId, found: &mut Found) -> bool {
        let mut taken = Vec::new();
        for entry in entries.iter().filter_map(Result::ok) {
            let (first, end) = (entry.number, entry.number + u64::from(entry.entry.count()));
            let before = self.0.range(..end).next_back();
            let lowest = self
                .0
                .keys()
                .next()
                .map_or(first, |lowest| first.min(*lowest));
            let highest = self
                .0
                .values()
                .next_back()
                .map_or(end, |highest| end.max(*highest));
            if before.is_some_and(|(_, before)| *before > first) || highest - lowest >= SPREAD {
                for first in taken {
                    self.0.remove(&first);
                }
                found.malformed(format!(
                    "records of segment {} have numbers that cannot be together",
                    id.0
                ));
                return false;
            }
            self.0.insert(first, end);
            taken.push(first);
        }
        true
    }
}

/// Drops both of two segments with one generation: either is a copy of the other, or made up.
pub(super) fn drop_twins(found: &mut Found) {
    let mut seen = BTreeSet::new();
    let segments = found.segments.iter();
    let twins: BTreeSet<_> = segments
        .map(|segment| segment.generation)
        .filter(|generation| !seen.insert(*generation))
        .collect();
    if twins.is_empty() {
        return;
    }
    for segment in std::mem::take(&mut found.segments) {
        if twins.contains(&segment.generation) {
            found.malformed(format!(
                "segment {} has the generation of another",
                segment.id.0
            ));
        } else {
            found.segments.push(segment);
        }
    }
}
