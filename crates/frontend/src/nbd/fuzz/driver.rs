//! The loop around a connection without sockets: it answers what is asked, and holds the connection
//! to its promises.

use forebay_engine::{Buf, Memory};

use crate::nbd::connection::{Connection, Event, Phase, Reason, Settings};
use crate::nbd::exports::ExportTable;
use crate::nbd::limits::Limits;
use crate::nbd::reply::{Lent, Parts};
use crate::nbd::request::{Command, ErrorCode, Request};
use crate::nbd::status::{BlockState, StatusExtent};

/// Bytes of each export.
const EXPORT_BYTES: u64 = 1 << 20;

/// Memory that knows what is lent out of it.
pub trait Lender: Memory {
    /// The number of buffers that are lent.
    fn lent(&self) -> usize;
    /// Their bytes.
    fn lent_bytes(&self) -> u64;
    /// Puts a value into all of a buffer, if anybody looks at it.
    fn fill(&mut self, buf: Buf, value: u8);
}

/// An onlooker of a conversation.
pub trait Witness {
    /// Whether it wants to have what is sent.
    const KEEPS_OUTPUT: bool;
    /// An export was opened.
    fn opened(&mut self) {}
    /// A request was handed out, with the data of a write.
    fn asked<'a>(&mut self, request: &Request, data: impl Iterator<Item = &'a [u8]>);
    /// A payload was refused for want of memory.
    fn refused_payload(&mut self) {}
    /// A request was answered without an error.
    fn carried_out(&mut self, command: Command);
    /// So many bytes were sent.
    fn sent(&mut self, bytes: usize);
    /// A piece of them.
    fn keep(&mut self, piece: &[u8]);
}

/// The server's end of a conversation.
pub struct Driver<'a, M, W, R> {
    connection: Connection,
    memory: &'a mut M,
    exports: &'a ExportTable,
    limits: Limits,
    /// Answers late, and sends little at a time.
    lazy: bool,
    roll: R,
    waiting: Vec<(Request, Parts)>,
    witness: W,
}

impl<'a, M: Lender, W: Witness, R: FnMut(usize) -> usize> Driver<'a, M, W, R> {
    /// A connection that has heard nothing. `roll` draws numbers below its argument.
    pub fn new(
        settings: Settings,
        memory: &'a mut M,
        exports: &'a ExportTable,
        lazy: bool,
        roll: R,
        witness: W,
    ) -> Self {
        let limits = settings.limits;
        Driver {
            connection: Connection::new(settings),
            memory,
            exports,
            limits,
            lazy,
            roll,
            waiting: Vec::new(),
            witness,
        }
    }

    /// Draws a number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        (self.roll)(sides)
    }

    fn parts(&mut self, len_bytes: u32, fill: u8) -> Parts {
        let head_bytes = len_bytes.min(512);
        let mut parts = Parts::new();
        for part_bytes in [head_bytes, len_bytes - head_bytes] {
            if part_bytes == 0 {
                continue;
            }
            let buf = self.memory.alloc(part_bytes as usize);
            let buf = buf.expect("there is memory for what the limits allow");
            self.memory.fill(buf, fill);
            let token = u64::from(buf.start_sector);
            parts.push(Lent { buf, token });
        }
        parts
    }

    /// Gives the connection everything in `input`, answering as it goes.
    ///
    /// # Panics
    /// If the connection breaks one of its promises.
    pub fn feed(&mut self, mut input: &[u8]) {
        loop {
            let step = self.connection.receive(self.memory, self.exports, input);
            input = &input[step.consumed_bytes..];
            let had_event = step.event.is_some();
            if let Some(event) = step.event {
                self.event(event);
            }
            if !self.lazy {
                while self.answer_one() {}
            } else if self.roll(3) == 0 {
                self.answer_one();
            }
            self.check_bounds();
            let sent = self.send();
            if !had_event && (input.is_empty() || !(sent || self.answer_one())) {
                assert!(
                    input.is_empty(),
                    "bytes are left only while something is owed"
                );
                return;
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Opened(_) => self.witness.opened(),
            Event::Request(request) => self.take(request, Parts::new()),
            Event::Write(request, parts) => self.take(request, parts),
            Event::Payload {
                ticket, len_bytes, ..
            } => {
                if self.lazy && self.roll(5) == 0 {
                    self.witness.refused_payload();
                    self.connection.refuse_payload(ticket, ErrorCode::NoMemory);
                } else {
                    let parts = self.parts(len_bytes, 0);
                    self.connection.lend_payload(ticket, parts);
                }
            }
        }
    }

    fn take(&mut self, request: Request, parts: Parts) {
        let end = request
            .offset_bytes
            .checked_add(u64::from(request.len_bytes));
        assert!(
            end.is_some_and(|end| end <= EXPORT_BYTES),
            "requests are within the export"
        );
        let data = parts.iter().map(|part| self.memory.bytes(part.buf));
        self.witness.asked(&request, data);
        self.waiting.push((request, parts));
    }

    fn answer_one(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let at = match self.lazy {
            true => self.roll(self.waiting.len()),
            false => 0,
        };
        let (request, parts) = self.waiting.remove(at);
        for part in &parts {
            self.memory.free(part.buf);
        }
        let ticket = request.ticket;
        if self.lazy && self.roll(4) == 0 {
            self.connection.reply_done(ticket, Err(ErrorCode::Io));
            return true;
        }
        self.witness.carried_out(request.command);
        match request.command {
            Command::Read => {
                let parts = self.parts(request.len_bytes, request.offset_bytes as u8);
                self.connection.reply_read(ticket, parts);
            }
            Command::BlockStatus { .. } => {
                let len_bytes = u64::from(request.len_bytes / 2);
                let extents = [false, true].map(|dirty| StatusExtent {
                    len_bytes,
                    state: BlockState {
                        cached: true,
                        dirty,
                        ..BlockState::default()
                    },
                });
                self.connection.reply_status(ticket, &extents);
            }
            _ => self.connection.reply_done(ticket, Ok(())),
        }
        true
    }

    /// Sends some of the output, all of it if not lazy; says whether there was any.
    fn send(&mut self) -> bool {
        let mut bytes = 0;
        for piece in self.connection.output(self.memory) {
            assert!(piece.len_bytes() > 0, "no piece is empty");
            bytes += piece.bytes(self.memory).len();
        }
        if self.lazy && bytes > 0 {
            bytes = 1 + self.roll(bytes);
        }
        if W::KEEPS_OUTPUT {
            let mut left = bytes;
            for piece in self.connection.output(self.memory) {
                let piece = piece.bytes(self.memory);
                let now = piece.len().min(left);
                self.witness.keep(&piece[..now]);
                left -= now;
            }
        }
        self.connection.sent(bytes);
        self.witness.sent(bytes);
        self.free_released();
        bytes > 0
    }

    fn free_released(&mut self) {
        for token in self.connection.take_released() {
            self.memory.free(Buf {
                start_sector: token as u32,
                len_bytes: 0,
            });
        }
    }

    fn check_bounds(&self) {
        let requests = usize::from(self.limits.max_requests);
        assert!(
            self.waiting.len() <= requests,
            "no more requests than allowed"
        );
        assert!(
            self.connection.in_flight() <= requests,
            "no more requests than allowed"
        );
        assert!(
            self.memory.lent() <= 2 * requests,
            "no more buffers than requests hold"
        );
        assert!(
            self.memory.lent_bytes() <= self.limits.max_bytes_in_flight,
            "no more data than allowed"
        );
    }

    /// The client goes away: everything must come to rest. Returns why the connection ended.
    ///
    /// # Panics
    /// If something does not come to rest.
    pub fn finish(mut self, abrupt: bool) -> (Option<Reason>, W) {
        self.connection.end_of_stream();
        if abrupt {
            self.connection.abandon();
            self.free_released();
        }
        while self.answer_one() || self.send() {}
        self.free_released();
        assert_eq!(
            self.connection.phase(),
            Phase::Closed,
            "an ended connection comes to rest"
        );
        assert_eq!(self.connection.in_flight(), 0, "all requests are answered");
        self.connection.abandon();
        self.free_released();
        assert_eq!(self.memory.lent(), 0, "all buffers are given back");
        (self.connection.reason().cloned(), self.witness)
    }
}
