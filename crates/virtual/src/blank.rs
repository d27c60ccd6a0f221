//! A cache device for creation and the first attach: keeps its superblock, reads as zeroes
//! beyond.

use forebay_engine::{DeviceError, Storage};

/// Where the segments begin; the superblock copies lie before it.
const HEAD_BYTES: usize = 1 << 20;

/// A cache device that keeps only its superblock: nobody looks at its other contents.
#[derive(Debug)]
pub struct Blank {
    size_bytes: u64,
    head: Vec<u8>,
}

impl Blank {
    /// A device of this size.
    #[must_use]
    pub fn new(size_bytes: u64) -> Blank {
        Blank {
            size_bytes,
            head: vec![0; HEAD_BYTES],
        }
    }
}

impl Storage for Blank {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let start = offset_bytes as usize;
        match self.head.get(start..start + into.len()) {
            Some(kept) => into.copy_from_slice(kept),
            None => into.fill(0),
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let start = offset_bytes as usize;
        if let Some(kept) = self.head.get_mut(start..start + from.len()) {
            kept.copy_from_slice(from);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}
