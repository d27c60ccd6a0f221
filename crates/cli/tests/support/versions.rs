//! Blocks that say which version of them they are, and what was acknowledged of them.

use std::collections::HashMap;

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const BLOCKS: u64 = 2048;
pub(crate) const ORIGIN_BYTES: u64 = BLOCKS * BLOCK;

/// Versions of blocks that were acknowledged, and the ones on their way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) acknowledged: HashMap<u64, u64>,
    pub(crate) begun: HashMap<u64, u64>,
}

pub(crate) fn contents(block: u64, version: u64) -> Vec<u8> {
    let word = block << 32 | version;
    word.to_le_bytes().repeat(BLOCK as usize / 8)
}

pub(crate) fn version_of(bytes: &[u8], block: u64) -> u64 {
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert!(
        words.iter().all(|word| *word == words[0]),
        "block {block} is torn"
    );
    assert!(
        words[0] == 0 || words[0] >> 32 == block,
        "block {block} holds another"
    );
    words[0] & u64::from(u32::MAX)
}

/// Every block of an image is the version that was acknowledged last, or the one on its way.
pub(crate) fn assert_whole(image: &[u8], written: &Written, what: &str) {
    for (block, acknowledged) in &written.acknowledged {
        let at = (block * BLOCK) as usize;
        let version = version_of(&image[at..at + BLOCK as usize], *block);
        assert!(
            version == *acknowledged || version == written.begun[block],
            "{what}: block {block} is of version {version}, and {acknowledged} was acknowledged"
        );
    }
}
