//! Places of an export that tell it from another one, when its server returns. A place that was
//! changed since says nothing any more.

use forebay_engine::{DeviceError, Storage};
use ring::digest::{SHA256, digest};

use crate::device::fingerprint;

#[derive(Debug)]
struct Sample {
    offset_bytes: u64,
    len_bytes: u64,
    /// None since it was changed.
    digest: Option<[u8; 32]>,
}

/// The places that are compared.
#[derive(Debug)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    /// Looks at an export whose unit of transfers is `block_bytes`.
    pub(super) fn take(export: &mut dyn Storage, block_bytes: u32) -> Result<Samples, DeviceError> {
        let unit = u64::from(block_bytes);
        let mut samples = Vec::new();
        for (offset_bytes, len_bytes) in fingerprint::places(export.size_bytes()) {
            let offset_bytes = offset_bytes / unit * unit;
            let len_bytes = len_bytes / unit * unit;
            if len_bytes == 0 {
                continue;
            }
            samples.push(Sample {
                offset_bytes,
                len_bytes,
                digest: Some(look(export, offset_bytes, len_bytes)?),
            });
        }
        Ok(Samples(samples))
    }

    /// Notes a change of a range.
    pub(super) fn changed(&mut self, offset_bytes: u64, len_bytes: u64) {
        let end = offset_bytes + len_bytes;
        for sample in &mut self.0 {
            if sample.offset_bytes < end && offset_bytes < sample.offset_bytes + sample.len_bytes {
                sample.digest = None;
            }
        }
    }

    /// Whether the unchanged places of an export are as they were.
    pub(super) fn fit(&self, export: &mut dyn Storage) -> Result<bool, DeviceError> {
        for sample in &self.0 {
            let Some(known) = sample.digest else { continue };
            if look(export, sample.offset_bytes, sample.len_bytes)? != known {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn look(
    export: &mut dyn Storage,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<[u8; 32], DeviceError> {
    let mut bytes = vec![0; len_bytes as usize];
    export.read(offset_bytes, &mut bytes)?;
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, &bytes).as_ref());
    Ok(sum)
}
