//! The loop around a connection without sockets: it answers what is asked, and holds the connection
//! to its promises.

use forebay_engine::{Buf, Memory};
use forebay_frontend::nbd::fuzz::{exports, small_limits};
use forebay_frontend::nbd::{
    BlockState, Command, Connection, ErrorCode, Event, ExportTable, Extent, Lent, Limits, Parts,
    Phase, Reason, Request, Settings, TlsPolicy,
};
use forebay_fuzz::SplitMix64;

/// Requests that were carried out, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) opened: u64,
    reads: u64,
    writes: u64,
    statuses: u64,
    others: u64,
    refused_payloads: u64,
    sent_bytes: u64,
}

impl Served {
    pub(crate) fn carried_out(&self) -> u64 {
        self.reads + self.writes + self.statuses + self.others
    }

    pub(crate) fn add(&mut self, other: &Served) {
        self.opened += other.opened;
        self.reads += other.reads;
        self.writes += other.writes;
        self.statuses += other.statuses;
        self.others += other.others;
        self.refused_payloads += other.refused_payloads;
        self.sent_bytes += other.sent_bytes;
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("exports opened", self.opened),
            ("reads carried out", self.reads),
            ("writes carried out", self.writes),
            ("queries of block status", self.statuses),
            ("flushes, discards, zeroes, prefetches", self.others),
            ("payloads refused", self.refused_payloads),
            ("bytes sent", self.sent_bytes),
        ]
    }
}

/// Buffers that are used again; each has its own vector.
#[derive(Default)]
struct Buffers {
    slots: Vec<Vec<u8>>,
    lent: Vec<bool>,
    free: Vec<u32>,
    lent_bytes: usize,
}

impl Buffers {
    fn lent(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Memory for Buffers {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            self.lent.push(false);
            self.slots.len() as u32 - 1
        });
        self.lent[slot as usize] = true;
        self.slots[slot as usize].resize(len_bytes, 0);
        self.lent_bytes += len_bytes;
        Some(Buf {
            start_sector: slot,
            len_bytes: u32::try_from(len_bytes).ok()?,
        })
    }

    fn free(&mut self, buf: Buf) {
        let slot = buf.start_sector as usize;
        assert!(self.lent[slot], "a buffer is freed once");
        self.lent[slot] = false;
        self.lent_bytes -= self.slots[slot].len();
        self.free.push(buf.start_sector);
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.slots[buf.start_sector as usize]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.slots[buf.start_sector as usize]
    }

    fn ring_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut []
    }
}

pub(crate) struct Server {
    exports: ExportTable,
    limits: Limits,
    memory: Buffers,
    waiting: Vec<(Request, Parts)>,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server {
            exports: exports(),
            limits: small_limits(),
            memory: Buffers::default(),
            waiting: Vec::new(),
        }
    }

    /// Holds a conversation to its end. `manner` says how bytes are cut, and whether answers come
    /// late and are sent little by little.
    pub(crate) fn serve(
        &mut self,
        tls: TlsPolicy,
        manner: u8,
        said: &[u8],
    ) -> (Option<Reason>, Served) {
        // A conversation that panicked leaves buffers behind.
        if self.memory.lent() > 0 {
            self.memory = Buffers::default();
        }
        self.waiting.clear();
        let limits = self.limits;
        let mut session = Session {
            connection: Connection::new(Settings { limits, tls }),
            server: self,
            random: SplitMix64::new(u64::from(manner)),
            lazy: manner & 1 != 0,
            served: Served::default(),
        };
        let mut rest = said;
        while !rest.is_empty() {
            let now_bytes = match manner >> 1 & 3 {
                0 | 1 => rest.len(),
                2 => 1 + session.below(64),
                _ => 1 + session.below(rest.len()),
            };
            let (now, later) = rest.split_at(now_bytes.min(rest.len()));
            session.feed(now);
            rest = later;
        }
        session.finish()
    }
}

struct Session<'a> {
    connection: Connection,
    server: &'a mut Server,
    random: SplitMix64,
    lazy: bool,
    served: Served,
}

impl Session<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn parts(&mut self, len_bytes: u32) -> Parts {
        let head_bytes = len_bytes.min(512);
        let mut parts = Parts::new();
        for part_bytes in [head_bytes, len_bytes - head_bytes] {
            if part_bytes == 0 {
                continue;
            }
            let buf = self.server.memory.alloc(part_bytes as usize);
            let buf = buf.expect("there is memory for what the limits allow");
            let token = u64::from(buf.start_sector);
            parts.push(Lent { buf, token });
        }
        parts
    }

    fn feed(&mut self, mut input: &[u8]) {
        loop {
            let Server {
                memory, exports, ..
            } = &mut *self.server;
            let step = self.connection.receive(memory, exports, input);
            input = &input[step.consumed_bytes..];
            let had_event = step.event.is_some();
            if let Some(event) = step.event {
                self.event(event);
            }
            if !self.lazy {
                while self.answer_one() {}
            } else if self.below(3) == 0 {
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
            Event::Opened(_) => self.served.opened += 1,
            Event::Request(request) => self.take(request, Parts::new()),
            Event::Write(request, parts) => self.take(request, parts),
            Event::Payload {
                ticket, len_bytes, ..
            } => {
                if self.lazy && self.below(5) == 0 {
                    self.served.refused_payloads += 1;
                    self.connection.refuse_payload(ticket, ErrorCode::NoMemory);
                } else {
                    let parts = self.parts(len_bytes);
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
            end.is_some_and(|end| end <= 1 << 20),
            "requests are within the export"
        );
        self.server.waiting.push((request, parts));
    }

    fn answer_one(&mut self) -> bool {
        if self.server.waiting.is_empty() {
            return false;
        }
        let at = match self.lazy {
            true => self.below(self.server.waiting.len()),
            false => 0,
        };
        let (request, parts) = self.server.waiting.remove(at);
        for part in &parts {
            self.server.memory.free(part.buf);
        }
        let ticket = request.ticket;
        if self.lazy && self.below(4) == 0 {
            self.connection.reply_done(ticket, Err(ErrorCode::Io));
            return true;
        }
        match request.command {
            Command::Read => {
                self.served.reads += 1;
                let parts = self.parts(request.len_bytes);
                self.connection.reply_read(ticket, parts);
            }
            Command::BlockStatus { .. } => {
                self.served.statuses += 1;
                let len_bytes = u64::from(request.len_bytes / 2);
                let extents = [false, true].map(|dirty| Extent {
                    len_bytes,
                    state: BlockState {
                        cached: true,
                        dirty,
                        ..BlockState::default()
                    },
                });
                self.connection.reply_status(ticket, &extents);
            }
            Command::Write { .. } => {
                self.served.writes += 1;
                self.connection.reply_done(ticket, Ok(()));
            }
            _ => {
                self.served.others += 1;
                self.connection.reply_done(ticket, Ok(()));
            }
        }
        true
    }

    /// Sends all of the output, or a part; says whether there was any.
    fn send(&mut self) -> bool {
        let mut bytes = 0;
        for piece in self.connection.output(&self.server.memory) {
            assert!(piece.len_bytes() > 0, "no piece is empty");
            bytes += piece.bytes(&self.server.memory).len();
        }
        if self.lazy && bytes > 0 {
            bytes = 1 + self.below(bytes);
        }
        self.connection.sent(bytes);
        self.served.sent_bytes += bytes as u64;
        self.free_released();
        bytes > 0
    }

    fn free_released(&mut self) {
        for token in self.connection.take_released() {
            self.server.memory.free(Buf {
                start_sector: token as u32,
                len_bytes: 0,
            });
        }
    }

    fn check_bounds(&self) {
        let most = usize::from(self.server.limits.max_requests);
        let memory = &self.server.memory;
        assert!(
            self.connection.in_flight() <= most,
            "as many requests as allowed"
        );
        assert!(
            self.server.waiting.len() <= most,
            "as many requests as allowed"
        );
        assert!(
            memory.lent() <= 2 * most,
            "as many buffers as requests hold"
        );
        assert!(
            memory.lent_bytes as u64 <= self.server.limits.max_bytes_in_flight,
            "as much data as allowed"
        );
    }

    /// The client goes away: everything must come to rest.
    fn finish(mut self) -> (Option<Reason>, Served) {
        self.connection.end_of_stream();
        if self.lazy && self.below(2) == 0 {
            self.connection.abandon();
            self.free_released();
        }
        while self.answer_one() || self.send() {}
        self.free_released();
        let phase = self.connection.phase();
        assert_eq!(phase, Phase::Closed, "an ended connection comes to rest");
        assert_eq!(self.connection.in_flight(), 0, "all requests are answered");
        self.connection.abandon();
        self.free_released();
        assert_eq!(self.server.memory.lent(), 0, "all buffers are given back");
        (self.connection.reason().cloned(), self.served)
    }
}
