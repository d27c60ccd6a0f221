//! An NBD client of this thread: its socket on one side, its protocol machine on the other.

use forebay_cache::Unheard;
use forebay_engine::{Buf, Memory, Nanos, RequestKind, VolumeSlot};
use forebay_frontend::nbd::{
    Command, Connection, ErrorCode, Event, OutputPart, Parts, Phase, Request, Ticket,
};
use forebay_io::{SendPart, Token};

use super::admitted::Admitted;
use super::held_back::HeldBack;
use super::listener::Socket;
use super::seats::Seat;
use super::worker::{RECEIVED, SENT, Worker};
use crate::daemon::seldom;
use crate::network::hang_up::has_hung_up;

/// The most that is received at once beside payloads.
pub(in crate::daemon) const INLET_BYTES: usize = 128 << 10;
/// Payloads of which at least this much is missing are received where they belong.
const DIRECT_BYTES: usize = 16 << 10;
/// The longest time a client may leave its answers unread, or a payload unsent, while others wait
/// for the memory that holds them; and any message unfinished while others wait for its place.
const TIMEOUT: Nanos = Nanos(10 * Nanos::SECOND.0);

/// A client's next request, which waits for memory.
#[derive(Debug)]
enum Blocked {
    Read(Request),
    Payload {
        ticket: Ticket,
        offset_bytes: u64,
        len_bytes: u32,
    },
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    id: u32,
    pub(in crate::daemon) nbd: Connection,
    socket: Socket,
    pub(in crate::daemon) volume: VolumeSlot,
    inlet: Buf,
    /// Bytes of the inlet that are received and not consumed.
    unread: std::ops::Range<usize>,
    receiving: bool,
    /// When something was received last, or memory was lent for a payload.
    received_at: Nanos,
    /// Bytes of the receive under way that go to a payload.
    direct_bytes: usize,
    sending: bool,
    sending_since: Nanos,
    blocked: Option<Blocked>,
    /// Failures of flushes that an answer to it tells of, until all answers are sent (I10).
    unheard: Option<Unheard>,
    /// Its volume's rate is used up, or its change waits for a thaw: nothing is read from it.
    held_back: bool,
    /// Kept until nothing of the client is left.
    seat: Seat,
    /// The socket is shut down; nothing more is sent or received.
    gone: bool,
    queued: bool,
}

impl Client {
    /// Has the worker look after this client before it waits again.
    pub(in crate::daemon) fn queue(&mut self, busy: &mut Vec<u32>) {
        if !self.queued {
            self.queued = true;
            busy.push(self.id);
        }
    }

    /// Whether memory is lent to it for a payload that is still to come. Of one that is gone it
    /// comes back when it is removed.
    fn owes_payload(&mut self) -> bool {
        self.nbd.payload_space().next().is_some()
    }

    /// Whether it holds memory that comes back as it goes on, or when it is ended for others' sake.
    pub(super) fn holds_memory(&mut self) -> bool {
        self.sending || self.owes_payload()
    }

    /// Ends the connection; requests in flight are finished first, but not answered.
    fn cut(&mut self) {
        if !self.gone {
            self.gone = true;
            self.socket.shut_down();
        }
    }
}

impl Worker {
    /// Takes a client over from the entrance, in the middle of its conversation.
    pub(super) fn add_client(&mut self, admitted: Admitted) {
        let Admitted {
            socket,
            nbd,
            unread,
            volume,
            seat,
        } = admitted;
        let Some(inlet) = self.inlet.alloc(INLET_BYTES) else {
            seldom::TURNED_AWAY.warn(format_args!(
                "a client was turned away: there is no memory to receive into"
            ));
            return;
        };
        self.inlet.bytes_mut(inlet)[..unread.len()].copy_from_slice(&unread);
        let client = Client {
            id: 0,
            nbd,
            socket,
            volume,
            inlet,
            unread: 0..unread.len(),
            receiving: false,
            received_at: self.now,
            direct_bytes: 0,
            sending: false,
            sending_since: self.now,
            blocked: None,
            unheard: None,
            held_back: false,
            seat,
            gone: false,
            queued: false,
        };
        let id = self.clients.insert(Box::new(client));
        if let Some(client) = self.clients.get_mut(id) {
            client.id = id;
            client.queue(&mut self.busy);
        }
    }

    /// Looks after every client that has something to do.
    pub(super) fn serve_clients(&mut self) {
        let mut busy = std::mem::take(&mut self.busy);
        for id in busy.drain(..) {
            if let Some(client) = self.clients.get_mut(id) {
                client.queued = false;
                self.serve_client(id);
            }
        }
        // Clients that were queued meanwhile have their turn after the shards.
        busy.append(&mut self.busy);
        self.busy = busy;
    }

    fn serve_client(&mut self, id: u32) {
        self.take_requests(id);
        self.send(id);
        self.release(id);
        self.receive(id);
        self.remove_ended(id);
    }

    /// Turns received bytes into requests until more bytes, memory or answers are needed.
    fn take_requests(&mut self, id: u32) {
        loop {
            if !self.unblock(id) {
                return;
            }
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            if client.receiving || client.gone || client.held_back {
                return;
            }
            let volume = client.volume;
            if self.hold_back(volume, HeldBack::Client(id)) {
                self.read_no_further(id);
                return;
            }
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            let input = &self.inlet.bytes(client.inlet)[client.unread.clone()];
            let step = client.nbd.receive(&mut self.arena, &self.no_exports, input);
            client.unread.start += step.consumed_bytes;
            let volume = client.volume;
            match step.event {
                None => return,
                Some(Event::Opened(_)) => unreachable!("a client opened its export before"),
                Some(Event::Write(request, parts)) => self.submit_nbd(id, volume, request, parts),
                Some(Event::Payload {
                    ticket,
                    offset_bytes,
                    len_bytes,
                }) => {
                    client.blocked = Some(Blocked::Payload {
                        ticket,
                        offset_bytes,
                        len_bytes,
                    });
                }
                Some(Event::Request(request)) if request.command == Command::Read => {
                    client.blocked = Some(Blocked::Read(request));
                }
                Some(Event::Request(request)) => self.submit_nbd(id, volume, request, Parts::new()),
            }
        }
    }

    /// Finds memory for the request that waits for it; says whether none waits any more.
    fn unblock(&mut self, id: u32) -> bool {
        let Some(client) = self.clients.get_mut(id) else {
            return false;
        };
        if client.held_back {
            return false;
        }
        let volume = client.volume;
        let (kind, offset_bytes, len_bytes) = match &client.blocked {
            None => return true,
            Some(Blocked::Read(request)) => {
                (RequestKind::Read, request.offset_bytes, request.len_bytes)
            }
            Some(Blocked::Payload {
                offset_bytes,
                len_bytes,
                ..
            }) => (RequestKind::Write { fua: false }, *offset_bytes, *len_bytes),
        };
        if self.hold_change(HeldBack::Client(id), volume, (kind, len_bytes)) {
            self.read_no_further(id);
            return false;
        }
        let parts = self.alloc_parts(volume, offset_bytes, len_bytes);
        if parts.is_none() && self.memory_will_return() {
            self.starving.push(id);
            return false;
        }
        let Some(client) = self.clients.get_mut(id) else {
            return false;
        };
        match (client.blocked.take(), parts) {
            (Some(Blocked::Read(request)), Some(parts)) => {
                self.submit_nbd(id, volume, request, parts)
            }
            (Some(Blocked::Read(request)), None) => {
                client
                    .nbd
                    .reply_done(request.ticket, Err(ErrorCode::NoMemory));
            }
            (Some(Blocked::Payload { ticket, .. }), Some(parts)) => {
                client.nbd.lend_payload(ticket, parts);
                client.received_at = self.now;
            }
            (Some(Blocked::Payload { ticket, .. }), None) => {
                client.nbd.refuse_payload(ticket, ErrorCode::NoMemory);
            }
            (None, _) => {}
        }
        true
    }

    fn read_no_further(&mut self, id: u32) {
        if let Some(client) = self.clients.get_mut(id) {
            client.held_back = true;
        }
    }

    /// Has a client go on that was held back.
    pub(super) fn read_on(&mut self, id: u32) {
        if let Some(client) = self.clients.get_mut(id) {
            client.held_back = false;
            client.queue(&mut self.busy);
        }
    }

    fn send(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.sending || client.gone {
            return;
        }
        let mut output = client.nbd.output(&self.arena).peekable();
        if output.peek().is_none() {
            drop(output);
            if let Some(unheard) = client.unheard.take() {
                self.host.heard(unheard);
            }
            if client.nbd.phase() == Phase::Closed {
                client.cut();
            }
            return;
        }
        let pieces = output.map(|piece| match piece {
            OutputPart::Bytes(bytes) => SendPart::Bytes(bytes),
            OutputPart::Buf { buf, skip_bytes } => SendPart::Buf { buf, skip_bytes },
        });
        self.ring.send_parts(
            client.socket.as_fd(),
            pieces,
            Token::new(SENT, u64::from(id)),
        );
        client.sending = true;
        client.sending_since = self.now;
    }

    /// Frees the buffers that the connection no longer needs.
    fn release(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let mut released = std::mem::take(&mut self.released);
        released.extend(client.nbd.take_released());
        for token in released.drain(..) {
            self.free_token(token);
        }
        self.released = released;
    }

    fn receive(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let waits = client.blocked.is_some() || client.held_back;
        let may = !client.receiving && !client.gone && !waits;
        if !may || !client.nbd.wants_input() {
            return;
        }
        if client.unread.is_empty() {
            client.unread = 0..0;
        } else if client.unread.start > 0 {
            let bytes = self.inlet.bytes_mut(client.inlet);
            bytes.copy_within(client.unread.clone(), 0);
            client.unread = 0..client.unread.len();
        }
        let token = Token::new(RECEIVED, u64::from(id));
        client.direct_bytes = client
            .nbd
            .payload_space()
            .map(|space| (space.buf.len_bytes - space.skip_bytes) as usize)
            .sum();
        client.receiving = true;
        if client.direct_bytes < DIRECT_BYTES || !client.unread.is_empty() {
            client.direct_bytes = 0;
            if client.unread.is_empty() {
                self.ring.recv(client.socket.as_fd(), client.inlet, token);
            } else {
                let skip_bytes = client.unread.end as u32;
                self.ring
                    .recv_parts(client.socket.as_fd(), &[(client.inlet, skip_bytes)], token);
            }
            return;
        }
        let mut places: smallvec::SmallVec<[(Buf, u32); 8]> = client
            .nbd
            .payload_space()
            .map(|space| (space.buf, space.skip_bytes))
            .collect();
        places.push((client.inlet, 0));
        self.ring.recv_parts(client.socket.as_fd(), &places, token);
    }

    pub(super) fn received(&mut self, id: u32, result: i32) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.receiving = false;
        match usize::try_from(result) {
            Ok(0) => client.nbd.end_of_stream(),
            Ok(bytes) => {
                client.received_at = self.now;
                let direct_bytes = bytes.min(client.direct_bytes);
                if direct_bytes > 0 && !client.gone {
                    client.nbd.payload_received(direct_bytes as u32);
                }
                client.unread.end += bytes - direct_bytes;
            }
            Err(_) => {
                client.nbd.end_of_stream();
                client.cut();
            }
        }
        client.queue(&mut self.busy);
    }

    pub(in crate::daemon) fn sent(&mut self, id: u32, result: i32) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.sending = false;
        match usize::try_from(result) {
            Ok(bytes) => client.nbd.sent(bytes),
            Err(_) => client.cut(),
        }
        client.queue(&mut self.busy);
    }

    /// An answer is about to be sent that tells of these failures, and of all before. If the client is
    /// gone nobody has heard of them.
    pub(super) fn will_hear(&mut self, id: u32, unheard: Unheard) {
        if let Some(client) = self.clients.get_mut(id) {
            client.unheard = Some(unheard);
        }
    }

    /// Forgets a client whose socket is shut down once nothing refers to it any more.
    fn remove_ended(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if !client.gone || client.receiving || client.sending {
            return;
        }
        if let Some(Blocked::Read(request)) = &client.blocked {
            let ticket = request.ticket;
            client.nbd.reply_done(ticket, Err(ErrorCode::Shutdown));
        }
        client.blocked = None;
        client.nbd.abandon();
        self.release(id);
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.nbd.in_flight() > 0 {
            return;
        }
        match client.nbd.reason() {
            Some(reason) if !reason.is_clean() => {
                seldom::ENDED.warn(format_args!("a connection ended: {reason}"))
            }
            Some(reason) => tracing::debug!("a connection ended: {reason}"),
            None => tracing::debug!("a connection was closed"),
        }
        if let Some(client) = self.clients.remove(id) {
            self.inlet.free(client.inlet);
        }
    }

    /// Closes the connections of clients that hold up others.
    pub(super) fn end_slow_clients(&mut self) {
        let (now, starving) = (self.now, self.is_short_of_memory());
        for client in self.clients.iter_mut() {
            if starving && client.sending && now.since(client.sending_since) > TIMEOUT {
                seldom::HELD_UP.warn(format_args!(
                    "a client does not read its answers while others wait for memory; its connection is closed"
                ));
                client.cut();
                client.queue(&mut self.busy);
            }
            let stalls = now.since(client.received_at) > TIMEOUT && client.owes_payload();
            if starving && stalls && !client.gone {
                seldom::HELD_UP.warn(format_args!(
                    "a client does not send the data of its write while others wait for memory; its connection is closed"
                ));
                client.cut();
                client.queue(&mut self.busy);
            }
            // Nothing is read from it, so that the end of its connection is not seen by that.
            if client.held_back && !client.gone && has_hung_up(client.socket.as_fd()) {
                client.cut();
                client.queue(&mut self.busy);
            }
            // A client that waits for its next request may stay; these wait for nothing.
            let halts = client.nbd.is_mid_message() && client.blocked.is_none();
            let halted = halts && now.since(client.received_at) > TIMEOUT;
            if halted && client.seat.is_wanted() && !client.gone {
                seldom::HELD_UP.warn(format_args!(
                    "a client stopped in the middle of a message while others wait for its place; its connection is closed"
                ));
                client.cut();
                client.queue(&mut self.busy);
            }
        }
    }

    pub(super) fn close_clients_of(&mut self, volume: VolumeSlot) {
        for client in self
            .clients
            .iter_mut()
            .filter(|client| client.volume == volume)
        {
            client.cut();
            client.queue(&mut self.busy);
        }
    }

    /// Has clients' new requests refused; requests in flight are finished.
    pub(in crate::daemon) fn refuse_requests(&mut self) {
        for client in self.clients.iter_mut() {
            client.nbd.shut_down();
            client.queue(&mut self.busy);
        }
    }

    /// Closes every connection that has nothing in flight, or all; says how many are left.
    pub(in crate::daemon) fn close_clients(&mut self, all: bool) -> usize {
        for client in self.clients.iter_mut() {
            if all || (client.nbd.in_flight() == 0 && !client.sending) {
                client.cut();
            }
            client.queue(&mut self.busy);
        }
        self.clients.len()
    }

    pub(in crate::daemon) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// At the end of the loop: nothing is answered any more.
    pub(super) fn abandon_clients(&mut self) {
        for client in self.clients.iter_mut() {
            client.cut();
        }
    }
}
