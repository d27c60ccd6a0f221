//! Where dirty blocks of a volume are, as a daemon tells `forebay rescue`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A part of the list of a volume's dirty blocks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct DirtyPage {
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u64,
    /// Blocks of the whole volume.
    pub(crate) dirty_blocks: u64,
    /// Blocks of the whole volume that are in memory, and not in the log yet.
    pub(crate) buffered_blocks: u64,
    pub(crate) devices: Vec<(u8, PathBuf)>,
    /// Offset, address and checksum of each; without an address it is all zeroes.
    pub(crate) blocks: Vec<(u64, Option<u64>, u32)>,
    /// Where the next part begins: a shard, and a place of its log.
    pub(crate) next: Option<(u16, u32)>,
}
