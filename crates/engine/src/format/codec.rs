//! Reading and writing fixed-width little-endian fields. Structures are small and read once, so
//! plain cursors over a page are enough; sizes are asserted where each structure is defined.

use super::SegmentId;
use super::cache_id::CacheId;

/// Writes fields one after the other into a page.
#[derive(Debug)]
pub struct Writer<'a> {
    page: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `page`.
    pub fn new(page: &'a mut [u8]) -> Writer<'a> {
        Writer { page, at: 0 }
    }

    /// The number of bytes written.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Writes raw bytes.
    ///
    /// # Panics
    /// If the page has no room: every structure has a fixed size that fits.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.page[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Fills the rest of the page with zeroes.
    pub fn zero_rest(&mut self) {
        // In pieces that the compiler clears in line.
        for piece in self.page[self.at..].chunks_mut(256) {
            piece.fill(0);
        }
        self.at = self.page.len();
    }

    /// Writes one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Writes 16 bits.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// Reads fields one after the other. Reading past the end gives zeroes and sets
/// [`Reader::overran`]: a caller with a verified checksum never sees it, any other must look.
#[derive(Debug)]
pub struct Reader<'a> {
    page: &'a [u8],
    at: usize,
    overran: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `page`.
    #[must_use]
    pub fn new(page: &'a [u8]) -> Reader<'a> {
        Reader {
            page,
            at: 0,
            overran: false,
        }
    }

    /// The number of bytes read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether a field was read that the page does not have.
    #[must_use]
    pub fn overran(&self) -> bool {
        self.overran
    }

    /// Reads `count` raw bytes, none at all past the end.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        match self.page.get(self.at..self.at + count) {
            Some(bytes) => {
                self.at += count;
                bytes
            }
            None => {
                self.overran = true;
                &[]
            }
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).try_into().unwrap_or([0; N])
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Reads 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Reads 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Reads 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Reads `N` raw bytes.
    pub fn fixed<const N: usize>(&mut self) -> [u8; N] {
        self.array()
    }
}

/// The CRC32C of `bytes`, seeded with the cache's identity so that structures of another cache on
/// the device never look like ours.
#[must_use]
pub fn checksum(id: CacheId, bytes: &[u8]) -> u32 {
    crate::checksum::crc32c_append(id.seed(), bytes)
}

/// The segment that a header or a summary says it is of, if these bytes can be one. Both begin
/// alike: magic, version, two bytes of their own, checksum, cache, shard, segment.
pub(super) fn segment_in(magic: u32, bytes: &[u8]) -> Option<SegmentId> {
    let mut input = Reader::new(bytes.get(..34)?);
    if input.u32() != magic {
        return None;
    }
    input.fixed::<26>();
    Some(SegmentId(input.u32()))
}
