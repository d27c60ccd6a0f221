//! Tencent cloud block storage (Zhang et al., USENIX ATC 2020; SNIA IOTTA):
//! `Timestamp,Offset,Size,IOType,VolumeID`. Seconds; offset and size in sectors of 512 bytes;
//! 0 reads, 1 writes.

use super::LineFormat;
use super::text::{Blocks, Volumes, commas, field};
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Tencent {
    blocks: Blocks,
    volumes: Volumes,
}

impl Tencent {
    pub(crate) fn new(blocks: Blocks) -> Tencent {
        Tencent {
            blocks,
            volumes: Volumes::default(),
        }
    }
}

impl LineFormat for Tencent {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() || line.starts_with(b"Timestamp") {
            return Ok(None);
        }
        let mut fields = commas(line);
        let seconds = field(fields.next(), "a timestamp in seconds")?;
        let sector = field(fields.next(), "an offset in sectors")?;
        let sectors = field(fields.next(), "a size in sectors")?;
        let kind = match fields.next().unwrap_or_default() {
            b"0" => Kind::Read,
            b"1" => Kind::Write,
            other => return Err(Bad::text("0 (read) or 1 (write)", other)),
        };
        let volume = fields.next().unwrap_or_default();
        field(Some(volume), "a volume number")?;
        let volume = self.volumes.id(volume)?;
        let time = seconds.checked_mul(1_000_000_000);
        let bytes = sectors.saturating_mul(512);
        self.blocks.at_sector(time, kind, volume, sector, bytes)
    }
}
