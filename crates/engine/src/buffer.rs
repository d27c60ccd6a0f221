//! The memory buffer of `commit = memory`: its writes and their places.
//!
//! Places are given out round and round, in the order of the writes. A write that is in the log
//! (or on the origin) keeps its place as a copy to be read until the place is needed again.

use std::collections::VecDeque;

use crate::buffer::shared::{SharedBuffer, StoredWrite};
use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot};
use crate::ids::PartId;
use crate::interface::{Buf, Failure, Memory, Nanos, Request, RequestId, VolumeSlot};
use crate::map::locks::KeyMap;
use crate::planted::{self, Bug};
use crate::shm_journal::ShmIdentity;
use crate::slab::{Slab, SlabId};
use crate::store::Store;

pub(crate) mod shared;
#[cfg(test)]
mod tests;

/// Names of the requests that the buffer makes have this bit: the driver's never do.
const OWN: u64 = 1 << 63;

/// The progress of a buffered write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// To be logged as soon as there is memory to do it with, or on its way.
    Pending,
    /// The write could not be stored anywhere, and is tried again.
    Failed,
    /// The write is where it belongs; this is a copy.
    Done,
}

/// A buffered write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffered {
    pub(crate) stored: StoredWrite,
    pub(crate) progress: Progress,
    /// Blocks that requests were made for.
    pub(crate) issued: u16,
    /// Requests of those that are in progress.
    pub(crate) outstanding: u16,
    /// True if one of these requests failed.
    pub(crate) failed: bool,
    /// True if the write failed before: until it is done, nothing but memory has it.
    pub(crate) stuck: bool,
}

/// A request of the buffer's own: a write or, where memory is short, a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) order: u64,
    pub(crate) buf: Buf,
}

impl Buffered {
    pub(crate) fn is_done(&self) -> bool {
        self.progress == Progress::Done
    }

    /// Its first block, and the one after its last.
    pub(crate) fn keys(&self) -> (BlockKey, BlockKey) {
        let StoredWrite { key, count, .. } = self.stored;
        (key, key.plus(u64::from(count)))
    }

    fn meets(&self, first: BlockKey, end: BlockKey) -> bool {
        overlap(self.keys(), (first, end))
    }
}

/// Whether two ranges, each up to before its second block, have a block in common.
fn overlap(one: (BlockKey, BlockKey), other: (BlockKey, BlockKey)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// The newest contents of a block in the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    order: u64,
    /// The slot it was logged to: while the index names that, this is a copy of it. `None` while
    /// it is nowhere else.
    pub(crate) logged: Option<Slot>,
}

/// A request that waits for buffered writes of its blocks, or for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    pub(crate) request: Request,
    pub(crate) first: BlockKey,
    pub(crate) end: BlockKey,
    /// Later writes take no room before it: a long one would find none beside short ones.
    pub(crate) wants_room: bool,
}

impl Parked {
    pub(crate) fn meets(&self, first: BlockKey, end: BlockKey) -> bool {
        overlap((self.first, self.end), (first, end))
    }
}

/// A flush that waits for the buffered writes before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkedFlush {
    pub(crate) request: Request,
    pub(crate) since: Nanos,
    /// The flush waits for the writes of lower orders.
    pub(crate) upto: u64,
}

/// The buffer of one shard.
#[derive(Debug, Default)]
pub(crate) struct MemoryBuffer {
    shared: Option<SharedBuffer>,
    /// True if requests are shown to the buffer: it holds something, or is to.
    pub(crate) in_use: bool,
    shard: u16,
    /// By order; that of the places too, but for the one turn at the end.
    writes: VecDeque<Buffered>,
    next_order: u64,
    next_at: u32,
    /// Where the newest contents of a block are, of those that it has.
    newest: KeyMap<Newest>,
    pub(crate) unfinished_count: usize,
    /// Writes to be issued, in order.
    pub(crate) waiting: VecDeque<u64>,
    pub(crate) parts: Slab<PartId, Part>,
    pub(crate) parked: Vec<Parked>,
    pub(crate) flushes: Vec<ParkedFlush>,
    /// Requests of its own that were answered.
    pub(crate) ended: Vec<(PartId, Result<(), Failure>)>,
    /// When failed writes are tried again.
    pub(crate) retry_at: Option<Nanos>,
}

impl MemoryBuffer {
    /// The buffer in the driver's memory: with the writes that an earlier life left there, if it
    /// was handed over to this identity, or empty. Without a place for it nothing is ever buffered.
    pub(crate) fn adopt(
        identity: ShmIdentity,
        block_bytes: usize,
        memory: &mut dyn Memory,
    ) -> MemoryBuffer {
        let bytes = memory.buffer_mut(identity.shard);
        let mut buffer = MemoryBuffer {
            shard: identity.shard,
            next_order: 1,
            ..MemoryBuffer::default()
        };
        let Some(shared) = SharedBuffer::open(bytes, identity) else {
            buffer.shared = SharedBuffer::initialise(bytes, identity, block_bytes);
            return buffer;
        };
        buffer.shared = Some(shared);
        if planted::is(Bug::BufferForgotten) {
            return buffer;
        }
        for stored in shared.writes(bytes) {
            buffer.add(stored);
        }
        buffer
    }

    fn add(&mut self, stored: StoredWrite) {
        self.in_use = true;
        let newest = Newest {
            order: stored.order,
            logged: None,
        };
        for i in 0..u64::from(stored.count) {
            self.newest.insert(stored.key.plus(i), newest);
        }
        self.unfinished_count += 1;
        self.next_order = stored.order + 1;
        self.next_at = stored.at + u32::from(stored.count);
        self.waiting.push_back(stored.order);
        self.writes.push_back(Buffered {
            stored,
            progress: Progress::Pending,
            issued: 0,
            outstanding: 0,
            failed: false,
            stuck: false,
        });
    }

    /// Whether so many blocks fit where nothing else is in the buffer.
    pub(crate) fn can_hold(&self, blocks: u64) -> bool {
        self.shared
            .is_some_and(|shared| blocks <= u64::from(shared.layout.blocks))
    }

    /// Whether a write waits for room.
    pub(crate) fn is_room_wanted(&self) -> bool {
        self.parked.iter().any(|parked| parked.wants_room)
    }

    /// Whether there is memory for it.
    pub(crate) fn has_place(&self) -> bool {
        self.shared.is_some()
    }

    /// The number of blocks that fit, and of those with writes that are nowhere else yet.
    pub(crate) fn occupancy(&self) -> (u64, u64) {
        let blocks = self
            .shared
            .map_or(0, |shared| u64::from(shared.layout.blocks));
        let held = self.unfinished();
        (
            blocks,
            held.map(|write| u64::from(write.stored.count)).sum(),
        )
    }

    /// Writes that are nowhere else yet. Behind the last of them are copies only, which can be
    /// many.
    fn unfinished(&self) -> impl Iterator<Item = &Buffered> {
        let writes = self.writes.iter().filter(|write| !write.is_done());
        writes.take(self.unfinished_count)
    }

    /// The number of blocks that failed to be stored at least once, and are stored nowhere yet.
    pub(crate) fn blocks_stuck(&self) -> u64 {
        let stuck = self.unfinished().filter(|write| write.stuck);
        stuck.map(|write| u64::from(write.stored.count)).sum()
    }

    /// Takes a write of whole blocks: once this returns true it outlives the daemon. False if
    /// there is no room.
    pub(crate) fn store(
        &mut self,
        key: BlockKey,
        count: u16,
        data: Buf,
        memory: &mut dyn Memory,
    ) -> bool {
        let Some(shared) = self.shared else {
            return false;
        };
        let Some(at) = self.place(shared.layout.blocks, u32::from(count)) else {
            return false;
        };
        let stored = StoredWrite {
            order: self.next_order,
            key,
            count,
            at,
        };
        memory.copy_to_buffer(self.shard, shared.layout.data_offset(at), data);
        shared.enter(memory.buffer_mut(self.shard), stored);
        self.add(stored);
        true
    }

    /// A place for so many blocks in a row, at the expense of the oldest copies.
    fn place(&mut self, blocks: u32, count: u32) -> Option<u32> {
        if count > blocks {
            return None;
        }
        loop {
            let Some(front) = self.writes.front() else {
                self.next_at = 0;
                return Some(0);
            };
            let (front_at, done) = (front.stored.at, front.is_done());
            // Where both are the same place, it is all taken.
            if self.next_at > front_at {
                if self.next_at + count <= blocks {
                    return Some(self.next_at);
                }
                if count <= front_at {
                    return Some(0);
                }
            } else if self.next_at + count <= front_at {
                return Some(self.next_at);
            }
            if !done {
                return None;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(gone) = self.writes.pop_front() else {
            return;
        };
        for i in 0..u64::from(gone.stored.count) {
            self.forget(gone.stored.key.plus(i), gone.stored.order);
        }
    }

    fn forget(&mut self, key: BlockKey, order: u64) {
        if self.newest(key).is_some_and(|newest| newest.order == order) {
            self.newest.remove(&key);
        }
    }

    fn index_of(&self, order: u64) -> Option<usize> {
        let search = self
            .writes
            .binary_search_by_key(&order, |write| write.stored.order);
        search.ok()
    }

    /// A write that is in the buffer.
    pub(crate) fn write(&self, order: u64) -> &Buffered {
        &self.writes[self.index_of(order).expect("buffered")]
    }

    /// A write that is in the buffer, to change.
    pub(crate) fn write_mut(&mut self, order: u64) -> &mut Buffered {
        let index = self.index_of(order).expect("buffered");
        &mut self.writes[index]
    }

    /// The newest contents of a block, if the buffer has any.
    pub(crate) fn newest(&self, key: BlockKey) -> Option<Newest> {
        self.newest.get(&key).copied()
    }

    /// Whether a block's newest contents are nowhere else yet.
    pub(crate) fn is_unfinished(&self, key: BlockKey) -> bool {
        self.newest(key).is_some_and(|has| has.logged.is_none())
    }

    /// Whether a block from `first` to before `end` is in a write that is nowhere else yet.
    pub(crate) fn holds_unfinished(&self, first: BlockKey, end: BlockKey) -> bool {
        if self.unfinished_count == 0 {
            return false;
        }
        if end.0 - first.0 < self.writes.len() as u64 {
            let mut keys = (first.0..end.0).map(BlockKey);
            return keys.any(|key| self.is_unfinished(key));
        }
        self.unfinished().any(|write| write.meets(first, end))
    }

    /// True if a request waits for any of these blocks: later requests wait too.
    pub(crate) fn is_awaited(&self, first: BlockKey, end: BlockKey) -> bool {
        self.parked.iter().any(|parked| parked.meets(first, end))
    }

    /// Whether a write from the range, of an order below `upto`, is nowhere else yet.
    pub(crate) fn holds_before(&self, upto: u64, first: BlockKey, end: BlockKey) -> bool {
        let mut before = self
            .unfinished()
            .take_while(|write| write.stored.order < upto);
        before.any(|write| write.meets(first, end))
    }

    /// Orders from here on are of writes to come.
    pub(crate) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// Ends a write that is where it belongs now.
    pub(crate) fn finish(&mut self, order: u64, memory: &mut dyn Memory) {
        let shard = self.shard;
        let write = self.write_mut(order);
        write.progress = Progress::Done;
        let at = write.stored.at;
        self.unfinished_count -= 1;
        if let Some(shared) = &self.shared {
            shared.clear(memory.buffer_mut(shard), at);
        }
    }

    /// Notes where a block of a finished write was logged, if it was.
    pub(crate) fn is_logged(&mut self, key: BlockKey, order: u64, slot: Option<Slot>) {
        match slot {
            Some(slot) => {
                let logged = Some(slot);
                self.newest.insert(key, Newest { order, logged });
            }
            None => self.forget(key, order),
        }
    }

    /// Where a block is in the buffer's memory, in blocks.
    fn place_of(&self, key: BlockKey) -> u32 {
        let order = self.newest(key).expect("buffered").order;
        let index = self.index_of(order).expect("buffered");
        let stored = self.writes[index].stored;
        stored.at + (key.0 - stored.key.0) as u32
    }

    /// Copies a part of a buffered block into `to`.
    pub(crate) fn copy_out(
        &self,
        key: BlockKey,
        skip_bytes: usize,
        to: Buf,
        memory: &mut dyn Memory,
    ) {
        let shared = self.shared.expect("there is a buffer");
        let at_bytes = shared.layout.data_offset(self.place_of(key)) + skip_bytes;
        memory.copy_from_buffer(self.shard, at_bytes, to);
    }

    /// Copies blocks of a write, from its block `first` on, into `to`.
    pub(crate) fn copy_part(
        &self,
        stored: StoredWrite,
        first: u16,
        to: Buf,
        memory: &mut dyn Memory,
    ) {
        let shared = self.shared.expect("there is a buffer");
        let at_bytes = shared.layout.data_offset(stored.at + u32::from(first));
        memory.copy_from_buffer(self.shard, at_bytes, to);
    }

    /// The checksum of a buffered block.
    pub(crate) fn checksum(&self, key: BlockKey, memory: &mut dyn Memory) -> u32 {
        let shared = self.shared.expect("there is a buffer");
        let at = self.place_of(key);
        crc32c(shared.data(memory.buffer_mut(self.shard), at, 1))
    }

    /// The id of the request that logs a part.
    pub(crate) fn request_id(part: PartId) -> RequestId {
        RequestId(OWN | u64::from(part.index()))
    }

    /// The part that a request logs, if it is one of the buffer's own.
    #[inline]
    pub(crate) fn part_of(id: RequestId) -> Option<PartId> {
        (id.0 & OWN != 0).then(|| PartId::new(id.0 as u32))
    }

    /// The number of requests in progress here.
    pub(crate) fn requests(&self) -> usize {
        self.parts.len() + self.parked.len() + self.flushes.len()
    }

    /// The number of requests of a volume that wait here.
    pub(crate) fn requests_of(&self, volume: VolumeSlot) -> u64 {
        let parked = self.parked.iter().map(|parked| parked.request);
        let flushes = self.flushes.iter().map(|flush| flush.request);
        let all = parked.chain(flushes);
        all.filter(|request| request.volume == volume).count() as u64
    }

    /// Has failed writes tried again.
    pub(crate) fn retry(&mut self) {
        self.retry_at = None;
        for write in &mut self.writes {
            if write.progress == Progress::Failed {
                write.progress = Progress::Pending;
                (write.issued, write.failed) = (0, false);
                self.waiting.push_back(write.stored.order);
            }
        }
    }

    /// All blocks that are nowhere else yet.
    pub(crate) fn unfinished_keys(&self) -> impl Iterator<Item = BlockKey> {
        self.unfinished().flat_map(|write| {
            let (first, end) = write.keys();
            (first.0..end.0).map(BlockKey)
        })
    }

    /// The number of blocks that are nowhere else yet, in writes with a block from `first` to
    /// before `end`.
    pub(crate) fn blocks_unfinished(&self, first: BlockKey, end: BlockKey) -> u64 {
        let held = self.unfinished().filter(|write| write.meets(first, end));
        held.map(|write| u64::from(write.stored.count)).sum()
    }
}

impl MemoryBuffer {
    /// True if the buffer's copy of a block is the version in its slot. A slot that was used again
    /// for another version of the same block has another checksum.
    pub(crate) fn is_copy_of(
        &self,
        store: &Store,
        key: BlockKey,
        slot: Slot,
        memory: &mut dyn Memory,
    ) -> bool {
        !store.index.flags(slot).zero() && self.checksum(key, memory) == store.index.checksum(slot)
    }

    /// Copies a logged block from the buffer, if it has a copy of that version: write-back then
    /// does not read it from the cache device.
    pub(crate) fn copy_from_buffer(
        &self,
        store: &Store,
        key: BlockKey,
        slot: Slot,
        to: Buf,
        memory: &mut dyn Memory,
    ) -> bool {
        let logged = self.newest(key).and_then(|has| has.logged);
        if logged != Some(slot) || !self.is_copy_of(store, key, slot, memory) {
            return false;
        }
        self.copy_out(key, 0, to, memory);
        true
    }
}
