//! Renewal (I19): the oldest segment of main, when nearly all of it is hot, is not copied but
//! listed anew. A new summary gives its live blocks new numbers, and the segment goes to the young
//! end of its stream. Blocks that were not hit stay with the others: their places could be used for
//! nothing else. An example:
//!
//! 1. Segment 4, generation 1000, is the oldest of main. Its summary 0 counts. The tail of main is
//!    1000.
//! 2. The open segment of main is closed (rule 1), unless the renewal goes below it
//!    (`renewal_below`).
//! 3. Segment 4 gets generation 5000, and its 200 live blocks get numbers 5001 to 5200. It goes to
//!    the young end.
//! 4. Number 4980 supersedes the last of the blocks that the new summary leaves out. The renewal
//!    waits for a flush that covers 4980 (rule 3).
//! 5. That flush ended. The new summary is written to summary 1 (rule 4).
//! 6. A second flush makes summary 1 durable, and it counts.
//! 7. The tail moves to 1300, the generation of the oldest segment now (rule 5). A crash before
//!    step 6 finds summary 0 or summary 1, and neither is below the tail.

use crate::format::{
    DurablePosition, Entry, EntryList, SegmentId, Sequence, Slot, Stream, Summary, SummaryKind,
};
use crate::interface::{Buf, Device, DeviceError, Memory, Nanos, Operation, one_buf};
use crate::planted::{self, Bug};
use crate::store::Store;
use crate::store::append::ATTEMPTS;
use crate::store::log::SegmentState;
use crate::store::op::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Numbered; waits for a flush that covers the entries superseding the blocks it leaves out
    /// (rule 3). A flush that closed its records before the numbers were given does not count, even
    /// if it begins later.
    Numbered,
    /// Such a flush is in flight.
    Covered,
    /// The summary is being written.
    Writing,
    /// On the device; waits for a flush to begin.
    Written,
    /// The flush that makes it durable is in flight.
    Flushing,
}

/// A renewal in progress; there is one at a time.
#[derive(Debug)]
struct Renewal {
    segment: SegmentId,
    phase: Phase,
    /// The open segment that it goes before; `None` at the young end.
    before: Option<SegmentId>,
    first_number: u64,
    /// The next of the numbers that were set aside for it, if it goes before another.
    set_aside: Option<u64>,
    /// Upper bound of the numbers that supersede blocks which it leaves out.
    needs: Option<u64>,
    which: u8,
    summary: Option<Summary>,
    buf: Option<Buf>,
    attempts: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    current: Option<Renewal>,
    /// The generation of the segment that was last asked about, and the answer.
    looked_at: Option<(Sequence, bool)>,
}

impl Renewals {
    /// Whether this segment's renewal is not durable yet.
    pub(crate) fn is_renewing(&self, segment: SegmentId) -> bool {
        self.current
            .as_ref()
            .is_some_and(|renewal| renewal.segment == segment)
    }

    /// Whether a renewal that goes before this segment is not durable yet.
    pub(crate) fn is_renewing_before(&self, open: SegmentId) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|renewal| renewal.before == Some(open))
    }

    /// Notes that a flush of the cache device begins which makes numbers up to `upto` durable.
    /// Returns the first number that it leaves out, if a renewal holds it back. A renewal with
    /// numbers set aside holds nothing back: nothing is known durable by those (its entries count
    /// if its summary is there).
    pub(crate) fn flush_begins(&mut self, upto: u64) -> Option<u64> {
        let renewal = self.current.as_mut()?;
        match renewal.phase {
            Phase::Numbered
                if renewal.needs.is_some_and(|needs| upto >= needs)
                    || planted::is(Bug::RenewalUncovered) =>
            {
                renewal.phase = Phase::Covered;
            }
            Phase::Written => renewal.phase = Phase::Flushing,
            Phase::Numbered | Phase::Covered | Phase::Writing | Phase::Flushing => {}
        }
        let holds_back = renewal.phase != Phase::Flushing && renewal.before.is_none();
        holds_back.then_some(renewal.first_number)
    }
}

impl Store {
    pub(crate) fn is_renewing(&self) -> bool {
        self.renewals.current.is_some()
    }

    /// Forgets whether it pays to renew the oldest segment of main.
    pub(crate) fn forget_renewal_answer(&mut self) {
        self.renewals.looked_at = None;
    }

    fn pays_to_renew(&self, id: SegmentId) -> bool {
        let segment = &self.log.segments[id.0 as usize];
        // Of all it could hold: a segment closed early holds little and is worth a copy.
        let geometry = &self.log.geometry;
        let places = geometry.slots_per_segment() - geometry.first_slot() - 1;
        let sealed = segment.state == SegmentState::Sealed && segment.summary.is_some();
        // Nothing on a lost device counts, and a renewal would say that it does (I28).
        let stays = sealed && !segment.is_leaving();
        if !stays || segment.durable_slots < segment.end_slot || segment.live == 0 {
            return false;
        }
        let mut hot = 0;
        for slot in self.slots_of(id) {
            let flags = self.index.flags(slot);
            if flags.live() {
                if self.numbered.contains_key(&self.index.key(slot)) {
                    return false;
                }
                hot += u32::from(flags.hits() > 0);
            }
        }
        hot * 100 >= places * u32::from(self.settings.renew_percent)
    }

    fn slots_of(&self, segment: SegmentId) -> impl Iterator<Item = Slot> + use<> {
        let geometry = self.log.geometry;
        (geometry.first_slot() as u16..geometry.slots_per_segment() as u16)
            .map(move |at| geometry.slot(segment, at))
    }

    /// Gives the segment a new generation and its blocks new numbers, and moves it to the
    /// young end of main, or below the open segment there.
    fn number_renewal(&mut self, id: SegmentId, below: Option<(SegmentId, u64)>) {
        // The renewal leaves out blocks dropped since an older segment was renewed: that the old
        // summary there is void has to be certain first.
        assert!(
            below.is_some() || self.promises.are_kept(),
            "I14: nothing leads from the young end to what is not promised"
        );
        let first_number = below.map_or(self.log.next_number, |(_, first)| first);
        let generation = Sequence::new(self.log.epoch, first_number);
        let segment = self.log.segment(id);
        segment.generation = generation;
        let end_slot = segment.end_slot;
        let which = 1 - segment
            .summary
            .expect("a sealed segment has a summary that counts");
        let order = &mut self.log.streams[Stream::Main as usize].order;
        let front = order.pop_front();
        assert_eq!(front, Some(id), "I19: only the oldest is renewed");
        order.insert(order.len() - usize::from(below.is_some()), id);
        let previous = self.log.link_before(Stream::Main, id);
        let state = self.log.state(previous);
        let state = self.with_promised_tail(state, below.map_or(id, |(open, _)| open));
        self.renewals.current = Some(Renewal {
            segment: id,
            phase: Phase::Numbered,
            before: below.map(|(open, _)| open),
            first_number,
            set_aside: below.map(|(_, first)| first),
            needs: None,
            which,
            summary: None,
            buf: None,
            attempts: 0,
        });
        let mut last_number = self.take_number();
        let mut entries = EntryList::with_capacity(self.log.geometry.summary_bytes() as usize);
        for slot in self.slots_of(id) {
            let flags = self.index.flags(slot);
            if !flags.live() {
                continue;
            }
            assert!(!flags.dirty(), "I17: dirty lives in write");
            last_number = self.list(slot, &mut entries);
            self.index.set_hits(slot, flags.hits().saturating_sub(1));
        }
        let renewal = self.renewals.current.as_mut().expect("just begun");
        renewal.summary = Some(Summary {
            shard: self.log.shard,
            segment: id,
            which,
            kind: SummaryKind::Renewal,
            stream: Stream::Main,
            generation,
            end_slot,
            last_number,
            state,
            entries,
        });
    }

    /// The next number for the renewal, of those set aside for it or of all.
    fn take_number(&mut self) -> u64 {
        let renewal = self.renewals.current.as_mut().expect("just begun");
        let next = match &mut renewal.set_aside {
            Some(next) => next,
            None => &mut self.log.next_number,
        };
        *next += 1;
        *next - 1
    }

    /// Lists a live block with a new number, which is returned.
    fn list(&mut self, slot: Slot, entries: &mut EntryList) -> u64 {
        let key = self.index.key(slot);
        let in_segment = self.log.geometry.slot_in_segment(slot);
        let number = self.take_number();
        let (count, dirty) = (1, false);
        if self.index.flags(slot).zero() {
            let entry = Entry::Zero {
                key,
                slot: in_segment,
                count,
                dirty,
            };
            entries.push(number, entry, &[]);
        } else {
            let entry = Entry::Data {
                key,
                slot: in_segment,
                count,
                dirty,
            };
            entries.push(number, entry, &[self.index.checksum(slot)]);
        }
        number
    }

    /// A flush of the cache device ended well.
    pub(crate) fn renewals_flushed(&mut self, _now: Nanos, memory: &mut dyn Memory) {
        let Some(renewal) = &mut self.renewals.current else {
            return;
        };
        match renewal.phase {
            Phase::Covered => self.write_renewal(memory),
            Phase::Flushing => self.renewal_durable(memory),
            Phase::Numbered => self.want_renewal_covered(),
            Phase::Writing | Phase::Written => {}
        }
    }

    /// Asks for the flush of rule 3. Records stay open if they can: a header for a few entries is
    /// metadata for nothing.
    fn want_renewal_covered(&mut self) {
        let needs = self.renewals.current.as_ref().expect("in progress").needs;
        if needs.is_some_and(|needs| needs <= self.last_number_closed()) {
            self.want_partial_flush();
        } else {
            self.force_flush();
        }
    }

    /// Rule 4: into the slot that does not count.
    fn write_renewal(&mut self, memory: &mut dyn Memory) {
        let renewal = self.renewals.current.as_mut().expect("in progress");
        if renewal.buf.is_none() {
            let summary = renewal.summary.as_ref().expect("kept until it is durable");
            let Some(buf) = self.spare_summary.alloc(summary.encoded_bytes(), memory) else {
                // The summary goes out after the next flush instead.
                renewal.phase = Phase::Numbered;
                return self.want_renewal_covered();
            };
            let id = self.log.map.id_in(renewal.segment);
            summary.encode(id, memory.bytes_mut(buf));
            renewal.buf = Some(buf);
        }
        renewal.phase = Phase::Writing;
        let (segment, which) = (renewal.segment, renewal.which);
        let buf = renewal.buf.expect("encoded");
        let places = self.log.summary_written_at(segment, which);
        self.stats.cache_metadata_written_bytes += u64::from(buf.len_bytes);
        self.issue(
            Op::Renewal(segment),
            Device::Cache(0),
            Operation::write_at(places, one_buf(buf)),
        );
    }

    pub(crate) fn renewal_done(
        &mut self,
        segment: SegmentId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let renewal = self
            .renewals
            .current
            .as_mut()
            .expect("a renewal was being written");
        assert_eq!(renewal.segment, segment);
        if result.is_err() {
            self.stats.cache_write_errors += 1;
            renewal.attempts += 1;
            // Rule 6: it may have landed; the same bytes go to the same place again.
            if renewal.attempts < ATTEMPTS && !self.failed_cache() {
                return self.write_renewal(memory);
            }
            let buf = self
                .renewals
                .current
                .as_mut()
                .and_then(|renewal| renewal.buf.take());
            if let Some(buf) = buf {
                self.spare_summary.free(buf, memory);
            }
            return self.fail_cache("summaries cannot be written to the cache device");
        }
        renewal.phase = Phase::Written;
        if let Some(buf) = renewal.buf.take() {
            self.spare_summary.free(buf, memory);
        }
        self.want_partial_flush();
    }

    fn renewal_durable(&mut self, memory: &mut dyn Memory) {
        let renewal = self.renewals.current.take().expect("in progress");
        let segment = self.log.segment(renewal.segment);
        segment.summary = Some(renewal.which);
        let position = DurablePosition {
            generation: segment.generation,
            end_slot: segment.end_slot,
        };
        self.log.durable[Stream::Main as usize] =
            self.log.durable[Stream::Main as usize].max(position);
        // Rule 5: the old position is empty for good.
        let oldest = self.log.streams[Stream::Main as usize].order.front();
        let oldest = *oldest.expect("the renewed segment is in it");
        let tail = self.log.segment(oldest).generation;
        assert!(
            tail >= self.log.tails[Stream::Main as usize],
            "I2: tails rise"
        );
        self.log.tails[Stream::Main as usize] = tail;
        if let Some(open) = renewal.before {
            self.await_promise(renewal.segment, open, memory);
        }
    }
}

impl Store {
    /// True if it pays to renew this segment, the oldest of main. The segment is gone through once.
    pub(crate) fn renewal_pays(&mut self, oldest: SegmentId) -> bool {
        let generation = self.log.segments[oldest.0 as usize].generation;
        match self.renewals.looked_at {
            Some((seen, pays)) if seen == generation => pays,
            _ => {
                let pays = self.settings.replacement.retains() && self.pays_to_renew(oldest);
                self.renewals.looked_at = Some((generation, pays));
                pays
            }
        }
    }

    /// Renews the oldest segment of main, none of which is on its way out, if that pays and may be
    /// done. True if it was.
    pub(crate) fn renew_oldest(&mut self, now: Nanos, memory: &mut dyn Memory) -> bool {
        let Some(&segment) = self.log.streams[Stream::Main as usize].order.front() else {
            return false;
        };
        if self.is_renewing() || !self.pays_to_renew(segment) {
            return false;
        }
        let goes_below = self.settings.laboratory.renewals_below;
        let below = goes_below.then(|| self.log.take_below(segment)).flatten();
        // Rule 1: entries that the open segment takes from now on would be numbered above the
        // renewal and yet lie below it in the stream.
        if below.is_none()
            && let Some(open) = self.log.streams[Stream::Main as usize].open
        {
            self.fill_segment(now, open, memory);
            if self.seal_is_to_promise() {
                return false;
            }
        }
        self.number_renewal(segment, below);
        let needs = self.log.segment(segment).superseded_by;
        self.renewals.current.as_mut().expect("just begun").needs = Some(needs);
        self.want_renewal_covered();
        self.stats.renewed_segments += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 3: a cycle that closed its records before the numbers were given may send its flush
    /// after that. Random runs do not come upon a crash that shows the cost;
    /// `crates/sim/tests/planted/renewals.rs` aims at one.
    #[test]
    fn a_flush_that_covers_less_than_it_needs_does_not_count() {
        let mut renewals = Renewals {
            current: Some(Renewal {
                segment: SegmentId(7),
                phase: Phase::Numbered,
                before: None,
                first_number: 8,
                set_aside: None,
                needs: Some(12),
                which: 0,
                summary: None,
                buf: None,
                attempts: 0,
            }),
            looked_at: None,
        };
        let phase = |renewals: &Renewals| renewals.current.as_ref().unwrap().phase;
        assert_eq!(renewals.flush_begins(11), Some(8));
        assert_eq!(phase(&renewals), Phase::Numbered);
        assert_eq!(renewals.flush_begins(12), Some(8));
        assert_eq!(phase(&renewals), Phase::Covered);
    }
}
