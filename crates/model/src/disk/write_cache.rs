//! Writes acknowledged but not yet on the platters, sorted by address.

/// A range of cached writes without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedRange {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of flushes before its oldest byte.
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct WriteCache {
    ranges: Vec<CachedRange>,
    used_bytes: u64,
    capacity_bytes: u64,
    max_extents: usize,
}

impl WriteCache {
    pub(super) fn new(capacity_bytes: u64, max_extents: usize) -> WriteCache {
        let max_extents = max_extents.max(1);
        WriteCache {
            ranges: Vec::with_capacity(max_extents + 1),
            used_bytes: 0,
            capacity_bytes,
            max_extents,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn is_nearly_full(&self) -> bool {
        self.used_bytes > self.capacity_bytes / 4 * 3
    }

    /// Whether a write of this length may come in. A write longer than the cache may when it is
    /// empty, or it could never come in.
    pub(super) fn has_room(&self, len_bytes: u64) -> bool {
        self.ranges.is_empty()
            || (self.used_bytes + len_bytes <= self.capacity_bytes
                && self.ranges.len() < self.max_extents)
    }

    pub(super) fn oldest_generation(&self) -> Option<u64> {
        self.ranges.iter().map(|range| range.generation).min()
    }

    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let next = self.ranges.partition_point(|range| range.end <= start);
        self.ranges
            .get(next)
            .is_some_and(|range| range.start <= start && range.end >= end)
    }

    pub(super) fn insert(&mut self, start: u64, end: u64, generation: u64) {
        let mut merged = CachedRange {
            start,
            end,
            generation,
        };
        // Pieces that only touch are joined within a generation alone, or a steady stream of
        // writes would keep a flush waiting for what came after it.
        let joins = |range: &CachedRange| {
            let touches = range.end == start || range.start == end;
            !touches || range.generation == generation
        };
        let mut from = self.ranges.partition_point(|range| range.end < start);
        while self
            .ranges
            .get(from)
            .is_some_and(|range| range.end == start && !joins(range))
        {
            from += 1;
        }
        let mut to = from;
        while let Some(range) = self.ranges.get(to) {
            if range.start > end || !joins(range) {
                break;
            }
            merged.start = merged.start.min(range.start);
            merged.end = merged.end.max(range.end);
            merged.generation = merged.generation.min(range.generation);
            self.used_bytes -= range.end - range.start;
            to += 1;
        }
        self.used_bytes += merged.end - merged.start;
        self.ranges.splice(from..to, [merged]);
    }

    /// The piece that is reached soonest among the `window` next ones from `head` on, round the
    /// end of the disk. While a flush waits only its own `generation` and older ones count: a
    /// stream of new writes under the head would keep it waiting for ever.
    pub(super) fn nearest(
        &self,
        window: usize,
        head: u64,
        generation: Option<u64>,
        delay_ns: impl Fn(u64) -> u64,
    ) -> Option<(usize, u64)> {
        let count = self.ranges.len();
        let first = self.ranges.partition_point(|range| range.start < head);
        let mut best = None;
        let counts = |index: &usize| {
            generation.is_none_or(|newest| self.ranges[*index].generation <= newest)
        };
        let indexes = (0..count).map(|step| (first + step) % count);
        for index in indexes.filter(counts).take(window) {
            let delay_ns = delay_ns(self.ranges[index].start);
            if best.is_none_or(|(_, least_ns)| delay_ns < least_ns) {
                best = Some((index, delay_ns));
            }
            if delay_ns == 0 {
                break;
            }
        }
        best
    }

    /// Takes up to `max_bytes` from the front of a piece.
    pub(super) fn take(&mut self, index: usize, max_bytes: u64) -> CachedRange {
        let range = self.ranges[index];
        let end = range.end.min(range.start + max_bytes);
        self.used_bytes -= end - range.start;
        if end == range.end {
            self.ranges.remove(index);
        } else {
            self.ranges[index].start = end;
        }
        CachedRange { end, ..range }
    }
}
