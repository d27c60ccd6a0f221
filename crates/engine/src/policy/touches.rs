//! Touches: counts of recent requests for blocks that are not cached, for n-th touch admission.
//! They are a bounded filter of two bytes an entry, so that it costs half a byte for each block of
//! the cache.

use crate::format::BlockKey;
use crate::map::index;
use crate::settings::MAX_TOUCHES;

/// Places of one bucket; the one touched longest ago gives way.
const WAYS: usize = 4;
const COUNT_BITS: u32 = 4;
const _: () = assert!(MAX_TOUCHES == (1 << COUNT_BITS) - 1);

/// Counts of recent keys, wrong for about one key in 1,000: fingerprints have twelve bits.
#[derive(Debug)]
pub(crate) struct Touches {
    buckets: Box<[[u16; WAYS]]>,
}

impl Touches {
    /// A filter that remembers about `entries` keys.
    pub(crate) fn new(entries: usize) -> Touches {
        Touches {
            buckets: vec![[0; WAYS]; (entries / WAYS).max(1)].into(),
        }
    }

    /// Notes that a key was wanted and says how often it was, this time included.
    pub(crate) fn touch(&mut self, key: BlockKey) -> u8 {
        let (bucket, fingerprint) = self.place(key);
        let ways = &mut self.buckets[bucket];
        let known = ways.iter().position(|way| way >> COUNT_BITS == fingerprint);
        let count = known.map_or(0, |at| ways[at] & u16::from(MAX_TOUCHES));
        let count = (count + 1).min(u16::from(MAX_TOUCHES));
        ways.copy_within(..known.unwrap_or(WAYS - 1), 1);
        ways[0] = fingerprint << COUNT_BITS | count;
        count as u8
    }

    /// A key was admitted: if it leaves the cache it has to be wanted as often again.
    pub(crate) fn forget(&mut self, key: BlockKey) {
        let (bucket, fingerprint) = self.place(key);
        for way in &mut self.buckets[bucket] {
            if *way >> COUNT_BITS == fingerprint {
                *way = 0;
            }
        }
    }

    fn place(&self, key: BlockKey) -> (usize, u16) {
        let hash = index::hash(key);
        let bucket = ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize;
        (bucket, (hash as u16 >> COUNT_BITS).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touches_are_counted_until_forgotten_or_long_ago() {
        let mut touches = Touches::new(4000);
        let key = BlockKey(7);
        assert_eq!(
            (1..=3).map(|_| touches.touch(key)).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        touches.forget(key);
        assert_eq!(touches.touch(key), 1);
        for other in 100..50_100 {
            touches.touch(BlockKey(other));
        }
        assert_eq!(touches.touch(key), 1, "others came in between");
        for _ in 0..100 {
            touches.touch(key);
        }
        assert_eq!(touches.touch(key), MAX_TOUCHES);
    }
}
