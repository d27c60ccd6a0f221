//! Blocks that left the cache but whose older entries may still survive a crash. Until their
//! `Drop`s and the tail are durable they count as cached: nothing may write them to the origin
//! before (I4).

use std::collections::hash_map::Entry;

use crate::format::BlockKey;
use crate::locks::KeyMap;

#[derive(Clone, Copy, Debug)]
struct Departure {
    /// The stream of the dying segment that still holds an entry, as a bit; 0 if a `Drop` was
    /// logged there too.
    stream_bit: u8,
    /// The reclaim that evicted it.
    reclaim: u64,
    /// The number of its last `Drop`.
    drop_number: u64,
}

/// What departed and is not safely gone.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    blocks: KeyMap<Departure>,
    /// Departures that end when their `Drop` is durable, by number.
    by_number: Vec<(u64, BlockKey)>,
}

impl Departed {
    /// A block was evicted from a dying segment; its `Drop`s, if any, end at `drop_number`.
    pub(crate) fn evicted(
        &mut self,
        key: BlockKey,
        stream_bit: u8,
        reclaim: u64,
        drop_number: u64,
    ) {
        self.blocks.insert(
            key,
            Departure {
                stream_bit,
                reclaim,
                drop_number,
            },
        );
    }

    /// A block was dropped in every stream.
    pub(crate) fn dropped(&mut self, key: BlockKey, drop_number: u64) {
        self.blocks.insert(
            key,
            Departure {
                stream_bit: 0,
                reclaim: 0,
                drop_number,
            },
        );
        self.by_number.push((drop_number, key));
    }

    /// The streams in which the block needs a `Drop` and the number that must be durable first;
    /// `None` if it is gone for good.
    pub(crate) fn get(&self, key: BlockKey) -> Option<(u8, u64)> {
        if self.blocks.is_empty() {
            return None;
        }
        self.blocks
            .get(&key)
            .map(|departure| (departure.stream_bit, departure.drop_number))
    }

    /// The block is cached again: returns the streams that now are its shadows, and the number of
    /// its last `Drop`. Whoever lets it leave again without one has to see to it that that one is
    /// durable, as nobody waits for it here any more.
    pub(crate) fn take(&mut self, key: BlockKey) -> (u8, u64) {
        if self.blocks.is_empty() {
            return (0, 0);
        }
        self.blocks.remove(&key).map_or((0, 0), |departure| {
            (departure.stream_bit, departure.drop_number)
        })
    }

    /// The segment a reclaim emptied is below a durable tail: what it evicted is gone.
    pub(crate) fn reclaimed(&mut self, key: BlockKey, reclaim: u64) {
        if let Entry::Occupied(entry) = self.blocks.entry(key)
            && entry.get().stream_bit != 0
            && entry.get().reclaim == reclaim
        {
            entry.remove();
        }
    }

    /// Everything up to `number` is durable.
    pub(crate) fn durable(&mut self, number: u64) {
        let blocks = &mut self.blocks;
        self.by_number.retain(|(drop_number, key)| {
            if *drop_number > number {
                return true;
            }
            if blocks.get(key).is_some_and(|departure| {
                departure.stream_bit == 0 && departure.drop_number <= number
            }) {
                blocks.remove(key);
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block can be dropped, be cached again and leave before its `Drop` is durable. No script
    /// of the simulator shows what forgetting the number costs: it takes a read that brings
    /// something else once, and a stream that is gone round while a record of another is open.
    #[test]
    fn who_caches_a_block_again_is_told_of_its_drop() {
        let mut departed = Departed::default();
        let [dropped, evicted, other] = [1, 2, 3].map(BlockKey);
        departed.dropped(dropped, 17);
        departed.evicted(evicted, 0b10, 4, 19);
        assert_eq!(departed.take(dropped), (0, 17));
        assert_eq!(departed.take(evicted), (0b10, 19));
        assert_eq!(departed.take(other), (0, 0));
        assert_eq!(departed.take(dropped), (0, 0), "it is told once");
    }
}
