//! Replacement: into which stream a block goes, which stream gives up its oldest segment, and
//! which of that segment's blocks stay.
//!
//! A policy fits if these three answers are all it is. A policy that moves a block at each hit
//! (LRU), keeps a block where it is while its neighbours leave (SIEVE, random), or orders blocks by
//! more than a few bits (ARC, LIRS, LFU) would write the block again for that. Such policies live
//! in the simulator of crates/trace alone.

use crate::format::{BlockKey, Slot, Stream};
use crate::map::index::{MAX_HITS, SlotFlags, hash};
use crate::planted::{self, Bug};
use crate::policy::Policy;
use crate::policy::trials::Variant;
use crate::settings::replacement::Replacement;
use crate::store::Store;
use crate::store::log::RECLAIM_RESERVE;

/// The copying that is paid for: each block that is let in earns a part of a copy, each copy costs
/// a whole. Where copies do not pay because everything is wanted, they end there.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// In hundredths of a block.
    left: i64,
    /// Blocks written and copied when it was last looked at.
    written: u64,
    copied: u64,
}

/// The fillings of the cache, in halves, whose earnings can be saved up: loads that need copies
/// need them in turns, with hours of none between.
const SAVED_HALVES: i64 = 5;

impl Allowance {
    /// The allowance of a shard that starts: a recovered cache keeps hot blocks from its first
    /// moment.
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
        self.trials.best() != Variant::Steady || is_filling || self.main_makes_way(store)
    }

    /// Where a live block of a segment that is being emptied goes; `None` to evict it. Where it is
    /// not the stream's turn, and the segment is emptied for its unused slots, a block of main stays
    /// without a hit.
    pub(crate) fn retain_where(
        &self,
        store: &Store,
        stream: Stream,
        slot: Slot,
        in_turn: bool,
    ) -> Option<Stream> {
        let flags = store.index.flags(slot);
        if flags.dirty() && !planted::is(Bug::DirtyInMain) {
            return Some(Stream::Write);
        }
        let bar = self.hits_to_stay(store, stream, flags, in_turn)?;
        // When copies do not pay because everything is hot, the bar rises.
        let bar = bar.max(self.least_hits_to_stay(store)?);
        (flags.hits() >= bar && store.log.free.len() > 1).then_some(Stream::Main)
    }

    /// The number of hits that keep a clean block; `None` if no number does.
    fn hits_to_stay(
        &self,
        store: &Store,
        stream: Stream,
        flags: SlotFlags,
        in_turn: bool,
    ) -> Option<u8> {
        // A block that was overwritten in main has proved itself before.
        let proved = stream == Stream::Main || flags.shadows() & Stream::Main.bit() != 0;
        match store.settings.replacement {
            Replacement::Fifo => None,
            Replacement::Clock => Some(1),
            _ if stream == Stream::Main && !in_turn => Some(0),
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

    /// The bar for all clean blocks, by the rest of the allowance.
    fn least_hits_to_stay(&self, store: &Store) -> Option<u8> {
        if store.log.free.len() <= RECLAIM_RESERVE {
            return Some(2);
        }
        let most = self.most_allowance(store);
        match self.allowance.left {
            left if left <= 0 => None,
            left if left < most / 8 => Some(MAX_HITS),
            left if left < most / 4 => Some(2),
            _ => Some(0),
        }
    }

    fn most_allowance(&self, store: &Store) -> i64 {
        Allowance::most(store.log.usable_slots(), store.settings.retain_percent)
    }

    /// Reckons up the blocks let in and copied since the last time.
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
