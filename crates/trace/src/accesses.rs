//! A trace as the simulator wants it: a small number per block access.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::request::Request;
use forebay_random::mix;

/// The trace has more accesses or blocks than the ids have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the trace has more than {} block accesses: simulate a part of it",
    Accesses::MOST
)]
pub struct TooManyBlocks;

/// Every block access of a trace, in order. Blocks are numbered from 0 in the order of their
/// first access, which makes every table of a policy an array. Takes 4 bytes per access and about
/// 25 per distinct block.
#[derive(Debug, Default)]
pub struct Accesses {
    blocks: Vec<u32>,
    ids: HashMap<Key, u32, BuildHasherDefault<BlockHasher>>,
}

impl Accesses {
    /// The most accesses: the highest numbers have a meaning of their own.
    pub const MOST: usize = u32::MAX as usize - 16;

    /// Appends every block of a request.
    pub fn push(&mut self, request: &Request) -> Result<(), TooManyBlocks> {
        if request.blocks as usize > Accesses::MOST - self.blocks.len() {
            return Err(TooManyBlocks);
        }
        for block in request.first_block..request.first_block + u64::from(request.blocks) {
            let fresh = self.ids.len() as u32;
            let id = *self
                .ids
                .entry(Key::new(request.volume, block))
                .or_insert(fresh);
            self.blocks.push(id);
        }
        Ok(())
    }

    /// The number of accesses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing was accessed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The number of distinct blocks.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.ids.len()
    }

    /// The blocks in the order of access.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }
}

/// A block's address in 12 bytes, so that an entry of the table has 16 and not 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    volume: u32,
    high: u32,
    low: u32,
}

impl Key {
    pub(crate) fn new(volume: u32, block: u64) -> Key {
        Key {
            volume,
            high: (block >> 32) as u32,
            low: block as u32,
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // In one step, which is what makes it fast: volumes far apart, blocks beside each other.
        let block = u64::from(self.high) << 32 | u64::from(self.low);
        state.write_u64(block ^ (u64::from(self.volume) << 40));
    }
}

/// Mixes one number: the standard hash takes longer than a policy's access.
#[derive(Debug, Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }
}
