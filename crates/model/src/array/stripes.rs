//! Stripes of a RAID5 that are being written. A stripe that is written whole needs no reads; of any
//! other the rest, or the old contents and their parity, are read first, whichever is less.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{InStripe, Layout, Stretch, add_stretch};

/// A part of a command in a stripe.
#[derive(Clone, Copy, Debug)]
struct Written {
    command: u64,
    piece: InStripe,
}

/// A stripe on its way.
#[derive(Debug, Default)]
struct Stripe {
    /// Parts that have come and are not on their way.
    waiting: Vec<Written>,
    /// Commands with parts on their way.
    commands: Vec<u64>,
    /// Operations on members that have not ended.
    outstanding: u32,
    /// Written once all reads have ended.
    to_write: Vec<Stretch>,
    has_read: bool,
}

impl Stripe {
    fn is_underway(&self) -> bool {
        !self.commands.is_empty()
    }
}

/// The next step of a stripe.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) reads: Vec<Stretch>,
    pub(super) writes: Vec<Stretch>,
    /// Commands of which a part is done.
    pub(super) done: Vec<u64>,
}

/// All stripes that are being written.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    stripes: BTreeMap<u64, Stripe>,
    /// Stripes that were read from and are not written.
    reading: u32,
    counters: Arc<ArrayCounters>,
}

/// Counters of an array.
#[derive(Debug, Default)]
pub struct ArrayCounters {
    whole_stripes: AtomicU64,
    partial_stripes: AtomicU64,
}

impl ArrayCounters {
    /// Stripes of a RAID5 written without reading anything first.
    #[must_use]
    pub fn whole_stripes(&self) -> u64 {
        self.whole_stripes.load(Ordering::Relaxed)
    }

    /// Stripes of a RAID5 of which something was read before they were written.
    #[must_use]
    pub fn partial_stripes(&self) -> u64 {
        self.partial_stripes.load(Ordering::Relaxed)
    }
}

impl Stripes {
    /// Counters that go on being counted.
    pub(super) fn counters(&self) -> Arc<ArrayCounters> {
        self.counters.clone()
    }

    /// Takes a part of a command; the stripe's first step if it is whole now.
    pub(super) fn write(&mut self, layout: Layout, command: u64, piece: InStripe) -> Option<Step> {
        let stripe = self.stripes.entry(piece.stripe).or_default();
        stripe.waiting.push(Written { command, piece });
        let bytes: u64 = (stripe.waiting.iter())
            .map(|written| written.piece.to - written.piece.from)
            .sum();
        let is_whole = bytes >= layout.chunk_bytes * layout.columns() as u64;
        (is_whole && !stripe.is_underway()).then(|| self.begin(layout, piece.stripe))
    }

    /// Stripes of which nothing is underway and something waits, if they may begin: md reads for
    /// those that came while it read for others once these are written.
    pub(super) fn due(&self) -> Vec<u64> {
        if self.reading > 0 {
            return Vec::new();
        }
        (self.stripes.iter())
            .filter(|(_, stripe)| !stripe.is_underway() && !stripe.waiting.is_empty())
            .map(|(number, _)| *number)
            .collect()
    }

    /// Whether anything waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.stripes
            .values()
            .any(|stripe| !stripe.waiting.is_empty())
    }

    /// Begins to write what waits of a stripe.
    pub(super) fn begin(&mut self, layout: Layout, number: u64) -> Step {
        let stripe = self.stripes.entry(number).or_default();
        let written = std::mem::take(&mut stripe.waiting);
        let plan = plan(layout, number, &written);
        stripe.commands = written.iter().map(|written| written.command).collect();
        stripe.has_read = !plan.reads.is_empty();
        if stripe.has_read {
            self.counters
                .partial_stripes
                .fetch_add(1, Ordering::Relaxed);
            self.reading += 1;
            stripe.outstanding = plan.reads.len() as u32;
            stripe.to_write = plan.writes;
            return Step {
                reads: plan.reads,
                ..Step::default()
            };
        }
        self.counters.whole_stripes.fetch_add(1, Ordering::Relaxed);
        stripe.outstanding = plan.writes.len() as u32;
        plan
    }

    /// An operation on a member has ended.
    pub(super) fn ended(&mut self, number: u64) -> Step {
        let mut step = Step::default();
        let Some(stripe) = self.stripes.get_mut(&number) else {
            return step;
        };
        stripe.outstanding -= 1;
        if stripe.outstanding > 0 {
            return step;
        }
        step.writes = std::mem::take(&mut stripe.to_write);
        stripe.outstanding = step.writes.len() as u32;
        if step.writes.is_empty() {
            step.done = std::mem::take(&mut stripe.commands);
            self.reading -= u32::from(std::mem::take(&mut stripe.has_read));
            if stripe.waiting.is_empty() {
                self.stripes.remove(&number);
            }
        }
        step
    }
}

/// Reads and writes for these parts of a stripe, row by row.
fn plan(layout: Layout, number: u64, written: &[Written]) -> Step {
    let columns = layout.columns();
    let mut borders: Vec<u64> = (written.iter())
        .flat_map(|written| [written.piece.from, written.piece.to])
        .collect();
    borders.sort_unstable();
    borders.dedup();
    let mut step = Step::default();
    for row in borders.windows(2) {
        let (from, to) = (row[0], row[1]);
        let is_written = |column: usize| {
            let mut pieces = written.iter().map(|written| written.piece);
            pieces.any(|piece| piece.column == column && piece.from <= from && piece.to >= to)
        };
        let stretch = |member: usize| Stretch {
            member,
            start: number * layout.chunk_bytes + from,
            len_bytes: to - from,
        };
        let count = (0..columns).filter(|column| is_written(*column)).count();
        if count == 0 {
            continue;
        }
        let reads_old = count + 1 < columns - count;
        for column in 0..columns {
            let member = layout.member(number, column);
            if is_written(column) == reads_old {
                add_stretch(&mut step.reads, stretch(member));
            }
            if is_written(column) {
                add_stretch(&mut step.writes, stretch(member));
            }
        }
        let parity = stretch(layout.parity(number));
        if reads_old {
            add_stretch(&mut step.reads, parity);
        }
        add_stretch(&mut step.writes, parity);
    }
    step
}
