//! A place in the history of a shard in one word.

use super::{Found, RecoveryError};
use crate::format::Sequence;

/// Epochs are ranked, so that 16 bits are enough for them; the rest is the number.
pub(super) type Rank = u64;

/// The epochs of a shard's segments.
pub(super) struct Ranks {
    epochs: Vec<u32>,
}

impl Ranks {
    /// # Errors
    /// If there are more than 65,535 of them.
    pub(super) fn new(found: &Found) -> Result<Ranks, RecoveryError> {
        let mut epochs: Vec<u32> = found
            .segments
            .iter()
            .map(|segment| segment.generation.epoch)
            .collect();
        epochs.sort_unstable();
        epochs.dedup();
        if epochs.len() >= 1 << 16 {
            return Err(RecoveryError::Malformed(
                "it has segments of more than 65535 attaches",
            ));
        }
        Ok(Ranks { epochs })
    }

    /// The ranks of the numbers of an epoch.
    pub(super) fn of_epoch(&self, epoch: u32) -> impl Fn(u64) -> Rank {
        let place = self.epochs.partition_point(|known| *known < epoch) as u64;
        move |number| {
            assert!(number < Sequence::NUMBER_END, "a number fits 48 bits");
            place << 48 | number
        }
    }
}
