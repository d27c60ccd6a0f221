//! Volumes: their ranges of keys, and which entries of a log count (I15, I16).

use super::{MAX_VOLUMES, NAME_BYTES, Superblock, SuperblockError, VolumeRecord, VolumeState};
use crate::format::geometry::BlockKey;

impl Superblock {
    /// Adds a volume with a range of keys of its own.
    ///
    /// # Errors
    /// If there are too many volumes or too few keys left.
    pub fn add_volume(
        &mut self,
        name: &str,
        size_bytes: u64,
        mode: u8,
    ) -> Result<&mut VolumeRecord, SuperblockError> {
        // A detached volume's record only guards keys that are never given again.
        if self.volumes.len() >= MAX_VOLUMES {
            match self
                .volumes
                .iter()
                .position(|volume| volume.state == VolumeState::Detached)
            {
                Some(oldest) => drop(self.volumes.remove(oldest)),
                None => {
                    return Err(SuperblockError::Full(
                        "the cache has 256 volumes already: detach one first",
                    ));
                }
            }
        }
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(SuperblockError::Full("a volume's name has 1 to 64 bytes"));
        }
        let region_blocks = u64::from(self.geometry.region_bytes / self.geometry.block_bytes);
        let blocks = size_bytes.div_ceil(u64::from(self.geometry.block_bytes));
        // Room to grow by a half, and at least a gigabyte.
        let reserved_blocks = (blocks
            + (blocks / 2).max((1 << 30) / u64::from(self.geometry.block_bytes)))
        .next_multiple_of(region_blocks);
        if self.next_base.0 + reserved_blocks > BlockKey::END {
            return Err(SuperblockError::Full(
                "the cache has used up its block numbers (4 PiB of origins at 4 KiB blocks): drain it and create it anew",
            ));
        }
        let id = self.next_volume_id;
        self.volumes.push(VolumeRecord {
            id,
            name: name.to_owned(),
            base: self.next_base,
            reserved_blocks,
            size_bytes,
            state: VolumeState::Attached,
            mode,
            fingerprint: [0; 32],
            fingerprint_at: 0,
            valid_from_epoch: 0,
        });
        self.next_volume_id += 1;
        self.next_base = self.next_base.plus(reserved_blocks);
        Ok(self.volumes.last_mut().expect("just pushed"))
    }

    /// The size to which a volume's origin may grow without being attached anew, in bytes.
    #[must_use]
    pub fn room_bytes(&self, volume: &VolumeRecord) -> u64 {
        let block_bytes = u64::from(self.geometry.block_bytes);
        volume.reserved_blocks.saturating_mul(block_bytes)
    }

    /// Whether entries of this epoch for this block count: its volume is attached and the epoch
    /// is not one that was abandoned (I15, I16).
    #[must_use]
    pub fn accepts(&self, key: BlockKey, epoch: u32) -> bool {
        self.volumes.iter().any(|volume| {
            volume.state == VolumeState::Attached
                && (volume.base.0..volume.base.0 + volume.reserved_blocks).contains(&key.0)
                && epoch >= volume.valid_from_epoch
        })
    }
}
