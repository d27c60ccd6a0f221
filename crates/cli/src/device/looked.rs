//! Reading a device beside whoever uses it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use forebay_engine::{DeviceError, Storage};

/// A device that is looked at beside whoever uses it, without a claim.
pub(crate) struct Looked(File);

impl Looked {
    pub(crate) fn open(path: &Path) -> Result<Looked> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Looked(file))
    }
}

impl Storage for Looked {
    fn size_bytes(&self) -> u64 {
        // The end of a block device is not in its metadata; a read beyond it fails.
        u64::MAX
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let read = self.0.read_exact_at(into, offset_bytes);
        read.map_err(|_| DeviceError::Io)
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}
