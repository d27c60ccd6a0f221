//! A small open-addressed table from blocks to their owners, with linear probing and deletion by
//! shifting back (Knuth, The Art of Computer Programming 3, 6.4, algorithms L and R). Every write
//! enters its block and takes it out again, with few in it at a time; a general map's probing by
//! groups costs three times as much there.

use crate::format::BlockKey;
use crate::map::index;
use crate::map::locks::Owner;

/// No block has this key: keys have 40 bits.
const EMPTY: BlockKey = BlockKey(u64::MAX);
const LEAST_PLACES: usize = 256;

/// Which blocks are owned, and by whom.
#[derive(Debug)]
pub(crate) struct Owners {
    places: Box<[(BlockKey, Owner)]>,
    len: usize,
}

impl Default for Owners {
    fn default() -> Self {
        Owners::with_places(LEAST_PLACES)
    }
}

impl Owners {
    fn with_places(places: usize) -> Owners {
        Owners {
            places: vec![(EMPTY, Owner::FastWrite); places].into(),
            len: 0,
        }
    }

    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    fn home(&self, key: BlockKey) -> usize {
        index::hash(key) as usize & self.mask()
    }

    /// Where a block is, or the empty place where it would be.
    #[inline]
    fn place(&self, key: BlockKey) -> usize {
        let mask = self.mask();
        let mut at = self.home(key);
        loop {
            let there = self.places[at].0;
            if there == key || there == EMPTY {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The owner of a block.
    #[inline]
    pub(crate) fn get(&self, key: BlockKey) -> Option<Owner> {
        if self.len == 0 {
            return None;
        }
        let (there, owner) = self.places[self.place(key)];
        (there == key).then_some(owner)
    }

    /// Whether no block is owned.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes `owner` the owner of a block if nobody owns it. Returns its owner before.
    #[inline]
    pub(crate) fn insert_if_free(&mut self, key: BlockKey, owner: Owner) -> Option<Owner> {
        let at = self.place(key);
        let (there, was) = self.places[at];
        if there == key {
            return Some(was);
        }
        self.places[at] = (key, owner);
        self.len += 1;
        // At half full a probe still ends at once.
        if self.len * 2 > self.places.len() {
            self.grow();
        }
        None
    }

    /// Makes `owner` the owner of a block, whoever it was.
    pub(crate) fn set(&mut self, key: BlockKey, owner: Owner) {
        if self.insert_if_free(key, owner).is_some() {
            let at = self.place(key);
            self.places[at].1 = owner;
        }
    }

    /// Ends the ownership of a block if it is `owner`'s. Returns whether it was.
    #[inline]
    pub(crate) fn remove(&mut self, key: BlockKey, owner: Owner) -> bool {
        let mut hole = self.place(key);
        if self.places[hole] != (key, owner) {
            return false;
        }
        self.len -= 1;
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (there, _) = self.places[at];
            if there == EMPTY {
                break;
            }
            // The key moves back unless its home is behind the hole.
            let from_home = at.wrapping_sub(self.home(there)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[at];
                hole = at;
            }
        }
        self.places[hole].0 = EMPTY;
        true
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Owners::with_places(self.places.len() * 2);
        for (key, owner) in self.places.iter().filter(|(key, _)| *key != EMPTY) {
            larger.insert_if_free(*key, *owner);
        }
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in proptest::collection::vec((0u64..400, 0u32..3, any::<bool>()), 1..2000)) {
            let mut owners = Owners::default();
            let mut map = HashMap::new();
            for (key, owner, take) in steps {
                let (key, owner) = (BlockKey(key), Owner::Promotion(owner));
                if take {
                    let wanted = map.get(&key.0) == Some(&owner);
                    if wanted {
                        map.remove(&key.0);
                    }
                    prop_assert_eq!(owners.remove(key, owner), wanted);
                } else {
                    let was = map.get(&key.0).copied();
                    map.entry(key.0).or_insert(owner);
                    prop_assert_eq!(owners.insert_if_free(key, owner), was);
                }
                prop_assert_eq!(owners.get(key), map.get(&key.0).copied());
            }
            for key in 0..400 {
                prop_assert_eq!(owners.get(BlockKey(key)), map.get(&key).copied());
            }
        }
    }
}
