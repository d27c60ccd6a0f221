//! Calls of the driver for the checkpoint of an orderly stop (I29).

use crate::format::Geometry;
use crate::parts::Engine;
use crate::store::checkpoint::Checkpoint;

impl Engine {
    /// The number of the shard.
    #[must_use]
    pub fn shard(&self) -> u16 {
        self.store.log.shard
    }

    /// Begins the checkpoint of a shard whose orderly stop has come to its end. The driver writes its
    /// parts, flushes, and writes the head ([`crate::CheckpointHead`]). `None` if there can be none, of a
    /// shard that is not at rest too: the next start reads all summaries then. `geometry` is that of the
    /// superblock on record.
    pub fn begin_checkpoint(&mut self, geometry: &Geometry) -> Option<Checkpoint> {
        if !self.is_at_rest() {
            return None;
        }
        self.store.begin_checkpoint(geometry)
    }

    /// A part of it, of less than a segment: the address on the cache devices
    /// ([`crate::format::extents`]) and the bytes that belong there.
    ///
    /// # Panics
    /// If it has no such part.
    #[must_use]
    pub fn checkpoint_part(&self, checkpoint: &Checkpoint, number: usize) -> (u64, Vec<u8>) {
        self.store.checkpoint_part(checkpoint, number)
    }
}
