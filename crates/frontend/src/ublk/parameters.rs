//! Parameters of a block device for its users (`ublk_params`).

use super::field;

const SECTOR_BYTES: u64 = 512;
/// The longest discard or write-zeroes of one request, in bytes.
const MAX_RANGE_BYTES: u64 = 64 << 20;

/// Kinds of parameters: basic and discard.
const KINDS: u32 = 1 << 0 | 1 << 1;
/// Writes may be lost in a power cut until they are flushed.
const VOLATILE_CACHE: u32 = 1 << 2;
/// A write can be asked to be durable by itself.
const FUA: u32 = 1 << 3;

/// A device's parameters. All others are fixed for Forebay's devices: a volatile write cache with
/// FUA (the engine's contract, see `docs/MODEL.md`), no rotation, discards and write-zeroes of up
/// to 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The device's size in bytes, a multiple of the logical block.
    pub size_bytes: u64,
    /// The least that can be addressed, a power of two from 512 to 4096 bytes.
    pub logical_block_bytes: u32,
    /// The unit that is written without reading first: the cache's block, a power of two.
    pub physical_block_bytes: u32,
    /// The length and alignment of requests that are best for throughput, a power of two.
    pub optimal_bytes: u32,
    /// The longest transfer, in bytes.
    pub max_transfer_bytes: u32,
}

impl Parameters {
    /// The size of the kernel's structure, as far as it is used here, in bytes.
    pub const BYTES: usize = 60;

    /// As the driver wants it.
    #[must_use]
    pub fn encode(&self) -> [u8; Parameters::BYTES] {
        let mut bytes = [0; Parameters::BYTES];
        let max_sectors = self.max_transfer_bytes / SECTOR_BYTES as u32;
        let range_sectors = (MAX_RANGE_BYTES / SECTOR_BYTES) as u32;
        bytes[0..4].copy_from_slice(&(Parameters::BYTES as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&KINDS.to_ne_bytes());
        bytes[8..12].copy_from_slice(&(VOLATILE_CACHE | FUA).to_ne_bytes());
        bytes[12] = self.logical_block_bytes.ilog2() as u8;
        bytes[13] = self.physical_block_bytes.ilog2() as u8;
        bytes[14] = self.optimal_bytes.ilog2() as u8;
        bytes[15] = self.physical_block_bytes.ilog2() as u8;
        bytes[16..20].copy_from_slice(&max_sectors.to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.size_bytes / SECTOR_BYTES).to_ne_bytes());
        bytes[44..48].copy_from_slice(&self.physical_block_bytes.to_ne_bytes());
        bytes[48..52].copy_from_slice(&range_sectors.to_ne_bytes());
        bytes[52..56].copy_from_slice(&range_sectors.to_ne_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_ne_bytes());
        bytes
    }

    /// From what the driver said.
    #[must_use]
    pub fn decode(bytes: &[u8; Parameters::BYTES]) -> Parameters {
        let power = |at: usize| 1u32.checked_shl(bytes[at].into()).unwrap_or(0);
        Parameters {
            size_bytes: u64::from_ne_bytes(field(bytes, 24)).saturating_mul(SECTOR_BYTES),
            logical_block_bytes: power(12),
            physical_block_bytes: power(13),
            optimal_bytes: power(14),
            max_transfer_bytes: u32::from_ne_bytes(field(bytes, 16))
                .saturating_mul(SECTOR_BYTES as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_the_way_through_the_driver() {
        let given = Parameters {
            size_bytes: 16 << 30,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_bytes: 65536,
            max_transfer_bytes: 1 << 20,
        };
        assert_eq!(Parameters::decode(&given.encode()), given);
    }
}
