//! Recovery: from the contents of the cache device (and of the crash journal) to the state of
//! a shard. Reads a summary for each sealed segment and scans only those that were open.
//!
//! In order: `scan` reads what each segment says; `damage` looks for missing segments and records;
//! `judge` decides which uncertain entries count; `rebuild` collects versions and `drops`; `newest`
//! takes the newest version of each block (I1); `verdict` writes the decisions down (I12).

pub(crate) mod attach;
mod blocks;
pub(crate) mod checkpoint;
mod damage;
mod difference;
mod drops;
pub(crate) mod joined;
mod judge;
mod leads;
mod newest;
mod numbers;
mod pairs;
#[cfg(test)]
mod promised;
mod rank;
mod rebuild;
mod scan;
mod side_by_side;
mod tails;
mod verdict;
mod void;
mod watched;

use std::collections::HashMap;

use crate::format::entry::NumberedEntry;
use crate::format::header::State;
use crate::format::plausible::Kinds;
use crate::format::{
    BlockKey, DurablePosition, Entry, EntryList, Link, SegmentId, SegmentMap, Sequence, Stream,
    Superblock,
};
use crate::interface::{DeviceError, Storage};
use crate::map::index::Index;
use crate::planted::{self, Bug};
use crate::recovery::checkpoint::FirstPart;
use crate::shm_journal::ReplayedRecord;
use crate::store::durability::raise;
use crate::store::failed::Promise;
use crate::store::log::Log;

/// A shard as recovery found it.
#[derive(Debug)]
pub struct Recovered {
    pub(crate) log: Log,
    pub(crate) index: Index,
    /// Tails that move when the verdicts are durable.
    pub(crate) tail_move: Option<tails::TailMove>,
    /// The findings of recovery.
    pub report: ShardReport,
}

impl Recovered {
    /// Whether a block that is cached is dirty, and where on the cache devices it is, as addresses
    /// ([`crate::format::extents`]).
    #[must_use]
    pub fn copies_of(&self, key: BlockKey) -> Option<(bool, u64, Option<u64>)> {
        let slot = self.index.find(key)?;
        let (first, second) = self.log.map.addresses_at(slot);
        Some((self.index.flags(slot).dirty(), first, second))
    }
}

/// Findings and work of the recovery of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardReport {
    /// Segments that hold something, of how many.
    pub used_segments: u32,
    /// All segments.
    pub segments: u32,
    /// Segments that were open or not sealed.
    pub scanned_segments: u32,
    /// Bytes read from the cache device.
    pub bytes_read: u64,
    /// Blocks cached.
    pub cached_blocks: u64,
    /// Dirty blocks among them.
    pub dirty_blocks: u64,
    /// Entries that were not durable and did not survive.
    pub rejected_blocks: u64,
    /// Entries found only in the crash journal.
    pub replayed_entries: u64,
    /// Blocks in the memory buffer that are acknowledged and not in the log yet.
    pub buffered_blocks: u64,
    /// It is as the checkpoint of an orderly stop says: summaries were not read.
    pub from_checkpoint: bool,
    /// Durable structures that are missing or make no sense, in words.
    pub damage: Vec<String>,
}

/// Why a shard cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The cache device failed.
    #[error("cannot read or write the cache device: {0}")]
    Device(#[from] DeviceError),
    /// Something durable is missing (I14).
    #[error("the cache is damaged: {}", .0.join("; "))]
    Damaged(Vec<String>),
    /// The device says something that cannot be true of any cache.
    #[error(
        "the cache is malformed: {0}. No forebay wrote that: restore the cache device from a copy, or create the cache anew (what was only in it is lost then)"
    )]
    Malformed(&'static str),
    /// No free segment is left to write the verdict to.
    #[error("the cache has no free segment left to record its recovery")]
    Full,
}

/// The entries of one record or summary, in the encoding of the device, and what there is among them.
#[derive(Clone, Debug)]
pub(crate) struct FoundList {
    entries: EntryList,
    kinds: Kinds,
    /// Header and blocks were one transfer.
    pub(crate) combined: bool,
    /// From the crash journal: its data was on the device before the daemon died.
    pub(crate) replayed: bool,
}

impl FoundList {
    pub(crate) fn new(entries: EntryList, combined: bool, replayed: bool) -> FoundList {
        let kinds = Kinds::of(&entries);
        FoundList {
            entries,
            kinds,
            combined,
            replayed,
        }
    }

    /// This list with other entries.
    pub(crate) fn with(&self, entries: EntryList) -> FoundList {
        FoundList::new(entries, self.combined, self.replayed)
    }

    /// The number of its last block; 0 if it is empty.
    fn last_number(&self) -> u64 {
        self.kinds.end_number.saturating_sub(1)
    }

    /// Its entries. Those that make no sense are left out: they were reported as damage when they
    /// were read.
    pub(crate) fn entries(&self) -> impl Iterator<Item = NumberedEntry<'_>> {
        self.entries.iter().filter_map(Result::ok)
    }
}

/// A segment as found.
#[derive(Clone, Debug)]
pub(crate) struct FoundSegment {
    pub(crate) id: SegmentId,
    pub(crate) stream: Stream,
    pub(crate) generation: Sequence,
    pub(crate) end_slot: u16,
    pub(crate) lists: Vec<FoundList>,
    pub(crate) state: State,
    /// The link it gets where it is restated.
    pub(crate) link: Option<Link>,
    /// Everything in it was decided by an earlier recovery, or listed by a renewal.
    pub(crate) decided: bool,
    /// True if the segment was renewed: its blocks had a lower generation before.
    pub(crate) renewed: bool,
    /// True if the segment has a summary of this generation.
    pub(crate) sealed: bool,
    /// Its entries were not read: a checkpoint says what is in it.
    pub(crate) unread: bool,
    /// The summary slot that counts.
    pub(crate) summary: Option<u8>,
    /// Something in it cannot be read or makes no sense.
    pub(crate) damage: Option<String>,
}

impl FoundSegment {
    /// The entries of its lists.
    pub(crate) fn entries(&self) -> impl Iterator<Item = NumberedEntry<'_>> {
        self.lists.iter().flat_map(FoundList::entries)
    }

    /// Blocks that its entries drop, each counted as often as they do.
    pub(crate) fn dropped(&self) -> u64 {
        self.lists.iter().map(|list| list.kinds.dropped).sum()
    }

    /// Slots whose versions are on the origin: segment, first slot, count, number of the first.
    pub(crate) fn cleans(&self) -> impl Iterator<Item = (SegmentId, u16, u16, u64)> {
        let lists = self.lists.iter().filter(|list| list.kinds.has_cleans);
        let entries = lists.flat_map(FoundList::entries);
        entries.filter_map(|found| match found.entry {
            Entry::Clean {
                segment,
                slot,
                count,
            } => Some((segment, slot, count, found.number)),
            _ => None,
        })
    }

    /// The number after the highest in it; 0 if it is empty.
    pub(crate) fn end_number(&self) -> u64 {
        let ends = self.lists.iter().map(|list| list.kinds.end_number);
        ends.max().unwrap_or(0)
    }
}

/// Everything found in a shard.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) segments: Vec<FoundSegment>,
    /// Which summary slot is taken in each segment, alive or not.
    pub(crate) summary_slots: Vec<Option<u8>>,
    pub(crate) tails: [Sequence; Stream::COUNT],
    /// The highest tails in summaries. Headers of open segments may say higher ones, and are lost
    /// where their records do not count.
    pub(crate) summary_tails: [Sequence; Stream::COUNT],
    pub(crate) durable: [DurablePosition; Stream::COUNT],
    /// The highest number known durable of each epoch that is not decided yet.
    pub(crate) known_durable: Vec<Sequence>,
    pub(crate) bytes_read: u64,
    pub(crate) unreadable: Vec<String>,
    /// Segments with a summary whose first header is zeroes: stream and generation of the summary.
    pub(crate) zeroed: Vec<(SegmentId, Stream, Sequence)>,
    /// Damage was accepted: no summary may promise missing records any longer.
    pub(crate) promised_too_much: bool,
}

/// Segments as found, by their ids.
type ById<'a> = HashMap<SegmentId, &'a FoundSegment>;

impl Found {
    fn by_id(&self) -> ById<'_> {
        let segments = self.segments.iter();
        segments.map(|segment| (segment.id, segment)).collect()
    }

    /// Notes a structure that has the right checksum and cannot be ours, once.
    pub(crate) fn malformed(&mut self, what: String) {
        if !self.unreadable.contains(&what) {
            self.unreadable.push(what);
        }
    }

    /// A summary of a segment of stream `by` says this. Where dirty data is on two devices the
    /// write stream's own summaries say its tail, and are on two (I28).
    pub(crate) fn learn_of_summary(&mut self, state: &State, by: Stream, keeps_two: bool) {
        let mut tails = state.tails;
        if keeps_two && by != Stream::Write {
            tails[Stream::Write as usize] = Sequence::ZERO;
        }
        raise(&mut self.summary_tails, tails);
        self.learn(state);
    }

    pub(crate) fn learn(&mut self, state: &State) {
        raise(&mut self.tails, state.tails);
        for (known, position) in self.durable.iter_mut().zip(state.durable) {
            *known = (*known).max(position);
        }
        let epoch = state.known_durable.epoch;
        match self
            .known_durable
            .iter_mut()
            .find(|known| known.epoch == epoch)
        {
            Some(known) => *known = (*known).max(state.known_durable),
            None => self.known_durable.push(state.known_durable),
        }
    }

    /// I28: nothing of the clean streams counts that was there when a device was lost. `Drop`s may
    /// have been on that device alone.
    fn leave_lost_behind(&mut self, superblock: &Superblock, shard: u16) {
        if planted::is(Bug::LostDropsBelieved) {
            return;
        }
        if let Some(from) = superblock.clean_from.get(usize::from(shard)) {
            let mut tails = [*from; Stream::COUNT];
            tails[Stream::Write as usize] = Sequence::ZERO;
            raise(&mut self.tails, tails);
        }
    }

    pub(crate) fn is_known_durable(&self, epoch: u32, number: u64) -> bool {
        self.known_durable
            .iter()
            .any(|known| known.epoch == epoch && number <= known.number)
    }
}

/// Places of a shard's segments and the records in them, with what is damaged.
struct Looked {
    map: SegmentMap,
    found: Found,
    lost: Vec<String>,
}

/// Reads the metadata of one shard. With `write`, two copies of a segment that differ are made alike.
///
/// # Errors
/// [`RecoveryError::Damaged`] unless damage is accepted, and what the device fails.
fn look(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    journal: Vec<ReplayedRecord>,
    options: RecoverOptions,
) -> Result<Looked, RecoveryError> {
    // An attach has written nothing in its own epoch yet.
    let epoch_end = superblock.epoch + u32::from(!options.write);
    let mut map = superblock.segment_map(shard);
    let ids = pairs::find(device, superblock, shard, &journal, &mut map, options.write)?;
    let mut found = scan::scan(device, superblock, (&map, &ids), shard, journal, epoch_end)?;
    found.leave_lost_behind(superblock, shard);
    if let Some(promise) = options.promise {
        found.learn(&State {
            durable: promise.durable,
            ..State::default()
        });
    }
    let lost = damage::damage(&found, superblock);
    if !lost.is_empty() && !options.accept_damage && !planted::is(Bug::DamageIsAbsence) {
        return Err(RecoveryError::Damaged(lost));
    }
    Ok(Looked { map, found, lost })
}

/// Sees whether one shard can be recovered as a superblock says that is not durable yet. Only copies of
/// a segment that differ are made alike: nothing is decided, and another superblock still may be
/// written.
///
/// # Errors
/// As [`recover`].
pub(crate) fn foresee(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    journal: Vec<ReplayedRecord>,
    options: RecoverOptions,
) -> Result<(), RecoveryError> {
    look(device, superblock, shard, journal, options).map(drop)
}

/// Recovers one shard. `superblock` carries the new epoch, durable already; `decided_epoch` is
/// still the old one. With `write` false nothing is written (inspection).
pub(crate) fn recover(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    journal: Vec<ReplayedRecord>,
    daemon_crash: bool,
    options: RecoverOptions,
) -> Result<Recovered, RecoveryError> {
    let is_after_stop = journal.is_empty() && !daemon_crash && options.promise.is_none();
    let as_stopped = match options.first_part.filter(|_| is_after_stop) {
        Some(first) => checkpoint::recover(device, superblock, shard, first)?,
        None => None,
    };
    let from_checkpoint = as_stopped.is_some();
    let Put {
        mut found,
        rebuilt,
        rejected_blocks,
        lost,
    } = match as_stopped {
        Some(put) => put,
        None => put_together(device, superblock, shard, journal, daemon_crash, options)?,
    };
    let lists = found.segments.iter().flat_map(|segment| &segment.lists);
    let replayed = lists
        .filter(|list| list.replayed)
        .flat_map(FoundList::entries);
    let report = ShardReport {
        used_segments: found.segments.len() as u32,
        segments: superblock.extents.segments(),
        scanned_segments: found
            .segments
            .iter()
            .filter(|segment| !segment.sealed)
            .count() as u32,
        bytes_read: found.bytes_read,
        cached_blocks: u64::from(rebuilt.index.len()),
        dirty_blocks: rebuilt
            .log
            .segments
            .iter()
            .map(|segment| u64::from(segment.dirty))
            .sum(),
        rejected_blocks,
        replayed_entries: replayed.count() as u64,
        buffered_blocks: 0,
        from_checkpoint,
        damage: lost,
    };
    let rebuild::Rebuilt {
        mut log,
        mut index,
        missing_drops,
    } = rebuilt;
    let mut tail_move = None;
    if options.write {
        pairs::copy_single(device, &found, &mut log, superblock.decided_epoch)?;
        verdict::write(device, &mut found, &mut log, &missing_drops)?;
        tail_move = tails::plan(superblock, &found, &mut log, &mut index);
    }
    Ok(Recovered {
        log,
        index,
        tail_move,
        report,
    })
}

/// A shard put together, before anything is written.
struct Put {
    found: Found,
    rebuilt: rebuild::Rebuilt,
    rejected_blocks: u64,
    lost: Vec<String>,
}

/// From all summaries, and the headers of segments that have none.
fn put_together(
    device: &mut dyn Storage,
    superblock: &Superblock,
    shard: u16,
    journal: Vec<ReplayedRecord>,
    daemon_crash: bool,
    options: RecoverOptions,
) -> Result<Put, RecoveryError> {
    let Looked {
        map,
        mut found,
        lost,
    } = look(device, superblock, shard, journal, options)?;
    let tails = found.tails;
    found.segments.retain(|segment| {
        segment.generation >= tails[segment.stream as usize] || planted::is(Bug::TailsIgnored)
    });
    if !lost.is_empty() && options.write {
        void::void(device, superblock, &map, &mut found)?;
        void::take_promises_back(&mut found);
    }
    let rejected_blocks = judge::judge(device, superblock, &map, &mut found, daemon_crash)?;
    let rebuilt = rebuild::rebuild(superblock, shard, map, &mut found)?;
    Ok(Put {
        found,
        rebuilt,
        rejected_blocks,
        lost,
    })
}

/// Options of a recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoverOptions {
    pub(crate) accept_damage: bool,
    pub(crate) write: bool,
    /// The durable positions of the shard, if they are known from elsewhere.
    pub(crate) promise: Option<Promise>,
    /// Where its checkpoint begins, if it may have one that counts.
    pub(crate) first_part: Option<FirstPart>,
}

/// A `Drop` that must be durable before the shard is served (I3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MissingDrop {
    pub(crate) stream: Stream,
    pub(crate) key: BlockKey,
}

impl RecoverOptions {
    /// Options for one shard, with what was promised of it.
    pub(crate) fn of_shard(self, shard: u16, promises: &[Promise]) -> RecoverOptions {
        let mut promises = promises.iter();
        let promise = promises.find(|promise| promise.shard == shard).copied();
        RecoverOptions { promise, ..self }
    }
}
