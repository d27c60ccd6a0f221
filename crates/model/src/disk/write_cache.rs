//! Writes acknowledged but not yet on the platters, sorted by address.

/// A piece of cached writes without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of flushes before its oldest byte.
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct WriteCache {
    extents: Vec<Extent>,
    used_bytes: u64,
    capacity_bytes: u64,
    max_extents: usize,
}

impl WriteCache {
    pub(super) fn new(capacity_bytes: u64, max_extents: usize) -> WriteCache {
        let max_extents = max_extents.max(1);
        WriteCache {
            extents: Vec::with_capacity(max_extents + 1),
            used_bytes: 0,
            capacity_bytes,
            max_extents,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub(super) fn is_nearly_full(&self) -> bool {
        self.used_bytes > self.capacity_bytes / 4 * 3
    }

    /// Whether a write of this length may come in. A write longer than the cache may when it is
    /// empty, or it could never come in.
    pub(super) fn has_room(&self, len_bytes: u64) -> bool {
        self.extents.is_empty()
            || (self.used_bytes + len_bytes <= self.capacity_bytes
                && self.extents.len() < self.max_extents)
    }

    pub(super) fn oldest_generation(&self) -> Option<u64> {
        self.extents.iter().map(|extent| extent.generation).min()
    }

    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let next = self.extents.partition_point(|extent| extent.end <= start);
        self.extents
            .get(next)
            .is_some_and(|extent| extent.start <= start && extent.end >= end)
    }

    pub(super) fn insert(&mut self, start: u64, end: u64, generation: u64) {
        let mut merged = Extent {
            start,
            end,
            generation,
        };
        // Pieces that only touch are joined within a generation alone, or a steady stream of
        // writes would keep a flush waiting for what came after it.
        let joins = |extent: &Extent| {
            let touches = extent.end == start || extent.start == end;
            !touches || extent.generation == generation
        };
        let mut from = self.extents.partition_point(|extent| extent.end < start);
        while self
            .extents
            .get(from)
            .is_some_and(|extent| extent.end == start && !joins(extent))
        {
            from += 1;
        }
        let mut to = from;
        while let Some(extent) = self.extents.get(to) {
            if extent.start > end || !joins(extent) {
                break;
            }
            merged.start = merged.start.min(extent.start);
            merged.end = merged.end.max(extent.end);
            merged.generation = merged.generation.min(extent.generation);
            self.used_bytes -= extent.end - extent.start;
            to += 1;
        }
        self.used_bytes += merged.end - merged.start;
        self.extents.splice(from..to, [merged]);
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
        let count = self.extents.len();
        let first = self.extents.partition_point(|extent| extent.start < head);
        let mut best = None;
        let counts = |index: &usize| {
            generation.is_none_or(|newest| self.extents[*index].generation <= newest)
        };
        let indexes = (0..count).map(|step| (first + step) % count);
        for index in indexes.filter(counts).take(window) {
            let delay_ns = delay_ns(self.extents[index].start);
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
    pub(super) fn take(&mut self, index: usize, max_bytes: u64) -> Extent {
        let extent = self.extents[index];
        let end = extent.end.min(extent.start + max_bytes);
        self.used_bytes -= end - extent.start;
        if end == extent.end {
            self.extents.remove(index);
        } else {
            self.extents[index].start = end;
        }
        Extent { end, ..extent }
    }
}
