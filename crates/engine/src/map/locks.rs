//! Ownership of blocks (I11): at most one operation at a time may change where a block's newest
//! version is. Others wait in order of arrival.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::format::BlockKey;
use crate::ids::{JobId, RetainId};
use crate::map::index;
use crate::map::owners::Owners;
use crate::map::ranges::Ranges;

/// An owner of blocks, or of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A write or a promotion that has a job.
    Job(JobId),
    /// A write without a job. Jobs that want its block wait for the unlocking.
    FastWrite,
    /// A promotion without a job, by its number.
    Promotion(u32),
    /// Reclaim, which appends copies and owns no block.
    Retain(RetainId),
}

/// A hasher for keys that are mixed already.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = index::hash(BlockKey(value));
    }
}

/// A map by block key. Iteration order is the same in every run, as the simulator needs.
pub(crate) type KeyMap<V> = HashMap<BlockKey, V, BuildHasherDefault<KeyHasher>>;

/// A set of keys.
pub(crate) type KeySet = HashSet<BlockKey, BuildHasherDefault<KeyHasher>>;

/// The owners of blocks, and the jobs that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    owners: Owners,
    /// Of writes of several blocks without a job.
    runs: Ranges<()>,
    promotions: u32,
    waiting: KeyMap<VecDeque<JobId>>,
    /// Owned blocks of which reclaim published a copy since, in the write stream.
    copied: KeyMap<()>,
}

impl Locks {
    /// The owner of a block.
    #[inline(always)]
    #[must_use]
    pub(crate) fn owner(&self, key: BlockKey) -> Option<Owner> {
        if self.runs.hold(key) {
            return Some(Owner::FastWrite);
        }
        self.owners.get(key)
    }

    /// Makes `owner` the owner of a block nobody owns. Returns whether it is now.
    pub(crate) fn try_lock(&mut self, key: BlockKey, owner: Owner) -> bool {
        self.lock_or_owner(key, owner)
            .is_none_or(|was| was == owner)
    }

    /// Makes `owner` the owner of a block if nobody owns it. Returns its owner otherwise.
    #[inline(always)]
    pub(crate) fn lock_or_owner(&mut self, key: BlockKey, owner: Owner) -> Option<Owner> {
        if self.runs.hold(key) {
            return Some(Owner::FastWrite);
        }
        self.owners.insert_if_free(key, owner)
    }

    /// Makes `owner` the owner of a block if nobody owns it. Returns whether that was so.
    #[inline]
    pub(crate) fn lock_free(&mut self, key: BlockKey, owner: Owner) -> bool {
        self.lock_or_owner(key, owner).is_none()
    }

    /// Makes a write without a job the owner of these blocks as one, if nobody owns one of them.
    /// Returns whether that was so.
    pub(crate) fn lock_run(&mut self, key: BlockKey, count: u16) -> bool {
        let end = key.plus(u64::from(count));
        let mut keys = (key.0..end.0).map(BlockKey);
        let is_free = !self.runs.hold_any(key, end)
            && (self.owners.is_empty() || keys.all(|key| self.owners.get(key).is_none()));
        if is_free {
            self.runs.add(key, end, ());
        }
        is_free
    }

    /// Ends that ownership. The jobs that `woken` is told of waited, and must try again.
    pub(crate) fn unlock_run(&mut self, key: BlockKey, count: u16, woken: impl FnMut(JobId)) {
        let end = key.plus(u64::from(count));
        self.runs.remove(key, end);
        if !(self.waiting.is_empty() && self.copied.is_empty()) {
            let keys = (key.0..end.0).map(BlockKey);
            keys.filter_map(|key| self.unlocked(key)).for_each(woken);
        }
    }

    /// Takes these blocks from a write without a job that owns them as one.
    pub(crate) fn steal_run(&mut self, key: BlockKey, count: u16, owner: Owner) {
        let end = key.plus(u64::from(count));
        self.runs.remove(key, end);
        for key in (key.0..end.0).map(BlockKey) {
            self.steal(key, owner);
        }
    }

    /// A new owner for a promotion without a job. Far fewer are in progress than there are names,
    /// and a promotion that lost its block must not be taken for the next promotion of it.
    pub(crate) fn promotion(&mut self) -> Owner {
        self.promotions = self.promotions.wrapping_add(1);
        Owner::Promotion(self.promotions)
    }

    /// Takes the block from its owner.
    pub(crate) fn steal(&mut self, key: BlockKey, owner: Owner) {
        self.owners.set(key, owner);
    }

    /// Reclaim has published a copy of a block in the write stream.
    pub(crate) fn note_copied(&mut self, key: BlockKey) {
        if self.owner(key).is_some() {
            self.copied.insert(key, ());
        }
    }

    /// Whether it has since the owner of the block owns it, or since this was forgotten.
    #[inline]
    pub(crate) fn was_copied(&self, key: BlockKey) -> bool {
        !self.copied.is_empty() && self.copied.contains_key(&key)
    }

    /// As [`Locks::was_copied`], for one of several blocks in a row.
    #[inline]
    pub(crate) fn was_one_copied(&self, key: BlockKey, count: u16) -> bool {
        let mut keys = (0..u64::from(count)).map(|i| key.plus(i));
        !self.copied.is_empty() && keys.any(|key| self.was_copied(key))
    }

    /// The owner of the block takes a new place for it, above all copies so far.
    pub(crate) fn forget_copied(&mut self, key: BlockKey) {
        self.copied.remove(&key);
    }

    /// Puts a job in the queue for a block somebody else owns.
    pub(crate) fn wait(&mut self, key: BlockKey, job: JobId) {
        // Once: a job that is woken for nothing wakes nobody else.
        let queue = self.waiting.entry(key).or_default();
        if !queue.contains(&job) {
            queue.push_back(job);
        }
    }

    /// Ends the ownership of a block, if `owner` still has it. Returns the job that waited longest;
    /// it must try again.
    pub(crate) fn unlock(&mut self, key: BlockKey, owner: Owner) -> Option<JobId> {
        self.unlock_here(key, owner)
    }

    /// [`Locks::unlock`] for a path where the owner is known as it is compiled.
    #[inline(always)]
    pub(crate) fn unlock_here(&mut self, key: BlockKey, owner: Owner) -> Option<JobId> {
        if !self.owners.remove(key, owner) {
            return None;
        }
        if self.waiting.is_empty() && self.copied.is_empty() {
            return None;
        }
        self.unlocked(key)
    }

    #[cold]
    fn unlocked(&mut self, key: BlockKey) -> Option<JobId> {
        self.copied.remove(&key);
        let queue = self.waiting.get_mut(&key)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&key);
        }
        next
    }
}
