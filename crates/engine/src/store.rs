//! The store of a shard: the log, the index of what is in it, and how both get to the cache device.
//!
//! Nothing in here knows requests, jobs or policies. The store notes what ended ([`Appended`], the
//! waiters that [`Store::cache_flush_done`] returns), and the caller tells it.

pub(crate) mod append;
mod away;
pub(crate) mod checkpoint;
mod cleans;
pub(crate) mod contents;
pub(crate) mod departed;
pub(crate) mod device_times;
pub(crate) mod dirty_marks;
pub(crate) mod durability;
pub(crate) mod failed;
pub(crate) mod free_segments;
pub(crate) mod log;
mod log_devices;
mod mending;
pub(crate) mod op;
mod operations;
pub(crate) mod renewal;
pub(crate) mod renewal_below;
pub(crate) mod sequential;
pub(crate) mod stripe;
#[cfg(test)]
mod tests;
pub(crate) mod volumes;
mod waiting;

use crate::format::{BlockKey, PAGE_BYTES, Slot};
use crate::interface::{Buf, Device, Memory, Nanos, Operation, total_bytes};
use crate::map::ghost::Ghost;
use crate::map::index::Index;
use crate::map::locks::{KeyMap, Locks};
use crate::map::origin_locks::OriginLocks;
use crate::map::unreadable::Unreadable;
use crate::settings::Settings;
use crate::spare::Spare;
use crate::stats::Stats;
use crate::store::append::{Appended, SPARE_PAGES};
use crate::store::away::Away;
use crate::store::departed::Dropped;
use crate::store::dirty_marks::{DirtyMarks, Slack};
use crate::store::durability::Durability;
use crate::store::failed::FailedCache;
use crate::store::log::Log;
use crate::store::op::Op;
use crate::store::operations::Operations;
use crate::store::renewal::Renewals;
use crate::store::renewal_below::Promises;
use crate::store::volumes::Volume;
use crate::store::waiting::Waiting;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) index: Index,
    pub(crate) locks: Locks,
    pub(crate) origin_locks: OriginLocks,
    pub(crate) ghost: Ghost,
    pub(crate) volumes: Vec<Option<Volume>>,
    /// Whether any volume has a cut-off.
    pub(crate) has_cutoffs: bool,
    /// A share of the cache is kept for a volume.
    pub(crate) keeps_shares: bool,
    /// A volume has an age limit of its own.
    pub(crate) has_own_ages: bool,
    pub(crate) unreadable: Unreadable,
    pub(crate) sync_writer: SyncWriter,
    pub(crate) failed: Option<FailedCache>,
    pub(crate) operations: Operations,
    pub(crate) stats: Stats,
    away: Away,
    marks: DirtyMarks,
    slack: Slack,
    /// Blocks that the settings give shares of: the capacity without what is away.
    shared_blocks: u64,
    /// Blocks of these that could be dirty at once: asked for at each look.
    dirty_room: u64,
    /// The volume whose counts changed last.
    volume_hint: usize,
    /// Blocks that the segments can hold when headers take little.
    capacity_blocks: u64,
    /// Blocks of combined writes that have their number and are being written.
    numbered: KeyMap<()>,
    /// Versions written to the origin that wait for its flush.
    written: KeyMap<Slot>,
    dropped: Dropped,
    waiting: Waiting,
    durability: Durability,
    renewals: Renewals,
    promises: Promises,
    spare_pages: Vec<Buf>,
    spare_summary: Spare,
    /// Something happened since the last [`Engine::advance`](crate::Engine::advance) besides hits,
    /// and besides writes that were logged while it was steady.
    stirred: bool,
}

/// Notices a client that flushes after each write, which then pays for a write and a flush.
#[derive(Debug, Default)]
pub(crate) struct SyncWriter {
    writes_since_flush: u32,
    streak: u32,
}

impl SyncWriter {
    pub(crate) fn wrote(&mut self) {
        self.writes_since_flush += 1;
        if self.writes_since_flush > 2 {
            self.streak = 0;
        }
    }

    pub(crate) fn flushed(&mut self) {
        if (1..=2).contains(&self.writes_since_flush) {
            self.streak += 1;
        }
        self.writes_since_flush = 0;
    }

    pub(crate) fn is_one(&self) -> bool {
        self.streak >= 3
    }
}

impl Store {
    /// The store that a recovery found.
    pub(crate) fn new(
        settings: Settings,
        log: Log,
        index: Index,
        memory: &mut dyn Memory,
    ) -> Store {
        let dirty = log.segments.iter().map(|segment| u64::from(segment.dirty));
        let stats = Stats {
            dirty_blocks: dirty.sum(),
            ..Stats::default()
        };
        let mut store = Store {
            capacity_blocks: log.capacity_blocks(),
            shared_blocks: 0,
            dirty_room: 0,
            ghost: Ghost::of(log.usable_slots()),
            spare_summary: Spare::new(log.geometry.summary_bytes() as usize, memory),
            marks: DirtyMarks::default(),
            slack: Slack::default(),
            settings,
            log,
            index,
            locks: Locks::default(),
            origin_locks: OriginLocks::default(),
            written: KeyMap::default(),
            numbered: KeyMap::default(),
            dropped: Dropped::default(),
            volumes: Vec::new(),
            away: Away::default(),
            has_cutoffs: false,
            keeps_shares: false,
            has_own_ages: false,
            volume_hint: 0,
            spare_pages: Vec::new(),
            durability: Durability::default(),
            renewals: Renewals::default(),
            promises: Promises::default(),
            unreadable: Unreadable::default(),
            sync_writer: SyncWriter::default(),
            failed: None,
            stirred: true,
            stats,
            operations: Operations::default(),
            waiting: Waiting::default(),
        };
        store.reckon_shared();
        store.tails_are_durable();
        store
    }

    /// Sets aside the pages that headers never wait for.
    pub(crate) fn keep_spare_pages(&mut self, memory: &mut dyn Memory) {
        let pages = (0..SPARE_PAGES).filter_map(|_| memory.alloc(PAGE_BYTES));
        self.spare_pages = pages.collect();
    }

    pub(crate) fn issue(&mut self, op: Op, device: Device, operation: Operation) {
        let is_timed = match &operation {
            Operation::Read { bufs, .. } => {
                let len_bytes = total_bytes(bufs);
                match device {
                    Device::Cache(_) => self.stats.cache_data_read_bytes += len_bytes,
                    Device::Origin(_) => self.stats.origin_read_bytes += len_bytes,
                }
                self.operations.times.wants(len_bytes)
            }
            Operation::ReadEither { buf, .. } => {
                self.operations.times.wants(u64::from(buf.len_bytes))
            }
            Operation::WriteBoth(both) => self.operations.times.wants(total_bytes(&both.bufs)),
            Operation::Write { bufs, .. } => {
                let len_bytes = total_bytes(bufs);
                if matches!(device, Device::Origin(_)) {
                    self.stats.origin_written_bytes += len_bytes;
                }
                self.operations.times.wants(len_bytes)
            }
            Operation::Flush => true,
            Operation::WriteZeroes { .. } | Operation::Discard { .. } => false,
        };
        self.stirred = true;
        self.operations.issue(op, device, operation, is_timed);
    }

    /// [`Store::issue`] for a transfer of one buffer that stirs nothing and whose bytes the caller
    /// counts: hits and writes without a job, which are counted in instructions.
    #[inline(always)]
    pub(crate) fn issue_quietly(
        &mut self,
        op: Op,
        device: Device,
        operation: Operation,
        len_bytes: u32,
    ) {
        let is_timed = self.operations.times.wants(u64::from(len_bytes));
        self.operations.issue(op, device, operation, is_timed);
    }

    /// Forgets what happened so far: everything is being looked at, and sees it.
    pub(crate) fn clear_stirred(&mut self) {
        self.stirred = false;
    }

    /// Whether anything happened since everything was looked at.
    #[inline(always)]
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Has the next [`Engine::advance`](crate::Engine::advance) look at everything if `so`.
    #[inline(always)]
    pub(crate) fn stir_if(&mut self, so: bool) {
        self.stirred |= so;
    }

    /// Whether nothing waits for room or memory.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no run, header or seal waits for room or memory.
    pub(crate) fn has_found_room(&self) -> bool {
        self.waiting.has_found_room()
    }

    /// Whether writes wait that go out together.
    #[inline]
    pub(crate) fn has_combined(&self) -> bool {
        !self.waiting.combined.is_empty()
    }

    /// Whether hints wait that versions are clean.
    pub(crate) fn has_cleans(&self) -> bool {
        !self.waiting.cleans.is_empty()
    }

    /// Whether no run waits for room.
    #[inline]
    pub(crate) fn has_placed_all(&self) -> bool {
        self.waiting.runs.is_empty()
    }

    /// The end of an append that its owner has not been told of.
    #[inline]
    pub(crate) fn next_appended(&mut self) -> Option<Appended> {
        self.waiting.ended.pop_front()
    }

    /// Whether a block has its number and is being written with its header.
    pub(crate) fn is_numbered(&self, key: BlockKey) -> bool {
        self.numbered.contains_key(&key)
    }

    /// Blocks that the segments can hold, at most.
    pub(crate) fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// Reckons anew the capacity of which the settings give shares.
    pub(crate) fn reckon_capacity(&mut self) {
        self.log.reckon_usable();
        self.capacity_blocks = self.log.capacity_blocks();
        self.reckon_shared();
    }

    /// Has the next [`Engine::advance`](crate::Engine::advance) look at everything.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// A share of the blocks that could be dirty, if all were, without the room of volumes that are
    /// away. Where each is on two devices that is half as many, or fewer if one is larger than all
    /// others.
    pub(crate) fn dirty_share(&self, percent: u8) -> u64 {
        self.dirty_room * u64::from(percent) / 100
    }

    /// A share of the shard's capacity, in blocks, without the room of volumes that are away and of
    /// second copies.
    pub(crate) fn share(&self, percent: u8) -> u64 {
        let room = self.shared_blocks.saturating_sub(self.log.lent_blocks());
        room * u64::from(percent) / 100
    }

    #[inline(always)]
    pub(crate) fn block_bytes(&self) -> usize {
        self.log.geometry.block_bytes as usize
    }
}

/// The earlier of two times, if any.
#[inline]
pub(crate) fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one < other { one } else { other }),
        (one, other) => one.or(other),
    }
}
