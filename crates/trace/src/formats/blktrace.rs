//! Output of blktrace (linux/blktrace_api.h, version 7): records of 48 bytes, each followed by
//! `pdu_len` bytes, in the byte order of the machine that traced: magic u32 (0x65617400 and the
//! version), sequence u32, nanoseconds u64, sector u64, bytes u32, action u32, process u32, device
//! u32, CPU u32, error u16, pdu_len u16.
//!
//! A request counts when it is queued, before it is merged or split. A file holds the requests of
//! one CPU; `blkparse -d` merges several into one of this format.

use super::Parser;
use super::binary::{bytes, record};
use super::text::Blocks;
use crate::error::{Bad, TraceError};
use crate::input::Input;
use crate::request::{Kind, Request};

const MAGIC: u32 = 0x6561_7400 | 7;
/// `__BLK_TA_QUEUE`, in the low half of the action.
const QUEUE: u32 = 1;
/// Categories, in the high half.
const WRITE: u32 = 1 << 17;
const READ: u32 = 1 << 16;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

#[derive(Debug)]
pub(crate) struct Blktrace {
    blocks: Blocks,
    /// Known from the first magic on.
    big_endian: Option<bool>,
}

impl Blktrace {
    pub(crate) fn new(blocks: Blocks) -> Blktrace {
        Blktrace {
            blocks,
            big_endian: None,
        }
    }

    /// Makes sure that a record begins here; otherwise moves on to where one may.
    fn check_magic(&mut self, input: &mut Input) -> Result<(), TraceError> {
        let place = input.place();
        let Ok(head) = <[u8; 4]>::try_from(input.peek(4)?) else {
            // The end, or what `record` calls truncated.
            return Ok(());
        };
        let little = head == MAGIC.to_le_bytes();
        let big = head == MAGIC.to_be_bytes();
        let known = match self.big_endian {
            Some(true) => big,
            Some(false) => little,
            None => little || big,
        };
        if known {
            self.big_endian = Some(big);
            return Ok(());
        }
        input.skip(1)?;
        let next = match self.big_endian {
            Some(true) => MAGIC.to_be_bytes(),
            _ => MAGIC.to_le_bytes(),
        };
        input.skip_to(&next)?;
        let expected = "a blktrace record of version 7 (07 74 61 65)";
        let bad = Bad::new(expected, format!("{head:02x?}"));
        Err(TraceError::Malformed { place, bad })
    }

    fn u32_at(&self, record: &[u8], at: usize) -> u32 {
        if self.big_endian == Some(true) {
            u32::from_be_bytes(bytes(record, at))
        } else {
            u32::from_le_bytes(bytes(record, at))
        }
    }

    fn u64_at(&self, record: &[u8], at: usize) -> u64 {
        if self.big_endian == Some(true) {
            u64::from_be_bytes(bytes(record, at))
        } else {
            u64::from_le_bytes(bytes(record, at))
        }
    }
}

impl Parser for Blktrace {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        loop {
            self.check_magic(input)?;
            let Some((record, place)) = record::<48>(input)? else {
                return Ok(None);
            };
            // Together they are one word, which says the order of its halves.
            let tail = self.u32_at(&record, 44);
            let length = if self.big_endian == Some(true) {
                tail & 0xFFFF
            } else {
                tail >> 16
            } as usize;
            let there = input.skip(length)?;
            if there < length {
                let expected = format!("{length} bytes that belong to the record");
                let bad = Bad::new(expected, format!("{there} bytes"));
                return Err(TraceError::Malformed { place, bad });
            }
            let action = self.u32_at(&record, 28);
            let kind = match action {
                _ if action & 0xFFFF != QUEUE || action & (DISCARD | NOTIFY) != 0 => continue,
                _ if action & WRITE != 0 => Kind::Write,
                _ if action & READ != 0 => Kind::Read,
                _ => continue,
            };
            let time = Some(self.u64_at(&record, 8));
            let sector = self.u64_at(&record, 16);
            let length = u64::from(self.u32_at(&record, 24));
            let device = self.u32_at(&record, 36);
            let request = self
                .blocks
                .at_sector(time, kind, device, sector, length)
                .map_err(|bad| TraceError::Malformed { place, bad })?;
            if request.is_some() {
                return Ok(request);
            }
        }
    }
}
