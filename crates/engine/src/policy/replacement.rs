//! Replacement: into which stream a block goes, which stream gives up its oldest segment, and
//! which of that segment's blocks stay.
//!
//! A policy fits if these three answers are all it is. One that moves a block at each hit (LRU),
//! keeps one where it is while its neighbours leave (SIEVE, random), or orders blocks by more than
//! a few bits (ARC, LIRS, LFU) would write the block again for that, and lives in the simulator of
//! crates/trace alone.

use crate::engine::Engine;
use crate::format::{BlockKey, SegmentId, Sequence, Slot, Stream};
use crate::map::index::{MAX_HITS, SlotFlags, hash};
use crate::planted::{self, Bug};
use crate::policy::Policy;
use crate::policy::trials::Manner;
use crate::settings::replacement::Replacement;
use crate::store::Store;
use crate::store::log::{RECLAIM_RESERVE, SegmentState};

/// The write stream's share beyond which its clean tail is reclaimed in its turn, in percent. What
/// is written once is like what is read once: it has as long as probation has to be used again.
const WRITE_SHARE_PERCENT: u64 = 10;
/// The share of 2Q's first queue (A1in), in percent.
const TWO_Q_SHARE_PERCENT: u64 = 25;

/// How much copying is paid for: each block that is let in earns a part of a copy, each copy
/// costs one. Where copies do not pay because everything is wanted, they end there.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// In hundredths of a block.
    left: i64,
    /// Blocks written and copied when it was last looked at.
    written: u64,
    copied: u64,
}

/// What is earned while the cache is filled so often, in halves, can be saved up: loads that need
/// copies need them in turns, with hours of none between.
const SAVED_HALVES: i64 = 5;

impl Allowance {
    /// That of a shard which starts: a recovered cache keeps what is hot from its first moment.
    pub(crate) fn new(slots: usize, retain_percent: u8) -> Allowance {
        Allowance {
            left: Allowance::most(slots, retain_percent),
            written: 0,
            copied: 0,
        }
    }

    fn most(slots: usize, retain_percent: u8) -> i64 {
        slots as i64 * i64::from(retain_percent) * SAVED_HALVES / 2
    }
}

impl Policy {
    /// A block was read or written.
    #[inline]
    pub(crate) fn note_use(&mut self, key: BlockKey) {
        if self.trials.sample(key) {
            self.trials.note_use(key);
        }
    }

    /// The stream a missed block belongs in: main if it left not long ago.
    pub(crate) fn stream_of_promoted(&mut self, store: &mut Store, key: BlockKey) -> Stream {
        self.note_use(key);
        if store.settings.replacement.has_ghost()
            && store.ghost.take(hash(key)).is_some()
            && self.main_has_room(store)
        {
            Stream::Main
        } else {
            Stream::Probation
        }
    }

    fn main_has_room(&mut self, store: &mut Store) -> bool {
        let is_filling = store.log.free.len() * 8 > store.log.usable_segments();
        self.trials.best() != Manner::Steady || is_filling || self.main_makes_way(store)
    }

    /// Where a live block of a dying segment goes; `None` to evict it.
    pub(crate) fn retain_where(&self, store: &Store, stream: Stream, slot: Slot) -> Option<Stream> {
        let flags = store.index.flags(slot);
        if flags.dirty() && !planted::is(Bug::DirtyInMain) {
            return Some(Stream::Write);
        }
        let bar = self.hits_to_stay(store, stream, flags)?;
        // When copies do not pay because everything is hot, the bar rises.
        let bar = bar.max(self.least_hits_to_stay(store)?);
        (flags.hits() >= bar && store.log.free.len() > 1).then_some(Stream::Main)
    }

    /// How many hits keep a clean block; `None` if none do.
    fn hits_to_stay(&self, store: &Store, stream: Stream, flags: SlotFlags) -> Option<u8> {
        // One that was overwritten in main has proved itself before.
        let proved = stream == Stream::Main || flags.shadows() & Stream::Main.bit() != 0;
        match store.settings.replacement {
            Replacement::Fifo => None,
            Replacement::Clock => Some(1),
            _ if proved => Some(1),
            // Clean by then, it was written and used since: a turn in probation would be a copy
            // too, and main has room for what is written over and over.
            Replacement::Adaptive | Replacement::S3Fifo
                if stream == Stream::Write && store.has_room_for_written() =>
            {
                Some(1)
            }
            Replacement::Adaptive | Replacement::S3Fifo => {
                Some(self.trials.best().promotion_hits(&store.settings))
            }
            Replacement::TwoQ => (stream == Stream::Write).then_some(MAX_HITS),
        }
    }

    /// The bar for all clean blocks, by what is left of the allowance.
    fn least_hits_to_stay(&self, store: &Store) -> Option<u8> {
        if store.log.free.len() <= RECLAIM_RESERVE {
            return Some(2);
        }
        let most = self.most_allowance(store);
        match self.allowance.left {
            left if left <= 0 => None,
            left if left < most / 8 => Some(MAX_HITS),
            left if left < most / 4 => Some(2),
            _ => Some(1),
        }
    }

    fn most_allowance(&self, store: &Store) -> i64 {
        Allowance::most(store.log.usable_slots(), store.settings.retain_percent)
    }

    /// Reckons up what was let in and copied since the last time.
    pub(crate) fn renew_allowance(&mut self, store: &Store) {
        let written = store.stats.cache_data_written_bytes / store.block_bytes() as u64;
        let copied = store.stats.retained_blocks + store.stats.renewed_segments;
        let new_written = written.saturating_sub(self.allowance.written);
        let new_copied = copied.saturating_sub(self.allowance.copied);
        (self.allowance.written, self.allowance.copied) = (written, copied);
        let let_in = new_written.saturating_sub(new_copied);
        let earned = let_in as i64 * i64::from(store.settings.retain_percent);
        let left = self.allowance.left + earned - new_copied as i64 * 100;
        let most = self.most_allowance(store);
        self.allowance.left = left.clamp(-most, most);
    }
}

impl Engine {
    /// The stream whose turn it is to give up its oldest segment, whether or not it is ready.
    pub(crate) fn stream_due(&self) -> Option<Stream> {
        let write_is_clean = self.has_oldest(Stream::Write) && self.oldest_dirty_blocks() == 0;
        match self.store.settings.replacement {
            Replacement::Fifo | Replacement::Clock => self.oldest_stream(write_is_clean),
            Replacement::Adaptive | Replacement::S3Fifo => {
                let share = u64::from(self.probation_percent());
                self.due_by_share(write_is_clean, share, WRITE_SHARE_PERCENT)
            }
            Replacement::TwoQ => {
                self.due_by_share(write_is_clean, TWO_Q_SHARE_PERCENT, TWO_Q_SHARE_PERCENT)
            }
        }
    }

    fn probation_percent(&self) -> u8 {
        self.policy
            .trials
            .best()
            .probation_percent(&self.store.settings)
    }

    /// From which streams a segment is taken, and in which order, when the one whose turn it is has
    /// none to give yet and appends would stop. A long write pays for its own haste as long as it
    /// has more than its share: what is read again and again would be gone for it.
    pub(crate) fn order_in_need(&self) -> [Stream; Stream::COUNT] {
        if self.is_longer_than(Stream::Write, WRITE_SHARE_PERCENT) {
            [Stream::Write, Stream::Main, Stream::Probation]
        } else {
            [Stream::Main, Stream::Write, Stream::Probation]
        }
    }

    /// The stream with the oldest segment of all.
    fn oldest_stream(&self, write_is_clean: bool) -> Option<Stream> {
        let streams = Stream::ALL
            .into_iter()
            .filter(|stream| self.has_oldest(*stream))
            .filter(|stream| *stream != Stream::Write || write_is_clean);
        streams.min_by_key(|stream| self.oldest_generation(*stream))
    }

    /// A segment that is mostly dead; probation and what was written, while they are longer than
    /// their shares, the one that has more above its own first: a long write gives up its blocks,
    /// not what was read before it. Else main.
    fn due_by_share(&self, write_is_clean: bool, probation: u64, write: u64) -> Option<Stream> {
        if let Some(deadest) = self.deadest_stream(write_is_clean) {
            return Some(deadest);
        }
        let write_due = write_is_clean && self.is_longer_than(Stream::Write, write);
        let probation_due =
            self.has_oldest(Stream::Probation) && self.is_longer_than(Stream::Probation, probation);
        match (probation_due, write_due) {
            (true, true) => {
                let above_share = |stream: Stream, percent: u64| {
                    let share = self.store.log.usable_segments() as u64 * percent;
                    (self.segments_that_stay(stream) * 100).saturating_sub(share)
                };
                let write_first =
                    above_share(Stream::Write, write) >= above_share(Stream::Probation, probation);
                Some(if write_first {
                    Stream::Write
                } else {
                    Stream::Probation
                })
            }
            (true, false) => Some(Stream::Probation),
            (false, true) => Some(Stream::Write),
            (false, false) if self.has_oldest(Stream::Main) => Some(Stream::Main),
            (false, false) if write_is_clean => Some(Stream::Write),
            (false, false) => self
                .has_oldest(Stream::Probation)
                .then_some(Stream::Probation),
        }
    }

    /// The stream whose oldest segment has the fewest live blocks, if they are less than two
    /// thirds: what was overwritten or left is room for nothing, in whichever stream it lies.
    fn deadest_stream(&self, write_is_clean: bool) -> Option<Stream> {
        let geometry = &self.store.log.geometry;
        let places = geometry.slots_per_segment() - geometry.first_slot() - 1;
        let streams = Stream::ALL
            .into_iter()
            .filter(|stream| self.has_oldest(*stream))
            .filter(|stream| *stream != Stream::Write || write_is_clean);
        let deadest = streams.min_by_key(|stream| self.oldest_live_blocks(*stream))?;
        (self.oldest_live_blocks(deadest) * 3 < places * 2).then_some(deadest)
    }

    /// Whether a stream has more than this share of the shard, what is on its way out left out.
    fn is_longer_than(&self, stream: Stream, percent: u64) -> bool {
        let segments = self.store.log.usable_segments() as u64;
        self.segments_that_stay(stream) * 100 > (segments * percent).max(100)
    }

    fn segments_that_stay(&self, stream: Stream) -> u64 {
        let all = self.store.log.streams[stream as usize].order.len();
        (all - self.reclaim.on_their_way_out(stream)) as u64
    }

    /// The oldest segment of a stream that is not dying already (I2: they die in order).
    pub(crate) fn oldest(&self, stream: Stream) -> Option<SegmentId> {
        let dying = self.reclaim.dying(stream);
        self.store.log.streams[stream as usize]
            .order
            .get(dying)
            .copied()
    }

    /// Whether a stream has a segment that can be reclaimed, now or when an older one is done.
    fn has_oldest(&self, stream: Stream) -> bool {
        self.oldest(stream).is_some_and(|oldest| {
            let state = self.store.log.segments[oldest.0 as usize].state;
            matches!(state, SegmentState::Sealed | SegmentState::Reclaiming)
        })
    }

    fn oldest_generation(&self, stream: Stream) -> Sequence {
        let oldest = self.oldest(stream);
        oldest.map_or(Sequence::ZERO, |oldest| {
            self.store.log.segments[oldest.0 as usize].generation
        })
    }

    pub(crate) fn oldest_live_blocks(&self, stream: Stream) -> u32 {
        let oldest = self.oldest(stream);
        oldest.map_or(0, |oldest| self.store.log.segments[oldest.0 as usize].live)
    }

    pub(crate) fn oldest_dirty_blocks(&self) -> u32 {
        let oldest = self.oldest(Stream::Write);
        oldest.map_or(0, |oldest| self.store.log.segments[oldest.0 as usize].dirty)
    }
}
