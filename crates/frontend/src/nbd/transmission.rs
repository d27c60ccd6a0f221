//! The transmission phase: requests parsed out of a byte stream that may be cut anywhere, answers
//! queued in any order (§ Transmission).

use forebay_engine::Memory;

use super::connection::{Event, Reason, Step};
use super::exports::Export;
use super::limits::Limits;
use super::reply::{Lent, OutputParts, Parts, Pending, Replies, Ticket};
use super::request::{self, Agreed, Command, ErrorCode, Refusal, Request, Verdict};
use super::status::{self, Contexts, StatusExtent};
use super::wire::{self, REQUEST_BYTES, RequestHeader};

/// Terms that the negotiation agreed on.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The export, as it was when it was opened.
    pub export: Export,
    /// Answers are structured replies.
    pub structured: bool,
    /// Contexts answered by block status.
    pub contexts: Contexts,
}

/// Where a part of a payload still has to be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The buffer.
    pub buf: forebay_engine::Buf,
    /// Bytes at its beginning that are filled already.
    pub skip_bytes: u32,
}

/// Kind of the next bytes of the stream.
#[derive(Debug)]
enum Input {
    Header,
    /// A payload, for which the loop has not lent buffers yet.
    Unplaced(Request),
    Payload {
        request: Request,
        parts: Parts,
        filled_bytes: u32,
    },
    /// The payload of a refused write.
    Skip {
        ticket: Ticket,
        left_bytes: u32,
        answer: Result<(), Refusal>,
    },
    Ended,
}

/// The transmission phase of one connection.
#[derive(Debug)]
pub struct Transmission {
    terms: Terms,
    limits: Limits,
    input: Input,
    partial: [u8; REQUEST_BYTES],
    partial_bytes: usize,
    /// Bytes that the request at the head of the input would hold, if it had to wait.
    stalled_bytes: u32,
    replies: Replies,
    shutting_down: bool,
    /// Nobody reads answers any more.
    abandoned: bool,
}

impl Transmission {
    /// Begins the phase.
    #[must_use]
    pub fn new(terms: Terms, limits: Limits) -> Self {
        Transmission {
            terms,
            limits,
            input: Input::Header,
            partial: [0; REQUEST_BYTES],
            partial_bytes: 0,
            stalled_bytes: 0,
            replies: Replies::new(limits.max_requests),
            shutting_down: false,
            abandoned: false,
        }
    }

    /// Takes bytes up to the next event; see [`super::Connection::receive`].
    ///
    /// # Errors
    /// If the client broke the protocol or ended the session.
    pub fn receive<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        input: &[u8],
    ) -> Result<Step, Reason> {
        let mut used_bytes = 0;
        loop {
            let rest = &input[used_bytes..];
            match &mut self.input {
                Input::Header => {
                    let Some((header, own_bytes)) = self.next_header(rest, &mut used_bytes) else {
                        return Ok(Step {
                            consumed_bytes: used_bytes,
                            event: None,
                        });
                    };
                    let header = header?;
                    let verdict = self.judge(&header);
                    if !self.admit(held_bytes(verdict, &header)) {
                        return Ok(Step {
                            consumed_bytes: used_bytes,
                            event: None,
                        });
                    }
                    used_bytes += own_bytes;
                    self.partial_bytes = 0;
                    let event = self.begin(&header, verdict)?;
                    if event.is_some() {
                        return Ok(Step {
                            consumed_bytes: used_bytes,
                            event,
                        });
                    }
                }
                Input::Unplaced(_) | Input::Ended => {
                    return Ok(Step {
                        consumed_bytes: used_bytes,
                        event: None,
                    });
                }
                Input::Payload {
                    request,
                    parts,
                    filled_bytes,
                } => {
                    let len_bytes = rest.len().min((request.len_bytes - *filled_bytes) as usize);
                    fill(memory, parts, *filled_bytes, &rest[..len_bytes]);
                    *filled_bytes += len_bytes as u32;
                    used_bytes += len_bytes;
                    if *filled_bytes < request.len_bytes {
                        return Ok(Step {
                            consumed_bytes: used_bytes,
                            event: None,
                        });
                    }
                    let event = Event::Write(*request, std::mem::take(parts));
                    self.input = Input::Header;
                    return Ok(Step {
                        consumed_bytes: used_bytes,
                        event: Some(event),
                    });
                }
                Input::Skip {
                    ticket,
                    left_bytes,
                    answer,
                } => {
                    let len_bytes = rest.len().min(*left_bytes as usize);
                    *left_bytes -= len_bytes as u32;
                    used_bytes += len_bytes;
                    if *left_bytes > 0 {
                        return Ok(Step {
                            consumed_bytes: used_bytes,
                            event: None,
                        });
                    }
                    let (ticket, answer) = (*ticket, *answer);
                    self.input = Input::Header;
                    self.answer(ticket, answer);
                }
            }
        }
    }

    /// The header at the front of `rest`, and how many bytes of `rest` it would take; `None` if
    /// more bytes are needed. Bytes of a header cut in two are taken at once.
    fn next_header(
        &mut self,
        rest: &[u8],
        used_bytes: &mut usize,
    ) -> Option<(Result<RequestHeader, Reason>, usize)> {
        let decoded = |bytes| RequestHeader::decode(bytes).ok_or(Reason::RequestMagic);
        if self.partial_bytes == 0
            && let Some(bytes) = rest.first_chunk()
        {
            return Some((decoded(bytes), REQUEST_BYTES));
        }
        let take_bytes = rest.len().min(REQUEST_BYTES - self.partial_bytes);
        self.partial[self.partial_bytes..self.partial_bytes + take_bytes]
            .copy_from_slice(&rest[..take_bytes]);
        self.partial_bytes += take_bytes;
        *used_bytes += take_bytes;
        (self.partial_bytes == REQUEST_BYTES).then(|| (decoded(&self.partial), 0))
    }

    fn judge(&self, header: &RequestHeader) -> Verdict {
        let agreed = Agreed {
            structured: self.terms.structured,
            has_contexts: !self.terms.contexts.is_empty(),
        };
        let verdict = request::judge(header, &self.terms.export, agreed, &self.limits);
        if self.shutting_down && verdict != Verdict::Disconnect {
            // § Terminating the transmission phase.
            let message = "the server is shutting down";
            return Verdict::Refuse(Refusal {
                code: ErrorCode::Shutdown,
                message,
            });
        }
        verdict
    }

    fn admit(&mut self, held_bytes: u32) -> bool {
        self.stalled_bytes = held_bytes;
        let admitted = self.has_room();
        if admitted {
            self.stalled_bytes = 0;
        }
        admitted
    }

    fn has_room(&self) -> bool {
        let held_bytes = self.replies.held_bytes() + u64::from(self.stalled_bytes);
        self.replies.has_free_slot() && held_bytes <= self.limits.max_bytes_in_flight
    }

    fn begin(&mut self, header: &RequestHeader, verdict: Verdict) -> Result<Option<Event>, Reason> {
        if verdict == Verdict::Disconnect {
            self.input = Input::Ended;
            return Err(Reason::Disconnected);
        }
        let &RequestHeader {
            cookie,
            offset_bytes,
            len_bytes,
            ..
        } = header;
        let one_extent = matches!(verdict, Verdict::Accept(Command::BlockStatus { one: true }));
        let pending = Pending {
            cookie,
            offset_bytes,
            len_bytes,
            one_extent,
        };
        let ticket = self.replies.open(pending, held_bytes(verdict, header));
        let answer = match verdict {
            Verdict::Accept(command) => {
                let request = Request {
                    ticket,
                    command,
                    offset_bytes,
                    len_bytes,
                };
                if matches!(command, Command::Write { .. }) {
                    self.input = Input::Unplaced(request);
                    return Ok(Some(Event::Payload {
                        ticket,
                        offset_bytes,
                        len_bytes,
                    }));
                }
                return Ok(Some(Event::Request(request)));
            }
            Verdict::Refuse(refusal) => Err(refusal),
            Verdict::Empty | Verdict::Disconnect => Ok(()),
        };
        if header.command == wire::command::WRITE && len_bytes > 0 {
            // The answer waits until the payload is past: a client may not read while it writes.
            self.input = Input::Skip {
                ticket,
                left_bytes: len_bytes,
                answer,
            };
        } else if header.command == wire::command::READ && answer.is_ok() {
            self.answer_read(ticket, Parts::new());
        } else {
            self.answer(ticket, answer);
        }
        Ok(None)
    }

    /// Lends the buffers a payload goes to.
    ///
    /// # Panics
    /// If no payload waits for buffers, or they are not exactly as long as it.
    pub fn lend_payload(&mut self, ticket: Ticket, parts: Parts) {
        let Input::Unplaced(request) = self.input else {
            panic!("buffers are lent to a payload that waits for them")
        };
        assert_eq!(
            request.ticket, ticket,
            "buffers are lent to the payload that asked"
        );
        assert_eq!(
            total_bytes(&parts),
            u64::from(request.len_bytes),
            "buffers as long as payload"
        );
        self.input = Input::Payload {
            request,
            parts,
            filled_bytes: 0,
        };
    }

    /// Gives up a write for which there is no memory: its payload is skipped and the client told.
    ///
    /// # Panics
    /// If no payload waits for buffers.
    pub fn refuse_payload(&mut self, ticket: Ticket, code: ErrorCode) {
        let Input::Unplaced(request) = self.input else {
            panic!("a payload is refused while it waits for buffers")
        };
        assert_eq!(request.ticket, ticket, "the payload that asked is refused");
        let answer = Err(Refusal {
            code,
            message: "the server cannot take the data now",
        });
        self.input = Input::Skip {
            ticket,
            left_bytes: request.len_bytes,
            answer,
        };
    }

    /// Where the rest of the current payload may be received directly.
    pub fn payload_space(&self) -> impl Iterator<Item = Space> + '_ {
        let (parts, mut skip_bytes) = match &self.input {
            Input::Payload {
                parts,
                filled_bytes,
                ..
            } => (parts.as_slice(), *filled_bytes),
            _ => (&[][..], 0),
        };
        parts.iter().filter_map(move |part| {
            let own_skip_bytes = skip_bytes.min(part.buf.len_bytes);
            skip_bytes -= own_skip_bytes;
            let space = Space {
                buf: part.buf,
                skip_bytes: own_skip_bytes,
            };
            (own_skip_bytes < part.buf.len_bytes).then_some(space)
        })
    }

    /// Notes that `bytes` were received into [`Transmission::payload_space`].
    ///
    /// # Panics
    /// If there was no such space.
    pub fn payload_received(&mut self, bytes: u32) {
        let Input::Payload {
            request,
            filled_bytes,
            ..
        } = &mut self.input
        else {
            panic!("a payload is received while one is expected")
        };
        assert!(
            bytes <= request.len_bytes - *filled_bytes,
            "no more is received than fits"
        );
        *filled_bytes += bytes;
    }

    /// Whether more bytes may be given to [`Transmission::receive`].
    #[must_use]
    pub fn wants_input(&self) -> bool {
        match &self.input {
            Input::Header => self.has_room(),
            Input::Payload { .. } | Input::Skip { .. } => true,
            Input::Unplaced(_) | Input::Ended => false,
        }
    }

    /// Whether the stream stands between two requests.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        matches!(self.input, Input::Header | Input::Ended) && self.partial_bytes == 0
    }

    /// Answers a read with its data.
    ///
    /// # Panics
    /// If the ticket is not in flight or the data are not as long as the request.
    pub fn reply_read(&mut self, ticket: Ticket, parts: Parts) {
        let len_bytes = self.replies.pending(ticket).len_bytes;
        assert_eq!(
            total_bytes(&parts),
            u64::from(len_bytes),
            "a read is answered in full"
        );
        if self.abandoned {
            self.replies.release(parts);
            self.replies.drop_unanswered(ticket);
        } else {
            self.answer_read(ticket, parts);
        }
    }

    fn answer_read(&mut self, ticket: Ticket, parts: Parts) {
        let Pending {
            cookie,
            offset_bytes,
            len_bytes,
            ..
        } = self.replies.pending(ticket);
        match (self.terms.structured, len_bytes) {
            (false, _) => self
                .replies
                .queue_parts(ticket, wire::simple_reply(0, cookie), parts),
            // § Structured reply types: a data chunk has at least one byte of data.
            (true, 0) => self.replies.queue_plain(ticket, wire::none_chunk(cookie)),
            (true, _) => {
                // Data goes out as a single chunk whatever its length: the DF flag is honoured
                // always.
                let header = wire::data_chunk(cookie, offset_bytes, len_bytes);
                self.replies.queue_parts(ticket, header, parts);
            }
        }
    }

    /// Answers anything but a successful read or block status.
    ///
    /// # Panics
    /// If the ticket is not in flight.
    pub fn reply_done(&mut self, ticket: Ticket, result: Result<(), ErrorCode>) {
        if self.abandoned {
            self.replies.pending(ticket);
            self.replies.drop_unanswered(ticket);
        } else {
            self.answer(ticket, result.map_err(|code| Refusal { code, message: "" }));
        }
    }

    fn answer(&mut self, ticket: Ticket, result: Result<(), Refusal>) {
        let cookie = self.replies.pending(ticket).cookie;
        match (result, self.terms.structured) {
            // § Simple reply message: allowed for anything without a payload.
            (Ok(()), _) => self
                .replies
                .queue_plain(ticket, wire::simple_reply(0, cookie)),
            (Err(Refusal { code, .. }), false) => {
                self.replies
                    .queue_plain(ticket, wire::simple_reply(code.number(), cookie));
            }
            (Err(Refusal { code, message }), true) => {
                // Messages are ours and short.
                let header = wire::error_chunk(cookie, code.number(), message.len() as u16);
                self.replies.queue_message(ticket, header, message);
            }
        }
    }

    /// Answers block status; see [`StatusExtent`]. To a client that wants one extent, only the
    /// first of each context is sent.
    ///
    /// # Panics
    /// If the ticket is not in flight.
    pub fn reply_status(&mut self, ticket: Ticket, extents: &[StatusExtent]) {
        let Pending {
            cookie,
            len_bytes,
            one_extent,
            ..
        } = self.replies.pending(ticket);
        if self.abandoned {
            self.replies.drop_unanswered(ticket);
            return;
        }
        let max_extents = if one_extent {
            1
        } else {
            self.limits.max_extents
        };
        let mut bytes = Vec::new();
        status::encode(
            &mut bytes,
            cookie,
            len_bytes,
            self.terms.contexts,
            max_extents,
            extents,
        );
        self.replies.queue_owned(ticket, bytes);
    }

    /// From now on every request is refused with ESHUTDOWN.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Reads no more. Requests in flight are still answered; a payload half received is given up.
    pub fn end_input(&mut self) {
        match std::mem::replace(&mut self.input, Input::Ended) {
            Input::Unplaced(request) => self.replies.drop_unanswered(request.ticket),
            Input::Payload { request, parts, .. } => {
                self.replies.release(parts);
                self.replies.drop_unanswered(request.ticket);
            }
            Input::Skip { ticket, .. } => self.replies.drop_unanswered(ticket),
            Input::Header | Input::Ended => {}
        }
    }

    /// Throws away what was queued; answers to come are dropped. Only when no send is under way.
    pub fn abandon(&mut self) {
        self.end_input();
        self.abandoned = true;
        self.replies.clear_queue();
    }

    /// Requests the loop has not answered, the one whose payload is being received included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.replies.in_flight()
    }

    /// Whether nothing is in flight or queued.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.replies.is_idle()
    }

    pub(crate) fn pieces(&self) -> OutputParts<'_> {
        self.replies.pieces()
    }

    /// Takes `bytes` sent off the queue of answers.
    pub fn sent(&mut self, bytes: usize) {
        self.replies.sent(bytes);
    }

    /// Tokens of lent buffers that are no longer needed.
    pub fn take_released(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.replies.take_released()
    }
}

/// Data that a request holds until its answer is sent, in bytes.
fn held_bytes(verdict: Verdict, header: &RequestHeader) -> u32 {
    match verdict {
        Verdict::Accept(Command::Read | Command::Write { .. }) => header.len_bytes,
        _ => 0,
    }
}

fn total_bytes(parts: &[Lent]) -> u64 {
    parts.iter().map(|part| u64::from(part.buf.len_bytes)).sum()
}

/// Copies `from` into the buffers, `at_bytes` into them.
fn fill<M: Memory + ?Sized>(memory: &mut M, parts: &[Lent], at_bytes: u32, mut from: &[u8]) {
    let mut skip_bytes = at_bytes as usize;
    for part in parts {
        let part_bytes = part.buf.len_bytes as usize;
        if skip_bytes >= part_bytes {
            skip_bytes -= part_bytes;
            continue;
        }
        let len_bytes = from.len().min(part_bytes - skip_bytes);
        if len_bytes == 0 {
            return;
        }
        memory.bytes_mut(part.buf)[skip_bytes..skip_bytes + len_bytes]
            .copy_from_slice(&from[..len_bytes]);
        from = &from[len_bytes..];
        skip_bytes = 0;
    }
}
