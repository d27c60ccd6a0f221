//! The ghost: fingerprints of blocks that were evicted lately. A bounded FIFO in two bytes an
//! entry, as S3-FIFO keeps it (Yang et al., SOSP 2023).

use crate::format::BlockKey;
use crate::index;

/// Places of one bucket; the oldest of them gives way.
const WAYS: usize = 4;

/// A fixed-size filter that remembers recent keys, with about one false answer in 16,000.
#[derive(Debug)]
pub(crate) struct Ghost {
    fingerprints: Box<[[u16; WAYS]]>,
}

impl Ghost {
    /// A ghost that remembers about `entries` keys.
    #[must_use]
    pub(crate) fn new(entries: usize) -> Ghost {
        Ghost {
            fingerprints: vec![[0; WAYS]; (entries / WAYS).max(1)].into(),
        }
    }

    /// Remembers a key; the oldest of its bucket is forgotten.
    pub(crate) fn insert(&mut self, key: BlockKey) {
        let (bucket, fingerprint) = self.place(key);
        let ways = &mut self.fingerprints[bucket];
        let from = ways
            .iter()
            .position(|way| *way == fingerprint)
            .unwrap_or(WAYS - 1);
        ways.copy_within(..from, 1);
        ways[0] = fingerprint;
    }

    /// Whether a key is remembered; it is forgotten with the answer.
    pub(crate) fn take(&mut self, key: BlockKey) -> bool {
        let (bucket, fingerprint) = self.place(key);
        let ways = &mut self.fingerprints[bucket];
        match ways.iter().position(|way| *way == fingerprint) {
            Some(at) => {
                ways.copy_within(at + 1.., at);
                ways[WAYS - 1] = 0;
                true
            }
            None => false,
        }
    }

    fn place(&self, key: BlockKey) -> (usize, u16) {
        let hash = index::hash(key);
        let bucket = ((u128::from(hash) * self.fingerprints.len() as u128) >> 64) as usize;
        (bucket, (hash as u16).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_recent_and_forgets_the_old() {
        let mut ghost = Ghost::new(1000);
        for key in 0..10_000 {
            ghost.insert(BlockKey(key));
        }
        let recent = (9_800..10_000)
            .filter(|key| ghost.take(BlockKey(*key)))
            .count();
        assert!(recent > 190, "{recent} of 200 remembered");
        let old = (0..5_000).filter(|key| ghost.take(BlockKey(*key))).count();
        assert!(old < 10, "{old} of 5000 not forgotten");
        assert!(!ghost.take(BlockKey(9_999)), "an answer forgets");
    }
}
