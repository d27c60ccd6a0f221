//! Long writes, kept in memory until they are written back.
//!
//! While a client writes in a long sequence and write-back goes on beside it, each block would go
//! over the cache device twice, once to be written and once to be read again for the origin. So
//! what such a client writes is copied as it is logged, and goes to the origin from the copy as
//! soon as its entry is durable (I4). What no copy was taken of is left to the sweeps. They come
//! first where reclaim will soon come upon dirty blocks, and take turns with the copies once
//! something is older than the age limit.

use std::collections::VecDeque;

use super::{FOREGROUND, Haste, WritebackJob};
use crate::append::Piece;
use crate::engine::Engine;
use crate::format::{BlockKey, Slot, Stream};
use crate::interface::{Buf, Memory, Nanos};
use crate::jobs::Job;
use crate::log::Version;
use crate::planted::{self, Bug};

/// Shorter pieces are not worth an operation of their own on the origin.
const LEAST_BYTES: u32 = 16 << 10;
/// So much is kept at most: what a disk writes in a fifth of a second.
const LIMIT_BYTES: usize = 96 << 20;
/// Once that is reached copies are taken again when no more than this is left. So the origin gets
/// long stretches; with every second write it would wait for its platters to come round.
const RESUME_BYTES: usize = 16 << 20;
/// A flush of the cache device is asked for after so much, for entries to become durable.
const FLUSH_AFTER_BYTES: usize = 8 << 20;
/// Where copies and sweeps take turns, each writes so much: an origin seeks between the two.
const TURN_BYTES: usize = 16 << 20;
/// How often it is looked at whether something has been dirty for too long.
const LOOK_FOR_AGED: Nanos = Nanos::SECOND;
/// How often it is looked at what reclaim will come upon.
const LOOK_AHEAD: Nanos = Nanos(20_000_000);
/// Free segments are few below this part of all.
const FEW_FREE: usize = 8;
/// The oldest this part of all segments is what reclaim takes next.
const SOON_RECLAIMED: usize = 16;

/// A copy of blocks in a row, in slots in a row of one segment.
#[derive(Debug)]
struct KeptRun {
    key: BlockKey,
    count: u16,
    /// Of the first block.
    version: Version,
    buf: Buf,
}

/// The copies, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    runs: VecDeque<KeptRun>,
    bytes: usize,
    /// The limit was reached, and what is kept is not written back yet.
    is_full: bool,
    /// Kept since the last flush was asked for.
    unflushed_bytes: usize,
    /// Whether something is older than the age limit.
    is_aged: bool,
    looked_at: Option<Nanos>,
    /// Dirty blocks are in reclaim's way.
    is_in_the_way: bool,
    looked_ahead_at: Option<Nanos>,
    is_sweeps_turn: bool,
    /// What was written in this turn.
    turn_bytes: usize,
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn takes(&mut self, len_bytes: u32) -> bool {
        if self.bytes + len_bytes as usize > LIMIT_BYTES {
            self.is_full = true;
        } else if self.bytes <= RESUME_BYTES {
            self.is_full = false;
        }
        !self.is_full && len_bytes >= LEAST_BYTES
    }

    /// Whether a copy is to be written back next.
    pub(super) fn has_turn(&self) -> bool {
        !self.runs.is_empty() && !self.is_sweeps_turn && !self.is_in_the_way
    }

    /// The sweeps have nothing to do.
    pub(super) fn take_turn(&mut self) {
        self.is_sweeps_turn = false;
        self.turn_bytes = 0;
    }

    /// Something was written in this turn.
    pub(super) fn wrote(&mut self, len_bytes: usize) {
        self.turn_bytes += len_bytes;
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            self.is_sweeps_turn = self.is_aged && !self.is_sweeps_turn;
        }
    }

    fn pop(&mut self) -> Option<KeptRun> {
        let run = self.runs.pop_front()?;
        self.bytes -= run.buf.len_bytes as usize;
        Some(run)
    }
}

impl Engine {
    /// Keeps a copy of a write that was logged in these slots, if write-back would soon read it
    /// from the cache device.
    pub(crate) fn keep_written(
        &mut self,
        now: Nanos,
        piece: &Piece,
        slot: Slot,
        memory: &mut dyn Memory,
    ) {
        let len_bytes = piece.buf.len_bytes;
        if !self.writeback.kept.takes(len_bytes)
            || !matches!(self.jobs.get(piece.owner.0), Some(Job::Quick(_)))
            || !memory.is_roomy()
            || !self.writes_back_kept(now, self.haste(now))
        {
            return;
        }
        let Some(buf) = memory.alloc(len_bytes as usize) else {
            return;
        };
        memory.copy(piece.buf, buf);
        let version = self.log.version(slot);
        let kept = &mut self.writeback.kept;
        kept.runs.push_back(KeptRun {
            key: piece.keys.get(0),
            count: piece.keys.len(),
            version,
            buf,
        });
        kept.bytes += len_bytes as usize;
        kept.unflushed_bytes += len_bytes as usize;
        if kept.unflushed_bytes >= FLUSH_AFTER_BYTES {
            kept.unflushed_bytes = 0;
            self.want_partial_flush();
        }
        self.stir();
    }

    /// Whether write-back is to take what was written last: there is enough dirty data, nobody
    /// waits for any to be written back, and the devices have time.
    pub(super) fn writes_back_kept(&self, now: Nanos, haste: Haste) -> bool {
        haste == Haste::Free
            && self.is_due_anyway()
            && self.writeback.paused_until.is_none()
            && !self.origin_is_used(now, FOREGROUND)
    }

    /// Looks now and then whether the segments that reclaim takes next hold dirty blocks.
    pub(super) fn look_ahead(&mut self, now: Nanos) {
        let looked_at = self.writeback.kept.looked_ahead_at;
        if looked_at.is_some_and(|at| now.since(at) < LOOK_AHEAD) {
            return;
        }
        let all = self.log.segments.len();
        let oldest = self.log.streams[Stream::Write as usize].order.iter();
        let is_in_the_way = self.log.free.len() < all / FEW_FREE
            && oldest
                .take(all / SOON_RECLAIMED)
                .any(|id| self.log.segments[id.0 as usize].dirty > 0);
        self.writeback.kept.looked_ahead_at = Some(now);
        self.writeback.kept.is_in_the_way = is_in_the_way;
    }

    /// Looks now and then whether something is older than the age limit.
    pub(super) fn look_for_aged(&mut self, now: Nanos) {
        let looked_at = self.writeback.kept.looked_at;
        if looked_at.is_some_and(|at| now.since(at) < LOOK_FOR_AGED) {
            return;
        }
        let segments = self.log.streams[Stream::Write as usize].order.iter();
        let oldest = segments
            .map(|id| &self.log.segments[id.0 as usize])
            .find(|segment| segment.dirty > 0);
        let limit = self.settings.age_limit;
        let is_aged = oldest.is_some_and(|segment| now.since(segment.opened_at) >= limit);
        let kept = &mut self.writeback.kept;
        kept.looked_at = Some(now);
        kept.is_aged = is_aged;
        kept.is_sweeps_turn &= is_aged;
    }

    /// Gives the memory of all copies back.
    pub(super) fn forget_kept(&mut self, memory: &mut dyn Memory) {
        while let Some(run) = self.writeback.kept.pop() {
            memory.free(run.buf);
        }
        self.writeback.kept.is_full = false;
    }

    /// Whether there are copies.
    pub(crate) fn keeps_written(&self) -> bool {
        !self.writeback.kept.is_empty()
    }

    /// Starts writing the oldest copy back. False if there is none of which the entries are
    /// durable.
    pub(super) fn start_kept(&mut self, memory: &mut dyn Memory) -> bool {
        while let Some(run) = self.writeback.kept.runs.front() {
            let first = run.version.slot;
            let last = Slot(first.0 + u32::from(run.count) - 1);
            if self.log.holds(run.version) && !self.log.is_durable(last) {
                return false;
            }
            let Some(run) = self.writeback.kept.pop() else {
                return false;
            };
            let Some(volume) = self.volume_of(run.key).filter(|_| self.is_still_due(&run)) else {
                memory.free(run.buf);
                continue;
            };
            let slots = first.0..=last.0;
            let job = WritebackJob::new(
                volume,
                run.key,
                slots.map(|slot| self.log.version(Slot(slot))).collect(),
                Some(run.buf),
            );
            self.stats.kept_blocks_written += u64::from(run.count);
            let name = self.jobs.insert(Job::Writeback(Box::new(job)));
            self.begin_writeback(name, run.key, u64::from(run.count));
            self.writeback.kept.wrote(run.buf.len_bytes as usize);
            self.write_run(name);
            return true;
        }
        false
    }

    /// Whether a copy is what must be written back: nothing of it was written again, moved or
    /// written back meanwhile.
    fn is_still_due(&self, run: &KeptRun) -> bool {
        planted::is(Bug::KeptUnchecked)
            || self.log.holds(run.version)
                && (0..u32::from(run.count)).all(|i| {
                    let slot = Slot(run.version.slot.0 + i);
                    self.may_write_back(run.key.plus(u64::from(i))) == Some(slot)
                })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_has_its_turns() {
        let mut kept = Kept::default();
        kept.wrote(TURN_BYTES);
        assert!(!kept.is_sweeps_turn, "nothing else is to be written");
        kept.is_aged = true;
        kept.wrote(TURN_BYTES - 1);
        assert!(!kept.is_sweeps_turn);
        kept.wrote(1);
        assert!(kept.is_sweeps_turn);
        kept.wrote(TURN_BYTES);
        assert!(!kept.is_sweeps_turn);
        kept.wrote(TURN_BYTES);
        kept.take_turn();
        assert!(!kept.is_sweeps_turn, "the sweeps found nothing");
    }

    #[test]
    fn copies_are_taken_in_long_stretches() {
        let mut kept = Kept::default();
        let mut stretch = 0;
        while kept.takes(1 << 20) {
            kept.bytes += 1 << 20;
            stretch += 1;
        }
        assert_eq!(stretch, LIMIT_BYTES >> 20);
        kept.bytes = RESUME_BYTES + 1;
        assert!(!kept.takes(1 << 20));
        kept.bytes = RESUME_BYTES;
        assert!(kept.takes(1 << 20) && !kept.takes(LEAST_BYTES - 1));
    }
}
