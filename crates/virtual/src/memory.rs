//! Buffer memory in which all data is zeroes.
//!
//! Payloads are not kept, so every block reads as zeroes and has the checksum of zeroes. Only
//! what the engine writes itself (headers, summaries) is real, and is wiped when it gives the
//! buffer back.

use forebay_engine::shm_journal::JOURNAL_BYTES;
use forebay_engine::{Buf, Memory, SECTOR_BYTES};

const PAGE_BYTES: usize = 4096;
const SECTORS_PER_PAGE: u32 = (PAGE_BYTES / SECTOR_BYTES) as u32;
/// The daemon's memory unless told otherwise.
const ARENA_BYTES: usize = 256 << 20;
/// The longest buffer, in pages, as a power of two: 2 MiB.
const CLASSES: usize = 10;

/// The arena, with a stack of free buffers for each power of two of pages.
#[derive(Debug)]
pub struct ZeroMemory {
    bytes: Vec<u8>,
    /// Pages that the engine may have written to since they were handed out.
    touched: Vec<bool>,
    used_pages: u32,
    free: [Vec<u32>; CLASSES],
    journal: Vec<u8>,
    /// The memory buffer. Its data stays zeroes; the engine's notes about it are real.
    buffer: Vec<u8>,
}

impl Default for ZeroMemory {
    fn default() -> ZeroMemory {
        ZeroMemory::with_buffer(0)
    }
}

impl ZeroMemory {
    /// The arena, and a memory buffer of so many bytes.
    #[must_use]
    pub fn with_buffer(buffer_bytes: usize) -> ZeroMemory {
        ZeroMemory {
            bytes: vec![0; ARENA_BYTES],
            touched: vec![false; ARENA_BYTES / PAGE_BYTES],
            used_pages: 0,
            free: Default::default(),
            journal: vec![0; JOURNAL_BYTES],
            buffer: vec![0; buffer_bytes],
        }
    }
}

/// Which stack a buffer comes from.
fn class(len_bytes: usize) -> usize {
    len_bytes
        .div_ceil(PAGE_BYTES)
        .next_power_of_two()
        .trailing_zeros() as usize
}

fn pages(buf: Buf) -> std::ops::Range<usize> {
    let start = (buf.start_sector / SECTORS_PER_PAGE) as usize;
    start..buf.bytes().end.div_ceil(PAGE_BYTES)
}

impl Memory for ZeroMemory {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let class = class(len_bytes);
        let len_pages = 1u32 << class;
        let page = match self.free.get_mut(class)?.pop() {
            Some(page) => page,
            None => {
                let page = self.used_pages;
                if (page + len_pages) as usize * PAGE_BYTES > self.bytes.len() {
                    return None;
                }
                self.used_pages += len_pages;
                page
            }
        };
        Some(Buf {
            start_sector: page * SECTORS_PER_PAGE,
            len_bytes: len_bytes as u32,
        })
    }

    fn free(&mut self, buf: Buf) {
        for page in pages(buf) {
            if std::mem::take(&mut self.touched[page]) {
                self.bytes[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].fill(0);
            }
        }
        self.free[class(buf.len_bytes as usize)].push(buf.start_sector / SECTORS_PER_PAGE);
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.bytes()]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.touched[pages(buf)].fill(true);
        &mut self.bytes[buf.bytes()]
    }

    /// Data is zeroes on both sides already.
    fn copy(&mut self, _from: Buf, _to: Buf) {}

    fn journal_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut self.journal
    }

    fn buffer_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut self.buffer
    }

    /// Data is zeroes on both sides already.
    fn copy_to_buffer(&mut self, _shard: u16, _at_bytes: usize, _from: Buf) {}

    fn copy_from_buffer(&mut self, _shard: u16, _at_bytes: usize, _to: Buf) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeroes_however_it_was_used_before() {
        let mut memory = ZeroMemory::default();
        let first = memory.alloc(3 * PAGE_BYTES).expect("room");
        memory.bytes_mut(first).fill(7);
        memory.free(first);
        let second = memory.alloc(4 * PAGE_BYTES).expect("room");
        assert_eq!(first.start_sector, second.start_sector);
        assert!(memory.bytes(second).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn memory_ends() {
        let mut memory = ZeroMemory::default();
        let taken = std::iter::from_fn(|| memory.alloc(1 << 20)).count();
        assert_eq!(taken, ARENA_BYTES >> 20);
        assert!(memory.alloc(1 << 30).is_none(), "longer than any buffer");
    }
}
