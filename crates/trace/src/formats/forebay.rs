//! Recordings of a running volume, by `forebay trace record`. Little-endian, everything 24 bytes:
//!
//! | what | bytes |
//! |---|---|
//! | header, once | magic `FOREBAYT`, version u32 (1), zero u32, size of the volume in bytes u64 |
//! | request | time in ns since the recording began u64, offset in bytes u64, length in bytes u32, kind u8 (0 read, 1 write, 2 write-zeroes, 3 discard, 4 flush), zero u8 ×3 |
//! | end, once, last | time in ns u64, requests dropped u64, zero u32, kind u8 (255), zero u8 ×3 |
//!
//! The length of a flush means nothing. Requests were dropped if they came faster than they could
//! be written; a recording without its end was cut off.

use super::Parser;
use super::binary::{record, u32_at, u64_at};
use super::text::Blocks;
use crate::error::{Bad, Place, TraceError};
use crate::input::Input;
use crate::request::{Kind, Request};

const MAGIC: [u8; 8] = *b"FOREBAYT";
const VERSION: u32 = 1;
const END: u8 = 255;
const KINDS: [Kind; 5] = [
    Kind::Read,
    Kind::Write,
    Kind::WriteZeroes,
    Kind::Discard,
    Kind::Flush,
];

/// The length of header, request and end, in bytes.
pub const RECORD_BYTES: usize = 24;

/// A request as a recording holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The kind of request.
    pub kind: Kind,
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    /// Its length, in bytes.
    pub len_bytes: u32,
}

impl Recorded {
    /// The first record of a recording of a volume of this size.
    #[must_use]
    pub fn header(volume_bytes: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..].copy_from_slice(&volume_bytes.to_le_bytes());
        bytes
    }

    /// The request's record.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        encode(
            self.time_ns,
            self.offset_bytes,
            self.len_bytes,
            kind.unwrap_or(0) as u8,
        )
    }

    /// The last record: when the recording ended, and how many requests are missing in it.
    #[must_use]
    pub fn end(time_ns: u64, dropped: u64) -> [u8; RECORD_BYTES] {
        encode(time_ns, dropped, 0, END)
    }

    /// The number of requests missing, if this is the last record.
    #[must_use]
    pub fn dropped(record: &[u8; RECORD_BYTES]) -> Option<u64> {
        (record[20] == END).then(|| u64_at(record, 8))
    }
}

fn encode(time_ns: u64, second: u64, len_bytes: u32, kind: u8) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&time_ns.to_le_bytes());
    bytes[8..16].copy_from_slice(&second.to_le_bytes());
    bytes[16..20].copy_from_slice(&len_bytes.to_le_bytes());
    bytes[20] = kind;
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    Header,
    Requests,
    End,
}

#[derive(Debug)]
pub(crate) struct Forebay {
    blocks: Blocks,
    at: At,
    dropped: u64,
}

impl Forebay {
    pub(crate) fn new(blocks: Blocks) -> Forebay {
        Forebay {
            blocks,
            at: At::Header,
            dropped: 0,
        }
    }

    fn header(&mut self, record: &[u8; RECORD_BYTES]) -> Result<(), Bad> {
        self.at = At::Requests;
        if record[..8] != MAGIC {
            return Err(Bad::text(
                "a recording of Forebay's, the format unless another is given",
                &record[..8],
            ));
        }
        match u32_at(record, 8) {
            VERSION => Ok(()),
            version => Err(Bad::new(
                format!("a recording of version {VERSION}"),
                format!("version {version}"),
            )),
        }
    }

    fn request(&mut self, record: &[u8; RECORD_BYTES]) -> Result<Option<Request>, Bad> {
        if self.at == At::End {
            return Err(Bad::new("nothing behind the end", "another record"));
        }
        if let Some(dropped) = Recorded::dropped(record) {
            (self.at, self.dropped) = (At::End, dropped);
            return Ok(None);
        }
        let Some(&kind) = KINDS.get(usize::from(record[20])) else {
            return Err(Bad::new("a kind of request", record[20].to_string()));
        };
        let time_ns = Some(u64_at(record, 0));
        let (offset, bytes) = (u64_at(record, 8), u64::from(u32_at(record, 16)));
        match kind {
            Kind::Flush => Ok(Some(Request::flush(time_ns, 0))),
            _ => self.blocks.request(time_ns, kind, 0, offset, bytes),
        }
    }
}

impl Parser for Forebay {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let malformed = |place: Place, bad| TraceError::Malformed { place, bad };
        while let Some((record, place)) = record::<RECORD_BYTES>(input)? {
            if self.at == At::Header {
                self.header(&record).map_err(|bad| malformed(place, bad))?;
                continue;
            }
            let request = self.request(&record).map_err(|bad| malformed(place, bad))?;
            if request.is_some() {
                return Ok(request);
            }
        }
        if self.at == At::End {
            return Ok(None);
        }
        self.at = At::End;
        let bad = Bad::new("the end of the recording", "a recording that was cut off");
        Err(malformed(input.place(), bad))
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
