//! Requests of a client in flight, and the server's answers: simple and structured replies, in any
//! order, cut anywhere.

use std::collections::HashMap;

use super::super::wire::{
    CHUNK_BYTES, REQUEST_BYTES, RequestHeader, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk, command,
};

/// The longest chunk that carries no data, in bytes: an error with a message.
const LONGEST_NOTE_BYTES: u32 = 8 << 10;
/// Pieces of one read that may lie apart from each other.
const MAX_PIECES: usize = 1024;
/// The error of a read whose answer left bytes out.
const EIO: u32 = 5;

/// A server's answer that the protocol forbids. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Bytes that begin no answer.
    #[error("the server's answer is not NBD")]
    NotNbd,
    /// An answer to nothing that was asked.
    #[error("the server answers a request that nobody made")]
    Unasked,
    /// Data of other places than were asked for, or of a place twice.
    #[error("the server sends data that nobody asked for")]
    WrongData,
    /// A chunk of a length that its kind does not have.
    #[error("the server sends a chunk of a wrong length")]
    WrongLength,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes that were taken are data of a read.
    Data {
        /// The request.
        cookie: u64,
        /// The place of the first one in the read, in bytes.
        at_bytes: u32,
    },
    /// A range of a read is zeroes.
    Zeroes {
        /// The request.
        cookie: u64,
        /// The place of the first one in the read, in bytes.
        at_bytes: u32,
        /// The length, in bytes.
        len_bytes: u32,
    },
    /// A request is answered.
    Done {
        /// The request.
        cookie: u64,
        /// Zero, or the protocol's number of an error.
        error: u32,
    },
}

/// A step of reading answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes that were taken.
    pub taken: usize,
    /// The part of an answer, if it is one.
    pub event: Option<Event>,
}

#[derive(Debug)]
struct Asked {
    is_read: bool,
    offset_bytes: u64,
    len_bytes: u32,
    /// Ranges that were answered, in order, joined.
    answered: Vec<(u32, u32)>,
    error: u32,
}

impl Asked {
    /// Notes a range as answered.
    fn answer(&mut self, at: u32, len: u32) -> Result<(), Violation> {
        let end = at.checked_add(len).ok_or(Violation::WrongData)?;
        let after = self.answered.partition_point(|range| range.1 <= at);
        let overlaps = self.answered.get(after).is_some_and(|range| range.0 < end);
        if !self.is_read || len == 0 || end > self.len_bytes || overlaps {
            return Err(Violation::WrongData);
        }
        match after
            .checked_sub(1)
            .and_then(|at| self.answered.get_mut(at))
        {
            Some(before) if before.1 == at => before.1 = end,
            _ => self.answered.insert(after, (at, end)),
        }
        if self.answered.len() > MAX_PIECES {
            return Err(Violation::WrongData);
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        let mut end = 0;
        let mut joined = self.answered.iter();
        let gapless = joined.all(|range| std::mem::replace(&mut end, range.1) == range.0);
        !self.is_read || (gapless && end == self.len_bytes)
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    /// Data of a read, with what is left of it.
    Data {
        cookie: u64,
        at_bytes: u32,
        left_bytes: u32,
        is_last: bool,
    },
    /// A request whose answer ended with its data.
    Ended(u64),
}

/// Requests in flight and the answers to them.
#[derive(Debug)]
pub struct Answers {
    asked: HashMap<u64, Asked>,
    next_cookie: u64,
    state: State,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            asked: HashMap::new(),
            next_cookie: 1,
            state: State::Header,
        }
    }
}

impl Answers {
    /// Makes a request: its cookie and its header. A write's data follow the header.
    pub fn ask(
        &mut self,
        command: u16,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> (u64, [u8; REQUEST_BYTES]) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let asked = Asked {
            is_read: command == command::READ,
            offset_bytes,
            len_bytes,
            answered: Vec::new(),
            error: 0,
        };
        self.asked.insert(cookie, asked);
        let header = RequestHeader {
            flags: 0,
            command,
            cookie,
            offset_bytes,
            len_bytes,
        };
        (cookie, header.encode())
    }

    /// The number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Reads a part of the server's bytes. A step without bytes and event needs more of them.
    ///
    /// # Errors
    /// If the server breaks the protocol.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Violation> {
        match self.state {
            State::Header => self.header(bytes),
            State::Data {
                cookie,
                at_bytes,
                left_bytes,
                is_last,
            } => {
                let taken = bytes.len().min(left_bytes as usize) as u32;
                if taken == 0 {
                    return Ok(Step {
                        taken: 0,
                        event: None,
                    });
                }
                self.state = match left_bytes - taken {
                    0 if is_last => State::Ended(cookie),
                    0 => State::Header,
                    left_bytes => State::Data {
                        cookie,
                        at_bytes: at_bytes + taken,
                        left_bytes,
                        is_last,
                    },
                };
                let event = Some(Event::Data { cookie, at_bytes });
                let taken = taken as usize;
                Ok(Step { taken, event })
            }
            State::Ended(cookie) => {
                self.state = State::Header;
                let event = Some(self.end(cookie)?);
                Ok(Step { taken: 0, event })
            }
        }
    }

    fn end(&mut self, cookie: u64) -> Result<Event, Violation> {
        let asked = self.asked.remove(&cookie).ok_or(Violation::Unasked)?;
        let error = match asked.error {
            0 if !asked.is_whole() => EIO,
            error => error,
        };
        Ok(Event::Done { cookie, error })
    }

    fn header(&mut self, bytes: &[u8]) -> Result<Step, Violation> {
        let more = Step {
            taken: 0,
            event: None,
        };
        let Some(magic) = bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic)) else {
            return Ok(more);
        };
        match magic {
            SIMPLE_REPLY_MAGIC => match bytes.first_chunk() {
                Some(header) => self.simple(header),
                None => Ok(more),
            },
            STRUCTURED_REPLY_MAGIC => match bytes.split_first_chunk() {
                Some((header, rest)) => Ok(self.chunk(header, rest)?.unwrap_or(more)),
                None => Ok(more),
            },
            _ => Err(Violation::NotNbd),
        }
    }

    fn simple(&mut self, header: &[u8; SIMPLE_REPLY_BYTES]) -> Result<Step, Violation> {
        let [_, _, _, _, e0, e1, e2, e3, cookie @ ..] = header;
        let error = u32::from_be_bytes([*e0, *e1, *e2, *e3]);
        let cookie = u64::from_be_bytes(*cookie);
        let asked = self.asked.get_mut(&cookie).ok_or(Violation::Unasked)?;
        let taken = SIMPLE_REPLY_BYTES;
        if error != 0 || !asked.is_read {
            asked.error = error;
            let event = Some(self.end(cookie)?);
            return Ok(Step { taken, event });
        }
        let left_bytes = asked.len_bytes;
        asked.answer(0, left_bytes)?;
        self.state = State::Data {
            cookie,
            at_bytes: 0,
            left_bytes,
            is_last: true,
        };
        Ok(Step { taken, event: None })
    }

    /// Reads a chunk, of one without data all of it; none if more bytes are needed.
    fn chunk(
        &mut self,
        header: &[u8; CHUNK_BYTES],
        rest: &[u8],
    ) -> Result<Option<Step>, Violation> {
        let [
            _,
            _,
            _,
            _,
            f0,
            f1,
            k0,
            k1,
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
            l @ ..,
        ] = header;
        let is_last = u16::from_be_bytes([*f0, *f1]) & chunk::FLAG_DONE != 0;
        let kind = u16::from_be_bytes([*k0, *k1]);
        let cookie = u64::from_be_bytes([*c0, *c1, *c2, *c3, *c4, *c5, *c6, *c7]);
        let len_bytes = u32::from_be_bytes(*l);
        let asked = self.asked.get_mut(&cookie).ok_or(Violation::Unasked)?;
        let place = |asked: &Asked, offset: &[u8; 8]| {
            let at = u64::from_be_bytes(*offset).checked_sub(asked.offset_bytes);
            at.and_then(|at| u32::try_from(at).ok())
                .ok_or(Violation::WrongData)
        };
        if kind == chunk::OFFSET_DATA {
            let left_bytes = len_bytes.checked_sub(8).ok_or(Violation::WrongLength)?;
            let Some(offset) = rest.first_chunk() else {
                return Ok(None);
            };
            let at_bytes = place(asked, offset)?;
            asked.answer(at_bytes, left_bytes)?;
            self.state = State::Data {
                cookie,
                at_bytes,
                left_bytes,
                is_last,
            };
            let taken = CHUNK_BYTES + 8;
            return Ok(Some(Step { taken, event: None }));
        }
        if len_bytes > LONGEST_NOTE_BYTES {
            return Err(Violation::WrongLength);
        }
        let Some(data) = rest.get(..len_bytes as usize) else {
            return Ok(None);
        };
        let taken = CHUNK_BYTES + data.len();
        let mut event = None;
        match kind {
            chunk::NONE if data.is_empty() && is_last => {}
            chunk::OFFSET_HOLE => {
                let (offset, len) = data.split_first_chunk().ok_or(Violation::WrongLength)?;
                let len = len.try_into().map_err(|_| Violation::WrongLength)?;
                let (at_bytes, len_bytes) = (place(asked, offset)?, u32::from_be_bytes(len));
                asked.answer(at_bytes, len_bytes)?;
                event = Some(Event::Zeroes {
                    cookie,
                    at_bytes,
                    len_bytes,
                });
            }
            // Every other chunk with this bit is an error, whatever its details (§ Structured
            // reply types).
            kind if kind & chunk::ERROR_BIT != 0 => {
                let error = data.first_chunk().ok_or(Violation::WrongLength)?;
                asked.error = match u32::from_be_bytes(*error) {
                    0 => EIO,
                    error => error,
                };
            }
            _ => return Err(Violation::NotNbd),
        }
        if is_last {
            match event {
                Some(_) => self.state = State::Ended(cookie),
                None => event = Some(self.end(cookie)?),
            }
        }
        Ok(Some(Step { taken, event }))
    }
}
