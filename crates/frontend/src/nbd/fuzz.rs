//! Arbitrary bytes against a whole connection, for cargo-fuzz and for the tests.
//!
//! A fuzz target is one line: `fuzz_target!(|input: &[u8]| forebay_frontend::nbd::fuzz::fuzz(input));`

use std::collections::BTreeMap;

use forebay_engine::{Buf, Memory};

use super::connection::{Connection, Event, Phase, Reason, Settings};
use super::exports::{Export, ExportId, ExportName, ExportTable};
use super::limits::Limits;
use super::reply::{Lent, Parts};
use super::request::{Command, ErrorCode, Request};
use super::status::{BlockState, Extent};
use super::tls::TlsPolicy;
use super::wire::{self, option};

/// Memory whose every buffer is an allocation of its own, so that a leak or a use after free is
/// found.
#[derive(Debug, Default)]
pub struct HeapMemory {
    buffers: BTreeMap<u32, Vec<u8>>,
    next_sector: u32,
}

impl HeapMemory {
    /// The number of buffers allocated.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.buffers.len()
    }
}

impl Memory for HeapMemory {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let buf = Buf {
            start_sector: self.next_sector,
            len_bytes: u32::try_from(len_bytes).ok()?,
        };
        self.next_sector = self.next_sector.checked_add(1)?;
        self.buffers.insert(buf.start_sector, vec![0; len_bytes]);
        Some(buf)
    }

    fn free(&mut self, buf: Buf) {
        assert!(
            self.buffers.remove(&buf.start_sector).is_some(),
            "a buffer is freed once"
        );
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.buffers[&buf.start_sector]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.buffers
            .get_mut(&buf.start_sector)
            .expect("the buffer is allocated")
    }

    fn ring_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut []
    }
}

/// Transcript of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub struct Transcript {
    /// All bytes the server sent.
    pub output: Vec<u8>,
    /// The requests it handed out, in order, each with the payload's sum.
    pub requests: Vec<(Command, u64, u32, u64)>,
    /// Why it ended.
    pub reason: Option<Reason>,
}

/// Small limits, so that short inputs reach them.
#[must_use]
pub fn small_limits() -> Limits {
    Limits {
        max_request_bytes: 65_536,
        max_requests: 8,
        max_bytes_in_flight: 131_072,
        max_options: 64,
        max_option_bytes: 8192,
        max_extents: 16,
    }
}

/// Two exports: `disk` of 1 MiB, and `still`, which is read-only.
#[must_use]
pub fn exports() -> ExportTable {
    let name = |text: &str| ExportName::new(text).expect("a short name without NUL");
    let mut table = ExportTable::default();
    for (id, text, read_only) in [(1, "disk", false), (2, "still", true)] {
        let export = Export {
            id: ExportId(id),
            name: name(text),
            description: name("fuzzed"),
            size_bytes: 1 << 20,
            min_block_bytes: 512,
            read_only,
            rotational: read_only,
            fast_zero: !read_only,
        };
        table.add(export).expect("the export is well-formed");
    }
    table
}

/// The bytes of a client that opens `export`: with `structured` replies and all contexts, or
/// with neither.
#[must_use]
pub fn opening(export: &str, structured: bool) -> Vec<u8> {
    let flags = wire::CLIENT_FIXED_NEWSTYLE | wire::CLIENT_NO_ZEROES;
    let mut bytes = flags.to_be_bytes().to_vec();
    let mut push = |option: u32, data: &[u8]| {
        bytes.extend(wire::OPTION_MAGIC.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    };
    let string = |text: &str| {
        let mut data = (text.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(text.as_bytes());
        data
    };
    if structured {
        push(option::STRUCTURED_REPLY, &[]);
        let queries = [string("base:allocation"), string("forebay:state")].concat();
        let data = [string(export), 2_u32.to_be_bytes().to_vec(), queries].concat();
        push(option::SET_META_CONTEXT, &data);
    }
    push(option::GO, &[string(export), vec![0, 0]].concat());
    bytes
}

/// An end of a conversation: a loop with no socket.
struct Driver {
    connection: Connection,
    memory: HeapMemory,
    exports: ExportTable,
    limits: Limits,
    random: u64,
    /// Answers late and sends little at a time.
    lazy: bool,
    waiting: Vec<(Request, Parts)>,
    transcript: Transcript,
}

impl Driver {
    fn new(seed: u64, lazy: bool) -> Self {
        let limits = small_limits();
        Driver {
            connection: Connection::new(Settings {
                limits,
                tls: TlsPolicy::Off,
            }),
            memory: HeapMemory::default(),
            exports: exports(),
            limits,
            random: seed | 1,
            lazy,
            waiting: Vec::new(),
            transcript: Transcript {
                output: Vec::new(),
                requests: Vec::new(),
                reason: None,
            },
        }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % sides as u64) as usize
    }

    fn parts(&mut self, len_bytes: u32, fill: u8) -> Parts {
        let head_bytes = if len_bytes > 512 { 512 } else { len_bytes };
        let mut parts = Parts::new();
        for part_bytes in [head_bytes, len_bytes - head_bytes] {
            if part_bytes == 0 {
                continue;
            }
            let buf = self
                .memory
                .alloc(part_bytes as usize)
                .expect("the heap is large");
            self.memory.bytes_mut(buf).fill(fill);
            parts.push(Lent {
                buf,
                token: u64::from(buf.start_sector),
            });
        }
        parts
    }

    /// Gives the connection everything in `input`, answering as it goes.
    fn feed(&mut self, mut input: &[u8]) {
        loop {
            let step = self
                .connection
                .receive(&mut self.memory, &self.exports, input);
            input = &input[step.consumed_bytes..];
            let had_event = step.event.is_some();
            if let Some(event) = step.event {
                self.event(event);
            }
            if self.lazy {
                if self.roll(3) == 0 {
                    self.answer_one();
                }
            } else {
                while self.answer_one() {}
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
            Event::Opened(_) => {}
            Event::Request(request) => {
                self.note(&request, 0);
                self.waiting.push((request, Parts::new()));
            }
            Event::Payload {
                ticket, len_bytes, ..
            } => {
                if self.lazy && self.roll(5) == 0 {
                    self.connection.refuse_payload(ticket, ErrorCode::NoMemory);
                } else {
                    let parts = self.parts(len_bytes, 0);
                    self.connection.lend_payload(ticket, parts);
                }
            }
            Event::Write(request, parts) => {
                let all = parts.iter().flat_map(|part| self.memory.bytes(part.buf));
                let sum = all.fold(0_u64, |sum, &byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(byte))
                });
                self.note(&request, sum);
                self.waiting.push((request, parts));
            }
        }
    }

    fn note(&mut self, request: &Request, sum: u64) {
        let Request {
            command,
            offset_bytes,
            len_bytes,
            ..
        } = *request;
        assert!(
            offset_bytes + u64::from(len_bytes) <= 1 << 20,
            "requests are within the export"
        );
        self.transcript
            .requests
            .push((command, offset_bytes, len_bytes, sum));
    }

    fn answer_one(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let index = if self.lazy {
            self.roll(self.waiting.len())
        } else {
            0
        };
        let (request, parts) = self.waiting.remove(index);
        parts.iter().for_each(|part| self.memory.free(part.buf));
        let fails = self.lazy && self.roll(4) == 0;
        match request.command {
            _ if fails => self
                .connection
                .reply_done(request.ticket, Err(ErrorCode::Io)),
            Command::Read => {
                let parts = self.parts(request.len_bytes, request.offset_bytes as u8);
                self.connection.reply_read(request.ticket, parts);
            }
            Command::BlockStatus { .. } => {
                let state = BlockState {
                    cached: true,
                    ..BlockState::default()
                };
                let len_bytes = u64::from(request.len_bytes / 2);
                let extents = [
                    Extent { len_bytes, state },
                    Extent {
                        len_bytes,
                        state: BlockState {
                            dirty: true,
                            ..state
                        },
                    },
                ];
                self.connection.reply_status(request.ticket, &extents);
            }
            _ => self.connection.reply_done(request.ticket, Ok(())),
        }
        true
    }

    /// Sends some of the output, all of it if not lazy; returns whether there was any.
    fn send(&mut self) -> bool {
        let mut bytes = Vec::new();
        for piece in self.connection.output(&self.memory) {
            assert!(piece.len_bytes() > 0, "no piece is empty");
            bytes.extend_from_slice(piece.bytes(&self.memory));
        }
        if self.lazy && !bytes.is_empty() {
            let keep_bytes = 1 + self.roll(bytes.len());
            bytes.truncate(keep_bytes);
        }
        self.connection.sent(bytes.len());
        self.transcript.output.extend_from_slice(&bytes);
        self.free_released();
        !bytes.is_empty()
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
            self.memory.allocated() <= 2 * requests,
            "no more buffers than requests hold"
        );
        let held_bytes: usize = self.memory.buffers.values().map(Vec::len).sum();
        assert!(
            held_bytes as u64 <= self.limits.max_bytes_in_flight,
            "no more data than allowed"
        );
    }

    /// The client goes away: everything must come to rest.
    fn finish(mut self, abrupt: bool) -> Transcript {
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
        assert_eq!(self.memory.allocated(), 0, "all buffers are given back");
        self.transcript.reason = self.connection.reason().cloned();
        self.transcript
    }
}

/// Holds a conversation in which the server answers at once; the client's bytes arrive cut as
/// `split` says (given what is left, it returns how much comes next, from 1). The outcome must
/// not depend on it.
pub fn converse(input: &[u8], mut split: impl FnMut(usize) -> usize) -> Transcript {
    let mut driver = Driver::new(1, false);
    let mut rest = input;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(split(rest.len()).clamp(1, rest.len()));
        driver.feed(now);
        rest = later;
    }
    driver.finish(false)
}

/// Feeds arbitrary bytes to a connection. The first byte chooses how the client begins, the
/// second how bytes are cut and how slowly they are answered; the rest is what it says.
///
/// # Panics
/// If the connection breaks one of its promises.
pub fn fuzz(input: &[u8]) {
    let [how, seed, said @ ..] = input else {
        return;
    };
    let mut bytes = match how % 5 {
        0 => Vec::new(),
        1 => opening("disk", true),
        2 => opening("disk", false),
        3 => opening("still", true),
        _ => opening("", true),
    };
    bytes.extend_from_slice(said);

    let whole = converse(&bytes, |left_bytes| left_bytes);
    let step_bytes = usize::from(*seed % 37) + 1;
    let cut = converse(&bytes, |_| step_bytes);
    assert_eq!(whole, cut, "how bytes are cut does not change the outcome");

    let mut driver = Driver::new(u64::from(*seed) * 7919, true);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let now_bytes = 1 + driver.roll(rest.len());
        let (now, later) = rest.split_at(now_bytes);
        driver.feed(now);
        rest = later;
    }
    let abrupt = driver.roll(2) == 0;
    driver.finish(abrupt);
}
