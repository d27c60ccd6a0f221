//! A client, from greeting to close: negotiation, transmission and TLS put together, as the loop
//! drives them.

use forebay_engine::{Buf, Memory};

use super::exports::{ExportId, ExportTable};
use super::limits::Limits;
use super::negotiation::{MAX_OUTPUT_BYTES, Negotiation, Outcome};
use super::outbox::Outbox;
use super::reply::{Parts, Ticket};
use super::request::{ErrorCode, Request};
use super::status::StatusExtent;
use super::tls::{Incoming, TlsPolicy, TlsStream};
use super::transmission::{Space, Transmission};

/// Settings that a listener gives each of its connections.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Limits of a client; see [`Limits::validated`].
    pub limits: Limits,
    /// Whether TLS is possible or needed.
    pub tls: TlsPolicy,
}

/// A task of the loop for a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The client opened this export; requests follow.
    Opened(ExportId),
    /// A request without a payload. Answer it with the reply it asks for, in any order.
    Request(Request),
    /// A write's payload is next. Lend buffers of `len_bytes` with [`Connection::lend_payload`]
    /// (placed so that their addresses and `offset_bytes` agree modulo 4096); until then nothing
    /// more is read from the client.
    Payload {
        /// The request.
        ticket: Ticket,
        /// Where it will be written, in bytes.
        offset_bytes: u64,
        /// Its length, in bytes.
        len_bytes: u32,
    },
    /// A write whose payload is complete; the buffers are the loop's again. Answer it with
    /// [`Connection::reply_done`].
    Write(Request, Parts),
}

/// Result of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes that were taken off the front.
    pub consumed_bytes: usize,
    /// The task to do before going on with the rest. `None`: nothing more can be done with them
    /// now.
    pub event: Option<Event>,
}

/// A piece of output, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPart<'a> {
    /// Bytes of the connection's own, which stay where they are until [`Connection::sent`]
    /// consumes them, even if the connection is moved.
    Bytes(&'a [u8]),
    /// The bytes of a lent buffer, but for the first `skip_bytes`.
    Buf {
        /// The buffer.
        buf: Buf,
        /// Bytes of it that are sent already.
        skip_bytes: u32,
    },
}

impl<'a> OutputPart<'a> {
    /// Its length, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match *self {
            OutputPart::Bytes(bytes) => bytes.len(),
            OutputPart::Buf { buf, skip_bytes } => (buf.len_bytes - skip_bytes) as usize,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes<'m, M: Memory + ?Sized>(&self, memory: &'m M) -> &'m [u8]
    where
        'a: 'm,
    {
        match *self {
            OutputPart::Bytes(bytes) => bytes,
            OutputPart::Buf { buf, skip_bytes } => &memory.bytes(buf)[skip_bytes as usize..],
        }
    }

    pub(crate) fn without_front(self, front_bytes: usize) -> Self {
        match self {
            OutputPart::Bytes(bytes) => OutputPart::Bytes(&bytes[front_bytes..]),
            // Less than the buffer's length, which is 32 bits.
            OutputPart::Buf { buf, skip_bytes } => OutputPart::Buf {
                buf,
                skip_bytes: skip_bytes + front_bytes as u32,
            },
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// NBD_CMD_DISC.
    #[error("the client disconnected")]
    Disconnected,
    /// NBD_OPT_ABORT.
    #[error("the client gave up the negotiation")]
    Aborted,
    /// The stream ended between two messages.
    #[error("the client closed the connection")]
    EndOfStream,
    /// The stream ended within a message.
    #[error("the client closed the connection in the middle of a message")]
    Truncated,
    /// § Client flags.
    #[error("the client sent unknown handshake flags {flags:#x}; it may be newer than the server")]
    ClientFlags {
        /// All its flags.
        flags: u32,
    },
    /// § Newstyle negotiation.
    #[error("the client sent option {option} without fixed newstyle negotiation; update it")]
    NotFixedNewstyle {
        /// The option.
        option: u32,
    },
    /// An option does not begin as one.
    #[error("the client sent an option with a wrong magic number")]
    OptionMagic,
    /// Too many options.
    #[error("the client sent more than {limit} options without opening an export")]
    TooManyOptions {
        /// The number allowed.
        limit: u32,
    },
    /// An option that cannot even be skipped.
    #[error("the client sent option {option} with {len_bytes} bytes of data, which is too long")]
    OptionTooLong {
        /// The option.
        option: u32,
        /// Its length, in bytes.
        len_bytes: u32,
    },
    /// NBD_OPT_EXPORT_NAME for something that is not served, or not without TLS.
    #[error("the client asked for an export that does not exist or requires TLS")]
    ExportRefused,
    /// A request does not begin as one.
    #[error("the client sent a request with a wrong magic number")]
    RequestMagic,
    /// TLS failed.
    #[error("TLS with the client failed: {message}")]
    Tls {
        /// The message of rustls.
        message: String,
    },
}

impl Reason {
    /// Whether the client left as the protocol says; worth a warning in the log if not.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        matches!(
            self,
            Reason::Disconnected | Reason::Aborted | Reason::EndOfStream
        )
    }

    /// Whether nothing can be sent to the client any more. After anything else, even a broken
    /// protocol, what was asked before is still answered (§ Terminating the transmission phase).
    fn is_mute(&self) -> bool {
        matches!(self, Reason::Tls { .. })
    }
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Option haggling. The loop should end it after some seconds.
    Negotiating,
    /// An export is open.
    Transmitting,
    /// Nothing more is read; answers still go out.
    Ending,
    /// All done: close the socket, then [`Connection::abandon`].
    Closed,
}

#[derive(Debug)]
enum Stage {
    Negotiating(Negotiation),
    Transmitting(Box<Transmission>),
}

/// A connection without TLS, or what is inside TLS.
#[derive(Debug)]
struct Inner {
    settings: Settings,
    stage: Stage,
    outbox: Outbox,
    ended: Option<Reason>,
}

enum Next {
    Step(Step),
    StartTls { consumed_bytes: usize },
}

impl Inner {
    fn receive<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        exports: &ExportTable,
        input: &[u8],
    ) -> Next {
        if self.ended.is_some() {
            return Next::Step(Step {
                consumed_bytes: input.len(),
                event: None,
            });
        }
        let negotiation = match &mut self.stage {
            Stage::Negotiating(negotiation) => negotiation,
            Stage::Transmitting(transmission) => {
                return Next::Step(match transmission.receive(memory, input) {
                    Ok(step) => step,
                    Err(reason) => self.end(reason, input.len()),
                });
            }
        };
        let (consumed_bytes, outcome) = negotiation.receive(exports, input, &mut self.outbox);
        Next::Step(match outcome {
            None => Step {
                consumed_bytes,
                event: None,
            },
            Some(Outcome::StartTls) => return Next::StartTls { consumed_bytes },
            Some(Outcome::End(reason)) => self.end(reason, input.len()),
            Some(Outcome::Open(terms)) => {
                let event = Some(Event::Opened(terms.export.id));
                let transmission = Transmission::new(terms, self.settings.limits);
                self.stage = Stage::Transmitting(Box::new(transmission));
                Step {
                    consumed_bytes,
                    event,
                }
            }
        })
    }

    fn end(&mut self, reason: Reason, consumed_bytes: usize) -> Step {
        if let Stage::Transmitting(transmission) = &mut self.stage {
            transmission.end_input();
        }
        self.ended.get_or_insert(reason);
        Step {
            consumed_bytes,
            event: None,
        }
    }

    fn end_of_stream(&mut self) {
        let at_boundary = match &self.stage {
            Stage::Negotiating(negotiation) => negotiation.at_boundary(),
            Stage::Transmitting(transmission) => transmission.at_boundary(),
        };
        self.end(
            if at_boundary {
                Reason::EndOfStream
            } else {
                Reason::Truncated
            },
            0,
        );
    }

    fn wants_input(&self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        match &self.stage {
            Stage::Negotiating(_) => self.outbox.len_bytes() < MAX_OUTPUT_BYTES,
            Stage::Transmitting(transmission) => transmission.wants_input(),
        }
    }

    fn pieces(&self) -> impl Iterator<Item = OutputPart<'_>> {
        let own = Some(self.outbox.shown())
            .filter(|bytes| !bytes.is_empty())
            .map(OutputPart::Bytes);
        let replies = match &self.stage {
            Stage::Transmitting(transmission) => Some(transmission.pieces()),
            Stage::Negotiating(_) => None,
        };
        let mute = self.ended.as_ref().is_some_and(Reason::is_mute);
        own.into_iter()
            .chain(replies.into_iter().flatten())
            .filter(move |_| !mute)
    }

    fn sent(&mut self, bytes: usize) {
        let rest_bytes = bytes - self.outbox.sent(bytes);
        if let Stage::Transmitting(transmission) = &mut self.stage {
            transmission.sent(rest_bytes);
        }
    }

    fn is_finished(&self) -> bool {
        match (&self.ended, &self.stage) {
            (None, _) => false,
            (Some(reason), _) if reason.is_mute() => true,
            (Some(_), Stage::Negotiating(_)) => self.outbox.len_bytes() == 0,
            (Some(_), Stage::Transmitting(transmission)) => {
                self.outbox.len_bytes() == 0 && transmission.is_idle()
            }
        }
    }
}

/// A client. See the module [`super`] for how to drive it.
#[derive(Debug)]
pub struct Connection {
    inner: Inner,
    tls: Option<Box<TlsStream>>,
}

impl Connection {
    /// A client has connected; its greeting is ready to be sent.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut outbox = Outbox::default();
        let negotiation = Negotiation::new(settings.limits, &settings.tls, &mut outbox);
        let stage = Stage::Negotiating(negotiation);
        Connection {
            inner: Inner {
                settings,
                stage,
                outbox,
                ended: None,
            },
            tls: None,
        }
    }

    /// Takes bytes from the socket up to the next event. Do what the event says, then call again
    /// with the rest, until there is no event. Bytes left over then are the loop's to keep: call
    /// again with them after [`Connection::lend_payload`], and after replies or
    /// [`Connection::sent`] once [`Connection::wants_input`] says so, even if nothing is left
    /// over (some bytes may wait inside), and before receiving more.
    pub fn receive<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        exports: &ExportTable,
        input: &[u8],
    ) -> Step {
        if self.tls.is_some() {
            return self.receive_tls(memory, exports, input);
        }
        let consumed_bytes = match self.inner.receive(memory, exports, input) {
            Next::Step(step) => return step,
            Next::StartTls { consumed_bytes } => consumed_bytes,
        };
        let outbox = std::mem::take(&mut self.inner.outbox);
        let Some(server) = self.inner.settings.tls.server() else {
            unreachable!("TLS is started only if it is configured")
        };
        match TlsStream::start(server, outbox) {
            Ok(stream) => self.tls = Some(Box::new(stream)),
            Err(reason) => return self.inner.end(reason, input.len()),
        }
        // Whatever followed in the clear is taken for ciphertext, so nobody can slip options in.
        let step = self.receive_tls(memory, exports, &input[consumed_bytes..]);
        Step {
            consumed_bytes: consumed_bytes + step.consumed_bytes,
            ..step
        }
    }

    fn receive_tls<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        exports: &ExportTable,
        input: &[u8],
    ) -> Step {
        let Connection {
            inner,
            tls: Some(tls),
        } = self
        else {
            return Step {
                consumed_bytes: 0,
                event: None,
            };
        };
        let mut used_bytes = 0;
        loop {
            let Next::Step(step) = inner.receive(memory, exports, tls.plain()) else {
                unreachable!("TLS is not started twice")
            };
            tls.consume_plain(step.consumed_bytes);
            if step.event.is_some() || !tls.plain().is_empty() {
                return Step {
                    consumed_bytes: used_bytes,
                    event: step.event,
                };
            }
            if inner.ended.is_some() {
                return Step {
                    consumed_bytes: input.len(),
                    event: None,
                };
            }
            match tls.decrypt(&input[used_bytes..]) {
                Ok((bytes, Incoming::Plain)) => used_bytes += bytes,
                Ok((bytes, Incoming::Starved)) => {
                    return Step {
                        consumed_bytes: used_bytes + bytes,
                        event: None,
                    };
                }
                Ok((_, Incoming::Closed)) => {
                    inner.end_of_stream();
                    return Step {
                        consumed_bytes: input.len(),
                        event: None,
                    };
                }
                Err(reason) => return inner.end(reason, input.len()),
            }
        }
    }

    /// The socket will deliver no more bytes. Requests in flight are still answered: the client
    /// may have closed only its sending side.
    pub fn end_of_stream(&mut self) {
        if self.inner.ended.is_none() {
            self.inner.end_of_stream();
        }
    }

    /// Whether to receive from the socket. False while the client is at its limits: that is how
    /// it is slowed down.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.inner.wants_input() && self.tls.as_ref().is_none_or(|tls| tls.wants_input())
    }

    /// Lends the buffers that [`Event::Payload`] asked for; together exactly as long as it.
    ///
    /// # Panics
    /// If no payload waits for buffers, or their length is wrong.
    pub fn lend_payload(&mut self, ticket: Ticket, parts: Parts) {
        match self.open() {
            Some(transmission) => transmission.lend_payload(ticket, parts),
            None => panic!("buffers are lent to a payload that waits for them"),
        }
    }

    /// Gives up a write for which there is no memory: its payload is skipped and the client told.
    ///
    /// # Panics
    /// If no payload waits for buffers.
    pub fn refuse_payload(&mut self, ticket: Ticket, code: ErrorCode) {
        match self.open() {
            Some(transmission) => transmission.refuse_payload(ticket, code),
            None => panic!("a payload is refused while it waits for buffers"),
        }
    }

    /// Where the rest of a payload may be received without a copy: put these before the receive
    /// buffer in one vectored receive. Report what landed there with
    /// [`Connection::payload_received`], then call [`Connection::receive`] with what landed in
    /// the receive buffer, perhaps nothing. Always empty under TLS.
    pub fn payload_space(&self) -> impl Iterator<Item = Space> + '_ {
        let transmission = match (&self.tls, &self.inner.stage) {
            (None, Stage::Transmitting(transmission)) => Some(transmission),
            _ => None,
        };
        transmission
            .into_iter()
            .flat_map(|transmission| transmission.payload_space())
    }

    /// Notes that `bytes` were received into [`Connection::payload_space`].
    ///
    /// # Panics
    /// If there was no such space.
    pub fn payload_received(&mut self, bytes: u32) {
        match self.open() {
            Some(transmission) => transmission.payload_received(bytes),
            None => panic!("a payload is received while one is expected"),
        }
    }

    /// Answers a read with its data, exactly as long as the request. The tokens come back when
    /// they are sent.
    ///
    /// # Panics
    /// If the request is not in flight or the length is wrong.
    pub fn reply_read(&mut self, ticket: Ticket, parts: Parts) {
        match self.open() {
            Some(transmission) => transmission.reply_read(ticket, parts),
            None => panic!("a request is answered while it is in flight"),
        }
    }

    /// Answers a request that carries no data back, or one that failed.
    ///
    /// # Panics
    /// If the request is not in flight.
    pub fn reply_done(&mut self, ticket: Ticket, result: Result<(), ErrorCode>) {
        match self.open() {
            Some(transmission) => transmission.reply_done(ticket, result),
            None => panic!("a request is answered while it is in flight"),
        }
    }

    /// Answers block status with what is known from the request's start on. It may cover less
    /// than was asked; nothing at all means that nothing is known.
    ///
    /// # Panics
    /// If the request is not in flight.
    pub fn reply_status(&mut self, ticket: Ticket, extents: &[StatusExtent]) {
        match self.open() {
            Some(transmission) => transmission.reply_status(ticket, extents),
            None => panic!("a request is answered while it is in flight"),
        }
    }

    fn open(&mut self) -> Option<&mut Transmission> {
        match &mut self.inner.stage {
            Stage::Transmitting(transmission) => Some(transmission),
            Stage::Negotiating(_) => None,
        }
    }

    /// Returns the bytes to send, from the first byte not sent; take as many pieces as one vectored
    /// send holds. Ask only while no send is under way: the pieces stay where they are until
    /// [`Connection::sent`] consumes them.
    pub fn output<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> impl Iterator<Item = OutputPart<'_>> {
        if self.tls.is_some() {
            self.encrypt(memory);
        } else {
            self.inner.outbox.turn();
        }
        let cipher = self.tls.as_mut().map(|tls| {
            tls.outbox_mut().turn();
            tls.outbox_mut().shown()
        });
        let cipher_bytes = cipher
            .filter(|bytes| !bytes.is_empty())
            .map(OutputPart::Bytes);
        let plain = cipher.is_none().then(|| self.inner.pieces());
        cipher_bytes.into_iter().chain(plain.into_iter().flatten())
    }

    fn encrypt<M: Memory + ?Sized>(&mut self, memory: &M) {
        let Connection {
            inner,
            tls: Some(tls),
        } = self
        else {
            return;
        };
        loop {
            inner.outbox.turn();
            match tls.encrypt(memory, inner.pieces()) {
                Ok(0) => break,
                Ok(bytes) => inner.sent(bytes),
                Err(reason) => {
                    inner.end(reason, 0);
                    break;
                }
            }
        }
        if inner.is_finished() {
            // § Terminating the transmission phase: TLS is shut down before the connection.
            tls.close();
        }
    }

    /// Takes the first `bytes` of the output, now sent, off.
    ///
    /// # Panics
    /// If that is more than there was.
    pub fn sent(&mut self, bytes: usize) {
        match &mut self.tls {
            Some(tls) => {
                let own_bytes = tls.outbox_mut().sent(bytes);
                assert_eq!(own_bytes, bytes, "no more is sent than was shown");
            }
            None => self.inner.sent(bytes),
        }
    }

    /// Tokens of lent buffers that the connection no longer needs.
    pub fn take_released(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.open()
            .into_iter()
            .flat_map(Transmission::take_released)
    }

    /// The phase of the connection. Under TLS, ask after [`Connection::output`].
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.inner.ended, &self.inner.stage) {
            (None, Stage::Negotiating(_)) => Phase::Negotiating,
            (None, Stage::Transmitting(_)) => Phase::Transmitting,
            (Some(_), _) if !self.inner.is_finished() => Phase::Ending,
            (Some(_), _) if self.tls.as_ref().is_some_and(|tls| !tls.is_closed()) => Phase::Ending,
            (Some(_), _) => Phase::Closed,
        }
    }

    /// Why it ended, if it did.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.inner.ended.as_ref()
    }

    /// Whether the client stopped in the middle of a request, as far as can be seen: under TLS, a
    /// part of a record is not.
    #[must_use]
    pub fn is_mid_message(&self) -> bool {
        match (&self.inner.ended, &self.inner.stage) {
            (None, Stage::Transmitting(transmission)) => !transmission.at_boundary(),
            _ => false,
        }
    }

    /// Requests not answered yet, one whose payload is being received included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        match &self.inner.stage {
            Stage::Transmitting(transmission) => transmission.in_flight(),
            Stage::Negotiating(_) => 0,
        }
    }

    /// The server is going away: whatever the client asks from now on is refused with that
    /// reason, what is in flight is answered.
    pub fn shut_down(&mut self) {
        match &mut self.inner.stage {
            Stage::Negotiating(negotiation) => negotiation.shut_down(),
            Stage::Transmitting(transmission) => transmission.shut_down(),
        }
    }

    /// The socket is gone and no send or receive is under way: gives back every lent buffer (see
    /// [`Connection::take_released`]) and drops answers that are still to come. The connection
    /// may be dropped once [`Connection::in_flight`] is zero; until then late answers are taken
    /// as ever.
    pub fn abandon(&mut self) {
        self.end_of_stream();
        if let Some(transmission) = self.open() {
            transmission.abandon();
        }
    }
}
