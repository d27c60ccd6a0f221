//! MSR Cambridge (Narayanan, Donnelly, Rowstron, FAST 2008; SNIA IOTTA):
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. The timestamp is a Windows
//! FILETIME, in units of 100 ns; offset and size are bytes.

use super::LineFormat;
use super::text::{Blocks, Volumes, commas, field};
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Msr {
    blocks: Blocks,
    volumes: Volumes,
    /// FILETIME counts from 1601: in nanoseconds it has no room in 64 bits.
    epoch: Option<u64>,
}

impl Msr {
    pub(crate) fn new(blocks: Blocks) -> Msr {
        Msr {
            blocks,
            volumes: Volumes::default(),
            epoch: None,
        }
    }
}

impl LineFormat for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() || line.starts_with(b"Timestamp") {
            return Ok(None);
        }
        let mut fields = commas(line);
        let ticks = field(fields.next(), "a timestamp in 100 ns")?;
        let host = fields.next().unwrap_or_default();
        let disk = field(fields.next(), "a disk number")?;
        let kind = match fields.next().unwrap_or_default() {
            b"Read" => Kind::Read,
            b"Write" => Kind::Write,
            other => return Err(Bad::text("Read or Write", other)),
        };
        let offset = field(fields.next(), "an offset in bytes")?;
        let bytes = field(fields.next(), "a size in bytes")?;
        let volume = self
            .volumes
            .id(&[host, b",", disk.to_string().as_bytes()].concat())?;
        let since = ticks.saturating_sub(*self.epoch.get_or_insert(ticks));
        let time = Some(since.saturating_mul(100));
        self.blocks.request(time, kind, volume, offset, bytes)
    }
}
