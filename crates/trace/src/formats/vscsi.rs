//! VMware's vscsi traces (vscsiStats), as CloudPhysics collected them (Waldspurger et al., FAST
//! 2015). Little-endian records, their version in the high byte of `ver`:
//!
//! | version | record |
//! |---|---|
//! | 1, 32 bytes | serial u32, length u32, elements u32, command u16, ver u16, sector u64, time u64 |
//! | 2, 40 bytes | command u16, ver u16, serial u32, length u32, elements u32, sector u64, time u64, response time u64 |
//!
//! Lengths are bytes, times microseconds, sectors have 512 bytes.

use super::Parser;
use super::binary::{record, u16_at, u32_at, u64_at};
use super::text::Blocks;
use crate::error::{Bad, Place, TraceError};
use crate::input::Input;
use crate::request::{Kind, Request};

/// READ and WRITE of 6, 10, 12 and 16 bytes; every other command moves no cached data.
pub(crate) fn scsi_kind(command: u16) -> Option<Kind> {
    match command {
        0x08 | 0x28 | 0xA8 | 0x88 => Some(Kind::Read),
        0x0A | 0x2A | 0xAA | 0x8A => Some(Kind::Write),
        _ => None,
    }
}

#[derive(Debug)]
pub(crate) struct Vscsi {
    blocks: Blocks,
    /// Known from the first record on.
    version: Option<u8>,
}

struct Record {
    version: u8,
    command: u16,
    bytes: u32,
    sector: u64,
    micros: u64,
}

impl Vscsi {
    pub(crate) fn new(blocks: Blocks) -> Vscsi {
        Vscsi {
            blocks,
            version: None,
        }
    }

    /// The version by the first record, in whose place for the other version something else is.
    fn detect(&mut self, input: &mut Input) -> Result<u8, TraceError> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let place = input.place();
        let head = input.peek(16)?;
        let version = match head {
            [_, _, _, 2, ..] if head.len() == 16 && head[15] != 1 => 2,
            [.., 1] if head.len() == 16 => 1,
            [] => 1,
            _ => {
                let found = format!("{:02x?}", head);
                let held = head.len();
                // Nothing tells where another record may begin.
                while input.skip(held.max(1 << 16))? > 0 {}
                let expected = "a vscsi record of version 1 or 2";
                let bad = Bad::new(expected, found);
                return Err(TraceError::Malformed { place, bad });
            }
        };
        self.version = Some(version);
        Ok(version)
    }

    fn read(version: u8, input: &mut Input) -> Result<Option<(Record, Place)>, TraceError> {
        if version == 2 {
            let read = record::<40>(input)?;
            return Ok(read.map(|(bytes, place)| {
                let record = Record {
                    version: bytes[3],
                    command: u16_at(&bytes, 0),
                    bytes: u32_at(&bytes, 8),
                    sector: u64_at(&bytes, 16),
                    micros: u64_at(&bytes, 24),
                };
                (record, place)
            }));
        }
        let read = record::<32>(input)?;
        Ok(read.map(|(bytes, place)| {
            let record = Record {
                version: bytes[15],
                command: u16_at(&bytes, 12),
                bytes: u32_at(&bytes, 4),
                sector: u64_at(&bytes, 16),
                micros: u64_at(&bytes, 24),
            };
            (record, place)
        }))
    }
}

impl Parser for Vscsi {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let version = self.detect(input)?;
        while let Some((record, place)) = Vscsi::read(version, input)? {
            if record.version != version {
                let expected = format!("a vscsi record of version {version} like those before it");
                let bad = Bad::new(expected, format!("version {}", record.version));
                return Err(TraceError::Malformed { place, bad });
            }
            let Some(kind) = scsi_kind(record.command) else {
                continue;
            };
            let time = record.micros.checked_mul(1000);
            let bytes = u64::from(record.bytes);
            let request = self
                .blocks
                .at_sector(time, kind, 0, record.sector, bytes)
                .map_err(|bad| TraceError::Malformed { place, bad })?;
            if request.is_some() {
                return Ok(request);
            }
        }
        Ok(None)
    }
}
