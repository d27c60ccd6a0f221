//! Requests in flight and their answers on the way out.
//!
//! Each request holds a slot from the moment it is accepted (or refused) until its answer is
//! wholly sent. All memory for slots and reply headers is allocated when the connection opens and
//! never moves, so the kernel may read headers while more answers are queued; and a client that
//! does not read its answers runs out of slots and is no longer read from.

use std::collections::VecDeque;

use forebay_engine::Buf;
use smallvec::SmallVec;

use super::connection::OutputPart;
use super::wire;

/// Our name for a request in flight on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    slot: u16,
    generation: u16,
}

/// A buffer of the loop's lent to a connection, and the loop's name for it, which comes back from
/// [`super::Connection::take_released`] when the connection no longer needs it. The buffer may be
/// part of a larger one; the loop alone knows the token's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The bytes.
    pub buf: Buf,
    /// The loop's name for them.
    pub token: u64,
}

/// The buffers of one payload, in order. Two in place: a block, or an unaligned head and the rest;
/// more would be moved with every event.
pub type Parts = SmallVec<[Lent; 2]>;

const HEADER_BYTES: usize = wire::DATA_CHUNK_BYTES;

/// The part after a reply's header.
#[derive(Debug)]
enum Body {
    None,
    Message(&'static str),
    Owned(Vec<u8>),
    Parts(Parts),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Free,
    InFlight,
    Queued,
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    state: SlotState,
    held_bytes: u32,
    cookie: u64,
    offset_bytes: u64,
    len_bytes: u32,
    one_extent: bool,
    header_len_bytes: usize,
    body_len_bytes: usize,
    body: Body,
}

/// A request in flight, as its answer needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) cookie: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u32,
    /// Block status for a client that wants one extent.
    pub(crate) one_extent: bool,
}

/// The slots of one connection and the order in which their answers go out.
#[derive(Debug)]
pub(crate) struct Replies {
    slots: Box<[Slot]>,
    headers: Box<[[u8; HEADER_BYTES]]>,
    free: Vec<u16>,
    queue: VecDeque<u16>,
    front_sent_bytes: usize,
    held_bytes: u64,
    released: Vec<u64>,
}

impl Replies {
    pub(crate) fn new(slots: u16) -> Self {
        let empty = || Slot {
            generation: 0,
            state: SlotState::Free,
            held_bytes: 0,
            cookie: 0,
            offset_bytes: 0,
            len_bytes: 0,
            one_extent: false,
            header_len_bytes: 0,
            body_len_bytes: 0,
            body: Body::None,
        };
        Replies {
            slots: (0..slots).map(|_| empty()).collect(),
            headers: vec![[0; HEADER_BYTES]; slots.into()].into_boxed_slice(),
            // The slot used last is used next: its memory is warm.
            free: (0..slots).rev().collect(),
            queue: VecDeque::with_capacity(slots.into()),
            front_sent_bytes: 0,
            held_bytes: 0,
            released: Vec::with_capacity(usize::from(slots)),
        }
    }

    pub(crate) fn has_free_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Data held by requests and by answers not yet sent, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Requests whose answer the loop still owes.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() - self.queue.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Takes a slot, of which there must be a free one.
    pub(crate) fn open(&mut self, pending: Pending, held_bytes: u32) -> Ticket {
        let index = self
            .free
            .pop()
            .expect("a request is accepted only with a free slot");
        let slot = &mut self.slots[usize::from(index)];
        slot.state = SlotState::InFlight;
        slot.held_bytes = held_bytes;
        slot.cookie = pending.cookie;
        slot.offset_bytes = pending.offset_bytes;
        slot.len_bytes = pending.len_bytes;
        slot.one_extent = pending.one_extent;
        self.held_bytes += u64::from(held_bytes);
        Ticket {
            slot: index,
            generation: slot.generation,
        }
    }

    pub(crate) fn pending(&self, ticket: Ticket) -> Pending {
        let slot = &self.slots[usize::from(ticket.slot)];
        assert!(
            slot.state == SlotState::InFlight && slot.generation == ticket.generation,
            "a request is answered once, while it is in flight"
        );
        Pending {
            cookie: slot.cookie,
            offset_bytes: slot.offset_bytes,
            len_bytes: slot.len_bytes,
            one_extent: slot.one_extent,
        }
    }

    pub(crate) fn queue_plain<const N: usize>(&mut self, ticket: Ticket, header: [u8; N]) {
        self.queue(ticket, header, Body::None, 0);
    }

    pub(crate) fn queue_message<const N: usize>(
        &mut self,
        ticket: Ticket,
        header: [u8; N],
        message: &'static str,
    ) {
        self.queue(ticket, header, Body::Message(message), message.len());
    }

    pub(crate) fn queue_owned(&mut self, ticket: Ticket, bytes: Vec<u8>) {
        let len_bytes = bytes.len();
        self.queue(ticket, [], Body::Owned(bytes), len_bytes);
    }

    pub(crate) fn queue_parts<const N: usize>(
        &mut self,
        ticket: Ticket,
        header: [u8; N],
        parts: Parts,
    ) {
        let len_bytes = parts.iter().map(|part| part.buf.len_bytes as usize).sum();
        self.queue(ticket, header, Body::Parts(parts), len_bytes);
    }

    fn queue<const N: usize>(
        &mut self,
        ticket: Ticket,
        header: [u8; N],
        body: Body,
        body_len_bytes: usize,
    ) {
        let index = usize::from(ticket.slot);
        self.headers[index][..N].copy_from_slice(&header);
        let slot = &mut self.slots[index];
        slot.state = SlotState::Queued;
        slot.header_len_bytes = N;
        slot.body_len_bytes = body_len_bytes;
        slot.body = body;
        self.queue.push_back(ticket.slot);
    }

    /// Ends a request whose answer nobody will read.
    pub(crate) fn drop_unanswered(&mut self, ticket: Ticket) {
        self.free_slot(ticket.slot);
    }

    /// Notes that a lent buffer is no longer needed.
    pub(crate) fn release(&mut self, parts: Parts) {
        self.released.extend(parts.iter().map(|part| part.token));
    }

    pub(crate) fn take_released(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.released.drain(..)
    }

    /// The queued answers as pieces, from the first byte not sent.
    pub(crate) fn pieces(&self) -> OutputParts<'_> {
        OutputParts {
            replies: self,
            at: 0,
            part: 0,
            skip_bytes: self.front_sent_bytes,
        }
    }

    /// Takes `bytes` sent off the queue.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.front_sent_bytes += bytes;
        while let Some(&index) = self.queue.front() {
            let slot = &self.slots[usize::from(index)];
            let total_bytes = slot.header_len_bytes + slot.body_len_bytes;
            if self.front_sent_bytes < total_bytes {
                return;
            }
            self.front_sent_bytes -= total_bytes;
            self.queue.pop_front();
            self.free_slot(index);
        }
        assert_eq!(self.front_sent_bytes, 0, "no more is sent than was queued");
    }

    /// Throws away all queued answers.
    pub(crate) fn clear_queue(&mut self) {
        self.front_sent_bytes = 0;
        while let Some(index) = self.queue.pop_front() {
            self.free_slot(index);
        }
    }

    fn free_slot(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        slot.state = SlotState::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.held_bytes -= u64::from(slot.held_bytes);
        slot.held_bytes = 0;
        if let Body::Parts(parts) = std::mem::replace(&mut slot.body, Body::None) {
            self.released.extend(parts.iter().map(|part| part.token));
        }
        self.free.push(index);
    }
}

/// See [`Replies::pieces`].
#[derive(Debug)]
pub(crate) struct OutputParts<'a> {
    replies: &'a Replies,
    at: usize,
    part: usize,
    skip_bytes: usize,
}

impl<'a> OutputParts<'a> {
    /// The next piece, empty or not, without regard to what was sent.
    fn raw(&mut self) -> Option<OutputPart<'a>> {
        let index = usize::from(*self.replies.queue.get(self.at)?);
        let slot = &self.replies.slots[index];
        let part = self.part;
        self.part += 1;
        if part == 0 {
            return Some(OutputPart::Bytes(
                &self.replies.headers[index][..slot.header_len_bytes],
            ));
        }
        let piece = match &slot.body {
            Body::Message(message) if part == 1 => Some(OutputPart::Bytes(message.as_bytes())),
            Body::Owned(bytes) if part == 1 => Some(OutputPart::Bytes(bytes)),
            Body::Parts(parts) => parts.get(part - 1).map(|part| OutputPart::Buf {
                buf: part.buf,
                skip_bytes: 0,
            }),
            Body::None | Body::Message(_) | Body::Owned(_) => None,
        };
        if piece.is_none() {
            self.at += 1;
            self.part = 0;
        }
        Some(piece.unwrap_or(OutputPart::Bytes(&[])))
    }
}

impl<'a> Iterator for OutputParts<'a> {
    type Item = OutputPart<'a>;

    fn next(&mut self) -> Option<OutputPart<'a>> {
        loop {
            let piece = self.raw()?;
            let len_bytes = piece.len_bytes();
            if len_bytes > self.skip_bytes {
                let skip_bytes = std::mem::take(&mut self.skip_bytes);
                return Some(piece.without_front(skip_bytes));
            }
            self.skip_bytes -= len_bytes;
        }
    }
}
