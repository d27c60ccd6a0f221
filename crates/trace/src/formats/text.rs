//! Common parts of text formats: fields, numbers, times, names of volumes.

use std::collections::HashMap;

use crate::error::Bad;
use crate::request::{Kind, Request};

/// Nobody's trace has more; without a bound malformed names could fill the memory.
const MOST_VOLUMES: usize = 1 << 20;
/// No request with data is nearly as long; a longer request would be counted block by block.
const LONGEST_REQUEST: u64 = 1 << 30;
/// No request without data is nearly as long.
const LONGEST_RANGE: u64 = 1 << 40;

/// Turns bytes into whole cache blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    size: u64,
}

impl Blocks {
    pub(crate) fn new(size: u64) -> Blocks {
        Blocks { size }
    }

    /// The request for a span of bytes; none if it is empty.
    pub(crate) fn request(
        self,
        time_ns: Option<u64>,
        kind: Kind,
        volume: u32,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<Request>, Bad> {
        if bytes == 0 {
            return Ok(None);
        }
        let (longest, expected) = match kind.moves_data() {
            true => (LONGEST_REQUEST, "a request of at most 1 GiB"),
            false => (LONGEST_RANGE, "a range of at most 1 TiB"),
        };
        if bytes > longest {
            return Err(Bad::new(expected, format!("{bytes} bytes")));
        }
        let Some(last) = offset.checked_add(bytes - 1) else {
            let found = format!("{bytes} bytes at {offset}");
            return Err(Bad::new("an end below 2^64 bytes", found));
        };
        let first_block = offset / self.size;
        Ok(Some(Request {
            time_ns,
            kind,
            volume,
            first_block,
            blocks: (last / self.size - first_block + 1) as u32,
        }))
    }

    /// A request for a span that begins at a sector of 512 bytes.
    pub(crate) fn at_sector(
        self,
        time_ns: Option<u64>,
        kind: Kind,
        volume: u32,
        sector: u64,
        bytes: u64,
    ) -> Result<Option<Request>, Bad> {
        match sector.checked_mul(512) {
            Some(offset) => self.request(time_ns, kind, volume, offset, bytes),
            None => Err(Bad::new("a sector below 2^55", sector.to_string())),
        }
    }
}

/// Numbers for the names of volumes, in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    ids: HashMap<Box<[u8]>, u32>,
}

impl Volumes {
    pub(crate) fn id(&mut self, name: &[u8]) -> Result<u32, Bad> {
        if let Some(&id) = self.ids.get(name) {
            return Ok(id);
        }
        if self.ids.len() == MOST_VOLUMES {
            return Err(Bad::text("at most 1,048,576 volumes", name));
        }
        let id = self.ids.len() as u32;
        self.ids.insert(name.into(), id);
        Ok(id)
    }
}

/// A decimal number and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &digit in text {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}

/// A decimal number; `what` it is, for the error.
pub(crate) fn field(text: Option<&[u8]>, what: &str) -> Result<u64, Bad> {
    let Some(text) = text.map(<[u8]>::trim_ascii) else {
        return Err(Bad::new(what, "the end of the line"));
    };
    number(text).ok_or_else(|| Bad::text(what, text))
}

/// Seconds such as `12`, `0.081` or `1277891.000000001`, in nanoseconds.
pub(crate) fn seconds(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let mut nanos = 0;
    for place in 0..9 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        nanos = nanos * 10 + u64::from(digit - b'0');
    }
    if fraction.iter().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    number(whole)?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

/// The parts between commas.
pub(crate) fn commas(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',')
}

/// The words between spaces.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}
