//! Alibaba cloud block storage (Li et al., IISWC 2020; github.com/alibaba/block-traces):
//! `device_id,opcode,offset,length,timestamp`. Opcode is R or W, offset and length are bytes, the
//! timestamp microseconds.

use super::LineFormat;
use super::text::{Blocks, Volumes, commas, field};
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Alibaba {
    blocks: Blocks,
    volumes: Volumes,
}

impl Alibaba {
    pub(crate) fn new(blocks: Blocks) -> Alibaba {
        Alibaba {
            blocks,
            volumes: Volumes::default(),
        }
    }
}

impl LineFormat for Alibaba {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() || line.starts_with(b"device_id") {
            return Ok(None);
        }
        let mut fields = commas(line);
        let device = fields.next().unwrap_or_default();
        field(Some(device), "a device number")?;
        let kind = match fields.next().unwrap_or_default() {
            b"R" => Kind::Read,
            b"W" => Kind::Write,
            other => return Err(Bad::text("R or W", other)),
        };
        let offset = field(fields.next(), "an offset in bytes")?;
        let bytes = field(fields.next(), "a length in bytes")?;
        let micros = field(fields.next(), "a timestamp in microseconds")?;
        let volume = self.volumes.id(device)?;
        let time = micros.checked_mul(1000);
        self.blocks.request(time, kind, volume, offset, bytes)
    }
}
