//! The plan of write-back: which dirty blocks go next.
//!
//! A sweep takes the oldest part of the dirty data, so that the write stream's tail never stays
//! dirty, and sorts it by address.
//!
//! Dirty blocks that may not go now are passed by: those on an origin that wait for its flush, or of
//! an origin that fails. A plan passes by a bounded number, the next goes on behind them, and the
//! time between two follows from that number. So a shard whose origin hangs or fails with 100 GiB
//! dirty neither stands still for its plans nor spends more than a twentieth of a processor on them.

use crate::format::{BlockKey, SegmentId, Sequence, Stream};
use crate::interface::{Nanos, VolumeSlot};
use crate::origin::Origin;
use crate::origin::hurry::Hurry;
use crate::planted::{self, Bug};
use crate::settings::WritebackPolicy;
use crate::store::Store;

/// A sweep takes at least this many blocks if there are as many, and at most so many.
const SWEEP_BLOCKS: (usize, usize) = (4096, 131_072);
/// The sweep for somebody who waits for room: the dirty blocks of a few of the oldest segments, or
/// the first of them is free only when a long sweep is over.
const TAIL_BLOCKS: usize = 1024;
/// When there was nothing to do, look again after this long.
pub(super) const IDLE_CHECK: Nanos = Nanos(20_000_000);
/// Time between looks for data that is due by an age of its volume's own.
const OWN_AGES_CHECK: Nanos = Nanos(500_000_000);
/// Dirty blocks that are not due, which one plan passes by at most: 3 ms of a processor.
const MOST_PASSED_BY: usize = 32_768;
/// So many may be passed by without a rest, and so many more for each block that is due.
const FREE_OF_REST: (usize, usize) = (1024, 8);
/// The rest after a plan for each further block: twenty times the 0.1 µs that it takes to look at.
const REST: Nanos = Nanos(2_000);

/// The blocks that go to the origins next.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    blocks: Vec<BlockKey>,
    at: usize,
    /// It is of the write stream's tail alone, for somebody who waits for room.
    is_of_tail: bool,
    /// The rest of a round of plans, of which the last did not come to the end.
    rest: Option<Rest>,
    /// No new one is planned before: the last plan found nothing due, or passed much by.
    next_plan: Nanos,
    /// Likewise, where somebody hurries.
    next_hurried_plan: Nanos,
    /// The last look for data that is due by an age of its volume's own.
    ages_looked_at: Option<Nanos>,
}

/// Segments that a round of plans has not gone through: behind the first of these generations, up to
/// the second. What is appended meanwhile is for the next round, which begins with the oldest again.
#[derive(Clone, Copy, Debug)]
struct Rest {
    behind: Sequence,
    end: Sequence,
}

/// A walk through dirty data.
#[derive(Default)]
struct Walk {
    due: Vec<BlockKey>,
    /// Dirty blocks that are not due.
    passed_by: usize,
    /// Blocks without a durable entry were among them.
    undurable: bool,
    /// The generation of the last segment.
    youngest: Sequence,
    /// The next one is to go on where it ended.
    is_cut: bool,
}

/// The blocks that a plan asks for.
struct Wanted {
    blocks: usize,
    /// Whatever their age.
    all: bool,
    /// Otherwise segments that are younger hold none.
    least_age: Nanos,
}

impl Sweep {
    /// The next block, if there is one left.
    pub(super) fn next(&self) -> Option<BlockKey> {
        self.blocks.get(self.at).copied()
    }

    pub(super) fn pass(&mut self) {
        self.at += 1;
    }

    /// Whether blocks are left.
    pub(super) fn has_more(&self) -> bool {
        self.at < self.blocks.len()
    }

    /// When one may be planned, where somebody hurries or not.
    pub(super) fn next_plan(&self, hurry: Hurry) -> Nanos {
        match hurry {
            Hurry::No => self.next_plan,
            Hurry::InPortions | Hurry::AtOnce => self.next_hurried_plan,
        }
    }

    /// Ends the sweep, unless it is of the tail; the next one is.
    pub(super) fn turn_to_tail(&mut self) {
        if !self.is_of_tail {
            (self.at, self.is_of_tail, self.rest) = (self.blocks.len(), true, None);
        }
    }

    /// Whether a round of plans has not come to its end.
    pub(super) fn is_cut(&self) -> bool {
        self.rest.is_some()
    }

    /// Has the next plan be made at once: an origin takes blocks again. A round goes on where it is. If
    /// it began anew whenever a failing origin is tried, it would never come to what is behind that
    /// origin's blocks.
    pub(super) fn go_on(&mut self) {
        (self.next_plan, self.next_hurried_plan) = (Nanos(0), Nanos(0));
    }

    /// Has the next plan begin with the oldest, and at once: blocks that were not due may be due now.
    pub(super) fn begin_anew(&mut self) {
        self.go_on();
        self.rest = None;
    }

    /// Sets when the next plan may be.
    fn set_next_plan(&mut self, now: Nanos, walk: &Walk, all: bool) {
        let free = FREE_OF_REST.0 + walk.due.len() * FREE_OF_REST.1;
        let passed_by = walk.passed_by.saturating_sub(free);
        let rest = Nanos(passed_by as u64 * REST.0);
        if all {
            self.next_hurried_plan = now.after(rest);
        }
        self.next_plan = if walk.due.is_empty() {
            now.after(rest.max(IDLE_CHECK))
        } else {
            now.after(rest)
        };
    }
}

impl Origin {
    /// Plans a sweep over the oldest dirty blocks. False if nothing is due.
    pub(super) fn plan_sweep(&mut self, store: &mut Store, now: Nanos) -> bool {
        let sweep = &mut self.writeback.sweep;
        sweep.is_of_tail &= self.writeback.hurry == Hurry::AtOnce;
        let is_of_tail = sweep.is_of_tail;
        let rest = sweep.rest.take();
        let all = self.is_all_asked_for(store);
        let wanted = Wanted {
            blocks: if is_of_tail {
                TAIL_BLOCKS
            } else {
                (store.present_dirty() as usize / 4).clamp(SWEEP_BLOCKS.0, SWEEP_BLOCKS.1)
            },
            all: all || is_due_anyway(store),
            least_age: self.least_age(store, now, rest.is_some()),
        };
        store.unreadable.keep_newest(&store.index);
        let mut walk = self.walk(store, now, &wanted, rest);
        walk.due.sort_unstable();
        if walk.due.is_empty() {
            if walk.undurable && all {
                store.want_durable(store.last_number());
            }
            self.ask_for_origin_flushes(store);
        }
        store.sweep_begins(is_of_tail, walk.due.len(), walk.youngest);
        let sweep = &mut self.writeback.sweep;
        sweep.set_next_plan(now, &walk, all);
        sweep.rest = walk.is_cut.then(|| Rest {
            behind: walk.youngest,
            end: rest.map_or_else(|| youngest_of(store), |rest| rest.end),
        });
        (sweep.blocks, sweep.at) = (walk.due, 0);
        self.writeback.hurry = Hurry::No;
        sweep.has_more()
    }

    /// Whether all dirty data is to be written back, whatever the policy says.
    fn is_all_asked_for(&self, store: &Store) -> bool {
        let draining = store.volumes.iter().flatten().any(|volume| {
            volume.dirty_blocks > 0
                && !volume.away
                && (volume.draining || volume.config.mode.writes().are_through())
        });
        draining
            || store.failed_cache()
            || self.writeback.hurry != Hurry::No
            || !self.throttle.is_empty()
    }

    /// Goes through the dirty data from the oldest on, or through the rest of a round.
    fn walk(&mut self, store: &Store, now: Nanos, wanted: &Wanted, rest: Option<Rest>) -> Walk {
        let mut walk = Walk {
            due: std::mem::take(&mut self.writeback.sweep.blocks),
            ..Walk::default()
        };
        walk.due.clear();
        let segments = &store.log.segments;
        let order = &store.log.streams[Stream::Write as usize].order;
        let place_behind = |generation: Sequence| {
            order.partition_point(|id| segments[id.0 as usize].generation <= generation)
        };
        let begin = rest.map_or(0, |rest| place_behind(rest.behind));
        let end = rest.map_or(order.len(), |rest| place_behind(rest.end));
        for &id in order.range(begin..end.max(begin)) {
            let age = now.since(segments[id.0 as usize].opened_at);
            if !(wanted.all || age >= wanted.least_age) {
                break;
            }
            let is_enough = walk.due.len() >= wanted.blocks;
            if is_enough || walk.passed_by >= MOST_PASSED_BY {
                walk.is_cut = !is_enough || rest.is_some();
                break;
            }
            if store.present_dirty_of(id) > 0 || planted::is(Bug::AwayWritten) {
                self.walk_segment(store, (id, age), wanted, &mut walk);
            }
        }
        walk
    }

    fn walk_segment(
        &self,
        store: &Store,
        (id, age): (SegmentId, Nanos),
        wanted: &Wanted,
        walk: &mut Walk,
    ) {
        let geometry = store.log.geometry;
        let segment = &store.log.segments[id.0 as usize];
        walk.youngest = segment.generation;
        walk.undurable |= segment.durable_slots < geometry.slots_per_segment() as u16;
        for in_segment in geometry.first_slot() as u16..geometry.slots_per_segment() as u16 {
            let slot = geometry.slot(id, in_segment);
            let flags = store.index.flags(slot);
            if !flags.live() || !flags.dirty() {
                continue;
            }
            // Blocks on their way already must not take the place of others: a sweep of little
            // else would be planned again at once, over and over.
            let key = store.index.key(slot);
            let is_old = || age >= store.age_limit_of(key);
            if self.is_due(store, key, slot) && (wanted.all || is_old()) {
                walk.due.push(key);
            } else {
                walk.passed_by += 1;
            }
        }
    }

    /// The age from which data may be due. Where volumes have ages of their own, all dirty data is
    /// looked through, which is not done at every look. `goes_on`: the last look was cut short.
    fn least_age(&mut self, store: &Store, now: Nanos, goes_on: bool) -> Nanos {
        if !store.has_own_ages {
            return store.settings.age_limit;
        }
        let looked_at = &mut self.writeback.sweep.ages_looked_at;
        if !goes_on && looked_at.is_some_and(|at| now.since(at) < OWN_AGES_CHECK) {
            return store.settings.age_limit;
        }
        *looked_at = Some(now);
        store.least_age_limit()
    }

    /// Asks for flushes of the origins where written blocks wait for them and nothing else is being
    /// written.
    pub(super) fn ask_for_origin_flushes(&mut self, store: &mut Store) {
        if store.written_blocks() == 0 || self.has_runs() {
            return;
        }
        for at in 0..store.volumes.len() {
            if store.volumes[at]
                .as_ref()
                .is_some_and(|volume| volume.has_unflushed())
            {
                store.want_origin_flush(VolumeSlot(at as u16));
            }
        }
    }
}

/// The generation of the youngest segment with dirty data.
fn youngest_of(store: &Store) -> Sequence {
    let youngest = store.log.streams[Stream::Write as usize].order.back();
    youngest.map_or(Sequence::ZERO, |id| store.log.generation_of(*id))
}

/// Whether the policy has dirty data of any age written back.
fn is_due_anyway(store: &Store) -> bool {
    let dirty = store.present_dirty();
    match store.settings.writeback_policy {
        WritebackPolicy::Threshold => dirty > store.dirty_share(store.settings.dirty_low_percent),
        WritebackPolicy::Timed => dirty > store.dirty_marks().high,
        WritebackPolicy::Rate | WritebackPolicy::Cleaner => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would never come to its end if each pause of a failing origin had it begin anew.
    #[test]
    fn a_round_of_plans_goes_on_when_an_origin_is_tried_again() {
        let rest = Rest {
            behind: Sequence::ZERO,
            end: Sequence::ZERO,
        };
        let mut sweep = Sweep {
            rest: Some(rest),
            next_plan: Nanos::SECOND,
            next_hurried_plan: Nanos::SECOND,
            ..Sweep::default()
        };
        sweep.go_on();
        for hurry in [Hurry::No, Hurry::AtOnce] {
            assert_eq!(sweep.next_plan(hurry), Nanos(0));
        }
        assert!(sweep.is_cut());
        sweep.begin_anew();
        assert!(!sweep.is_cut());
    }
}
