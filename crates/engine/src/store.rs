//! The store of a shard: the log, the index of what is in it, and how both get to the cache device.
//!
//! Nothing in here knows requests, jobs or policies. What ended is noted ([`Appended`], the waiters
//! that [`Store::cache_flush_done`] returns), and told by whoever called.

pub(crate) mod append;
pub(crate) mod departed;
pub(crate) mod durability;
pub(crate) mod log;
pub(crate) mod renewal;
pub(crate) mod renewal_below;

use std::collections::VecDeque;

use crate::format::{BlockKey, PAGE_BYTES, SegmentId};
use crate::interface::{Action, Buf, Device, Memory, Nanos, OpId, Operation, Request, VolumeSlot};
use crate::map::index::Index;
use crate::map::locks::{KeyMap, Locks};
use crate::map::unreadable::Unreadable;
use crate::op::Op;
use crate::origin::volume::Volume;
use crate::policy::ghost::Ghost;
use crate::settings::Settings;
use crate::slab::Slab;
use crate::spare::Spare;
use crate::stats::Stats;
use crate::store::append::{Appended, Piece, SPARE_PAGES};
use crate::store::departed::Dropped;
use crate::store::durability::Durability;
use crate::store::log::{Log, Version};
use crate::store::renewal::Renewals;
use crate::store::renewal_below::Promises;
use crate::unsaved::Listed;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) index: Index,
    pub(crate) locks: Locks,
    /// Blocks of combined writes that have their number and are being written.
    pub(crate) numbered: KeyMap<()>,
    pub(crate) dropped: Dropped,
    pub(crate) ghost: Ghost,
    pub(crate) volumes: Vec<Option<Volume>>,
    pub(crate) volume_hint: usize,
    /// Blocks that the segments can hold when headers take little.
    pub(crate) capacity_blocks: u64,
    pub(crate) combined: VecDeque<Piece>,
    pub(crate) backlog: VecDeque<Piece>,
    /// Ends of appends that their owners have not been told of.
    pub(crate) appended: VecDeque<Appended>,
    /// Versions that became clean while there was no room to say so.
    pub(crate) unlogged_cleans: VecDeque<Version>,
    pub(crate) headers_waiting: Vec<u32>,
    pub(crate) spare_pages: Vec<Buf>,
    pub(crate) spare_summary: Spare,
    pub(crate) seals_waiting: Vec<SegmentId>,
    pub(crate) durability: Durability,
    pub(crate) renewals: Renewals,
    pub(crate) promises: Promises,
    pub(crate) unreadable: Unreadable,
    pub(crate) sync_writer: SyncWriter,
    pub(crate) failed: Option<FailedCache>,
    /// Something happened since the last [`Engine::advance`](crate::Engine::advance) besides hits,
    /// and besides writes that were logged while it was steady.
    pub(crate) stirred: bool,
    pub(crate) stats: Stats,
    pub(crate) ops: Slab<Op>,
    pub(crate) actions: VecDeque<Action>,
}

/// Why and how far the cache is given up.
#[derive(Debug)]
pub(crate) struct FailedCache {
    pub(crate) reason: &'static str,
    /// "Abandoned at this epoch" is durable outside the cache device (I15).
    pub(crate) recorded: bool,
    /// What is on record as newer in the cache than on its origin.
    pub(crate) listed: Listed,
    /// The same of the last report, which is not on record yet.
    pub(crate) reported: Listed,
    /// Blocks of writes that failed and may be in the log all the same.
    pub(crate) landed: KeyMap<()>,
    /// Requests to flush a volume that wait for that list to be empty.
    pub(crate) flushes: Vec<(u32, VolumeSlot)>,
}

/// Notices a client that flushes after each write, which then pays one write and one flush.
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
            ghost: Ghost::of(log.usable_slots()),
            spare_summary: Spare::new(log.geometry.summary_bytes() as usize, memory),
            settings,
            log,
            index,
            locks: Locks::default(),
            numbered: KeyMap::default(),
            dropped: Dropped::default(),
            volumes: Vec::new(),
            volume_hint: 0,
            combined: VecDeque::new(),
            backlog: VecDeque::new(),
            appended: VecDeque::new(),
            unlogged_cleans: VecDeque::new(),
            headers_waiting: Vec::new(),
            spare_pages: Vec::new(),
            seals_waiting: Vec::new(),
            durability: Durability::default(),
            renewals: Renewals::default(),
            promises: Promises::default(),
            unreadable: Unreadable::default(),
            sync_writer: SyncWriter::default(),
            failed: None,
            stirred: true,
            stats,
            ops: Slab::default(),
            actions: VecDeque::new(),
        };
        store.tails_are_durable();
        store
    }

    /// Sets aside the pages that headers never wait for.
    pub(crate) fn keep_spare_pages(&mut self, memory: &mut dyn Memory) {
        let pages = (0..SPARE_PAGES).filter_map(|_| memory.alloc(PAGE_BYTES));
        self.spare_pages = pages.collect();
    }

    pub(crate) fn issue(&mut self, op: Op, device: Device, operation: Operation) {
        match (&operation, device) {
            (Operation::Read { bufs, .. }, Device::Cache(_)) => {
                self.stats.cache_data_read_bytes += total_bytes(bufs);
            }
            (Operation::Read { bufs, .. }, Device::Origin(_)) => {
                self.stats.origin_read_bytes += total_bytes(bufs)
            }
            (Operation::Write { bufs, .. }, Device::Origin(_)) => {
                self.stats.origin_written_bytes += total_bytes(bufs)
            }
            _ => {}
        }
        self.stirred = true;
        self.issue_quietly(op, device, operation);
    }

    /// The same of an operation that stirs nothing and whose bytes the caller counts: hits and
    /// single writes, which are counted in instructions.
    #[inline(always)]
    pub(crate) fn issue_quietly(&mut self, op: Op, device: Device, operation: Operation) {
        let op = OpId(self.ops.insert(op));
        self.actions.push_back(Action {
            op,
            device,
            operation,
        });
    }

    /// Has the next [`Engine::advance`](crate::Engine::advance) look at everything.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// The epoch at which the cache is abandoned, until that is on record (I15).
    #[must_use]
    pub(crate) fn wants_abandonment(&self) -> Option<u32> {
        let failed = self.failed.as_ref();
        failed
            .filter(|failed| !failed.recorded)
            .map(|_| self.log.epoch)
    }

    /// The abandonment is on record, with the list that was reported last.
    pub(crate) fn abandonment_recorded(&mut self) {
        self.stirred = true;
        if let Some(failed) = &mut self.failed {
            failed.recorded = true;
            failed.listed = std::mem::take(&mut failed.reported);
        }
    }

    pub(crate) fn failed_cache(&self) -> bool {
        self.failed.is_some()
    }

    /// The cache device can no longer be relied on: it steps aside.
    pub(crate) fn fail_cache(&mut self, reason: &'static str) {
        self.failed.get_or_insert_with(|| FailedCache {
            reason,
            recorded: false,
            listed: Listed::default(),
            reported: Listed::default(),
            landed: KeyMap::default(),
            flushes: Vec::new(),
        });
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.log.geometry.block_bytes as usize
    }

    /// The block of a volume that holds this byte.
    pub(crate) fn key_at(&self, volume: VolumeSlot, offset_bytes: u64) -> BlockKey {
        let volume = self.volumes[usize::from(volume.0)]
            .as_ref()
            .expect("attached");
        volume.key_at(offset_bytes, self.block_bytes())
    }

    /// The first block of a request, and the one after its last.
    pub(crate) fn keys_of(&self, request: &Request) -> (BlockKey, BlockKey) {
        let end_bytes = request.offset_bytes + u64::from(request.len_bytes);
        (
            self.key_at(request.volume, request.offset_bytes),
            self.key_at(request.volume, end_bytes - 1).plus(1),
        )
    }

    /// Where a block is on its origin, and how much of it the origin has.
    pub(crate) fn origin_range(
        &self,
        volume: VolumeSlot,
        key: BlockKey,
        blocks: u64,
    ) -> (u64, usize) {
        let config = self.volumes[usize::from(volume.0)]
            .as_ref()
            .expect("attached")
            .config;
        let block_bytes = self.block_bytes() as u64;
        let start = (key.0 - config.base.0) * block_bytes;
        let end = (start + blocks * block_bytes).min(config.size_bytes);
        (start, (end - start) as usize)
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

fn total_bytes(bufs: &[Buf]) -> u64 {
    bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum()
}
