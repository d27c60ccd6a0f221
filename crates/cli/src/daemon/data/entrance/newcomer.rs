//! A connection that has opened no export yet, driven by whoever finds its socket ready.

use std::io;
use std::time::Instant;

use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::{Connection, Event, ExportTable, OutputPart, Phase};
use forebay_io::Arena;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::daemon::data::listener::{From, Socket};

/// The most that is received at once: longer than any honest client's options.
const RECEIVE_BYTES: usize = 4096;

/// A connection before it opens an export.
pub(super) struct Newcomer {
    pub(super) listener: usize,
    pub(super) from: From,
    pub(super) since: Instant,
    pub(super) socket: Socket,
    pub(super) nbd: Connection,
    /// Received and not consumed.
    pub(super) unread: Vec<u8>,
    /// The volume it opened. It waits for a place with a worker then.
    pub(super) opened: Option<VolumeSlot>,
    /// The socket takes nothing at present.
    blocked: bool,
}

/// State of a newcomer after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    GoesOn,
    Ended,
}

impl Newcomer {
    pub(super) fn new(
        (listener, from): (usize, From),
        socket: Socket,
        nbd: Connection,
        since: Instant,
    ) -> Newcomer {
        Newcomer {
            listener,
            from,
            since,
            socket,
            nbd,
            unread: Vec::new(),
            opened: None,
            blocked: false,
        }
    }

    /// Events that it waits for. One that waits for a place is only watched for its end.
    pub(super) fn wants(&self) -> PollFlags {
        let mut wanted = PollFlags::empty();
        if self.opened.is_some() {
            return wanted;
        }
        let reads = self.unread.is_empty() && self.nbd.wants_input();
        wanted.set(PollFlags::IN, reads);
        wanted.set(PollFlags::OUT, self.blocked);
        wanted
    }

    /// Goes on as far as its socket lets it.
    pub(super) fn turn(
        &mut self,
        ready: PollFlags,
        exports: &ExportTable,
        memory: &mut Arena,
    ) -> Turn {
        let left = self.opened.is_some() && ready.contains(PollFlags::HUP);
        if left || ready.intersects(PollFlags::ERR | PollFlags::NVAL) {
            return Turn::Ended;
        }
        if self.opened.is_some() {
            // Its requests are for the worker that has a place.
            return Turn::GoesOn;
        }
        let may_read = ready.intersects(PollFlags::IN | PollFlags::HUP);
        if may_read && self.unread.is_empty() && self.receive().is_err() {
            return Turn::Ended;
        }
        loop {
            let consumed_bytes = self.take_options(exports, memory);
            if self.opened.is_some() {
                // The answer goes out with the worker that has a place.
                return Turn::GoesOn;
            }
            match self.send(memory) {
                Err(_) => return Turn::Ended,
                Ok(0) if consumed_bytes == 0 => break,
                Ok(_) => {}
            }
        }
        match self.nbd.phase() {
            Phase::Closed => Turn::Ended,
            _ => Turn::GoesOn,
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.unread.resize(RECEIVE_BYTES, 0);
        let received = recv(
            self.socket.as_fd(),
            self.unread.as_mut_slice(),
            RecvFlags::DONTWAIT,
        );
        let bytes = received.as_ref().map_or(0, |(bytes, _)| *bytes);
        self.unread.truncate(bytes);
        match received {
            Ok((0, _)) => self.nbd.end_of_stream(),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes what was received; returns how much of it.
    fn take_options(&mut self, exports: &ExportTable, memory: &mut Arena) -> usize {
        let step = self.nbd.receive(memory, exports, &self.unread);
        self.unread.drain(..step.consumed_bytes);
        if let Some(Event::Opened(export)) = step.event {
            // Numbers of volumes have 16 bits.
            self.opened = Some(VolumeSlot(export.0 as u16));
        }
        step.consumed_bytes
    }

    /// Sends what the socket takes; returns how much that was.
    fn send(&mut self, memory: &Arena) -> io::Result<usize> {
        let piece = self.nbd.output(memory).next();
        let Some(OutputPart::Bytes(bytes)) = piece else {
            self.blocked = false;
            return Ok(0);
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(self.socket.as_fd(), bytes, flags) {
            Ok(bytes) => {
                self.nbd.sent(bytes);
                Ok(bytes)
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.blocked = true;
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }
}
