//! Requests of a client in flight, and the server's answers: simple replies, in any order, cut
//! anywhere.

use std::collections::HashMap;

use super::super::wire::{
    REQUEST_BYTES, RequestHeader, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, command,
};

/// A server's answer that the protocol forbids. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Bytes that begin no answer.
    #[error("the server's answer is not NBD")]
    NotNbd,
    /// An answer to nothing that was asked.
    #[error("the server answers a request that nobody made")]
    Unasked,
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

/// A step that needs more bytes.
const MORE: Step = Step {
    taken: 0,
    event: None,
};

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    /// Data of a read, with what is left of it.
    Data {
        cookie: u64,
        at_bytes: u32,
        left_bytes: u32,
    },
}

/// Requests in flight and the answers to them.
#[derive(Debug)]
pub struct Answers {
    /// The bytes of data that follow the answer to each request.
    asked: HashMap<u64, u32>,
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
        let data_bytes = if command == command::READ {
            len_bytes
        } else {
            0
        };
        self.asked.insert(cookie, data_bytes);
        let header = RequestHeader {
            flags: 0,
            command,
            cookie,
            offset_bytes,
            len_bytes,
        };
        (cookie, header.encode())
    }

    /// The number of requests that are not answered.
    #[must_use]
    pub fn owed(&self) -> usize {
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
                left_bytes: 0,
                ..
            } => {
                self.state = State::Header;
                Ok(self.done(0, cookie, 0))
            }
            State::Data {
                cookie,
                at_bytes,
                left_bytes,
            } => {
                let taken = bytes.len().min(left_bytes as usize) as u32;
                if taken == 0 {
                    return Ok(MORE);
                }
                self.state = State::Data {
                    cookie,
                    at_bytes: at_bytes + taken,
                    left_bytes: left_bytes - taken,
                };
                let event = Some(Event::Data { cookie, at_bytes });
                let taken = taken as usize;
                Ok(Step { taken, event })
            }
        }
    }

    fn done(&mut self, taken: usize, cookie: u64, error: u32) -> Step {
        self.asked.remove(&cookie);
        let event = Some(Event::Done { cookie, error });
        Step { taken, event }
    }

    fn header(&mut self, bytes: &[u8]) -> Result<Step, Violation> {
        let magic = bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic));
        if magic.is_some_and(|magic| magic != SIMPLE_REPLY_MAGIC) {
            return Err(Violation::NotNbd);
        }
        let Some(header) = bytes.first_chunk::<SIMPLE_REPLY_BYTES>() else {
            return Ok(MORE);
        };
        let [_, _, _, _, e0, e1, e2, e3, cookie @ ..] = header;
        let error = u32::from_be_bytes([*e0, *e1, *e2, *e3]);
        let cookie = u64::from_be_bytes(*cookie);
        let left_bytes = *self.asked.get(&cookie).ok_or(Violation::Unasked)?;
        if error != 0 || left_bytes == 0 {
            return Ok(self.done(SIMPLE_REPLY_BYTES, cookie, error));
        }
        self.state = State::Data {
            cookie,
            at_bytes: 0,
            left_bytes,
        };
        Ok(Step {
            taken: SIMPLE_REPLY_BYTES,
            event: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::simple_reply;
    use super::*;

    /// Two answers, each cut after every byte.
    #[test]
    fn answers_come_in_any_order_and_cut_anywhere() {
        let mut answers = Answers::default();
        let (read, _) = answers.ask(command::READ, 4096, 3);
        let (write, _) = answers.ask(command::WRITE, 0, 512);
        let said = [&simple_reply(28, write)[..], &simple_reply(0, read), b"abc"].concat();
        let (mut at, mut events) = (0, Vec::new());
        for there in 0..=said.len() {
            loop {
                let step = answers.receive(&said[at..there]).unwrap();
                at += step.taken;
                events.extend(step.event);
                if step == MORE {
                    break;
                }
            }
        }
        let data = |at_bytes| Event::Data {
            cookie: read,
            at_bytes,
        };
        let done = |cookie, error| Event::Done { cookie, error };
        let expected = [done(write, 28), data(0), data(1), data(2), done(read, 0)];
        assert_eq!((at, &events[..]), (said.len(), &expected[..]));
        let again = answers.receive(&simple_reply(0, read));
        assert_eq!(again, Err(Violation::Unasked));
    }
}
