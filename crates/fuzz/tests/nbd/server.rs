//! The server's end of a conversation, with buffers that are used again.

use forebay_engine::{Buf, Memory};
use forebay_frontend::nbd::fuzz::{Driver, Lender, Witness, exports, small_limits};
use forebay_frontend::nbd::{Command, ExportTable, Limits, Reason, Request, Settings, TlsPolicy};
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

impl Lender for Buffers {
    fn lent(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn lent_bytes(&self) -> u64 {
        self.lent_bytes as u64
    }

    /// Nobody looks at what is read.
    fn fill(&mut self, _: Buf, _: u8) {}
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

    fn journal_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut []
    }
}

pub(crate) struct Server {
    exports: ExportTable,
    limits: Limits,
    memory: Buffers,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server {
            exports: exports(),
            limits: small_limits(),
            memory: Buffers::default(),
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
        let limits = self.limits;
        let mut random = SplitMix64::new(u64::from(manner));
        let mut session = Driver::new(
            Settings { limits, tls },
            &mut self.memory,
            &self.exports,
            manner & 1 != 0,
            |sides| random.below(sides as u64) as usize,
            Served::default(),
        );
        let mut rest = said;
        while !rest.is_empty() {
            let now_bytes = match manner >> 1 & 3 {
                0 | 1 => rest.len(),
                2 => 1 + session.roll(64),
                _ => 1 + session.roll(rest.len()),
            };
            let (now, later) = rest.split_at(now_bytes.min(rest.len()));
            session.feed(now);
            rest = later;
        }
        let abrupt = manner & 1 != 0 && session.roll(2) == 0;
        session.finish(abrupt)
    }
}

impl Witness for Served {
    const KEEPS_OUTPUT: bool = false;

    fn opened(&mut self) {
        self.opened += 1;
    }

    fn asked<'a>(&mut self, _: &Request, _: impl Iterator<Item = &'a [u8]>) {}

    fn refused_payload(&mut self) {
        self.refused_payloads += 1;
    }

    fn carried_out(&mut self, command: Command) {
        *match command {
            Command::Read => &mut self.reads,
            Command::BlockStatus { .. } => &mut self.statuses,
            Command::Write { .. } => &mut self.writes,
            _ => &mut self.others,
        } += 1;
    }

    fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    fn keep(&mut self, _: &[u8]) {}
}
