//! CloudPhysics traces as CSV, as libCacheSim's samples have them: a header line, then
//! `version,time,op,size,lbn`. Seconds, a SCSI operation code in hexadecimal, bytes, and the
//! address of a sector of 512 bytes.

use super::LineFormat;
use super::text::{Blocks, commas, field, seconds};
use super::vscsi::scsi_kind;
use crate::error::Bad;
use crate::request::Request;

#[derive(Debug)]
pub(crate) struct CloudPhysics {
    blocks: Blocks,
}

impl CloudPhysics {
    pub(crate) fn new(blocks: Blocks) -> CloudPhysics {
        CloudPhysics { blocks }
    }
}

impl LineFormat for CloudPhysics {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() || line.starts_with(b"version") {
            return Ok(None);
        }
        let mut fields = commas(line);
        field(fields.next(), "a version number")?;
        let time = fields.next().unwrap_or_default();
        let time = seconds(time).ok_or_else(|| Bad::text("a time in seconds", time))?;
        let code = fields.next().unwrap_or_default();
        let code = std::str::from_utf8(code)
            .ok()
            .and_then(|code| u16::from_str_radix(code, 16).ok())
            .ok_or_else(|| Bad::text("a SCSI operation code in hexadecimal", code))?;
        let bytes = field(fields.next(), "a size in bytes")?;
        let sector = field(fields.next(), "the address of a sector")?;
        match scsi_kind(code) {
            Some(kind) => self.blocks.at_sector(Some(time), kind, 0, sector, bytes),
            None => Ok(None),
        }
    }
}
