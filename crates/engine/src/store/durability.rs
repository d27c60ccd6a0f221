//! Making things durable: flush cycles of the cache device (I7, I10).
//!
//! A cycle closes every open record that says something, waits until all headers are on the device,
//! and only then sends a single device flush. Everything it covered is known durable after it.
//!
//! A cycle that nobody waits for but reclaim leaves open records open, so that they are full when
//! their header is written, and covers the entries before them.

use crate::format::{DurablePosition, SegmentId, Sequence, Stream};
use crate::ids::{JobId, RecordId, RequestIndex};
use crate::interface::{Device, DeviceError, Memory, Nanos, Operation};
use crate::planted::{self, Bug};
use crate::store::log::Claim;
use crate::store::op::Op;
use crate::store::{Store, earlier};

/// Entries never wait longer than this for a flush, whether or not anyone asks.
const FLUSH_INTERVAL: Nanos = Nanos::SECOND;

/// After a flush with nothing behind it for so long, a header says how far it made everything
/// durable.
const SAY_AFTER: Nanos = Nanos(100_000_000);

/// A part of the engine that waits for a number to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A part of a request.
    Request(RequestIndex),
    /// A job, which goes on.
    Job(JobId),
}

#[derive(Debug)]
struct Cycle {
    upto: u64,
    /// True if the cycle closed the records that were open.
    closed_all: bool,
    /// Records whose headers are awaited.
    waiting: u32,
    /// The segments that the flush in flight covers: generation, and slots below which all is
    /// covered.
    flushing: Option<Vec<(SegmentId, Sequence, u16)>>,
}

/// Where the last word of an orderly stop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Promise {
    #[default]
    None,
    Wanted,
    /// The cycle that makes it durable is running, or has ended.
    Written,
}

#[derive(Debug, Default)]
pub(crate) struct Durability {
    promise: Promise,
    cycle: Option<Cycle>,
    wanted: u64,
    /// A cycle is wanted even if nothing new would become durable.
    forced: bool,
    /// A cycle is wanted for records that are on the device already.
    partial: bool,
    waiters: Vec<(u64, Waiter)>,
    /// Segments with complete slots that are not durable yet.
    unflushed: Vec<SegmentId>,
    /// No open record is due to be closed before.
    close_at: Option<Nanos>,
    /// When the oldest undurable entry must be flushed.
    deadline: Option<Nanos>,
    /// The highest number that a header or a seal says is durable.
    said: u64,
    /// When one is written for nothing else, if none says so sooner.
    say_at: Option<Nanos>,
    /// There was no room to say it: the seal of a full segment is to be made durable.
    sealed_to_say: bool,
    /// The highest tails any header carries that is written or being written.
    encoded_tails: [Sequence; Stream::COUNT],
    /// The highest tails of headers that are on the device.
    complete_tails: [Sequence; Stream::COUNT],
    /// The highest tails of headers that are durable.
    durable_tails: [Sequence; Stream::COUNT],
    flushing_tails: [Sequence; Stream::COUNT],
}

impl Store {
    /// Has `waiter` told when everything up to `number` is durable.
    pub(crate) fn await_durable(&mut self, number: u64, waiter: Waiter) {
        self.durability.waiters.push((number, waiter));
        self.want_durable(number);
    }

    /// Asks for a flush cycle that covers `number`.
    pub(crate) fn want_durable(&mut self, number: u64) {
        self.durability.wanted = self.durability.wanted.max(number);
    }

    /// Asks for a flush cycle whether or not anything new would become durable with it.
    pub(crate) fn force_flush(&mut self) {
        self.durability.forced = true;
    }

    /// Whether a flush cycle is running.
    pub(crate) fn is_flushing(&self) -> bool {
        self.durability.cycle.is_some()
    }

    /// Asks for a flush of the records that are on the device already, closing none for it.
    pub(crate) fn want_partial_flush(&mut self) {
        self.durability.partial = true;
    }

    /// Up to where a flush that closes no record would make everything durable.
    pub(crate) fn last_number_closed(&self) -> u64 {
        // Where a record is open, it is the one its stream's open segment is filled with.
        let open = self.log.streams.iter().filter_map(|stream| {
            let segment = &self.log.segments[stream.open?.0 as usize];
            let record = self.log.records.get(segment.filling.as_ref()?.record?)?;
            (!record.closing && !record.entries.is_empty()).then(|| record.entries.first_number())
        });
        let first = open.min();
        first.map_or(self.last_number(), |first| first - 1)
    }

    /// The newest tail of a stream in a header that is on the device.
    pub(crate) fn complete_tail(&self, stream: Stream) -> Sequence {
        self.durability.complete_tails[stream as usize]
    }

    /// Takes the tails that recovery found as durable.
    pub(crate) fn tails_are_durable(&mut self) {
        self.durability.encoded_tails = self.log.tails;
        self.durability.complete_tails = self.log.tails;
        self.durability.durable_tails = self.log.tails;
    }

    /// Whether all that was published is durable.
    pub(crate) fn all_durable(&self) -> bool {
        self.log.durable_number + 1 >= self.log.next_number
    }

    pub(crate) fn last_number(&self) -> u64 {
        self.log.next_number - 1
    }

    pub(crate) fn durable_tail(&self, stream: Stream) -> Sequence {
        self.durability.durable_tails[stream as usize]
    }

    pub(crate) fn unflushed_segment(&mut self, segment: SegmentId) {
        if self.durability.unflushed.last() != Some(&segment) {
            self.durability.unflushed.push(segment);
        }
    }

    /// A header or seal of a segment of this stream says these tails, and is on its way.
    pub(crate) fn newest_encoded_tails(&mut self, by: Stream, tails: [Sequence; Stream::COUNT]) {
        let tails = self.tails_that_stay(by, tails);
        raise(&mut self.durability.encoded_tails, tails);
    }

    /// That header or seal is on the device.
    pub(crate) fn newest_complete_tails(&mut self, by: Stream, tails: [Sequence; Stream::COUNT]) {
        let tails = self.tails_that_stay(by, tails);
        raise(&mut self.durability.complete_tails, tails);
    }

    /// I28: the tail of the write stream counts as said where it is on two devices. Said by another
    /// stream it would be lost with that one's device, and entries below it would count again.
    fn tails_that_stay(
        &self,
        by: Stream,
        mut tails: [Sequence; Stream::COUNT],
    ) -> [Sequence; Stream::COUNT] {
        if by != Stream::Write && self.log.keeps_two() && !planted::is(Bug::TailOnOne) {
            tails[Stream::Write as usize] = Sequence::ZERO;
        }
        tails
    }

    /// Has the tail of the write stream said again, if no header on the device says it. With one device
    /// any stream's header said it; one of those that is on its way when a second device comes counts
    /// for nothing once it is there.
    pub(crate) fn say_tail_of_write_again(&mut self) {
        let at = Stream::Write as usize;
        self.durability.encoded_tails[at] = self.durability.complete_tails[at];
    }

    /// Starts a cycle if one is wanted and none is running; closes records that waited long
    /// enough.
    pub(crate) fn advance_durability(&mut self, now: Nanos, memory: &mut dyn Memory) {
        self.close_old_records(now, memory);
        if self.all_durable() {
            // A deadline nothing waits for any more would come again and again.
            self.durability.deadline = None;
        } else {
            let deadline = *self
                .durability
                .deadline
                .get_or_insert(now.after(FLUSH_INTERVAL));
            if now >= deadline {
                self.want_durable(self.last_number());
            }
            self.watch_open_records();
        }
        let wanted = self.durability.wanted > self.log.durable_number;
        if self.durability.cycle.is_none() {
            let partial = std::mem::take(&mut self.durability.partial);
            if std::mem::take(&mut self.durability.forced) || wanted {
                self.start_cycle(now, memory);
            } else if partial {
                let upto = self.last_number_closed();
                self.await_headers(now, upto, false);
            }
        }
        if self.durability.say_at.is_some_and(|at| at <= now) {
            self.say_durable(now, memory);
        }
        self.advance_promise(now, memory);
    }

    /// A header or a seal is encoded that says how far everything is durable.
    pub(crate) fn durable_is_said(&mut self) {
        self.durability.said = self.log.durable_number;
        self.durability.say_at = None;
    }

    /// Writes a header that only says what is durable, where no other follows (I14): a header that
    /// nothing vouches for can rot without being missed. Ordinary headers vouch for those before
    /// them. The header takes a slot of an open segment and never opens a segment: it is worth a
    /// block, and reclaim's room is not for it (I18). A segment without a slot left is sealed, as
    /// it would be with the next write: its headers may rot then.
    fn say_durable(&mut self, now: Nanos, memory: &mut dyn Memory) {
        let again = Some(now.after(SAY_AFTER));
        if self.durability.cycle.is_some() || !self.all_durable() {
            // A record on its way says it, or ends with a flush of its own.
            self.durability.say_at = again;
            return;
        }
        if std::mem::take(&mut self.durability.sealed_to_say) {
            self.durable_is_said();
            return self.start_cycle(now, memory);
        }
        self.durability.say_at = None;
        for stream in [Stream::Write, Stream::Main, Stream::Probation] {
            if self.record_with_entries(stream).is_some() {
                continue;
            }
            if let Some(record) = self.spare_record(now, stream, memory) {
                self.close_record(now, record, memory);
                return self.start_cycle(now, memory);
            }
        }
        self.seal_if_full(now, Stream::Write, memory);
        // The flush comes when the seal is on the device.
        self.durability.sealed_to_say = true;
        self.durability.say_at = again;
    }

    /// See [`Engine::settle`](crate::Engine::settle).
    pub(crate) fn settle(&mut self) {
        self.stir();
        self.durability.promise = Promise::Wanted;
    }

    pub(crate) fn promises(&self) -> bool {
        self.durability.promise != Promise::None
    }

    fn advance_promise(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if self.durability.cycle.is_some() {
            return;
        }
        match self.durability.promise {
            Promise::None => {}
            Promise::Wanted if self.all_durable() => {
                self.durability.promise = Promise::Written;
                self.write_empty_record(now, None, memory);
                self.start_cycle(now, memory);
            }
            Promise::Wanted => self.want_durable(self.last_number()),
            Promise::Written => self.durability.promise = Promise::None,
        }
    }

    /// A record was opened: it must be looked at when its time has come.
    pub(crate) fn note_open_record(&mut self, now: Nanos) {
        let due = now.after(self.settings.record_delay);
        self.durability.close_at = Some(self.durability.close_at.map_or(due, |at| at.min(due)));
    }

    /// A record that was empty when it was looked at and says something now has a time too.
    fn watch_open_records(&mut self) {
        if self.durability.close_at.is_some() {
            return;
        }
        for stream in Stream::ALL {
            if let Some(record) = self.record_with_entries(stream) {
                let opened_at = self.log.records.at(record).opened_at;
                self.note_open_record(opened_at);
            }
        }
    }

    fn close_old_records(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if self.durability.close_at.is_none_or(|at| now < at) {
            return;
        }
        self.durability.close_at = None;
        for stream in Stream::ALL {
            let Some(record) = self.open_record_of(stream) else {
                continue;
            };
            let opened_at = self.log.records.at(record).opened_at;
            let says_something = self.record_with_entries(stream).is_some();
            if says_something && now >= opened_at.after(self.settings.record_delay) {
                self.close_record(now, record, memory);
            } else if says_something {
                self.note_open_record(opened_at);
            }
        }
    }

    fn open_record_of(&mut self, stream: Stream) -> Option<RecordId> {
        let segment = self.log.streams[stream as usize].open?;
        self.log.filling(segment).record
    }

    /// The open record of a stream, if it says or holds anything.
    fn record_with_entries(&mut self, stream: Stream) -> Option<RecordId> {
        let record = self.open_record_of(stream)?;
        let state = self.log.records.at(record);
        (!state.entries.is_empty() || state.blocks > 0).then_some(record)
    }

    /// The time at which [`Engine::advance_durability`] has something to do.
    pub(crate) fn durability_deadline(&self) -> Option<Nanos> {
        if self.failed_cache() {
            return None;
        }
        let flush = self
            .durability
            .deadline
            .filter(|_| self.durability.cycle.is_none());
        let say = self
            .durability
            .say_at
            .filter(|_| self.durability.cycle.is_none());
        earlier(earlier(flush, self.durability.close_at), say)
    }

    /// True if the times are set at which published entries are written and flushed.
    pub(crate) fn durability_waits(&self) -> bool {
        self.durability.deadline.is_some() && self.durability.close_at.is_some()
    }

    fn start_cycle(&mut self, now: Nanos, memory: &mut dyn Memory) {
        for stream in Stream::ALL {
            if let Some(record) = self.record_with_entries(stream) {
                self.close_record(now, record, memory);
            }
        }
        // Segments wait for a header that carries their tail: if none would go out, one must.
        let (tails, mains_only_in) = self.tails_to_say();
        let is_news = |stream: Stream| {
            tails[stream as usize] > self.durability.encoded_tails[stream as usize]
        };
        let writes_only_in = self.log.keeps_two().then_some(Stream::Write);
        let writes_only_in = writes_only_in.filter(|_| is_news(Stream::Write));
        let mains_only_in = mains_only_in.filter(|_| is_news(Stream::Main));
        if Stream::ALL.into_iter().any(is_news) {
            self.write_empty_record(now, writes_only_in.or(mains_only_in), memory);
            if writes_only_in.is_some() && mains_only_in.is_some() {
                self.write_empty_record(now, mains_only_in, memory);
            }
        }
        let upto = self.last_number();
        self.await_headers(now, upto, true);
    }

    /// The cycle goes on when the headers that are on their way are on the device.
    fn await_headers(&mut self, now: Nanos, upto: u64, closed_all: bool) {
        let mut waiting = 0;
        for id in self.log.records.ids() {
            if let Some(record) = self.log.records.get(id)
                && record.closing
                && !record.awaited
            {
                self.log.records.at(id).awaited = true;
                waiting += 1;
            }
        }
        self.durability.cycle = Some(Cycle {
            upto,
            closed_all,
            waiting,
            flushing: None,
        });
        self.flush_if_ready(now);
    }

    /// A header that says how far everything is, in a stream of its own if it can be said in that
    /// alone.
    fn write_empty_record(&mut self, now: Nanos, only_in: Option<Stream>, memory: &mut dyn Memory) {
        let mut streams = [Stream::Write, Stream::Main, Stream::Probation];
        // Where a segment is open none has to be opened.
        streams.sort_by_key(|stream| {
            let is_open = self.log.streams[*stream as usize].open.is_some();
            (only_in.is_some_and(|only| only != *stream), !is_open)
        });
        for stream in streams {
            if self.ensure_entry_room(now, stream, 1, Claim::Tails, memory) {
                let segment = self.log.streams[stream as usize]
                    .open
                    .expect("room was made");
                let record = self.log.filling(segment).record.expect("room was made");
                self.close_record(now, record, memory);
                return;
            }
        }
    }

    pub(crate) fn awaited_record_done(&mut self, now: Nanos) {
        let cycle = self
            .durability
            .cycle
            .as_mut()
            .expect("records are awaited by a cycle");
        cycle.waiting -= 1;
        self.flush_if_ready(now);
    }

    fn flush_if_ready(&mut self, _now: Nanos) {
        let Some(cycle) = &mut self.durability.cycle else {
            return;
        };
        if cycle.waiting > 0 || cycle.flushing.is_some() {
            return;
        }
        let mut covered = Vec::new();
        for id in std::mem::take(&mut self.durability.unflushed) {
            let segment = &self.log.segments[id.0 as usize];
            let complete = segment
                .filling
                .as_ref()
                .map_or(segment.end_slot, |filling| {
                    if planted::is(Bug::GapsIgnored) {
                        filling.next_slot
                    } else {
                        filling.complete_slots
                    }
                });
            covered.push((id, segment.generation, complete));
        }
        cycle.flushing = Some(covered);
        let closed_all = cycle.closed_all;
        // I19 (5): numbers of a renewal are not known durable before its summary is.
        if let Some(first) = self.renewals.flush_begins(cycle.upto) {
            cycle.upto = cycle.upto.min(first - 1);
        }
        self.durability.flushing_tails = self.durability.complete_tails;
        // Entries in records that stay open have waited as long as before.
        if closed_all {
            self.durability.deadline = None;
        }
        self.stats.cache_flushes += 1;
        self.issue(Op::CacheFlush, Device::Cache(0), Operation::Flush);
    }

    /// Takes the end of a cycle's flush. Returns the waiters for the numbers that it made durable;
    /// `None` if it failed.
    pub(crate) fn cache_flush_done(
        &mut self,
        now: Nanos,
        result: Result<(), DeviceError>,
    ) -> Option<Vec<Waiter>> {
        let cycle = self
            .durability
            .cycle
            .take()
            .expect("a flush belongs to a cycle");
        // I10: this flush does not speak for writes that another shard lost meanwhile.
        if result.is_err() || self.failed_cache() {
            self.cache_flush_failed();
            return None;
        }
        self.log.durable_number = self.log.durable_number.max(cycle.upto);
        for (id, generation, slots) in cycle.flushing.unwrap_or_default() {
            let segment = self.log.segment(id);
            if segment.generation != generation {
                continue;
            }
            segment.durable_slots = segment.durable_slots.max(slots);
        }
        for stream in Stream::ALL {
            self.raise_durable_position(stream);
        }
        raise(
            &mut self.durability.durable_tails,
            self.durability.flushing_tails,
        );
        self.end_promised();
        let durable = self.log.durable_number;
        if durable > self.durability.said && !planted::is(Bug::DurableUnsaid) {
            self.durability.say_at = Some(now.after(SAY_AFTER));
        }
        self.dropped.durable(durable);
        let mut ready = Vec::new();
        self.durability.waiters.retain(|(number, waiter)| {
            if *number > durable {
                return true;
            }
            ready.push(*waiter);
            false
        });
        Some(ready)
    }

    /// Gives the cache device up (I10): everything that was in flight is uncertain for ever.
    pub(crate) fn cache_flush_failed(&mut self) {
        self.stirred = true;
        self.fail_cache("a flush of the cache device failed");
    }

    /// I13, I14: a stream is durable up to the first of its segments that is not durable whole.
    fn raise_durable_position(&mut self, stream: Stream) {
        let known = self.log.durable[stream as usize];
        let order = &self.log.streams[stream as usize].order;
        let is_known =
            |id: &SegmentId| self.log.segments[id.0 as usize].generation <= known.generation;
        let from = order.iter().rposition(is_known).unwrap_or(0);
        let mut durable = known;
        for id in order.iter().skip(from) {
            let segment = &self.log.segments[id.0 as usize];
            if segment.durable_slots == 0 || self.renewals.is_renewing(*id) {
                break;
            }
            let open = segment.end_slot == 0;
            let end_slot = match segment.end_slot {
                0 => segment.durable_slots,
                // A segment that recovery accepted counts as durable to its last slot, used or not.
                end_slot => segment.durable_slots.min(end_slot),
            };
            let generation = segment.generation;
            durable = durable.max(DurablePosition {
                generation,
                end_slot,
            });
            if open || end_slot < segment.end_slot {
                break;
            }
        }
        self.log.durable[stream as usize] = durable;
    }

    /// Takes out all waiters for durable numbers: nothing becomes durable any more.
    pub(crate) fn take_durable_waiters(&mut self) -> Vec<Waiter> {
        let waiters = std::mem::take(&mut self.durability.waiters);
        waiters.into_iter().map(|(_, waiter)| waiter).collect()
    }
}

/// Raises each known tail to the given tail, if that is higher.
pub(crate) fn raise(known: &mut [Sequence; Stream::COUNT], tails: [Sequence; Stream::COUNT]) {
    for (known, tail) in known.iter_mut().zip(tails) {
        *known = (*known).max(tail);
    }
}
