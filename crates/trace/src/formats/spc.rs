//! SPC trace file format, revision 1.0.1 (Storage Performance Council 2002), as the UMass
//! repository has it: `ASU,LBA,Size,Opcode,Timestamp` and optional fields. The LBA counts blocks of
//! 512 bytes within the application specific unit, size is bytes, the opcode R or W in either
//! case, the timestamp seconds with a fraction.

use super::LineFormat;
use super::text::{Blocks, Volumes, commas, field, seconds};
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Spc {
    blocks: Blocks,
    volumes: Volumes,
}

impl Spc {
    pub(crate) fn new(blocks: Blocks) -> Spc {
        Spc {
            blocks,
            volumes: Volumes::default(),
        }
    }
}

impl LineFormat for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() {
            return Ok(None);
        }
        let mut fields = commas(line);
        let unit = fields.next().unwrap_or_default().trim_ascii();
        field(Some(unit), "an application specific unit")?;
        let sector = field(fields.next(), "a logical block address")?;
        let bytes = field(fields.next(), "a size in bytes")?;
        let kind = match fields.next().unwrap_or_default().trim_ascii() {
            b"r" | b"R" => Kind::Read,
            b"w" | b"W" => Kind::Write,
            other => return Err(Bad::text("R or W", other)),
        };
        let time = fields.next().unwrap_or_default();
        let time = seconds(time).ok_or_else(|| Bad::text("a timestamp in seconds", time))?;
        let volume = self.volumes.id(unit)?;
        self.blocks
            .at_sector(Some(time), kind, volume, sector, bytes)
    }
}
