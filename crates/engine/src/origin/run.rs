//! The blocks that write-back takes in one write.
//!
//! Of an origin with a stripe a run begins and ends on borders as far as its blocks allow. A part of
//! a stripe goes as it is: the rest of it may never become dirty.

use smallvec::SmallVec;

use crate::format::{BlockKey, Slot};
use crate::interface::VolumeSlot;
use crate::origin::Origin;
use crate::store::Store;

/// A run to write back.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: BlockKey,
    pub(super) slots: SmallVec<[Slot; 32]>,
    /// All its blocks are zeroes; none is otherwise.
    pub(super) zero: bool,
}

/// The lengths of a run, in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longest {
    /// Of a run that keeps nothing whole.
    pub(super) now: usize,
    /// Where no client is in its way.
    pub(super) alone: usize,
}

impl Origin {
    /// The run of a block that may be written back.
    pub(super) fn run_of(
        &self,
        store: &Store,
        volume: VolumeSlot,
        key: BlockKey,
        longest: Longest,
    ) -> Run {
        let zero = self
            .may_write_back(store, key)
            .is_some_and(|slot| store.index.flags(slot).zero());
        let same = |key: BlockKey| {
            let slot = self.may_write_back(store, key)?;
            (store.index.flags(slot).zero() == zero && store.volume_of(key) == Some(volume))
                .then_some(slot)
        };
        let from = |key: BlockKey, most: u64| -> SmallVec<[Slot; 32]> {
            (0..most).map_while(|i| same(key.plus(i))).collect()
        };
        let now = longest.now.max(1) as u64;
        let plain = |most: u64| Run {
            key,
            slots: from(key, most),
            zero,
        };
        let Some(stripe) = store.attached(volume).stripe() else {
            return plain(now);
        };
        let block_bytes = store.block_bytes() as u64;
        let base = store.attached(volume).config.base;
        let at = |key: BlockKey| (key.0 - base.0) * block_bytes;
        let begin = base.plus(stripe.begin(at(key)) / block_bytes);
        let mut first = key;
        while first > begin && same(BlockKey(first.0 - 1)).is_some() {
            first = BlockKey(first.0 - 1);
        }
        let to_border = |key: BlockKey, most: u64| {
            (stripe.run_end(at(key), most * block_bytes) - at(key)) / block_bytes
        };
        let slots = from(first, to_border(first, longest.alone.max(1) as u64));
        let is_whole = slots.len() as u64 * block_bytes >= stripe.len_bytes();
        if longest.now >= longest.alone || is_whole {
            return Run {
                key: first,
                slots,
                zero,
            };
        }
        plain(now.min(to_border(key, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Stream;
    use crate::rig::{BLOCK_BYTES, Rig, VOLUME};
    use crate::settings::{Mode, Settings};
    use crate::store::stripe::Stripe;

    const STRIPE_BLOCKS: u64 = 6;
    const FIRST: u64 = 2;
    const ALONE: Longest = Longest { now: 4, alone: 4 };

    /// A store whose dirty blocks are these.
    fn rig(dirty: &[(u64, u16)]) -> Rig {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        let block_bytes = BLOCK_BYTES as u64;
        let stripe = Stripe::new(STRIPE_BLOCKS * block_bytes, FIRST * block_bytes);
        rig.store.volume(VOLUME).set_stripe(stripe);
        for (first, count) in dirty {
            assert!(rig.append(Stream::Write, *first, *count));
        }
        rig.flush();
        rig
    }

    /// First block and length of the run of a block.
    fn run(rig: &mut Rig, key: u64, longest: Longest) -> (u64, usize) {
        let origin = Origin::new(BLOCK_BYTES, &mut rig.ram);
        let run = origin.run_of(&rig.store, VOLUME, BlockKey(key), longest);
        (run.key.0, run.slots.len())
    }

    #[test]
    fn a_stripe_goes_whole_though_it_is_longer_than_a_run() {
        let mut rig = rig(&[(0, 16)]);
        for key in 2..8 {
            assert_eq!(run(&mut rig, key, ALONE), (2, 6));
        }
        assert_eq!(run(&mut rig, 8, ALONE), (8, 6));
        assert_eq!(run(&mut rig, 1, ALONE), (0, 2), "before the first");
        assert_eq!(run(&mut rig, 15, ALONE), (14, 2), "no more is dirty");
        let long = Longest { now: 13, alone: 13 };
        assert_eq!(run(&mut rig, 3, long), (2, 12), "two whole ones");
    }

    #[test]
    fn a_part_of_a_stripe_goes_as_it_is() {
        let mut rig = rig(&[(3, 2), (6, 5)]);
        assert_eq!(run(&mut rig, 4, ALONE), (3, 2));
        assert_eq!(run(&mut rig, 7, ALONE), (6, 2), "to the border");
        assert_eq!(run(&mut rig, 9, ALONE), (8, 3));
    }

    #[test]
    fn beside_a_client_only_a_whole_stripe_is_long() {
        let mut rig = rig(&[(2, 9)]);
        let beside = Longest { now: 2, alone: 4 };
        assert_eq!(run(&mut rig, 5, beside), (2, 6));
        assert_eq!(run(&mut rig, 9, beside), (9, 2));
        assert_eq!(run(&mut rig, 8, beside), (8, 2));
    }

    #[test]
    fn without_a_stripe_a_run_is_as_long_as_it_may_be() {
        let mut rig = rig(&[(0, 16)]);
        rig.store.volume(VOLUME).set_stripe(None);
        assert_eq!(run(&mut rig, 5, ALONE), (5, 4));
        assert_eq!(run(&mut rig, 14, ALONE), (14, 2));
        assert_eq!(run(&mut rig, 5, Longest { now: 0, alone: 0 }), (5, 1));
    }
}
