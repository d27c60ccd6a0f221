//! Which cache something on a device belongs to.

/// The identity of a cache: random, given at creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId(pub [u8; 16]);

impl CacheId {
    /// The identity in the structures of an extent. Structures that an earlier extent left in the
    /// same place have another.
    #[must_use]
    pub(crate) fn of_extent(self, serial: u32) -> CacheId {
        let mut id = self.0;
        for (byte, serial) in id[12..].iter_mut().zip(serial.to_le_bytes()) {
            *byte ^= serial;
        }
        CacheId(id)
    }

    /// The seed of this cache's checksums.
    #[must_use]
    pub fn seed(self) -> u32 {
        crate::checksum::crc32c(&self.0)
    }
}

impl std::fmt::Display for CacheId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&i) {
                write!(out, "-")?;
            }
            write!(out, "{byte:02x}")?;
        }
        Ok(())
    }
}
