//! The `Drop`s that recovery found (I3): which blocks are no longer cached, and from when on.

use super::blocks::each_block;
use super::rank::Rank;
use super::{Found, FoundSegment};
use crate::format::{BlockKey, Geometry, Stream};
use crate::map::index::{hash, scaled};
use crate::map::locks::{KeyMap, KeySet};

/// The newest `Drop` of each block in each stream, while they are collected.
pub(super) struct Collected {
    newest: KeyMap<[Rank; Stream::COUNT]>,
    /// No others are of interest.
    only: Option<KeySet>,
}

/// The newest `Drop` of each block in each stream.
pub(super) struct Drops {
    newest: KeyMap<[Rank; Stream::COUNT]>,
    /// Two bits of a word are set for each dropped key, by its hash (Bloom 1970, "Space/time trade-offs
    /// in hash coding with allowable errors"); words are in the order of hashes, as versions are looked
    /// up (`newest`). Few of a cache's blocks were dropped, and the map is too large for the
    /// processor's caches.
    hashes: Vec<u64>,
}

/// Bits for each dropped key: of the others one in 200 is looked up in vain.
const BITS_PER_DROP: usize = 32;

impl Collected {
    /// Nothing yet.
    ///
    /// Eight bytes can drop 256 blocks. Where more are dropped than a shard can hold, only those that
    /// it holds are of interest, so that memory is bounded whatever the device says.
    pub(super) fn new(geometry: Geometry, found: &Found) -> Collected {
        let dropped: u64 = found.segments.iter().map(FoundSegment::dropped).sum();
        let only = (dropped > u64::from(geometry.slots())).then(|| keys_of(geometry, found));
        let newest = KeyMap::default();
        Collected { newest, only }
    }

    /// Adds one.
    pub(super) fn add(&mut self, stream: Stream, key: BlockKey, rank: Rank) {
        if self.only.as_ref().is_none_or(|only| only.contains(&key)) {
            let newest = self.newest.entry(key).or_default();
            let newest = &mut newest[stream as usize];
            *newest = rank.max(*newest);
        }
    }

    /// All that were added.
    pub(super) fn all(self) -> Drops {
        let newest = self.newest;
        let mut hashes = vec![0; newest.len() * BITS_PER_DROP / 64 + 1];
        for key in newest.keys() {
            let (word, bits) = bits_in(&hashes, hash(*key));
            hashes[word] |= bits;
        }
        Drops { newest, hashes }
    }
}

impl Drops {
    /// False if nothing drops the blocks of a hash.
    #[inline]
    pub(super) fn may_drop(&self, hash: u64) -> bool {
        let (word, bits) = bits_in(&self.hashes, hash);
        self.hashes[word] & bits == bits
    }

    /// The newest `Drop` of a block in any stream.
    pub(super) fn newest_of(&self, key: BlockKey) -> Option<Rank> {
        self.newest.get(&key)?.iter().copied().max()
    }

    /// The newest `Drop` of a block in one stream; 0 if there is none.
    pub(super) fn newest_in(&self, stream: Stream, key: BlockKey) -> Rank {
        let newest = self.newest.get(&key);
        newest.map_or(0, |newest| newest[stream as usize])
    }
}

/// Where the bits of a hash are: which word, and a word with those bits alone.
#[inline]
fn bits_in(words: &[u64], hash: u64) -> (usize, u64) {
    let bits = 1 << (hash % 64) | 1 << (hash / 64 % 64);
    (scaled(hash, words.len()), bits)
}

fn keys_of(geometry: Geometry, found: &Found) -> KeySet {
    let mut keys = KeySet::default();
    for segment in &found.segments {
        for entry in segment.entries() {
            each_block(geometry, segment.id, &entry, |block| {
                keys.insert(block.key);
            });
        }
    }
    keys
}
