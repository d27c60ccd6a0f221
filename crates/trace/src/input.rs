//! Bytes, lines and records of a trace, decompressed, in bounded memory.

use std::io::{self, BufReader, Read};

use crate::error::{Bad, Place, TraceError};
use crate::zstd::ZstdFrames;

/// No line of any format is nearly as long.
const LONGEST_LINE: usize = 64 << 10;
const BUFFER: usize = 256 << 10;

/// A stream of bytes that knows where it is.
pub(crate) struct Input<'a> {
    source: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    /// Start of the part of the buffer that is not yet consumed.
    from: usize,
    to: usize,
    offset: u64,
    lines: u64,
    ended: bool,
}

impl std::fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("offset", &self.offset)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}

impl<'a> Input<'a> {
    /// Recognizes gzip and zstd by their first bytes, whatever the file is called.
    pub(crate) fn open(source: impl Read + 'a) -> io::Result<Input<'a>> {
        let mut source = BufReader::with_capacity(BUFFER, source);
        // A pipe may give one byte at a time.
        let mut head = Vec::new();
        source.by_ref().take(4).read_to_end(&mut head)?;
        let whole = io::Cursor::new(head.clone()).chain(source);
        let source: Box<dyn Read + 'a> = match head[..] {
            [0x1F, 0x8B, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
            // A frame, or a skippable one that tools put before it.
            [0x28, 0xB5, 0x2F, 0xFD] | [0x50..=0x5F, 0x2A, 0x4D, 0x18] => {
                Box::new(ZstdFrames::new(whole))
            }
            _ => Box::new(whole),
        };
        Ok(Input {
            source,
            buffer: vec![0; BUFFER],
            from: 0,
            to: 0,
            offset: 0,
            lines: 0,
            ended: false,
        })
    }

    /// The next bytes' offset after decompression.
    pub(crate) fn place(&self) -> Place {
        Place::Byte(self.offset)
    }

    /// The number of the line that was read last.
    pub(crate) fn line_place(&self) -> Place {
        Place::Line(self.lines)
    }

    /// Reads on; `false` at the end.
    fn fill(&mut self) -> Result<bool, TraceError> {
        if self.ended {
            return Ok(false);
        }
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        loop {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(bytes) => {
                    self.to += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// A compressed file that breaks off is a malformed trace: nothing can follow.
    fn broken(&mut self, error: io::Error) -> TraceError {
        self.ended = true;
        let damaged = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        ) || error.raw_os_error().is_none();
        if !damaged {
            return error.into();
        }
        TraceError::Malformed {
            place: Place::Byte(self.offset + (self.to - self.from) as u64),
            bad: Bad::new("more compressed data", format!("damage ({error})")),
        }
    }

    /// The next line without its end, or `None` at the end of the trace.
    pub(crate) fn line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        let mut searched = 0;
        let (length, end) = loop {
            let held = &self.buffer[self.from..self.to];
            if let Some(at) = memchr::memchr(b'\n', &held[searched..]) {
                break (searched + at, 1);
            }
            searched = held.len();
            if searched > LONGEST_LINE {
                return Err(self.overlong());
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) if searched == 0 => return Ok(None),
                Ok(false) => break (searched, 0),
                Err(error) => return Err(error),
            }
        };
        let start = self.from;
        self.from += length + end;
        self.offset += (length + end) as u64;
        self.lines += 1;
        let line = &self.buffer[start..start + length];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Drops the rest of a line that no buffer should hold.
    fn overlong(&mut self) -> TraceError {
        self.lines += 1;
        let place = self.line_place();
        loop {
            let held = &self.buffer[self.from..self.to];
            let at = memchr::memchr(b'\n', held);
            let drop = at.map_or(held.len(), |at| at + 1);
            self.from += drop;
            self.offset += drop as u64;
            if at.is_some() {
                break;
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return error,
            }
        }
        TraceError::Malformed {
            place,
            bad: Bad::new("a line of at most 64 KiB", "a longer one"),
        }
    }

    /// The next `bytes` without consuming them; fewer only at the end of the trace.
    pub(crate) fn peek(&mut self, bytes: usize) -> Result<&[u8], TraceError> {
        while self.to - self.from < bytes && self.fill()? {}
        let held = &self.buffer[self.from..self.to];
        Ok(&held[..held.len().min(bytes)])
    }

    /// Consumes bytes; fewer only at the end of the trace. Says how many.
    pub(crate) fn skip(&mut self, bytes: usize) -> Result<usize, TraceError> {
        let mut left = bytes;
        loop {
            let now = left.min(self.to - self.from);
            self.from += now;
            self.offset += now as u64;
            left -= now;
            if left == 0 || !self.fill()? {
                return Ok(bytes - left);
            }
        }
    }

    /// Consumes up to `bytes` until they start with `pattern`.
    pub(crate) fn skip_to(&mut self, pattern: &[u8]) -> Result<(), TraceError> {
        loop {
            let held = self.peek(BUFFER / 2)?;
            if held.len() < pattern.len() {
                let rest = held.len();
                self.skip(rest)?;
                return Ok(());
            }
            match memchr::memmem::find(held, pattern) {
                Some(at) => {
                    self.skip(at)?;
                    return Ok(());
                }
                None => {
                    let drop = held.len() - pattern.len() + 1;
                    self.skip(drop)?;
                }
            }
        }
    }
}
