//! CRC32C, of blocks and of structures on the device. The crate behind it takes whatever the
//! processor has: carry-less multiplication beside the instruction for CRC32C, in wide vectors.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32C of these bytes.
// By itself: the choice among the processor's ways would be made in each caller, and be counted as
// the engine's.
#[inline(never)]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32C of bytes of which `before` is the CRC32C, and of these after them.
#[inline(never)]
#[must_use]
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    // A CRC32C is what the register holds, inverted.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the standard has it, a bit at a time (RFC 3720, appendix B.4).
    fn bit_by_bit(bytes: &[u8]) -> u32 {
        let shift = |sum: u32| match sum & 1 {
            1 => (sum >> 1) ^ 0x82f6_3b78,
            _ => sum >> 1,
        };
        let step = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shift(sum));
        !bytes.iter().fold(u32::MAX, step)
    }

    #[test]
    fn a_known_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard(
            bytes in proptest::collection::vec(any::<u8>(), 0..9000),
            cut in any::<prop::sample::Index>(),
        ) {
            let expected = bit_by_bit(&bytes);
            prop_assert_eq!(crc32c(&bytes), expected);
            let (first, rest) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c_append(crc32c(first), rest), expected);
        }
    }
}
