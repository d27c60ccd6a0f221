//! fio's I/O logs, versions 2 and 3 (fio's documentation, "Trace file format"). A first line
//! `fio version 2 iolog`, then `FILE ACTION` (add, open, close) or `FILE ACTION OFFSET LENGTH`
//! (read, write, trim, sync, datasync, wait); version 3 has a timestamp before each,
//! in microseconds (measured on logs of fio 3.33).
//! In version 2 time passes by waits alone, in microseconds.

use super::LineFormat;
use super::text::{Blocks, Volumes, field, words};
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Fio {
    blocks: Blocks,
    volumes: Volumes,
    version: Option<u8>,
    waited_ns: u64,
}

impl Fio {
    pub(crate) fn new(blocks: Blocks) -> Fio {
        Fio {
            blocks,
            volumes: Volumes::default(),
            version: None,
            waited_ns: 0,
        }
    }

    fn time(&mut self, timestamp: Option<&[u8]>) -> Result<Option<u64>, Bad> {
        if self.version == Some(2) {
            return Ok((self.waited_ns > 0).then_some(self.waited_ns));
        }
        let micros = field(timestamp, "a timestamp in microseconds")?;
        Ok(micros.checked_mul(1000))
    }
}

impl LineFormat for Fio {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() {
            return Ok(None);
        }
        if self.version.is_none() {
            self.version = match line.trim_ascii_end() {
                b"fio version 2 iolog" => Some(2),
                b"fio version 3 iolog" => Some(3),
                other => {
                    let expected = "`fio version 2 iolog` or `fio version 3 iolog`";
                    return Err(Bad::text(expected, other));
                }
            };
            return Ok(None);
        }
        let mut words = words(line);
        let timestamp = if self.version == Some(3) {
            words.next()
        } else {
            None
        };
        let time = self.time(timestamp)?;
        let Some(file) = words.next() else {
            return Err(Bad::new("a file name", "the end of the line"));
        };
        let kind = match words.next().unwrap_or_default() {
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            b"wait" if self.version == Some(2) => {
                let micros = field(words.next(), "a wait in microseconds")?;
                self.waited_ns = self.waited_ns.saturating_add(micros.saturating_mul(1000));
                return Ok(None);
            }
            b"trim" => Kind::Discard,
            b"sync" | b"datasync" => {
                return Ok(Some(Request::flush(time, self.volumes.id(file)?)));
            }
            b"add" | b"open" | b"close" | b"wait" => return Ok(None),
            other => {
                let expected = "read, write, trim, sync, datasync, wait, add, open or close";
                return Err(Bad::text(expected, other));
            }
        };
        let offset = field(words.next(), "an offset in bytes")?;
        let bytes = field(words.next(), "a length in bytes")?;
        let volume = self.volumes.id(file)?;
        self.blocks.request(time, kind, volume, offset, bytes)
    }
}
