//! Reclaim: the oldest segment of a stream gives up its place (I8).
//!
//! Tails ride in ordinary headers, and the waiting is for ordinary flushes. Reclaim asks for
//! flushes of its own only when free segments run short. An example:
//!
//! 1. Segment 5, generation 1000, is the oldest of probation and has 40 live blocks. It is
//!    *emptying*.
//! 2. The policy keeps 3 of them: they are read and appended again, to main. The other 37 are
//!    evicted, with a `Drop` in each other stream that may hold an entry of them.
//! 3. Number 2050 is the last that supersedes an entry of segment 5. The segment is *waiting*, and
//!    waits until 2050 is durable.
//! 4. A flush makes numbers up to 2060 durable. Probation's tail moves to 1200, the generation of
//!    its next segment. Segment 5 is *below its tail*.
//! 5. The next header carries tail 1200. A flush makes that header durable.
//! 6. Two reads of segment 5 are still in flight. When both have ended, the segment is *free*.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::checksum::crc32c;
use crate::format::{BlockKey, SegmentId, Sequence, Slot, Stream};
use crate::ids::RetainId;
use crate::interface::{Buf, Device, DeviceError, Memory, Nanos, Operation, one_buf};
use crate::map::locks::Owner;
use crate::origin::Origin;
use crate::planted::{self, Bug};
use crate::policy::Policy;
use crate::space::Space;
use crate::store::Store;
use crate::store::append::{AppendRun, Keys};
use crate::store::log::{RECLAIM_RESERVE, SegmentState};
use crate::store::op::{Op, ReadPart};

/// Blocks of a segment that are read and appended again at a time.
const BATCH_BLOCKS: usize = 64;
/// Segments of a stream that wait for their tail at a time, at most.
const MOST_WAITING: usize = 8;
/// The limit for probation and main, waiting and below their tail: segments for this many blocks,
/// at least two. The write stream gets more so that long writes do not wait for room.
const MOST_WAITING_BLOCKS: usize = 256;
/// Repeated reads of a batch with unreadable dirty blocks, before they are carried on as they are.
const RETAIN_ATTEMPTS: u8 = 4;

/// Headers that the copies of a segment's blocks bring, where the segment is flushed by itself.
const HEADERS_OF_COPIES: u64 = 2;
/// In shorter segments headers take the room that copies make.
pub(super) const LEAST_PLACES: u64 = 16;
/// Free segments with which a segment is copied that makes no room by itself: its copies and their
/// headers take two at most.
const LONG_RUN_FREE: usize = 3;

/// A segment that is empty and not free yet.
#[derive(Debug)]
struct Emptied {
    segment: SegmentId,
    /// Upper bound of the numbers that supersede its entries; while it waits.
    needs: u64,
    /// Its generation and stream; the tail must be above it.
    generation: Sequence,
    stream: Stream,
}

#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    active: [Option<RetainId>; Stream::COUNT],
    waiting: [VecDeque<Emptied>; Stream::COUNT],
    below_tail: Vec<Emptied>,
    /// Segments that are discarded before they are free.
    discarding: usize,
    /// Whether dirty data can become clean at the moment.
    pub(super) origin_takes: bool,
}

impl Reclaim {
    /// Whether a segment of this stream is being reclaimed and its tail has not moved yet.
    pub(crate) fn is_busy(&self, stream: Stream) -> bool {
        self.active[stream as usize].is_some() || !self.waiting[stream as usize].is_empty()
    }

    /// The number of segments of this stream that are empty and wait for their tail.
    pub(crate) fn waiting(&self, stream: Stream) -> usize {
        self.waiting[stream as usize].len()
    }

    /// Whether an emptied segment of the write stream below this generation is not free yet.
    pub(crate) fn holds_of_write_below(&self, below: Sequence) -> bool {
        let is_of_write = |emptied: &&Emptied| emptied.stream == Stream::Write;
        let below_tail = self.below_tail.iter().filter(is_of_write);
        let waiting = self.waiting[Stream::Write as usize].iter();
        waiting
            .chain(below_tail)
            .any(|emptied| emptied.generation < below)
    }

    /// The number of segments of this stream that are being emptied or wait.
    pub(crate) fn emptying_or_waiting(&self, stream: Stream) -> usize {
        self.waiting(stream) + usize::from(self.active[stream as usize].is_some())
    }

    fn is_working(&self) -> bool {
        self.active != [None; Stream::COUNT]
            || !self.below_tail.is_empty()
            || self.waiting.iter().any(|waiting| !waiting.is_empty())
    }

    pub(crate) fn on_their_way(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(VecDeque::len).sum();
        let active = self.active.iter().flatten().count();
        // A few discards are over in a moment, and reclaim does not stop for them.
        let discarding = self.discarding.saturating_sub(MOST_WAITING);
        waiting + self.below_tail.len() + discarding + active
    }

    /// The segments that are empty and not free yet.
    pub(crate) fn emptied(&self) -> impl Iterator<Item = SegmentId> {
        let waiting = self.waiting.iter().flatten();
        waiting
            .chain(&self.below_tail)
            .map(|emptied| emptied.segment)
    }
}

/// A segment being emptied.
#[derive(Debug)]
pub(crate) struct RetainJob {
    segment: SegmentId,
    stream: Stream,
    /// It was the stream's turn; otherwise the segment is emptied for its unused slots.
    in_turn: bool,
    next_slot: u16,
    /// The batch in progress: blocks, where they are and where they go.
    batch: Vec<(BlockKey, Slot, Stream)>,
    buf: Option<Buf>,
    reads: u32,
    attempts: u8,
    outstanding: u32,
}

impl RetainJob {
    pub(crate) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// The blocks that are being copied.
    pub(super) fn keys(&self) -> impl Iterator<Item = BlockKey> {
        self.batch.iter().map(|(key, ..)| *key)
    }
}

/// Whether appends are about to stop.
fn is_critical(store: &Store) -> bool {
    store.log.free.len() <= RECLAIM_RESERVE
}

/// Places for blocks in a segment, but for those that its headers take at least.
pub(super) fn places_of_segment(store: &Store) -> u64 {
    let geometry = &store.log.geometry;
    u64::from(geometry.slots_per_segment() - geometry.first_slot() - 1)
}

impl Space {
    fn retain_job(&mut self, id: RetainId) -> &mut RetainJob {
        self.jobs.at(id)
    }

    /// The number of free segments that reclaim aims at.
    fn free_target(&self, store: &Store) -> usize {
        store.log.least_free() + self.demand.segments(store)
    }

    /// Whether free segments are about to run short. Half of the room ahead of need is used before a
    /// flush frees as much again.
    fn free_runs_low(&self, store: &Store) -> bool {
        let least = store.log.least_free();
        let low = least - (least - RECLAIM_RESERVE) / 8;
        store.log.free.len() < low + self.demand.segments(store) / 2
    }

    /// Whether reclaim waits for flushes alone, if for anything: enough segments are free or on
    /// their way, none of them can go further, and a flush that would help is running.
    pub(crate) fn reclaim_waits(&self, store: &Store) -> bool {
        let (free, durable) = (store.log.free.len(), store.log.durable_number);
        let mut oldest_waiting = self.reclaim.waiting.iter().filter_map(VecDeque::front);
        let mut below_tail = self.reclaim.below_tail.iter();
        self.reclaim.active == [None; Stream::COUNT]
            && !self.shrink.is_active()
            && !self.is_mirroring(store)
            && free > RECLAIM_RESERVE + 1
            && free + self.reclaim.on_their_way() >= self.free_target(store)
            && oldest_waiting.all(|emptied| emptied.needs > durable)
            && below_tail.all(|emptied| store.durable_tail(emptied.stream) <= emptied.generation)
            && (!self.free_runs_low(store)
                || store.is_flushing()
                || !self.partial_flush_helps_reclaim(store))
    }

    pub(crate) fn advance_reclaim(
        &mut self,
        store: &mut Store,
        policy: &mut Policy,
        origin: &mut Origin,
        now: Nanos,
        memory: &mut dyn Memory,
    ) {
        self.demand.advance(now, store, policy);
        self.reclaim.origin_takes = origin.takes_writeback();
        let target = self.free_target(store);
        let shrinking = self.shrink.is_active();
        let emptying = shrinking || self.is_mirroring(store);
        let at_rest = store.log.free.len() >= target && !self.reclaim.is_working() && !emptying;
        if store.failed_cache() {
            return self.end_reclaim(memory);
        }
        if at_rest {
            return;
        }
        self.move_tails(store);
        self.free_below_tails(store);
        for stream in Stream::ALL {
            if let Some(job) = self.reclaim.active[stream as usize] {
                self.empty_segment(store, policy, now, job, memory);
            }
        }
        while self.free_that_stay(store) + self.to_be_free(store) < target {
            self.partners.look(store);
            let Some(stream) = self.stream_to_reclaim(store, policy) else {
                break;
            };
            if stream == Stream::Main && self.renewal_is_due(store) {
                let renewed = self.renew_oldest(store, now, memory);
                // A segment whose renewal has to wait is not copied meanwhile.
                let waits =
                    self.renewal_has_to_wait(store) && store.log.free.len() > RECLAIM_RESERVE;
                if renewed || waits {
                    break;
                }
            }
            self.start_reclaim(store, policy, origin, now, stream, memory);
        }
        self.advance_mirroring(store, policy, origin, now, memory);
        if shrinking {
            let least = store.log.least_free();
            self.advance_shrink(store, policy, origin, now, least, memory);
        }
        // Emptied segments are freed by flushes of their own when segments are short. As long as
        // there is time these leave open records open: a header for a few entries is metadata for
        // nothing.
        let short = store.log.free.len() <= RECLAIM_RESERVE + 1 || !store.has_placed_all();
        // Long writes bypass a log with so little room, and bring no header either.
        let turned_away = short || !store.log.has_room_again();
        if (short || self.free_runs_low(store) || emptying) && !store.is_flushing() {
            if self.partial_flush_helps_reclaim(store) {
                store.want_partial_flush();
            } else if (turned_away || emptying) && self.reclaim_waits_for_flush(store) {
                store.force_flush();
            }
        }
        if short && self.reclaim.on_their_way() == 0 {
            if shrinking {
                origin.writeback.hurry(now);
            }
            origin.make_room(store, now, self.write_copies_pay(store));
        }
    }

    /// Ends the emptying of segments of a cache that failed, in which nothing moves any more:
    /// a stop, or a detach of a volume, would wait for it.
    fn end_reclaim(&mut self, memory: &mut dyn Memory) {
        for stream in Stream::ALL {
            let Some(job) = self.reclaim.active[stream as usize] else {
                continue;
            };
            let state = self.retain_job(job);
            if state.reads > 0 || state.outstanding > 0 {
                continue;
            }
            if let Some(buf) = state.buf.take() {
                self.spare.free(buf, memory);
            }
            self.jobs.remove(job);
            self.reclaim.active[stream as usize] = None;
        }
    }

    /// True if a flush would bring a segment nearer to being free. A segment that is being emptied,
    /// or read, waits for other things, and flushing on and on would not help it.
    fn reclaim_waits_for_flush(&self, store: &Store) -> bool {
        let durable_number = store.log.durable_number;
        let mut waiting = self.reclaim.waiting.iter().flatten();
        let mut below_tail = self.reclaim.below_tail.iter();
        waiting.any(|emptied| emptied.needs > durable_number)
            || below_tail.any(|emptied| store.durable_tail(emptied.stream) <= emptied.generation)
    }

    /// True if a flush that closes no record would bring a segment nearer to being free.
    fn partial_flush_helps_reclaim(&self, store: &Store) -> bool {
        let durable_number = store.log.durable_number;
        let mut waiting = self.reclaim.waiting.iter().flatten();
        let mut below_tail = self.reclaim.below_tail.iter();
        // The last number closed costs a look at each stream, so it is asked for last.
        let can_become_durable = |emptied: &Emptied| {
            emptied.needs > durable_number && emptied.needs <= store.last_number_closed()
        };
        waiting.any(can_become_durable)
            || below_tail.any(|emptied| {
                store.durable_tail(emptied.stream) <= emptied.generation
                    && store.complete_tail(emptied.stream) > emptied.generation
            })
    }

    /// The stream that gives up its oldest segment; `None` to wait for a busy stream, or if there
    /// is none.
    fn stream_to_reclaim(&self, store: &Store, policy: &Policy) -> Option<Stream> {
        // Clean blocks that would be no room leave their turn to the write stream.
        let gives_room = |stream: Stream| stream == Stream::Write || self.partners.has(stream);
        let may_start = |stream: Stream| {
            self.can_reclaim(store, stream)
                && (stream != Stream::Main || self.main_may_give(store))
                && gives_room(stream)
        };
        if !Stream::ALL.into_iter().any(may_start) {
            return None;
        }
        let wanted = self.stream_due(store, policy);
        let wanted = wanted.map(|due| if gives_room(due) { due } else { Stream::Write });
        if let Some(stream) = wanted
            && may_start(stream)
            && (stream != Stream::Write || self.write_is_ready(store))
        {
            return Some(stream);
        }
        // While it is on its way out the others' blocks are not worth less than before; only
        // when appends would stop is one of theirs taken.
        let critical = is_critical(store);
        if wanted.is_some() && !critical {
            return None;
        }
        let may_give = |stream: Stream| match stream {
            Stream::Write => self.oldest_is_clean(store, true),
            Stream::Main => !self.leaves_main_alone(store),
            Stream::Probation => true,
        };
        for stream in self.order_in_need(store) {
            if may_start(stream) && may_give(stream) {
                return Some(stream);
            }
        }
        let makes_room = self.is_half_empty(store) && store.log.free.len() > 1;
        let may_copy = makes_room || self.write_copies_pay(store);
        (self.can_reclaim(store, Stream::Write) && critical && may_copy).then_some(Stream::Write)
    }

    fn write_copies_pay(&self, store: &Store) -> bool {
        let oldest = self.oldest(store, Stream::Write);
        oldest.is_some_and(|oldest| self.copies_pay(store, oldest))
    }

    /// Whether copies of dirty blocks have a place and take at most half of the room that they
    /// make, so that nobody waits for an origin and its flush instead: of this segment, or of the
    /// write stream's on the whole, with the headers that they bring. Without a gain an idle device
    /// would be worn out by copying round and round until the origin has taken a block.
    fn copies_pay(&self, store: &Store, segment: SegmentId) -> bool {
        let places = places_of_segment(store);
        let dirty = u64::from(store.log.segments[segment.0 as usize].dirty);
        let sealed = self
            .segments_that_stay(store, Stream::Write)
            .saturating_sub(1);
        let copied = store.stats.dirty_blocks + sealed * HEADERS_OF_COPIES;
        let free = store.log.free.len();
        let makes_room = dirty * 2 <= places && free > 1;
        let in_the_long_run = copied * 2 <= sealed * places && free >= LONG_RUN_FREE;
        places >= LEAST_PLACES && (makes_room || in_the_long_run)
    }

    /// Whether copies of all live blocks of the write stream's oldest segment make room at once.
    fn is_half_empty(&self, store: &Store) -> bool {
        let live = u64::from(self.oldest_live_blocks(store, Stream::Write));
        live * 2 <= places_of_segment(store) || !store.unreadable.is_empty()
    }

    pub(crate) fn can_reclaim(&self, store: &Store, stream: Stream) -> bool {
        let busy = self.reclaim.active[stream as usize].is_some();
        if busy || self.too_many_wait(store, stream) {
            return false;
        }
        let Some(oldest) = self.oldest(store, stream) else {
            return false;
        };
        let sealed = store.log.segments[oldest.0 as usize].state == SegmentState::Sealed;
        let renewing = stream == Stream::Main && store.is_renewing();
        sealed && !renewing
    }

    fn too_many_wait(&self, store: &Store, stream: Stream) -> bool {
        let waiting = self.reclaim.waiting(stream);
        let ahead = self.demand.segments(store) / 2;
        if stream == Stream::Write {
            return waiting >= MOST_WAITING.max(ahead);
        }
        let below_tail = self.reclaim.below_tail.iter();
        let below_tail = below_tail
            .filter(|emptied| emptied.stream == stream)
            .count();
        let slots = store.log.geometry.slots_per_segment() as usize;
        let most = (MOST_WAITING_BLOCKS / slots).clamp(2, MOST_WAITING);
        waiting + below_tail >= most.max(ahead)
    }

    pub(crate) fn start_reclaim(
        &mut self,
        store: &mut Store,
        policy: &mut Policy,
        origin: &mut Origin,
        now: Nanos,
        stream: Stream,
        memory: &mut dyn Memory,
    ) {
        let segment = self.oldest(store, stream).expect("chosen");
        let in_turn = !self.oldest_has_unused_slots(store, stream);
        policy.renew_allowance(store);
        if store.present_dirty_of(segment) > 0 {
            // Copies of dirty blocks free little, and blocks written back free all of it.
            origin.make_room(store, now, self.copies_pay(store, segment));
        }
        store.log.segment(segment).state = SegmentState::Emptying;
        let job = self.jobs.insert(Box::new(RetainJob {
            segment,
            stream,
            in_turn,
            next_slot: store.log.geometry.first_slot() as u16,
            batch: Vec::new(),
            buf: None,
            reads: 0,
            attempts: 0,
            outstanding: 0,
        }));
        self.reclaim.active[stream as usize] = Some(job);
        self.empty_segment(store, policy, now, job, memory);
    }

    /// Decides the next blocks of the segment, up to a batch that has to be read.
    fn empty_segment(
        &mut self,
        store: &mut Store,
        policy: &Policy,
        now: Nanos,
        job: RetainId,
        memory: &mut dyn Memory,
    ) {
        let state = self.retain_job(job);
        if state.reads > 0 || state.outstanding > 0 {
            return;
        }
        if !state.batch.is_empty() {
            // No buffer was to be had the last time.
            return self.read_batch(store, job, memory);
        }
        let (segment, stream, in_turn) = (state.segment, state.stream, state.in_turn);
        let mut in_segment = state.next_slot;
        let mut batch = Vec::new();
        let slots = store.log.geometry.slots_per_segment() as u16;
        let carries_on = is_critical(store) && self.copies_pay(store, segment);
        while in_segment < slots && batch.len() < BATCH_BLOCKS {
            let slot = store.log.geometry.slot(segment, in_segment);
            let flags = store.index.flags(slot);
            if flags.live() {
                let key = store.index.key(slot);
                if store.is_numbered(key) {
                    // A newer version has its number already and is being written: an older
                    // copy must not get a higher one. It ends by itself.
                    break;
                }
                if flags.dirty() && !carries_on && store.is_about_to_be_clean(key, slot) {
                    break;
                }
                match policy.retain_where(store, stream, slot, in_turn) {
                    Some(to) => batch.push((key, slot, to)),
                    None if store.keeps_shares && store.is_kept_for_its_volume(key) => {
                        // The copies need a segment themselves.
                        if store.log.free.len() > 1 {
                            batch.push((key, slot, Stream::Main));
                        } else if self.reclaim.emptied().next().is_some()
                            || self.reclaim.discarding > 0
                            || !store.evict(now, key, slot, stream, memory)
                        {
                            break;
                        }
                    }
                    None if store.evict(now, key, slot, stream, memory) => {}
                    None => break,
                }
            }
            in_segment += 1;
        }
        let state = self.retain_job(job);
        state.next_slot = in_segment;
        state.batch = batch;
        if !state.batch.is_empty() {
            return self.read_batch(store, job, memory);
        }
        if in_segment == slots {
            self.segment_emptied(store, job);
        }
    }

    /// Reads the blocks of the batch, those in consecutive slots together.
    fn read_batch(&mut self, store: &mut Store, job: RetainId, memory: &mut dyn Memory) {
        let block_bytes = store.block_bytes();
        let mut batch = std::mem::take(&mut self.retain_job(job).batch);
        let spare = &mut self.spare;
        let Some(buf) = spare.alloc_most(batch.len(), block_bytes, memory) else {
            self.retain_job(job).batch = batch;
            return;
        };
        let fits = buf.len_bytes as usize / block_bytes;
        if fits < batch.len() {
            // Blocks left out are gone through again.
            let rest = batch.split_off(fits);
            self.retain_job(job).next_slot = store.log.geometry.slot_in_segment(rest[0].1);
        }
        let state = self.retain_job(job);
        state.batch = batch;
        state.buf = Some(buf);
        state.attempts = 0;
        self.issue_retain_reads(store, job);
    }

    fn issue_retain_reads(&mut self, store: &mut Store, job: RetainId) {
        let state = self.retain_job(job);
        let buf = state.buf.expect("there is a buffer for the batch");
        let slots: Vec<Slot> = state.batch.iter().map(|(_, slot, _)| *slot).collect();
        let mut first = 0;
        while first < slots.len() {
            let mut count = 1;
            while first + count < slots.len()
                && slots[first + count].0 == slots[first].0 + count as u32
            {
                count += 1;
            }
            self.issue_retain_read(store, job, first, count, slots[first], buf);
            first += count;
        }
    }

    /// The places in the batch of dirty blocks with the wrong checksum: the only copy is not given
    /// up for a single bad read.
    fn bad_of_batch(
        &mut self,
        store: &Store,
        job: RetainId,
        memory: &dyn Memory,
    ) -> SmallVec<[usize; 4]> {
        let block_bytes = store.block_bytes();
        let state = self.retain_job(job);
        let buf = state.buf.expect("a batch was read");
        let batch = std::mem::take(&mut state.batch);
        let is_bad = |at: usize, key: BlockKey, slot: Slot| {
            let flags = store.index.flags(slot);
            store.index.find(key) == Some(slot) && flags.dirty() && !flags.zero() && {
                let block = memory.bytes(buf.slice(at * block_bytes, block_bytes));
                crc32c(block) != store.index.checksum(slot)
            }
        };
        let places = batch.iter().enumerate();
        let bad = places.filter(|(at, (key, slot, _))| is_bad(*at, *key, *slot));
        let bad = bad.map(|(at, _)| at).collect();
        self.retain_job(job).batch = batch;
        bad
    }

    /// Reads blocks of the batch again, each by itself. The other blocks were read, and another
    /// read of them could only fail.
    fn read_again(&mut self, store: &mut Store, job: RetainId, places: &[usize]) {
        let state = self.retain_job(job);
        state.attempts += 1;
        let buf = state.buf.expect("a batch was read");
        for at in places {
            let slot = self.retain_job(job).batch[*at].1;
            self.issue_retain_read(store, job, *at, 1, slot, buf);
        }
    }

    fn issue_retain_read(
        &mut self,
        store: &mut Store,
        job: RetainId,
        first: usize,
        count: usize,
        slot: Slot,
        buf: Buf,
    ) {
        let block_bytes = store.block_bytes();
        let state = self.retain_job(job);
        state.reads += 1;
        let attempts = state.attempts;
        store.log.segment_of(slot).pins += 1;
        let offset_bytes = store.log.map.address_at(slot, attempts);
        let bufs = one_buf(buf.slice(first * block_bytes, count * block_bytes));
        let op = Op::RetainRead(ReadPart {
            job,
            first: first as u16,
            count: count as u16,
        });
        store.issue(op, Device::Cache(0), Operation::Read { offset_bytes, bufs });
    }

    pub(crate) fn retain_read_done(
        &mut self,
        store: &mut Store,
        now: Nanos,
        part: ReadPart<RetainId>,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let ReadPart { job, first, count } = part;
        let state = self.retain_job(job);
        state.reads -= 1;
        let buf = state.buf.expect("a batch is being read");
        let slot = state.batch[usize::from(first)].1;
        if result.is_err() && count > 1 {
            // A single bad sector is enough for that: each block is read by itself before anything
            // is concluded (I23).
            store.stats.cache_read_errors += 1;
            for i in 0..count {
                let block = Slot(slot.0 + u32::from(i));
                self.issue_retain_read(store, job, usize::from(first + i), 1, block, buf);
            }
            store.log.segment_of(slot).pins -= 1;
            return;
        }
        if result.is_err() {
            // The contents stay uncertain; the checksums say so to whoever reads them.
            store.stats.cache_read_errors += 1;
            let block_bytes = store.block_bytes();
            let bytes = memory.bytes_mut(buf.slice(
                usize::from(first) * block_bytes,
                usize::from(count) * block_bytes,
            ));
            bytes.fill(0xe1);
        }
        store.log.segment_of(slot).pins -= 1;
        if self.retain_job(job).reads > 0 {
            return;
        }
        if self.retain_job(job).attempts < RETAIN_ATTEMPTS {
            let bad = self.bad_of_batch(store, job, memory);
            if !bad.is_empty() {
                return self.read_again(store, job, &bad);
            }
        }
        self.append_batch(store, now, job, memory);
    }

    /// Appends the blocks that were read. A clean block that is damaged is evicted; a dirty one is
    /// carried on with the checksum it should have, so that it is never mistaken for sound (the
    /// reader gets an error, not something old).
    fn append_batch(
        &mut self,
        store: &mut Store,
        now: Nanos,
        job: RetainId,
        memory: &mut dyn Memory,
    ) {
        let block_bytes = store.block_bytes();
        let state = self.retain_job(job);
        let batch = std::mem::take(&mut state.batch);
        let buf = state.buf.expect("a batch was read");
        let stream = state.stream;
        state.outstanding = 1;
        let mut runs: Vec<(AppendRun, usize)> = Vec::new();
        for (at, (key, slot, to)) in batch.iter().copied().enumerate() {
            if store.index.find(key) != Some(slot) {
                continue;
            }
            let flags = store.index.flags(slot);
            let block = memory.bytes(buf.slice(at * block_bytes, block_bytes));
            let sound = flags.zero() || crc32c(block) == store.index.checksum(slot);
            if !sound {
                store.stats.checksum_errors += 1;
                if !flags.dirty() {
                    if !store.is_numbered(key) && store.evict(now, key, slot, stream, memory) {
                        store.index.hide_evicted(slot);
                    }
                    continue;
                }
                store.stats.unreadable_dirty_blocks += 1;
            }
            self.add_to_runs(store, &mut runs, at, key, slot, to, job, buf);
        }
        let blocks: usize = runs
            .iter()
            .map(|(run, _)| usize::from(run.keys.len()))
            .sum();
        self.retain_job(job).outstanding += blocks as u32;
        store.stats.retained_blocks += blocks as u64;
        if stream == Stream::Main {
            self.main_was_copied(store, blocks as u64);
        }
        for (run, _) in runs {
            store.append(now, run, memory);
        }
        self.retained(job, 1, memory);
    }

    /// Adds a block to the last run if it goes to the same place in the same variant.
    #[allow(clippy::too_many_arguments, reason = "one block's whole description")]
    fn add_to_runs(
        &mut self,
        store: &Store,
        runs: &mut Vec<(AppendRun, usize)>,
        at: usize,
        key: BlockKey,
        slot: Slot,
        to: Stream,
        job: RetainId,
        buf: Buf,
    ) {
        let block_bytes = store.block_bytes();
        let flags = store.index.flags(slot);
        // No block here became dirty since the decision: a dirty block has a new slot.
        assert!(
            flags.dirty() == (to == Stream::Write) || !flags.dirty(),
            "I17"
        );
        let (dirty, zero) = (flags.dirty(), flags.zero());
        let checksum = store.index.checksum(slot);
        if let Some((run, next)) = runs.last_mut()
            && *next == at
            && run.stream == to
            && run.dirty == dirty
            && run.zero == zero
            && let (Keys::List(keys), Some(copies)) = (&mut run.keys, &mut run.copies)
        {
            keys.push(key);
            copies.push((slot, checksum));
            if !zero {
                run.buf.len_bytes += block_bytes as u32;
            }
            *next += 1;
            return;
        }
        let run = AppendRun {
            stream: to,
            keys: Keys::List(vec![key]),
            buf: if zero {
                Buf::EMPTY
            } else {
                buf.slice(at * block_bytes, block_bytes)
            },
            dirty,
            zero,
            owner: Owner::Retain(job),
            reclaim: true,
            copies: Some(vec![(slot, checksum)]),
            places: 0,
        };
        runs.push((run, at + 1));
    }

    /// Blocks of the batch were appended, or superseded meanwhile.
    pub(crate) fn retained(&mut self, job: RetainId, blocks: u16, memory: &mut dyn Memory) {
        let state = self.retain_job(job);
        state.outstanding -= u32::from(blocks);
        if state.outstanding == 0
            && let Some(buf) = state.buf.take()
        {
            self.spare.free(buf, memory);
        }
    }

    /// Ends a pass over the segment. Blocks that are still live were being replaced, and are looked
    /// at again.
    fn segment_emptied(&mut self, store: &mut Store, job: RetainId) {
        let state = self.retain_job(job);
        let segment = state.segment;
        if store.log.segment(segment).live > 0 {
            self.retain_job(job).next_slot = store.log.geometry.first_slot() as u16;
            return;
        }
        let Some(state) = self.jobs.remove(job) else {
            return;
        };
        self.reclaim.active[state.stream as usize] = None;
        let emptied = store.log.segment(segment);
        let needs = if planted::is(Bug::BuriedEarly) {
            0
        } else {
            emptied.superseded_by
        };
        emptied.state = SegmentState::Waiting;
        let generation = emptied.generation;
        store.stats.reclaimed_segments += 1;
        self.reclaim.waiting[state.stream as usize].push_back(Emptied {
            segment,
            needs,
            generation,
            stream: state.stream,
        });
        // If it is superseded durably already it does not wait, and must not be in the way of the
        // next of its stream: another stream's would be taken instead.
        self.move_tails(store);
    }

    /// Moves tails past segments whose entries are all superseded durably (I8).
    fn move_tails(&mut self, store: &mut Store) {
        for stream in Stream::ALL {
            if stream == Stream::Main && store.is_renewing() {
                // I19 (5): the tail does not pass the old position of what is being renewed.
                continue;
            }
            while let Some(emptied) = self.reclaim.waiting[stream as usize].front() {
                if emptied.needs > store.log.durable_number {
                    break;
                }
                let emptied = self.reclaim.waiting[stream as usize]
                    .pop_front()
                    .expect("seen");
                let oldest = store.log.streams[stream as usize].order.pop_front();
                assert_eq!(
                    oldest,
                    Some(emptied.segment),
                    "I2: segments are freed in order"
                );
                let next = store.log.streams[stream as usize].order.front().copied();
                let tail = match next {
                    Some(next) => store.log.segment(next).generation,
                    None => Sequence::new(store.log.epoch, store.log.next_number),
                };
                assert!(tail > emptied.generation, "I2: tails rise");
                store.log.tails[stream as usize] = tail;
                store.log.segment(emptied.segment).state = SegmentState::BelowTail;
                self.reclaim.below_tail.push(emptied);
            }
        }
    }

    /// Frees segments below a durable tail that nobody reads (I8).
    fn free_below_tails(&mut self, store: &mut Store) {
        let mut at = 0;
        while at < self.reclaim.below_tail.len() {
            let emptied = &self.reclaim.below_tail[at];
            let below = store.durable_tail(emptied.stream) > emptied.generation;
            let below = below || planted::is(Bug::ReusedEarly);
            if !below || store.log.segments[emptied.segment.0 as usize].pins > 0 {
                at += 1;
                continue;
            }
            let emptied = self.reclaim.below_tail.swap_remove(at);
            self.free_segment(store, emptied.segment);
        }
    }

    fn free_segment(&mut self, store: &mut Store, id: SegmentId) {
        let places = store.log.places_of(id);
        if !store.log.is_at_home(id) {
            store.forget_evicted(id);
        }
        store.log.lend(id, None);
        for place in places {
            self.free_place(store, place);
        }
    }

    fn free_place(&mut self, store: &mut Store, id: SegmentId) {
        if store.log.segments[id.0 as usize].lost {
            return self.may_be_used_again(store, id);
        }
        if store.settings.discard_freed_segments {
            store.forget_evicted(id);
            let offset_bytes = store.log.map.place_address(id);
            let len_bytes = u64::from(store.log.geometry.segment_bytes);
            self.reclaim.discarding += 1;
            store.issue(
                Op::SegmentDiscard(id),
                Device::Cache(0),
                Operation::Discard {
                    offset_bytes,
                    len_bytes,
                },
            );
            return;
        }
        self.may_be_used_again(store, id);
    }

    /// A segment was discarded, or could not be.
    pub(crate) fn segment_discarded(&mut self, store: &mut Store, id: SegmentId) {
        self.reclaim.discarding -= 1;
        self.may_be_used_again(store, id);
    }

    fn may_be_used_again(&mut self, store: &mut Store, id: SegmentId) {
        if self.shrink.is_active() || store.log.segments[id.0 as usize].lost {
            return self.shrink_or_free(store, id);
        }
        store.log.segment(id).state = SegmentState::Free;
        store.log.free.push_back(id);
    }
}
