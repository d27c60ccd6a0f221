//! The state of a write, write-zeroes or discard of several steps.

use smallvec::SmallVec;

use crate::bypass::BypassReason;
use crate::format::BlockKey;
use crate::ids::RequestIndex;
use crate::interface::{Buf, Failure, Nanos, Request, RequestKind};

/// The stages of a write, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Owning the blocks one by one, in order, so that no two jobs wait for each other.
    Locking,
    /// Dropping blocks that are about to be bypassed; then filling partial blocks.
    Preparing,
    Filling,
    Logging,
    /// Waiting for entries that must be durable before the origin is written.
    Durable,
    /// Waiting for write-backs of the same blocks (I11).
    OriginLocks,
    /// Writing the origin, and logging beside it.
    Origin,
    /// FUA.
    ForcedCache,
    ForcedOrigin,
    /// Waiting, with a failure, until the abandonment is durable.
    Ended,
}

/// When a write that goes to the origin begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// After its blocks are logged.
    AfterLog,
    /// After its entries are durable too: an older one survives (I9).
    AfterEntries,
    /// While its blocks are being logged: no older entry survives, or its `Drop` is durable.
    Beside,
    /// The cache failed under it: the origin alone takes it.
    Alone,
}

/// A block of which the request has only a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) key: BlockKey,
    pub(crate) buf: Buf,
    pub(crate) attempts: u8,
}

/// Blocks in a row that are treated alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
}

impl Run {
    /// The block behind its last.
    pub(crate) fn end(self) -> BlockKey {
        self.key.plus(u64::from(self.count))
    }

    pub(crate) fn keys(self) -> impl Iterator<Item = BlockKey> {
        (self.key.0..self.end().0).map(BlockKey)
    }

    pub(crate) fn contains(self, key: BlockKey) -> bool {
        (self.key..self.end()).contains(&key)
    }
}

/// A write, write-zeroes or discard in progress.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub(crate) index: RequestIndex,
    pub(crate) request: Request,
    pub(crate) first: BlockKey,
    pub(crate) end: BlockKey,
    pub(crate) next_lock: BlockKey,
    pub(crate) stage: Stage,
    pub(crate) bypass: Option<BypassReason>,
    /// True if logged blocks are also written to the origin before the answer.
    pub(crate) through: bool,
    pub(crate) logged: SmallVec<[Run; 2]>,
    pub(crate) bypassing: SmallVec<[Run; 2]>,
    /// The first block whose cached copy is yet to be dropped, if it bypasses the cache.
    pub(crate) next_drop: BlockKey,
    pub(crate) edges: [Option<Edge>; 2],
    pub(crate) outstanding: u32,
    /// Writes of the origin among them.
    pub(crate) on_origin: u32,
    /// Flushes of the origin that had failed when its first write there began.
    pub(crate) failed_flushes: u32,
    pub(crate) logging_since: Nanos,
    /// Must be durable before the origin is written.
    pub(crate) durable_number: u64,
    pub(crate) order: Order,
    pub(crate) origin_locked: bool,
    /// True if any of the blocks was dirty before: its old contents must not be lost.
    pub(crate) replaces_dirty: bool,
    pub(crate) failure: Option<Failure>,
}

impl WriteJob {
    /// A write of the blocks from the first of `range` to before the second.
    pub(crate) fn new(
        index: RequestIndex,
        request: Request,
        range: (BlockKey, BlockKey),
        bypass: Option<BypassReason>,
        now: Nanos,
    ) -> WriteJob {
        WriteJob {
            index,
            request,
            first: range.0,
            end: range.1,
            next_lock: range.0,
            stage: Stage::Locking,
            bypass,
            through: false,
            logged: SmallVec::new(),
            bypassing: SmallVec::new(),
            next_drop: range.0,
            edges: [None; 2],
            outstanding: 0,
            on_origin: 0,
            failed_flushes: 0,
            logging_since: now,
            durable_number: 0,
            order: Order::AfterLog,
            origin_locked: false,
            replaces_dirty: false,
            failure: None,
        }
    }

    /// Whether the origin alone may take it if the cache fails. A dirty block is newer in the cache
    /// than on the origin, and has to be on record first (I5, I15).
    pub(crate) fn can_do_without_log(&self) -> bool {
        !self.replaces_dirty && (self.through || self.logged.is_empty())
    }

    /// All of it is being logged already, and it owns its blocks.
    pub(crate) fn is_logging(&mut self, run: Run) {
        self.next_lock = self.end;
        self.stage = Stage::Logging;
        self.outstanding = u32::from(run.count);
        self.logged.push(run);
    }

    /// The blocks that it is going to own and does not own yet.
    pub(crate) fn yet_to_own(&self) -> Option<(BlockKey, BlockKey)> {
        (self.stage == Stage::Locking).then_some((self.next_lock, self.end))
    }

    pub(crate) fn is_zero(&self) -> bool {
        !matches!(self.request.kind, RequestKind::Write { .. })
    }

    pub(crate) fn fua(&self) -> bool {
        matches!(
            self.request.kind,
            RequestKind::Write { fua: true } | RequestKind::WriteZeroes { fua: true }
        )
    }
}
