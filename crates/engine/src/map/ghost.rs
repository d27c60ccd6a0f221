//! The ghost: fingerprints of blocks that were evicted lately. A bounded FIFO in twelve bits an
//! entry, where S3-FIFO keeps it (Yang et al., SOSP 2023).

/// Places of one bucket; the oldest of them gives way.
const WAYS: usize = 5;
/// Bits of a place.
const BITS: u32 = 12;
/// Where the oldest place begins.
const OLDEST: u32 = BITS * (WAYS as u32 - 1);
/// A one in each place.
const EACH: u64 = {
    let mut each = 0;
    let mut at = 0;
    while at < WAYS {
        each |= 1 << (BITS * at as u32);
        at += 1;
    }
    each
};

/// The number of blocks that a ghost remembers for a cache of `blocks` blocks.
pub(crate) const fn remembered(blocks: usize) -> usize {
    blocks / 10 * 7
}

/// A fixed-size filter that remembers recent keys, with about one false answer in 800. A block that
/// was never here is let into main then, as if it came back.
#[derive(Debug)]
pub(crate) struct Ghost {
    /// The places of each bucket, the youngest lowest.
    buckets: Box<[u64]>,
}

impl Ghost {
    /// The ghost of a shard with so many slots.
    #[must_use]
    pub(crate) fn of(slots: usize) -> Ghost {
        Ghost::new(remembered(slots))
    }

    /// A ghost that remembers about `entries` keys.
    fn new(entries: usize) -> Ghost {
        Ghost {
            buckets: vec![0; (entries / WAYS).max(1)].into(),
        }
    }

    /// Remembers the key of this hash; the oldest of its bucket is forgotten.
    pub(crate) fn insert(&mut self, hash: u64) {
        let (bucket, fingerprint) = self.place(hash);
        let word = self.buckets[bucket];
        let at = position(word, fingerprint).unwrap_or(OLDEST);
        let moved = (1 << (at + BITS)) - 1;
        self.buckets[bucket] = word & !moved | word << BITS & moved | fingerprint;
    }

    /// Whether the key of this hash is remembered, and how many of its bucket left after it; it is
    /// forgotten with the answer.
    pub(crate) fn take(&mut self, hash: u64) -> Option<u32> {
        let (bucket, fingerprint) = self.place(hash);
        let word = self.buckets[bucket];
        let at = position(word, fingerprint)?;
        let younger = (1 << at) - 1;
        self.buckets[bucket] = word & younger | word >> BITS & !younger;
        Some(at / BITS)
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let bucket = ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize;
        (bucket, (hash & ((1 << BITS) - 1)).max(1))
    }
}

/// Where the place of a bucket that holds this fingerprint begins (a zero in a word: Mycroft 1987).
fn position(word: u64, fingerprint: u64) -> Option<u32> {
    let zero = word ^ (fingerprint * EACH);
    let found = zero.wrapping_sub(EACH) & !zero & EACH << (BITS - 1);
    (found != 0).then(|| found.trailing_zeros() + 1 - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BlockKey;
    use crate::map::index::hash;

    #[test]
    fn remembers_the_recent_and_forgets_the_old() {
        let mut ghost = Ghost::new(1000);
        for key in 0..10_000 {
            ghost.insert(hash(BlockKey(key)));
        }
        let recent = (9_800..10_000)
            .filter(|key| ghost.take(hash(BlockKey(*key))).is_some())
            .count();
        assert!(recent > 190, "{recent} of 200 remembered");
        let old = (0..5_000)
            .filter(|key| ghost.take(hash(BlockKey(*key))).is_some())
            .count();
        assert!(old < 10, "{old} of 5000 not forgotten");
        let again = ghost.take(hash(BlockKey(9_999)));
        assert_eq!(again, None, "an answer forgets");
    }

    #[test]
    fn a_bucket_is_in_order_of_age() {
        let mut ghost = Ghost::new(WAYS);
        let places = |ghost: &Ghost| {
            let at = |at: usize| ghost.buckets[0] >> (BITS * at as u32) & 0xfff;
            (0..WAYS).map(at).collect::<Vec<_>>()
        };
        for fingerprint in [1, 2, 3, 4, 4095, 2, 7] {
            ghost.insert(fingerprint);
        }
        assert_eq!(places(&ghost), [7, 2, 4095, 4, 3], "1 was the oldest");
        assert_eq!(ghost.take(4), Some(3));
        assert_eq!(places(&ghost), [7, 2, 4095, 3, 0]);
        assert_eq!([4, 1, 8].map(|gone| ghost.take(gone)), [None; 3]);
        ghost.insert(8);
        assert_eq!(places(&ghost), [8, 7, 2, 4095, 3]);
        ghost.insert(3);
        ghost.insert(3);
        assert_eq!(places(&ghost), [3, 8, 7, 2, 4095], "it is there once");
    }
}
