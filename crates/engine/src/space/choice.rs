//! Which stream gives up its oldest segment.

use crate::format::{SegmentId, Sequence, Stream};
use crate::policy::Policy;
use crate::settings::replacement::Replacement;
use crate::space::Space;
use crate::space::reclaim::{LEAST_PLACES, places_of_segment};
use crate::store::Store;
use crate::store::log::{RECLAIM_RESERVE, SegmentState};

/// The write stream's share beyond which its clean tail is reclaimed in its turn, in percent. A
/// block written once is like a block read once: it has as long as probation has to be used again.
const WRITE_SHARE_PERCENT: u64 = 10;
/// A segment of the write stream with at most this part of its slots dirty gives up its place in
/// its turn: copies of them cost less than the read blocks that would go instead.
const HARDLY_DIRTY: u32 = 6;
/// Dirty data leaves this share of the shard to main, in percent, where the write stream has the
/// second share already: the lowest marks of dirty data make as much room for blocks that were read
/// (`store/dirty_marks.rs`).
const MAIN_SHARE_PERCENT: u64 = 20;
const LARGE_WRITE_PERCENT: u64 = 50;
/// The share of 2Q's first queue (A1in), in percent.
const TWO_Q_SHARE_PERCENT: u64 = 25;

impl Space {
    /// The stream whose turn it is to give up its oldest segment, whether or not it is ready.
    pub(crate) fn stream_due(&self, store: &Store, policy: &Policy) -> Option<Stream> {
        let write_is_clean = self.write_is_ready(store);
        match store.settings.replacement {
            Replacement::Fifo | Replacement::Clock => self.oldest_stream(store, write_is_clean),
            Replacement::Adaptive | Replacement::S3Fifo => {
                let share = u64::from(self.probation_percent(store, policy));
                self.due_by_share(store, write_is_clean, share, WRITE_SHARE_PERCENT)
            }
            Replacement::TwoQ => self.due_by_share(
                store,
                write_is_clean,
                TWO_Q_SHARE_PERCENT,
                TWO_Q_SHARE_PERCENT,
            ),
        }
    }

    /// Whether the write stream's oldest segment can be reclaimed without the origin.
    pub(super) fn write_is_ready(&self, store: &Store) -> bool {
        self.has_oldest(store, Stream::Write)
            && (self.oldest_is_clean(store, false) || self.oldest_is_hardly_dirty(store))
    }

    /// Whether dirty data waits for the origin, and takes nothing from main: blocks that are read
    /// again and again would go for a burst of writes, and be read from the origin after it. Where
    /// the origin takes nothing, or a dirty block cannot be read for it, clean blocks are all the
    /// room there is.
    pub(super) fn leaves_main_alone(&self, store: &Store) -> bool {
        let has_main = !matches!(
            store.settings.replacement,
            Replacement::Fifo | Replacement::Clock
        );
        let oldest = self.oldest(store, Stream::Write);
        has_main
            && self.reclaim.origin_takes
            && store.unreadable.is_empty()
            && oldest.is_some_and(|oldest| store.present_dirty_of(oldest) > 0)
            && self.is_longer_than(store, Stream::Write, LARGE_WRITE_PERCENT)
            && !self.is_longer_than(store, Stream::Main, MAIN_SHARE_PERCENT)
    }

    fn probation_percent(&self, store: &Store, policy: &Policy) -> u8 {
        policy.trials.best().probation_percent(&store.settings)
    }

    /// The order in which streams give up a segment when the stream whose turn it is has none to
    /// give yet and appends would stop. A long write pays for its own room as long as it has more
    /// than its share: otherwise blocks that are read again and again would go for it.
    pub(crate) fn order_in_need(&self, store: &Store) -> [Stream; Stream::COUNT] {
        if self.is_longer_than(store, Stream::Write, WRITE_SHARE_PERCENT) {
            [Stream::Write, Stream::Main, Stream::Probation]
        } else {
            [Stream::Main, Stream::Write, Stream::Probation]
        }
    }

    /// The stream with the oldest segment of all.
    fn oldest_stream(&self, store: &Store, write_is_clean: bool) -> Option<Stream> {
        let streams = Stream::ALL
            .into_iter()
            .filter(|stream| self.has_oldest(store, *stream))
            .filter(|stream| *stream != Stream::Write || write_is_clean);
        streams.min_by_key(|stream| self.oldest_generation(store, *stream))
    }

    /// The stream to reclaim by shares. First the stream with an oldest segment that is mostly
    /// empty. Then probation and the write stream while they are longer than their shares, first
    /// the stream that is further above its own: a long write gives up its own blocks and not those
    /// read before it. Else main, unless it is left alone: then the write stream, when the origin
    /// has taken its oldest segment.
    fn due_by_share(
        &self,
        store: &Store,
        write_is_clean: bool,
        probation: u64,
        write: u64,
    ) -> Option<Stream> {
        if let Some(emptiest) = self.emptiest_stream(store, write_is_clean) {
            return Some(emptiest);
        }
        let write_due = write_is_clean && self.is_longer_than(store, Stream::Write, write);
        let probation_due = self.has_oldest(store, Stream::Probation)
            && self.is_longer_than(store, Stream::Probation, probation);
        match (probation_due, write_due) {
            (true, true) => {
                let above_share = |stream: Stream, percent: u64| {
                    let share = store.log.usable_segments() as u64 * percent;
                    (self.places_that_stay(store, stream) * 100).saturating_sub(share)
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
            (false, false) if !write_is_clean && self.leaves_main_alone(store) => {
                Some(Stream::Write)
            }
            (false, false) if self.has_oldest(store, Stream::Main) => Some(Stream::Main),
            (false, false) if write_is_clean => Some(Stream::Write),
            (false, false) => self
                .has_oldest(store, Stream::Probation)
                .then_some(Stream::Probation),
        }
    }

    /// The stream whose oldest segment has the fewest live blocks, if they are less than two
    /// thirds: slots of blocks that were overwritten or left are room for nothing, in any stream.
    fn emptiest_stream(&self, store: &Store, write_is_clean: bool) -> Option<Stream> {
        let streams = Stream::ALL
            .into_iter()
            .filter(|stream| self.has_oldest(store, *stream))
            .filter(|stream| *stream != Stream::Write || write_is_clean);
        let emptiest = streams.min_by_key(|stream| self.oldest_live_blocks(store, *stream))?;
        self.oldest_has_unused_slots(store, emptiest)
            .then_some(emptiest)
    }

    /// Whether less than two thirds of a stream's oldest segment are live blocks.
    pub(super) fn oldest_has_unused_slots(&self, store: &Store, stream: Stream) -> bool {
        let live = u64::from(self.oldest_live_blocks(store, stream));
        live * 3 < places_of_segment(store) * 2
    }

    /// True if a stream has more than this share of the shard, without segments on their way out.
    fn is_longer_than(&self, store: &Store, stream: Stream, percent: u64) -> bool {
        let segments = store.log.usable_segments() as u64;
        self.places_that_stay(store, stream) * 100 > (segments * percent).max(100)
    }

    /// The places of a stream's segments that stay: dirty data has two where it is on two devices.
    fn places_that_stay(&self, store: &Store, stream: Stream) -> u64 {
        let segments = self.segments_that_stay(store, stream);
        if stream == Stream::Write && store.log.keeps_two() {
            segments * 2
        } else {
            segments
        }
    }

    pub(super) fn segments_that_stay(&self, store: &Store, stream: Stream) -> u64 {
        let all = store.log.streams[stream as usize].order.len();
        (all - self.reclaim.emptying_or_waiting(stream)) as u64
    }

    /// The oldest segment of a stream that is not empty already (I2: they are freed in order).
    pub(crate) fn oldest(&self, store: &Store, stream: Stream) -> Option<SegmentId> {
        let waiting = self.reclaim.waiting(stream);
        store.log.streams[stream as usize]
            .order
            .get(waiting)
            .copied()
    }

    /// Whether a stream has a segment that can be reclaimed, now or when an older one is done.
    fn has_oldest(&self, store: &Store, stream: Stream) -> bool {
        self.oldest(store, stream).is_some_and(|oldest| {
            let state = store.log.segments[oldest.0 as usize].state;
            matches!(state, SegmentState::Sealed | SegmentState::Emptying)
        })
    }

    fn oldest_generation(&self, store: &Store, stream: Stream) -> Sequence {
        let oldest = self.oldest(store, stream);
        oldest.map_or(Sequence::ZERO, |oldest| {
            store.log.segments[oldest.0 as usize].generation
        })
    }

    pub(crate) fn oldest_live_blocks(&self, store: &Store, stream: Stream) -> u32 {
        let oldest = self.oldest(store, stream);
        oldest.map_or(0, |oldest| store.log.segments[oldest.0 as usize].live)
    }

    /// Whether nothing in the write stream's oldest segment has to be written back before it can be
    /// reclaimed. Blocks of volumes that are away are appended again, where that frees room.
    pub(crate) fn oldest_is_clean(&self, store: &Store, in_need: bool) -> bool {
        let Some(oldest) = self.oldest(store, Stream::Write) else {
            return true;
        };
        let segment = &store.log.segments[oldest.0 as usize];
        segment.dirty == segment.away && (segment.away == 0 || store.may_carry_away(in_need))
    }

    /// Whether so little of the write stream's oldest segment is dirty that it is copied on, where
    /// the origin has no time for it. The copies take no part of the reserve.
    fn oldest_is_hardly_dirty(&self, store: &Store) -> bool {
        self.oldest(store, Stream::Write).is_some_and(|oldest| {
            let segment = &store.log.segments[oldest.0 as usize];
            segment.away == 0
                && places_of_segment(store) >= LEAST_PLACES
                && store.log.free.len() > RECLAIM_RESERVE
                && segment.dirty * HARDLY_DIRTY <= store.log.geometry.slots_per_segment()
        })
    }
}
