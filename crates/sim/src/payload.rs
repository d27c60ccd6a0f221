//! Payload of the simulated client: every sector names the write it is of, its volume and its
//! place, so that data that is stale, torn or misdirected says what it is.

use std::fmt;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

/// Value of a sector: 0 for zeroes, [`INITIAL`] for the origin's contents before it had a cache,
/// else the number of the write.
pub type Value = u32;

/// Zeroes.
pub const ZERO: Value = 0;
/// The origin's contents before it had a cache.
pub const INITIAL: Value = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"FBSECTOR");

/// Data that is not of this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// Another place's data.
    Elsewhere {
        /// Its value.
        value: Value,
        /// Its volume.
        volume: u16,
        /// Its sector.
        sector: u64,
    },
    /// No data of any client.
    Garbage,
}

impl fmt::Display for Stray {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stray::Elsewhere {
                value,
                volume,
                sector,
            } => {
                write!(out, "w{value} of volume {volume} sector {sector}")
            }
            Stray::Garbage => write!(out, "garbage"),
        }
    }
}

fn place(volume: u16, sector: u64) -> u64 {
    u64::from(volume) << 48 | sector
}

fn filler(value: Value, place: u64) -> u64 {
    crate::rng::mix(u64::from(value) ^ place.rotate_left(32))
}

/// Fills `bytes`, sectors from `sector` on, with `value`.
pub fn fill(bytes: &mut [u8], volume: u16, sector: u64, value: Value) {
    for (i, out) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        if value == ZERO {
            out.fill(0);
            continue;
        }
        let place = place(volume, sector + i as u64);
        let filler = filler(value, place).to_le_bytes();
        for word in out.chunks_exact_mut(8) {
            word.copy_from_slice(&filler);
        }
        out[..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&u64::from(value).to_le_bytes());
        out[16..24].copy_from_slice(&place.to_le_bytes());
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(
        bytes[index * 8..index * 8 + 8]
            .try_into()
            .expect("eight bytes"),
    )
}

/// Of which volume and sector this is, whatever it says of it.
#[must_use]
pub fn place_in(bytes: &[u8]) -> Option<(u16, u64)> {
    let place = word(bytes, 2);
    (word(bytes, 0) == MAGIC).then_some(((place >> 48) as u16, place & ((1 << 48) - 1)))
}

/// Which value a sector of this place holds.
///
/// # Errors
/// If it holds anything that was never written to this place.
pub fn decode(bytes: &[u8], volume: u16, sector: u64) -> Result<Value, Stray> {
    let first = word(bytes, 0);
    if first == 0 {
        return if bytes.iter().all(|byte| *byte == 0) {
            Ok(ZERO)
        } else {
            Err(Stray::Garbage)
        };
    }
    let (value, found) = (word(bytes, 1), word(bytes, 2));
    let Ok(value) = Value::try_from(value) else {
        return Err(Stray::Garbage);
    };
    let filler = filler(value, found).to_le_bytes();
    if first != MAGIC || bytes[24..].chunks_exact(8).any(|word| word != filler) {
        return Err(Stray::Garbage);
    }
    if found != place(volume, sector) {
        let (volume, sector) = ((found >> 48) as u16, found & ((1 << 48) - 1));
        return Err(Stray::Elsewhere {
            value,
            volume,
            sector,
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sector_says_what_it_is() {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes, 1, 80, 7);
        assert_eq!(decode(&bytes[512..1024], 1, 81), Ok(7));
        let stray = Stray::Elsewhere {
            value: 7,
            volume: 1,
            sector: 81,
        };
        assert_eq!(decode(&bytes[512..1024], 1, 82), Err(stray));
        bytes[700] ^= 1;
        assert_eq!(decode(&bytes[512..1024], 1, 81), Err(Stray::Garbage));
        fill(&mut bytes, 1, 80, ZERO);
        assert_eq!(decode(&bytes[..512], 1, 80), Ok(ZERO));
    }
}
