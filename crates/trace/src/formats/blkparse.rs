//! The text that blkparse prints by default (blktrace(8), blkparse(1)):
//! `8,0  3  1  0.000000000  697  Q  W 223490 + 8 [kjournald]`: device, CPU, sequence, seconds,
//! process, action, what it does, sector, `+`, sectors.
//!
//! A request counts when it is queued (action Q), before it is merged or split. The summary at the
//! end of the output is not part of the trace.

use super::LineFormat;
use super::text::{Blocks, Volumes, field, seconds, words};
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Blkparse {
    blocks: Blocks,
    volumes: Volumes,
    summary: bool,
}

impl Blkparse {
    pub(crate) fn new(blocks: Blocks) -> Blkparse {
        Blkparse {
            blocks,
            volumes: Volumes::default(),
            summary: false,
        }
    }
}

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        self.summary |= line.starts_with(b"CPU") || line.starts_with(b"Total (");
        let mut words = words(line);
        let Some(device) = words.next().filter(|_| !self.summary) else {
            return Ok(None);
        };
        let mut numbers = device.splitn(2, |&byte| byte == b',');
        for _ in 0..2 {
            if super::text::number(numbers.next().unwrap_or_default()).is_none() {
                return Err(Bad::text("a device such as 8,0", device));
            }
        }
        field(words.next(), "a CPU number")?;
        field(words.next(), "a sequence number")?;
        let time = words.next().unwrap_or_default();
        let time = seconds(time).ok_or_else(|| Bad::text("a time in seconds", time))?;
        field(words.next(), "a process number")?;
        let action = words
            .next()
            .ok_or_else(|| Bad::new("an action", "the end of the line"))?;
        if action != b"Q" {
            return Ok(None);
        }
        let does = words
            .next()
            .ok_or_else(|| Bad::new("what the request does (RWBS)", "the end of the line"))?;
        // Discards are no data; a write with data may also be a flush (F).
        let kind = match does {
            _ if does.contains(&b'D') => return Ok(None),
            _ if does.contains(&b'R') => Kind::Read,
            _ if does.contains(&b'W') => Kind::Write,
            _ => return Ok(None),
        };
        let sector = words.next();
        if does.contains(&b'F') && sector.is_none_or(|word| word.starts_with(b"[")) {
            return Ok(None);
        }
        let sector = field(sector, "a sector")?;
        match words.next() {
            Some(b"+") => {}
            other => return Err(Bad::text("`+`", other.unwrap_or_default())),
        }
        let sectors = field(words.next(), "a number of sectors")?;
        let volume = self.volumes.id(device)?;
        let bytes = sectors.saturating_mul(512);
        self.blocks
            .at_sector(Some(time), kind, volume, sector, bytes)
    }
}
