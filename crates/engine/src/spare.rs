//! Buffers kept for operations that free others. Requests hold memory while they wait for room in
//! the log. Room comes from headers, summaries, retained copies and write-back, so none of these
//! may wait for memory for ever.

use crate::interface::{Buf, Memory};

/// A buffer that is lent when there is no other.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    whole: Option<Buf>,
    lent: bool,
}

impl Spare {
    pub(crate) fn new(len_bytes: usize, memory: &mut dyn Memory) -> Spare {
        Spare {
            whole: memory.alloc(len_bytes),
            lent: false,
        }
    }

    /// A buffer of `len_bytes` from the memory, or this one.
    pub(crate) fn alloc(&mut self, len_bytes: usize, memory: &mut dyn Memory) -> Option<Buf> {
        if let Some(buf) = memory.alloc(len_bytes) {
            return Some(buf);
        }
        let whole = self.whole.filter(|_| !self.lent)?;
        if len_bytes > whole.len_bytes as usize {
            return None;
        }
        self.lent = true;
        Some(whole.slice(0, len_bytes))
    }

    /// A buffer for as many of these blocks as there is memory for: all, a half, a quarter, at
    /// least one.
    pub(crate) fn alloc_most(
        &mut self,
        mut blocks: usize,
        block_bytes: usize,
        memory: &mut dyn Memory,
    ) -> Option<Buf> {
        loop {
            let buf = self.alloc(blocks * block_bytes, memory);
            if buf.is_some() || blocks <= 1 {
                return buf;
            }
            blocks /= 2;
        }
    }

    /// Gives back a buffer of `alloc`.
    pub(crate) fn free(&mut self, buf: Buf, memory: &mut dyn Memory) {
        match self.whole {
            Some(whole) if whole.start_sector == buf.start_sector => self.lent = false,
            _ => memory.free(buf),
        }
    }
}
