//! Sequence numbers: an epoch and a count within it.

use super::codec::{Reader, Writer};

/// A position in a shard's history (I1). Every attach makes a new epoch durable before its first
/// append, so no number is ever used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence {
    /// Which attach of the cache.
    pub epoch: u32,
    /// Which entry within it, from 1.
    pub number: u64,
}

impl Sequence {
    /// Below every number that was ever given.
    pub const ZERO: Sequence = Sequence {
        epoch: 0,
        number: 0,
    };
    /// Bytes on the device.
    pub const BYTES: usize = 12;
    /// The number after the highest within an epoch: at a million entries a second an epoch lasts
    /// nine years.
    pub const NUMBER_END: u64 = 1 << 48;

    /// The sequence of this epoch and number.
    #[must_use]
    pub fn new(epoch: u32, number: u64) -> Sequence {
        Sequence { epoch, number }
    }

    pub(crate) fn encode(self, out: &mut Writer<'_>) {
        out.u32(self.epoch);
        out.u64(self.number);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Sequence {
        Sequence {
            epoch: input.u32(),
            number: input.u64(),
        }
    }
}
