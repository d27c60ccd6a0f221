//! Copies of main that free nothing, since its blocks are kept for their volumes, and their bound.
//!
//! Reclaim copies a block that is kept, and finds others to evict. Where none is left but dirty
//! blocks that wait for the origin, main would be copied round and round. An example:
//!
//! 1. A shard has 300 clean blocks, all kept for volume 0, and the rest of it is dirty. Main may be
//!    emptied with 300 copies.
//! 2. Reclaim makes them, and nothing has become free. Main waits.
//! 3. Clients write 100 blocks, and a discard takes 100 more from the cache. Four copies are paid
//!    for by each: main may be emptied with 300 copies again, the most that is saved up.

use crate::space::Space;
use crate::store::Store;

/// Copies that are paid for by each block that comes to the cache, leaves it or is overwritten. In a
/// turn of the log that is of use most of main may be kept, and little else in it be evicted.
const COPIES_PAID: u64 = 4;

/// The copies with which main may be emptied.
#[derive(Debug)]
pub(super) struct KeptCopies {
    left: i64,
    /// Blocks let in, and in the cache, when that was reckoned.
    let_in: u64,
    cached: u64,
}

impl Default for KeptCopies {
    /// As many as are saved up at most.
    fn default() -> KeptCopies {
        KeptCopies {
            left: i64::MAX,
            let_in: 0,
            cached: 0,
        }
    }
}

impl KeptCopies {
    /// The copies that are left now.
    fn left(&self, store: &Store) -> i64 {
        let came = let_in(store).saturating_sub(self.let_in);
        let left = (self.cached + came).saturating_sub(cached(store));
        let clean = cached(store).saturating_sub(store.stats.dirty_blocks);
        let paid = (came + left) * COPIES_PAID;
        self.left.saturating_add_unsigned(paid).min(clean as i64)
    }

    /// So many copies were made of blocks in main.
    fn spend(&mut self, store: &Store, copies: u64) {
        *self = KeptCopies {
            left: self.left(store).saturating_sub_unsigned(copies),
            let_in: let_in(store),
            cached: cached(store),
        };
    }
}

impl Space {
    /// Whether reclaim may empty main's oldest segment. The copies of one with many unused slots count
    /// too: in short segments headers take the room that they make.
    pub(super) fn main_may_give(&self, store: &Store) -> bool {
        !store.keeps_shares || self.kept.left(store) > 0
    }

    /// So many copies were made of blocks in main.
    pub(super) fn main_was_copied(&mut self, store: &Store, copies: u64) {
        if store.keeps_shares {
            self.kept.spend(store, copies);
        }
    }

    /// Other blocks are kept from now on, as settings or volumes have changed, or the room that they share.
    pub(crate) fn keeps_others(&mut self) {
        self.kept = KeptCopies::default();
    }
}

/// Blocks whose data was written to the cache, but for copies.
fn let_in(store: &Store) -> u64 {
    let written = store.stats.cache_data_written_bytes / store.block_bytes() as u64;
    written.saturating_sub(store.stats.retained_blocks)
}

fn cached(store: &Store) -> u64 {
    u64::from(store.index.len())
}
